"""Proof of the CUDA path on one GPU: stages of some minutes each, which store raw results."""
