"""The place in a browser where pages of this server store the proof of its session."""

PROOF_KEY = "regroup-session-proof"
"""Key in `localStorage`, which each origin has for itself, port included."""
