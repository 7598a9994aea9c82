"""What regroup is measured against: a bare torch loop, and a careful user's Ray Train script."""
