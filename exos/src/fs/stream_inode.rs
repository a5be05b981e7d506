//! Standard input, output and error: descriptors over byte streams that the glue provides.
//!
//! A stream looks like a pipe to `fstat`, or, if it is flagged as a terminal, like `/dev/pts/N`; terminals answer the
//! questions that programs ask first (is it one, how large is it). Neighbour: [`super::stream`], the streams.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, SetAttributes, Timestamp};
use super::open_file::{OpenFile, OpenRequest};
use super::permission::{Credentials, Owner};
use super::readiness::{Readiness, WaitQueue};
use super::stream::Stream;
use super::terminal::modes::{Terminal, TerminalState};
use super::transfer::{Destination, Source};
use super::vnode::Inode;
use crate::error::{Errno, Result};

/// Major number of the terminals `/dev/pts/N`.
pub const TERMINAL_MAJOR: u32 = 136;

/// The inode of a stream: `pipe:[N]`, or `/dev/pts/N` if it has a terminal.
pub struct StreamInode {
    stream: Arc<dyn Stream>,
    number: u64,
    device: DeviceNumber,
    owner: Owner,
    created: Timestamp,
    terminal: Option<(u32, Arc<TerminalState>)>,
}

impl StreamInode {
    /// A stream that looks like a pipe with this number.
    pub fn pipe(stream: Arc<dyn Stream>, device: DeviceNumber, number: u64, owner: Owner, now: Timestamp) -> Arc<Self> {
        Arc::new(Self { stream, number, device, owner, created: now, terminal: None })
    }

    /// A stream that looks like terminal `index`.
    pub fn terminal(
        stream: Arc<dyn Stream>,
        device: DeviceNumber,
        index: u32,
        state: Arc<TerminalState>,
        owner: Owner,
        now: Timestamp,
    ) -> Arc<Self> {
        let number = u64::from(index) + 3;
        Arc::new(Self { stream, number, device, owner, created: now, terminal: Some((index, state)) })
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
            uid: self.owner.uid,
            gid: self.owner.gid,
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

    fn set_attributes(&self, _: SetAttributes, _: Timestamp) -> Result<()> {
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
