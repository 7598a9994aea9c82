"""The command line. Each verb imports what it needs when it runs: starting up imports neither torch nor ray."""
