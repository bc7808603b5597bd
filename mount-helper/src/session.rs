//! The broker's conversations with the node-agent: one thread serves all connections, and workers
//! carry out the operations that the connections asked for.
pub(crate) mod broker_state;
mod connection;
pub(crate) mod event_loop;
mod key_proof;
pub(crate) mod listen;
pub(crate) mod listener;
pub(crate) mod operation_table;
pub(crate) mod worker;
