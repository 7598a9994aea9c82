"""Who calls and what they may do: authentication, permissions, identities and the audit."""
