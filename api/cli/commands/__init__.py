"""One file for each group of verbs of the command line."""
