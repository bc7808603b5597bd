//! CSI messages, capabilities, sizes, and the one table from Failure to gRPC status.
