//! The broker's conversations with the node-agent: one thread serves all connections, and workers
//! carry out the operations that the connections asked for.
mod connection;
pub(crate) mod event_loop;
pub(crate) mod listen;
pub(crate) mod listener;
pub(crate) mod operation_table;
pub(crate) mod worker;

use crate::operation::OperationContext;
use operation_table::OperationTable;

#[derive(Debug)]
pub(crate) struct BrokerState {
    /// The kernel interfaces and state that operations work with.
    pub(crate) context: OperationContext,
    pub(crate) table: OperationTable,
    /// The digest of what is in force.
    pub(crate) digest: String,
    /// The settings that permit more than the policy does without them.
    pub(crate) wider: Vec<String>,
    pub(crate) sandbox: bool,
    /// The kernel's Landlock ABI, by which the other processes are confined unless it is 0.
    pub(crate) landlock: u8,
}
