"""The control plane: nouns, pure decisions, the store, and what acts."""
