"""The overview of the server: devices, jobs, problems and recent incidents in one answer."""
