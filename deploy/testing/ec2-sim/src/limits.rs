//! EC2's limits: how often an account may call, and how many resources it may have.

mod buckets;
mod quotas;

pub(crate) use buckets::{Buckets, Limits, TokenRate};
pub(crate) use quotas::Quotas;
