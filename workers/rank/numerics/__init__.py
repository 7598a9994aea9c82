"""Checks of the numbers of a step: spikes of the loss, values that are not finite."""
