"""What runs on a node: the processes of a job, their supervision, facts on the node."""
