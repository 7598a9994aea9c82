"""Identities, members, tokens and the audit log."""
