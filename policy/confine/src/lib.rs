//! The irreversible step: no_new_privs, rlimits, capabilities, Landlock, seccomp.
