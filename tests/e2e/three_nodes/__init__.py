"""Jobs on a cluster with a node more than they take."""
