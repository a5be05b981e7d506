//! Tasks (skeleton).
