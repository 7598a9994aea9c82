"""Submission of jobs, the layouts that the planner chooses for them, and their ids."""
