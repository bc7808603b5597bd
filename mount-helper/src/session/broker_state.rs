//! The state that the broker's threads share.
use crate::operation::context::OperationContext;
use crate::session::operation_table::OperationTable;

/// The state that the threads share.
#[derive(Debug)]
pub(crate) struct BrokerState {
    /// The kernel interfaces and state that operations work with.
    pub(crate) context: OperationContext,
    /// The operations that run or wait.
    pub(crate) table: OperationTable,
    /// The only uid that may send requests.
    pub(crate) peer_uid: u32,
    /// Digest of the policy that is enforced.
    pub(crate) digest: &'static str,
    /// Whether simulated devices are recognised.
    pub(crate) sandbox: bool,
    /// The kernel's Landlock ABI, by which the other processes are confined unless it is 0.
    pub(crate) landlock: u8,
}
