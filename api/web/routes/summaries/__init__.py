"""Routes that summarize many objects in one answer."""
