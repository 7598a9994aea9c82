"""Layouts of a job: the plans that the planner stored, and the sizes that the job can have."""
