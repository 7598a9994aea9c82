"""Routes of the story of a job and of its incidents."""
