//! How a session stands: one word of it, which the service writes.

/// How a session stands, as the service says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No service has taken it, or one of another generation.
    Down,
    /// It is served.
    Up,
    /// The service has ended it for an offence of the client's.
    Ended,
}

impl State {
    pub(crate) fn to_word(self, generation: u32) -> u64 {
        (self as u64) << 32 | u64::from(generation)
    }

    pub(crate) fn from_word(word: u64, generation: u32) -> Self {
        match word >> 32 {
            1 if word as u32 == generation => Self::Up,
            2 if word as u32 == generation => Self::Ended,
            _ => Self::Down,
        }
    }
}
