//! `docs/linux-compat.md` is what the table of system calls says, and nothing else.
//!
//! The text is made in memory and compared; `AEGIS_BLESS=1 cargo test -p exos-linux --test compat`
//! writes it. What it says does not work is checked against the table, so that a call that arrives
//! cannot stay on the list. Which tests make a call is read from their sources ([`shown`]).

mod shown;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use exos_linux::call::entry::State;
use exos_linux::entry::table::{ENTRIES, entry};
use shown::Shown;
use syscalls::{Sysno, SysnoSet};

/// Things that programs want and do not get: what, why or what happens instead, and the calls that
/// would have to be there.
struct Gap {
    what: &'static str,
    text: &'static str,
    calls: &'static [Sysno],
}

const GAPS: &[Gap] = &[
    Gap {
        what: "What processes may share",
        text: "A new process has a copy of everything or borrows its parent's memory until it calls \
               `execve` (`vfork`); memory or a descriptor table that two running processes share by \
               `clone` is refused. There are no namespaces. Restartable sequences are not registered, \
               which C libraries accept.",
        calls: &[Sysno::clone, Sysno::clone3, Sysno::futex, Sysno::rseq],
    },
    Gap {
        what: "Networking",
        text: "TCP and UDP reach the programs of the same pod, over loopback (127.0.0.0/8 and `::1`); there \
               is no card, and whatever is elsewhere is `ENETUNREACH`. No packet sockets; no urgent data. \
               Netlink tells of interfaces, addresses, routes, neighbours and sockets and changes none of them \
               (`EOPNOTSUPP`); no program that filters packets is taken (`SO_ATTACH_FILTER`). Address families but \
               `AF_UNIX`, `AF_INET`, `AF_INET6` and `AF_NETLINK` are `EAFNOSUPPORT`.",
        calls: &[Sysno::socket],
    },
    Gap {
        what: "Watching files and directories",
        text: "There is inotify, which tells of what programs of the pod do, not of what the host does to a \
               directory that it shares; and there is no fanotify.",
        calls: &[Sysno::fanotify_init],
    },
    Gap {
        what: "Asynchronous input and output",
        text: "A ring has no thread that submits (SQPOLL) and none of `URING_CMD`, `SPLICE`, `TEE`, \
               `MSG_RING`, `SEND_ZC` and extended attributes; restrictions, personalities and rings \
               of provided buffers are not there. `io_submit` does what it can do at once, as Linux \
               does where a file is in memory.",
        calls: &[Sysno::io_uring_setup, Sysno::io_uring_enter, Sysno::io_uring_register, Sysno::io_cancel],
    },
    Gap {
        what: "Threads that a message queue starts",
        text: "`mq_notify` with `SIGEV_THREAD` is made by C libraries of a netlink socket that messages come \
               by, which none do: it is refused. No file system shows POSIX message queues as files (`/dev/mqueue`).",
        calls: &[Sysno::mq_notify],
    },
    Gap {
        what: "Debugging and inspection of others",
        text: "A child can have itself traced by its parent (`PTRACE_TRACEME`): stops, calls, memory and \
               registers to read. Nobody is attached to (`EPERM`), nothing is stepped; no performance \
               counters. `aegis run --trace` shows system calls.",
        calls: &[Sysno::ptrace, Sysno::perf_event_open],
    },
    Gap {
        what: "Isolation inside a pod",
        text: "A pod is what a container would be; nothing inside it makes smaller ones. Mounting \
               is refused.",
        calls: &[
            Sysno::unshare,
            Sysno::setns,
            Sysno::seccomp,
            Sysno::bpf,
            Sysno::mount,
            Sysno::umount2,
            Sysno::landlock_create_ruleset,
        ],
    },
];

/// What the table cannot say.
const OTHER_LIMITS: &[&str] = &[
    "No file has capabilities.",
    "Files that a program writes are in memory and gone when the machine goes down; the root image \
           is read-only below them.",
    "The GS register belongs to exos: programs cannot set its base (`arch_prctl`). FS is theirs.",
    "Only x86-64 programs run; `int 0x80` and 32-bit programs do not.",
    "Nothing is ever paged out. Memory that runs out is `ENOMEM` or the end of the program with a \
           line that says so.",
    "`/proc/PID/cmdline` shows the arguments that a program was started with, also where it has \
     written a title over them in its memory.",
    "`/proc` has the files that programs read, in Linux 6.1's formats. What exos does not count \
           (context switches, bytes read and written, block devices) is 0 there.",
    "Processor time is measured as a whole; what of it is system time is sampled every 10 ms. There \
           is one load average, and it is 0.",
];

