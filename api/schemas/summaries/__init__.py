"""Wire models of summaries of many objects."""
