//! Files (skeleton).