const INTRODUCTION: &str = "This file is generated from `exos/linux/src/entry/table.rs`; `AEGIS_BLESS=1 \
       cargo test -p exos-linux --test compat` writes it, and the same test without the variable \
       fails while the two differ. The reference is Linux 6.1 on x86-64; calls of later versions \
       are listed too.";

const STATES: &str = "*Full* means: does what Linux does, error codes included, for the one \
       process of a pod. *Partial* means: like Linux but for what the table says. A call that is \
       not there answers `ENOSYS`; the first time a program makes it, the log names it (except for \
       a few that C libraries try and do without).";

const TESTS: &str = "The tests are the programs of `tests/linux` that name the call or a C function that is made of it \
       (each does in the machine what it does on Linux), and the tests of `exos/linux/src/call`. Calls without one are \
       made by the real programs that `tests/tests/run_programs.rs` and its neighbours run, or by nobody yet.";

fn document() -> String {
    let mut calls = BTreeMap::new();
    for entry in ENTRIES.iter().flat_map(|family| family.iter()) {
        calls.insert(entry.number.name(), entry.state);
    }
    let full_count = calls.values().filter(|state| matches!(state, State::Full)).count();
    let missing: Vec<&str> = missing_names();
    let mut text = format!("# System calls of Linux that exos has\n\n{}\n\n", wrapped(INTRODUCTION, ""));
    let _ = write!(
        text,
        "| | calls |\n|---|---:|\n| full | {full_count} |\n| partial | {} |\n| not there | {} \
               |\n\n{}\n\n",
        calls.len() - full_count,
        missing.len(),
        wrapped(STATES, ""),
    );
    text.push_str("## What does not work\n\n");
    for gap in GAPS {
        let calls: Vec<String> = gap.calls.iter().map(|call| format!("`{}`", call.name())).collect();
        text.push_str(&item(&format!("**{}.** {} ({})", gap.what, gap.text, calls.join(", "))));
    }
    for limit in OTHER_LIMITS {
        text.push_str(&item(limit));
    }
    let _ = write!(text, "\n## Call by call\n\n{}\n\n", wrapped(TESTS, ""));
    text.push_str("| call | state | what is missing | tests |\n|---|---|---|---|\n");
    let shown = Shown::read();
    for (name, state) in &calls {
        let tests = shown.of(name);
        let _ = match state {
            State::Full => writeln!(text, "| `{name}` | full | | {tests} |"),
            State::Partial(missing) => writeln!(text, "| `{name}` | partial | {missing} | {tests} |"),
        };
    }
    let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(text, "\n## Not there\n\n{}\n", wrapped(&names.join(", "), ""));
    text
}

/// All names of calls that are not in the table, in alphabetical order.
fn missing_names() -> Vec<&'static str> {
    let all = SysnoSet::all();
    let mut names: Vec<&str> =
        all.iter().filter(|number| entry(*number as u64).is_none()).map(|number| number.name()).collect();
    names.sort_unstable();
    names
}

/// Words in lines of at most 100 characters; all but the first begin with `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= 100 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.join("\n")
}

/// A list's item.
fn item(text: &str) -> String {
    format!("{}\n", wrapped(&format!("- {text}"), "  "))
}

#[test]
fn the_document_says_what_the_table_says() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/linux-compat.md");
    let made = document();
    if std::env::var_os("AEGIS_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &made).expect("docs/ can be written");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = found.lines().zip(made.lines()).position(|(old, new)| old != new);
    let line = difference.unwrap_or(found.lines().count().min(made.lines().count())) + 1;
    assert!(
        found == made,
        "docs/linux-compat.md differs from the table from line {line} on; AEGIS_BLESS=1 writes it anew"
    );
}

#[test]
fn what_does_not_work_is_not_full() {
    for gap in GAPS {
        for call in gap.calls {
            let state = entry(*call as u64).map(|entry| entry.state);
            assert_ne!(state, Some(State::Full), "{}: {} is full", gap.what, call.name());
        }
    }
}
