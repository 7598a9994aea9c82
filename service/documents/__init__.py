"""Strict readers of YAML and JSON: they refuse what a person cannot have meant, and give its line and column."""
