"""`regroup demo`: train, kill a rank, compare with a run without faults."""
