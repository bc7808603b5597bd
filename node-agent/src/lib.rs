//! The unprivileged CSI Node service.
