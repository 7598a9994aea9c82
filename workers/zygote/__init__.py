"""The fork server and the processes forked from it."""
