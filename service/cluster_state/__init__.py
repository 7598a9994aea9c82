"""Conversion of database rows and cluster state into the inputs of policies."""
