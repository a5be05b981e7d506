//! Standard input, output and error: descriptors over byte streams that the glue provides.
//!
//! A stream looks like a pipe to `fstat`, or, if it is flagged as a terminal, like `/dev/pts/N`. The glue
//! implements [`Stream`] over the console driver's ports; terminals answer the questions that programs ask
//! first (is it one, how large is it).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::permission::Credentials;
use super::readiness::{Readiness, WaitQueue};
use super::transfer::{Destination, Source};
use super::vnode::{DeviceNumber, FileKind, FileSystemStatistics, Inode, Metadata, OpenFile, OpenRequest, Timestamp};
use crate::error::{Errno, Result};
use crate::sync::Mutex;

/// Major number of the terminals `/dev/pts/N`.
pub const TERMINAL_MAJOR: u32 = 136;

/// One direction or both of a byte stream, implemented by the glue.
pub trait Stream: Send + Sync {
    /// Reads what is there into `destination`; `Ok(0)` is the end of the input.
    ///
    /// # Errors
    /// `EAGAIN` if nothing is there yet, `EFAULT`, `EIO`.
    fn read(&self, destination: &mut dyn Destination) -> Result<usize>;

    /// Writes what there is room for.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `EFAULT`, `EPIPE` if nobody reads any more, `EIO`.
    fn write(&self, source: &mut dyn Source) -> Result<usize>;

    /// What it is ready for now.
    fn readiness(&self) -> Readiness;

    /// Who is told about changes of readiness.
    fn wait_queue(&self) -> &Arc<WaitQueue>;
}

/// Size of a terminal in characters and pixels (`TIOCGWINSZ`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub row_count: u16,
    /// Characters in a line.
    pub column_count: u16,
    /// Width in pixels, 0 if unknown.
    pub width_pixels: u16,
    /// Height in pixels, 0 if unknown.
    pub height_pixels: u16,
}

/// The modes of a terminal (`TCGETS`); the numbers are termios(3)'s, kept as the program gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalModes {
    /// `c_iflag`.
    pub input: u32,
    /// `c_oflag`.
    pub output: u32,
    /// `c_cflag`.
    pub control: u32,
    /// `c_lflag`.
    pub local: u32,
    /// `c_line`.
    pub line: u8,
    /// `c_cc`.
    pub characters: [u8; 19],
}

impl TerminalModes {
    /// What Linux gives a fresh terminal.
    pub const DEFAULT: Self = Self {
        input: 0x500,
        output: 0x5,
        control: 0xbf,
        local: 0x8a3b,
        line: 0,
        characters: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
    };
}

/// What a terminal answers to `ioctl`.
pub trait Terminal: Send + Sync {
    /// Its size.
    fn window_size(&self) -> WindowSize;
    /// Sets its size (`TIOCSWINSZ`).
    fn set_window_size(&self, size: WindowSize);
    /// Its modes.
    fn modes(&self) -> TerminalModes;
    /// Sets its modes (`TCSETS`). Where the host's terminal does the line discipline they are only remembered.
    fn set_modes(&self, modes: TerminalModes);
    /// The foreground process group, 0 if none was set.
    fn foreground_group(&self) -> u32;
    /// Sets it (`TIOCSPGRP`).
    fn set_foreground_group(&self, group: u32);
    /// Whether it signals its foreground group by itself when its size changes.
    fn signals_itself(&self) -> bool {
        false
    }
    /// Moves bytes between the host and the program, where exos does the line discipline.
    fn pump(&self) {}
    /// Bytes that programs wrote and that have not been passed on to the host.
    fn pending_bytes(&self) -> usize {
        0
    }
}

/// A terminal's state, for all the streams that belong to it.
pub struct TerminalState {
    size: Mutex<WindowSize>,
    modes: Mutex<TerminalModes>,
    foreground_group: Mutex<u32>,
}

impl TerminalState {
    /// A terminal of that size.
    pub fn new(size: WindowSize) -> Arc<Self> {
        Arc::new(Self {
            size: Mutex::new(size),
            modes: Mutex::new(TerminalModes::DEFAULT),
            foreground_group: Mutex::new(0),
        })
    }
}

