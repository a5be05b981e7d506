//! Terminals: pseudo-terminals with a line discipline inside exos, and the host's terminal as one of them.
//!
//! - [`discipline`]: what happens to bytes on their way (editing, echo, signals, output control), without anything
//!   around it; [`modes`]: its switches, and what every terminal answers;
//! - [`tty`]: a terminal, its two sides as open files, job control at its border;
//! - [`console`]: a terminal whose keyboard and screen are streams of the host;
//! - [`table`]: the terminals of a pod, and `/dev/pts`;
//! - [`job_control`]: what a terminal asks of the process table.
//!
//! Limits: [`discipline::INPUT_BYTES_MAX`] typed ahead, [`discipline::OUTPUT_BYTES_MAX`] written and not taken,
//! [`table::TERMINAL_COUNT_MAX`] terminals. Differences from Linux: a controlling terminal belongs to a session as a
//! whole (a process that is no leader cannot give it up for itself alone); `IXOFF` and break conditions do nothing,
//! as no line is behind it; there is no exclusive mode.

pub mod console;
pub mod discipline;
pub mod job_control;
pub mod modes;
pub mod table;
pub mod tty;

#[cfg(test)]
mod discipline_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
