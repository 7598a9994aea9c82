"""Turn probe output into measured hardware and anomalies. Pure."""
