"""Linux facts and process control. This folder imports no other folder of regroup."""
