"""The use cases of one server, built from its settings and its adapters."""
