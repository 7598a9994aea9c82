"""Jobs on a cluster with one node more than they need."""
