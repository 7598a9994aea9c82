"""The job's Python on this node: code, interpreter, packages, variables."""
