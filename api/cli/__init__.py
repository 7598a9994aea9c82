"""The command line. It imports neither torch nor ray."""
