"""Build the topology tree of a cluster from labels and Slurm files. Pure."""
