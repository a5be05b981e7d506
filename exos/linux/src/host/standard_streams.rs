//! Descriptors 0, 1 and 2 of the first process: the host's streams as pipes, as the host's terminal, or as a terminal
//! with exos's own line discipline (`aegis run -t`).

use alloc::sync::Arc;

use aegis_link::config::{Config, Flags};
use exos::error::Result;
use exos::fs::device_fs;
use exos::fs::metadata::Timestamp;
use exos::fs::namespace::{Access as OpenAccess, OpenHow};
use exos::fs::permission::{Credentials, Owner};
use exos::fs::stream::Stream;
use exos::fs::stream_inode::StreamInode;
use exos::fs::terminal::job_control::TerminalCaller;
use exos::fs::terminal::modes::{TerminalState, WindowSize};
use exos::fs::walk::Caller;
use exos::task::signal::SignalSet;

use crate::host::boot::Pod;
use crate::task::process::FIRST_PID;

/// Which of the three the host said to be its terminal.
const TERMINALS: [Flags; 3] = [Flags::STDIN_IS_TERMINAL, Flags::STDOUT_IS_TERMINAL, Flags::STDERR_IS_TERMINAL];

/// The terminal's size.
fn window_of(config: &Config) -> WindowSize {
    WindowSize { row_count: config.terminal_rows, column_count: config.terminal_columns, ..WindowSize::default() }
}

/// Whether any stream is the host's terminal, which then does its own line discipline.
pub(crate) fn has_host_terminal(config: &Config) -> bool {
    let is_any = TERMINALS.iter().any(|flag| config.flags.contains(*flag));
    is_any && !config.flags.contains(Flags::TERMINAL)
}

/// Descriptors 0, 1 and 2.
pub(crate) fn connect_streams(pod: &Pod, streams: [Arc<dyn Stream>; 3], config: &Config, now: Timestamp) -> Result<()> {
    let Pod { system, process, .. } = pod;
    let namespace = &system.files.namespace;
    if config.flags.contains(Flags::TERMINAL) {
        return connect_terminal(pod, streams, config, now);
    }
    device_fs::register_terminals(namespace, &system.files.terminals, None);
    let device = exos::fs::namespace::PSEUDO_DEVICE;
    let terminal = has_host_terminal(config).then(|| TerminalState::new(window_of(config)));
    let owner = Owner { uid: config.uid, gid: config.gid };
    let mut latest = None;
    for (stream, flag) in streams.into_iter().zip(TERMINALS) {
        if let Some(output) = latest.take_if(|_| flag == TERMINALS[2] && config.flags.contains(Flags::STDERR_IS_STDOUT))
        {
            process.files.add(output, false)?;
            continue;
        }
        let (inode, access) = match &terminal {
            Some(state) if config.flags.contains(flag) => {
                let inode = StreamInode::terminal(stream, device, 0, state.clone(), owner, now);
                device_fs::register_terminal(namespace, &inode);
                (inode, OpenAccess::ReadWrite)
            }
            _ => {
                let access = if flag == Flags::STDIN_IS_TERMINAL { OpenAccess::Read } else { OpenAccess::Write };
                (StreamInode::pipe(stream, device, namespace.number(), owner, now), access)
            }
        };
        let description = namespace.stream(inode, access)?;
        process.files.add(description.clone(), false)?;
        latest = Some(description);
    }
    if let Some(terminal) = terminal {
        process.files.set_terminal(terminal);
    }
    Ok(())
}

/// The same with a terminal of exos's: the first process leads its session.
fn connect_terminal(pod: &Pod, streams: [Arc<dyn Stream>; 3], config: &Config, now: Timestamp) -> Result<()> {
    let Pod { system, process, .. } = pod;
    let files = &system.files;
    let [keyboard, screen, _] = streams;
    let tty = files.terminals.console(keyboard, screen, window_of(config), config.uid)?;
    device_fs::register_terminals(&files.namespace, &files.terminals, Some(&tty));
    let leader = TerminalCaller {
        group: FIRST_PID,
        session: FIRST_PID,
        is_leader: true,
        is_root: false,
        deaf_to: SignalSet::EMPTY,
    };
    tty.take_control(&leader, None, false)?;
    let credentials = Credentials::ROOT;
    let root = files.namespace.root();
    let caller = Caller { root, credentials: &credentials, umask: 0, now };
    let how = OpenHow { access: OpenAccess::ReadWrite, ..OpenHow::READ };
    let path = alloc::format!("/dev/pts/{}", tty.index());
    let description = files.namespace.open(&caller, root, path.as_bytes(), &how)?;
    for _ in 0..3 {
        process.files.add(description.clone(), false)?;
    }
    process.files.set_terminal(tty);
    Ok(())
}
