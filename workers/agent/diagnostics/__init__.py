"""Evidence of an incident, captured before ranks are killed."""
