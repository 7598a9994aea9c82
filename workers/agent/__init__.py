"""Holds processes: the node agent, its zygote, proof of death. No torch in this folder's agent side."""
