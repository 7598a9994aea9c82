"""Use cases about capacity: where jobs move, when they start, and what other capacity would change."""
