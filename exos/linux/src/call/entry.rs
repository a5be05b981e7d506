//! What the table of system calls is made of. Each family lists its calls as rows of [`entries`];
//! [`crate::entry::table`], above all families, lists these.

use syscalls::Sysno;

use crate::abi::shape::Shape;
use crate::call::context::Handler;

/// How much of a call is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As on Linux.
    Full,
    /// As on Linux but for this.
    Partial(&'static str),
}

/// One call.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Linux's number of the call.
    pub number: Sysno,
    /// How much of it is there.
    pub state: State,
    /// The function that answers it.
    pub handler: Handler,
    /// How the trace shows it.
    pub shape: Shape,
}

/// A family's part of the table, a row a call: `name(arguments) -> answer = handler: "what is missing";`.
///
/// The arguments are [`crate::abi::shape::Format`]s; a call without them shows its six registers. A handler that has
/// the call's name is not written down. What is missing makes the call partial.
macro_rules! entries {
    ($($name:ident $(($($shape:tt)*))? $(-> $answer:ident)? $(= $handler:ident)? $(: $missing:expr)?;)*) => {
        /// This family's part of the table.
        pub const ENTRIES: &[$crate::call::entry::Entry] = &[$($crate::call::entry::Entry {
            number: syscalls::Sysno::$name,
            state: $crate::call::entry::entries!(@state $($missing)?),
            handler: $crate::call::entry::entries!(@handler $name $($handler)?),
            shape: $crate::abi::shape::shape!($(($($shape)*))? $(-> $answer)?),
        }),*];
    };
    (@state) => { $crate::call::entry::State::Full };
    (@state $missing:expr) => { $crate::call::entry::State::Partial($missing) };
    (@handler $name:ident) => { $name };
    (@handler $name:ident $handler:ident) => { $handler };
}
pub(crate) use entries;
