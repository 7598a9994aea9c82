"""A real supervisor and a real controller, with simulated agents and supervisors that speak the real protocols."""
