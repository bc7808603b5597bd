//! Tests of the real processes together.
