"""One call of a tool: its definition, its caller, the confirmation of a change, bounds and errors."""