impl Terminal for TerminalState {
    fn window_size(&self) -> WindowSize {
        *self.size.lock()
    }

    fn set_window_size(&self, size: WindowSize) {
        *self.size.lock() = size;
    }

    fn modes(&self) -> TerminalModes {
        *self.modes.lock()
    }

    fn set_modes(&self, modes: TerminalModes) {
        *self.modes.lock() = modes;
    }

    fn foreground_group(&self) -> u32 {
        *self.foreground_group.lock()
    }

    fn set_foreground_group(&self, group: u32) {
        *self.foreground_group.lock() = group;
    }
}

/// The inode of a stream: `pipe:[N]`, or `/dev/pts/N` if it has a terminal.
pub struct StreamInode {
    stream: Arc<dyn Stream>,
    number: u64,
    device: DeviceNumber,
    created: Timestamp,
    terminal: Option<(u32, Arc<TerminalState>)>,
}

impl StreamInode {
    /// A stream that looks like a pipe with this number.
    pub fn pipe(stream: Arc<dyn Stream>, device: DeviceNumber, number: u64, now: Timestamp) -> Arc<Self> {
        Arc::new(Self { stream, number, device, created: now, terminal: None })
    }

    /// A stream that looks like terminal `index`.
    pub fn terminal(
        stream: Arc<dyn Stream>,
        device: DeviceNumber,
        index: u32,
        state: Arc<TerminalState>,
        now: Timestamp,
    ) -> Arc<Self> {
        let number = u64::from(index) + 3;
        Arc::new(Self { stream, number, device, created: now, terminal: Some((index, state)) })
    }

    /// What `readlink` on `/proc/self/fd/N` says.
    pub fn display_name(&self) -> Vec<u8> {
        match &self.terminal {
            Some((index, _)) => alloc::format!("/dev/pts/{index}").into_bytes(),
            None => alloc::format!("pipe:[{}]", self.number).into_bytes(),
        }
    }
}

impl Inode for StreamInode {
    fn metadata(&self) -> Metadata {
        let (kind, permissions, device_node) = match &self.terminal {
            Some((index, _)) => {
                let node = DeviceNumber { major: TERMINAL_MAJOR, minor: *index };
                (FileKind::CharacterDevice, 0o620, node)
            }
            None => (FileKind::Fifo, 0o600, DeviceNumber::default()),
        };
        Metadata {
            device: self.device,
            inode_number: self.number,
            kind,
            permissions,
            link_count: 1,
            uid: 0,
            gid: 0,
            device_node,
            size_bytes: 0,
            block_count: 0,
            accessed: self.created,
            modified: self.created,
            changed: self.created,
            created: None,
        }
    }

    fn open(&self, _: OpenRequest, _: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        Ok(Some(Arc::new(StreamFile {
            stream: self.stream.clone(),
            terminal: self.terminal.as_ref().map(|(_, state)| state.clone()),
        })))
    }

    fn set_attributes(&self, _: super::vnode::SetAttributes, _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            magic: if self.terminal.is_some() { 0x1cd1 } else { 0x5049_5045 },
            block_bytes: 4096,
            block_count: 0,
            free_block_count: 0,
            inode_count: 0,
            free_inode_count: 0,
        }
    }
}

/// An open stream.
struct StreamFile {
    stream: Arc<dyn Stream>,
    terminal: Option<Arc<TerminalState>>,
}

impl OpenFile for StreamFile {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        if destination.remaining() == 0 {
            return Ok(0);
        }
        self.stream.read(destination)
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        if source.remaining() == 0 {
            return Ok(0);
        }
        self.stream.write(source)
    }

    fn readiness(&self) -> Readiness {
        self.stream.readiness()
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(self.stream.wait_queue())
    }

    fn writes_all(&self) -> bool {
        true
    }

    fn terminal(&self) -> Option<&dyn Terminal> {
        self.terminal.as_deref().map(|state| state as &dyn Terminal)
    }
}
