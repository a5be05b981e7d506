//! Processes and threads: how they begin, what they have, what interrupts them, how they end.
//!
//! Nothing here knows a system call's number or its arguments; those are decoded in [`crate::call`], above.
//!
//! | module | holds |
//! |---|---|
//! | [`system`], [`settings`] | what all processes of a pod share; values that programs set below `/proc/sys` |
//! | [`caller`] | the thread that came to exos, and what it belongs to |
//! | [`process`], [`identities`] | a process and its threads; their users and groups |
//! | [`processes`], [`listing`] | all of a pod by number; the same with their threads, as `/proc` shows them |
//! | [`tracing`], [`traced`], [`tracer`] | which process may look into which; where a traced one stops, and for whom |
//! | [`exec`], [`exit`] | what a process runs is replaced; threads and processes end |
//! | [`memory`], [`out_of_memory`] | an address space behind its lock; which process has to go when there is no more |
//! | [`attachments`], [`memory_policy`] | segments that come and go with a memory; where memory is to come from |
//! | [`aio`], [`work`] | contexts of asynchronous input and output; what threads do on the way |
//! | [`futex_word`] | the words of program memory that threads wait on |
//! | [`timers`] | timers that end in signals |
//! | [`signal_delivery`], [`signal_frame`] | from a pending signal to the program's handler and back |
//! | [`exception`], [`fault_handler`] | the processor's exceptions as signals, or to the program's native handler |
//! | [`interruption`], [`pause`], [`job_control`] | what ends a wait; stopped processes; what terminals ask for |
//! | [`facts`], [`used_time`] | what a thread asks about itself in one word; processor time |
//! | [`report`], [`symbol`], [`profile`] | for persons: how a program ended, where, and where its code lies |
//! | [`vector_buffer`] | the vector state of a thread that does not run |

pub mod aio;
pub mod attachments;
pub mod caller;
pub mod exception;
pub mod exec;
pub mod exit;
pub mod facts;
pub mod fault_handler;
pub mod futex_word;
pub mod identities;
pub mod interruption;
pub mod job_control;
pub mod listing;
pub mod memory;
pub mod memory_policy;
pub mod out_of_memory;
pub mod pause;
pub mod process;
pub mod processes;
pub mod profile;
pub mod report;
pub mod settings;
pub mod signal_delivery;
pub mod signal_frame;
pub mod symbol;
pub mod system;
pub mod timers;
pub mod traced;
pub mod tracer;
pub mod tracing;
pub mod used_time;
pub mod vector_buffer;
pub mod work;
