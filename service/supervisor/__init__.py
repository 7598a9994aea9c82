"""The supervisor, which runs one job: generations, failure detection, recovery and planned moves."""
