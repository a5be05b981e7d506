//! Memory (skeleton).
