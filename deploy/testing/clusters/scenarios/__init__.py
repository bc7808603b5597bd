"""What `run` can play. Each scenario takes the rig and raises where a fact is not as it must be."""
