"""Sources that become a job spec: files, torchrun flags, Ray Train programs."""
