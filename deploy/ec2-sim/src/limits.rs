//! EC2's limits: how often an account may call, and how many resources it may have.

pub(crate) mod buckets;
pub(crate) mod quotas;
