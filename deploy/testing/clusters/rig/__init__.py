"""A Kubernetes cluster of two nodes on one machine, with EC2 simulated."""
