//! What a broker, a supervisor, a runner or a tool that was taken over can still do.
