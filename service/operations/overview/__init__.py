"""What the server does now, in one answer."""
