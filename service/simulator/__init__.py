"""Run the scheduling policies over a trace of jobs. Pure."""
