"""Routes of identities, tokens, sessions of browsers, and the audit log."""
