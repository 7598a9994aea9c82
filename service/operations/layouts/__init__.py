"""Layouts of a job: what the planner stored about them, and the sizes that the job can have."""
