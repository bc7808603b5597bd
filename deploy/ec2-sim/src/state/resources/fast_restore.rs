//! Fast snapshot restore of one snapshot in one zone, in force at once.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FastRestore {
    pub snapshot: String,
    pub zone: String,
}
