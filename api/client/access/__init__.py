"""Methods of the clients for identities, secrets and the audit log."""
