"""The record that a supervisor keeps of its job: configuration, generations, incidents and events."""
