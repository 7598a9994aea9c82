"""`regroup demo`: train, kill a rank, compare with an undisturbed run."""
