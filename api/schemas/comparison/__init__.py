"""Models that show several jobs side by side."""
