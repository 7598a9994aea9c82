"""The story of a job: its course over time, and what each incident did and cost."""
