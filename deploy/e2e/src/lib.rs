//! Tests of the real processes together, and of the repository's own rules: see `tests/`.
