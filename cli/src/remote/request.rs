//! What a command asks the tool of a machine for, and how an answer ends: contents of frames on the tool's socket, as
//! JSON.
//!
//! Members that are not known are passed over, so that another version of the tool can say more; a request that is not
//! known is refused. Nothing is believed: the server looks at each number and name again.

use aegis_abi::call::TICKET_AMOUNT_MAX;
use aegis_link::control::printable;
use serde::{Deserialize, Serialize};

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// A report of the machine's pods.
    Pods,
    /// The same with the pods' processes.
    Processes,
    /// Another amount for the ticket of a pod or currency.
    Tickets { holder: String, amount: u64 },
    /// Other bounds for a pod's memory, in bytes for its programs.
    Memory { pod: String, guaranteed: u64, limit: u64 },
    /// A program in a pod.
    Exec(Exec),
    /// The end of these pods, or of all.
    Stop { grace_ms: u64, pods: Vec<String> },
    /// A signal to a pod's program.
    Signal { pod: String, number: u8 },
    /// The statuses of these pods, or of all, once they are over.
    Wait { pods: Vec<String> },
    /// What happened to pods, and what goes on to happen.
    Events { follows: bool },
    /// How a pod was started, or all.
    Inspect { pod: Option<String> },
    /// What a pod wrote, or what all did: the last so many lines of what is kept, or all.
    Logs { follows: bool, pod: Option<String>, last: Option<u64> },
}

/// A program in a pod: what is not said is the pod's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Exec {
    /// The pod.
    pub(crate) pod: String,
    /// Standard input is the caller's.
    pub(crate) input: bool,
    /// Lines and characters of a terminal, if it has one.
    pub(crate) terminal: Option<(u16, u16)>,
    /// User and group, in numbers.
    pub(crate) user: Option<(u32, u32)>,
    /// The same as its user wrote it, which counts where the pod's accounts are known.
    pub(crate) user_text: Option<String>,
    /// Further groups of this user; without one the pod's stay.
    pub(crate) groups: Vec<u32>,
    /// Where it starts.
    pub(crate) directory: Option<Bytes>,
    /// Variables of the environment, `NAME=VALUE`.
    pub(crate) variables: Vec<Bytes>,
    /// The program and its arguments.
    pub(crate) words: Vec<Bytes>,
}

/// Bytes that need not be text; in JSON a character each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> Self {
        bytes.0.into_iter().map(char::from).collect()
    }
}

impl TryFrom<String> for Bytes {
    type Error = std::char::TryFromCharError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.chars().map(u8::try_from).collect::<Result<_, _>>().map(Self)
    }
}

/// How an answer ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// The exit status.
    pub(crate) status: u8,
    /// A line for the user; may be empty.
    pub(crate) text: String,
}

impl End {
    /// Reads it.
    pub(crate) fn read(contents: &[u8]) -> Option<Self> {
        let end: Self = serde_json::from_slice(contents).ok()?;
        Some(Self { text: printable(end.text.as_bytes()), ..end })
    }
}

/// What is said of an amount of tickets that cannot be.
pub(crate) fn no_amount(amount: &str) -> String {
    format!("{amount}: a number of tickets from 1 to {TICKET_AMOUNT_MAX} is wanted")
}

#[cfg(test)]
mod tests {
    use super::super::report::json;
    use super::{Bytes, End, Exec, Request};

    #[test]
    fn what_is_asked_is_read() {
        let bytes = Bytes((0..=255).collect());
        let exec = Exec { pod: "a".into(), user: Some((1, 2)), words: vec![bytes], ..Exec::default() };
        for request in [Request::Pods, Request::Exec(exec), Request::Stop { grace_ms: 3, pods: Vec::new() }] {
            assert_eq!(serde_json::from_str::<Request>(&json(&request)).expect("its own"), request);
        }
        assert!(serde_json::from_str::<Request>("\"else\"").is_err());
        assert!(serde_json::from_str::<Bytes>("\"\u{100}\"").is_err());
    }

    #[test]
    fn the_end_cannot_move_the_cursor() {
        let end = End { status: 3, text: "a\x1b".into() };
        assert_eq!(End::read(json(&end).as_bytes()), Some(End { status: 3, text: "a\u{fffd}".into() }));
        assert_eq!(End::read(b""), None);
    }
}
