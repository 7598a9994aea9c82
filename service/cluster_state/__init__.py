"""Turn database rows and cluster facts into the values that policies take."""
