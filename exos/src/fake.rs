//! A host stand-in for the platform (skeleton).
