//! The words that the processes share: identifiers, paths, and the helper's closed request table.
