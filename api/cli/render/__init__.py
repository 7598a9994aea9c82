"""Reports that commands print or draw."""
