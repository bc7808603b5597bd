//! More requests, connections and slow tools than there are workers.
