//! `/dev`: a memory file system with the usual nodes, and what stands behind their device numbers.
//!
//! The nodes are ordinary device nodes, so a program may make more of them, and nodes in a root image work too. Numbers
//! are those of Linux (`Documentation/admin-guide/devices.txt`). `/dev/ptmx` is a link to where [`super::terminal`]
//! shows its terminals; `/dev/tty` depends on the process that asks, so the personality opens it.

use alloc::sync::Arc;

use super::memory_fs::ensure_node;
use super::metadata::{DeviceNumber, Timestamp};
use super::namespace::{Device, Namespace};
use super::open_file::{OpenFile, OpenRequest, SeekSupport};
use super::page::PAGE_BYTES;
use super::permission::Credentials;
use super::stream_inode::StreamInode;
use super::terminal::table::{MASTER_DEVICE, Terminals};
use super::terminal::tty::Tty;
use super::transfer::{Destination, Source, partial, take_unseen};
use super::vnode::{Creation, Inode, InodeRef, NewNode};
use crate::error::{Errno, Result};
use crate::platform::Kernel;
use crate::preempt::{self, PIECE_BYTES};

const fn memory_device(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 1, minor }
}

const fn terminal_device(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 5, minor }
}

const NULL: DeviceNumber = memory_device(3);
const ZERO: DeviceNumber = memory_device(5);
const FULL: DeviceNumber = memory_device(7);
const RANDOM: DeviceNumber = memory_device(8);
const URANDOM: DeviceNumber = memory_device(9);
const TERMINAL: DeviceNumber = terminal_device(0);
const CONSOLE: DeviceNumber = terminal_device(1);

/// Makes the nodes below `root`, the root of a memory file system.
///
/// # Errors
/// `ENOSPC`: its limits are too small.
pub fn populate(root: &InodeRef, now: Timestamp) -> Result<()> {
    let devices: [(&[u8], DeviceNumber, u32); 7] = [
        (b"null", NULL, 0o666),
        (b"zero", ZERO, 0o666),
        (b"full", FULL, 0o666),
        (b"random", RANDOM, 0o666),
        (b"urandom", URANDOM, 0o666),
        (b"tty", TERMINAL, 0o666),
        (b"console", CONSOLE, 0o600),
    ];
    let creation = |permissions| Creation { permissions, uid: 0, gid: 0, now };
    for (name, number, permissions) in devices {
        ensure_node(root, name, NewNode::CharacterDevice(number), creation(permissions))?;
    }
    let links: [(&[u8], &[u8]); 5] = [
        (b"fd", b"/proc/self/fd"),
        (b"stdin", b"/proc/self/fd/0"),
        (b"stdout", b"/proc/self/fd/1"),
        (b"stderr", b"/proc/self/fd/2"),
        (b"ptmx", b"pts/ptmx"),
    ];
    for (name, target) in links {
        ensure_node(root, name, NewNode::Symlink(target), creation(0o777))?;
    }
    ensure_node(root, b"shm", NewNode::Directory, creation(0o1777))?;
    ensure_node(root, b"pts", NewNode::Directory, creation(0o755))?;
    Ok(())
}

/// Puts the memory devices behind their numbers.
pub fn register(namespace: &Namespace, kernel: &Arc<dyn Kernel>) {
    let kinds =
        [(NULL, Kind::Null), (ZERO, Kind::Zero), (FULL, Kind::Full), (RANDOM, Kind::Random), (URANDOM, Kind::Random)];
    for (number, kind) in kinds {
        let device = MemoryDevice { kind, kernel: kernel.clone() };
        namespace.register_device(number, Arc::new(device));
    }
}

