"""Commands for identities, tokens, sign-in and the audit log."""
