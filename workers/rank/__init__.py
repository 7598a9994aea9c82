"""One training process: its life, and what training code sees of the platform."""
