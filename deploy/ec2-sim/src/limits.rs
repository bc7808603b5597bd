//! What EC2 limits: how often an account may call, and how much it may have.

pub(crate) mod buckets;
pub(crate) mod quotas;
