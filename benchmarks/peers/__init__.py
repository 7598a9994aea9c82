"""Programs that regroup is compared with: torch loops, and scripts for Ray Train, torchrun and torchft."""
