//! EC2, STS and instance metadata, simulated on loopback.
