"""Access to the API: authentication, permissions, identities, tokens and audit records."""
