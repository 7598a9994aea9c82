"""The training nodes: processes, ranks, state. Imports neither `service` nor `api`."""
