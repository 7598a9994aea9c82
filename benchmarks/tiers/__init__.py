"""Rates of the storage tiers of training state, and the limits of the machine that they are held against."""
