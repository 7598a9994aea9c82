"""Routes that read what jobs did, for one job or for several."""
