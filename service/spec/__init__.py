"""The job spec, one file for each section. Pure."""