/// Puts a terminal behind `/dev/tty` and `/dev/console`. Without one they answer `ENXIO`, as for a process
/// without a terminal.
pub fn register_terminal(namespace: &Namespace, terminal: &Arc<StreamInode>) {
    for number in [TERMINAL, CONSOLE] {
        namespace.register_device(number, Arc::new(TerminalDevice(terminal.clone())));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Zero,
    Full,
    Random,
}

#[derive(Clone)]
struct MemoryDevice {
    kind: Kind,
    kernel: Arc<dyn Kernel>,
}

impl Device for MemoryDevice {
    fn open(&self, _: OpenRequest) -> Result<Arc<dyn OpenFile>> {
        Ok(Arc::new(self.clone()))
    }
}

impl MemoryDevice {
    #[cold]
    fn read_random(&self, destination: &mut dyn Destination) -> Result<usize> {
        let wanted = destination.remaining();
        let done = put_random(&*self.kernel, destination);
        if done < wanted { partial(done, Errno::EFAULT) } else { Ok(done) }
    }
}

impl OpenFile for MemoryDevice {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        let wanted = destination.remaining();
        let done = match self.kind {
            Kind::Null => return Ok(0),
            Kind::Zero | Kind::Full => put_zeros(destination),
            Kind::Random => return self.read_random(destination),
        };
        if done < wanted { partial(done, Errno::EFAULT) } else { Ok(done) }
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        match self.kind {
            Kind::Full => Err(Errno::ENOSPC),
            // As on Linux, the memory behind what is thrown away is not looked at.
            Kind::Null | Kind::Zero => Ok(source.pass_over()),
            Kind::Random => swallow(source),
        }
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Ignored
    }

    fn reads_zeros(&self) -> bool {
        matches!(self.kind, Kind::Zero | Kind::Full)
    }
}

/// Fills `destination` with zeros, up to a fault or a signal; how many bytes.
fn put_zeros(destination: &mut dyn Destination) -> usize {
    let mut done = 0;
    loop {
        let step = destination.remaining().min(PIECE_BYTES);
        let copied = destination.put_zeros(step);
        done += copied;
        if copied < step || destination.remaining() == 0 || preempt::unless_signalled().is_err() {
            return done;
        }
    }
}

fn put_random(kernel: &dyn Kernel, destination: &mut dyn Destination) -> usize {
    let mut bytes = [0; 256];
    let mut done = 0;
    while destination.remaining() > 0 {
        let step = destination.remaining().min(bytes.len());
        kernel.random(&mut bytes[..step]);
        let copied = destination.put(&bytes[..step]);
        done += copied;
        if copied < step || (done.is_multiple_of(PAGE_BYTES) && preempt::unless_signalled().is_err()) {
            break;
        }
    }
    done
}

/// Takes everything and mixes it into nothing: the kernel's generator needs no help.
#[cold]
fn swallow(source: &mut dyn Source) -> Result<usize> {
    let wanted = source.remaining();
    let done = take_unseen(source);
    if done < wanted { partial(done, Errno::EFAULT) } else { Ok(done) }
}

/// Puts new terminals behind nodes with the number of `/dev/ptmx` that are in a root image, and `/dev/console` before
/// `console`, if there is one.
pub fn register_terminals(namespace: &Namespace, terminals: &Arc<Terminals>, console: Option<&Arc<Tty>>) {
    namespace.register_device(MASTER_DEVICE, Arc::new(MasterDevice(terminals.clone())));
    if let Some(tty) = console {
        namespace.register_device(CONSOLE, Arc::new(ConsoleDevice(tty.clone())));
    }
}

struct MasterDevice(Arc<Terminals>);

impl Device for MasterDevice {
    fn open(&self, _: OpenRequest) -> Result<Arc<dyn OpenFile>> {
        let file = self.0.open_master(0, Timestamp::default())?;
        Ok(file)
    }
}

struct ConsoleDevice(Arc<Tty>);

impl Device for ConsoleDevice {
    fn open(&self, _: OpenRequest) -> Result<Arc<dyn OpenFile>> {
        let file = self.0.open_slave()?;
        Ok(file)
    }
}

struct TerminalDevice(Arc<StreamInode>);

impl Device for TerminalDevice {
    fn open(&self, request: OpenRequest) -> Result<Arc<dyn OpenFile>> {
        self.0.open(request, &Credentials::ROOT)?.ok_or(Errno::ENXIO)
    }
}
