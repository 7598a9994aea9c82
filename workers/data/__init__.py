"""Training data: sources, tokens, records, sample order."""
