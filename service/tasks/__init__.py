"""Long-lived tasks of the server: supervision, and the record of scheduling passes."""
