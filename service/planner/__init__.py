"""Pure: which layout suits a model on a cluster, and what a step will take there. Knows no clock, log, Ray or SQL."""
