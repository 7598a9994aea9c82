"""The ranks of one generation on this node, their logs and their activity."""
