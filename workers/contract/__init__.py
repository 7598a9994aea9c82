"""Messages between rank, agent and supervisor. Imports neither torch nor ray."""
