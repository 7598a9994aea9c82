"""Linux facts and process control. Imports nothing of regroup outside this folder."""
