//! From the run configuration and the root image to a pod with its first process. Safe and free of the machine.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64};

use aegis_abi::FrameNumber;
use aegis_abi::boot::SystemPage;
use aegis_abi::types::SLOT_SELF;
use aegis_link::config::{Config, Flags, Temporary};
use exos::block::device::Disks;
use exos::error::{Errno, Result};
use exos::fs::group_fs::tree::ControlGroups;
use exos::fs::location::{Location, MountDescription, MountFlags};
use exos::fs::memory_fs::{Identity, Limits as StoreLimits, MemoryFs, TMPFS_MAGIC};
use exos::fs::metadata::{DeviceNumber, Timestamp};
use exos::fs::namespace::Namespace;
use exos::fs::ninep::cache::PageCache;
use exos::fs::permission::Credentials;
use exos::fs::stream::Stream;
use exos::fs::terminal::table::Terminals;
use exos::fs::vnode::{Creation, InodeRef, NewNode};
use exos::fs::walk::{Caller, LookupFlags};
use exos::fs::{device_fs, erofs_root, group_fs, overlay, proc_fs, text_fs};
use exos::ipc::Ipc;
use exos::load::mapping_base;
use exos::load::vdso::{VdsoData, VdsoPages};
use exos::mem::{AddressSpace, FramePool, SharedState};
use exos::net::inet::Inet;
use exos::net::netlink::Netlink;
use exos::platform::Kernel;
use exos::sync::Mutex;
use exos::task::futex::FutexTable;
use exos::task::limits::Resource;
use exos::task::lock::LockTable;
use exos::task::schedule::{Refusal, Scheduler};

use crate::call::lottery;
use crate::file::files::{Files, ProcessFiles};
use crate::file::lottery_programs;
use crate::host::mounts::{Refused, Served, Shares, ensure_path};
use crate::host::standard_streams::{connect_streams, has_host_terminal};
use crate::host::{disks, etc_files, rights};
use crate::proc::{ProcFacts, disk_text};
use crate::task::job_control::PodJobs;
use crate::task::listing::Listing;
use crate::task::memory::{Space, space_limits};
use crate::task::process::{Birth, Process, Thread};
use crate::task::processes::Processes;
use crate::task::system::{Counters, Options, Platform, System};

/// The vDSO, which `build.rs` built.
const VDSO_IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vdso.bin"));
/// Inodes that the writable layer may hold.
const INODE_COUNT_MAX: u64 = 1 << 20;
/// Minor numbers of directories in memory that are asked for, below those of the host's directories.
const TEMPORARY_MINOR_FIRST: u32 = 16;
/// Device numbers of the file systems, as `st_dev` shows them.
const fn file_system(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 0, minor }
}

/// What the machine gives to a pod.
pub struct Ground {
    /// The kernel's calls.
    pub kernel: Arc<dyn Kernel>,
    /// The machine under the personality.
    pub platform: Arc<dyn Platform>,
    /// The pod's frames; knows the bundle's as borrowed.
    pub pool: Arc<FramePool>,
    /// The threads' scheduler.
    pub scheduler: Arc<Scheduler>,
    /// The clock as the kernel shows it.
    pub clock: SystemPage,
    /// The root image and its first frame; `None` for an empty root.
    pub root: Option<(&'static [u8], FrameNumber)>,
    /// Standard input, output and error.
    pub streams: [Arc<dyn Stream>; 3],
    /// Host directories that the machine serves.
    pub served: Vec<Served>,
    /// Disks that the machine has.
    pub disks: Arc<Disks>,
}

/// Why the pod cannot be made: the line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootError {
    /// The root image is damaged.
    RootImage(aegis_image::erofs::read::ReadError),
    /// Something could not be set up in it.
    Root(Errno),
    /// A host directory.
    Share(Vec<u8>, Errno),
    /// The program cannot be funded so.
    Tickets(Refusal),
    /// The working directory of the run.
    WorkingDirectory(Vec<u8>, Errno),
}

impl BootError {
    /// The tool's exit status: the program cannot be executed so, or something is wrong with the run.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        if matches!(self, Self::WorkingDirectory(..)) { 126 } else { 125 }
    }
}

impl core::fmt::Display for BootError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::RootImage(error) => write!(formatter, "the root image is damaged: {error:?}"),
            Self::Root(error) => write!(formatter, "the root cannot be set up ({error:?})"),
            Self::Share(path, error) => {
                write!(formatter, "the host's directory for {} cannot be used ({error:?})", path.escape_ascii())
            }
            Self::Tickets(refusal) => write!(formatter, "--tickets: {refusal}"),
            Self::WorkingDirectory(path, error) => {
                write!(formatter, "the working directory {} cannot be used ({error:?})", path.escape_ascii())
            }
        }
    }
}

/// A pod with a process that has no program yet.
pub struct Pod {
    /// The pod.
    pub system: Arc<System>,
    /// The first process.
    pub process: Arc<Process>,
    /// The first process's first thread.
    pub thread: Arc<Thread>,
}

/// The first process, which has no program yet, and its thread.
fn first_process(
    system: &Arc<System>,
    config: &Config,
    memory: Arc<Space>,
    files: ProcessFiles,
) -> Result<(Arc<Process>, Arc<Thread>)> {
    let pid = system.processes.take_number()?;
    let process = Arc::new(Process::new(Birth {
        pid,
        parent: 0,
        group: pid,
        session: pid,
        memory,
        files,
        identities: rights::identities(config),
        start_ns: system.kernel.now_ns(),
    }));
    rights::settle(&process, &config.rights);
    let identities = process.identities.lock().clone();
    let thread = Arc::new(Thread::new(pid, &process, identities, system.scheduler.new_task(None)));
    process.signals.lock().dispositions.is_init = system.options.has_init;
    process.threads.lock().push(thread.clone());
    system.processes.add(process.clone());
    Ok((process, thread))
}

/// Makes the pod.
pub fn boot(ground: Ground, config: &Config) -> core::result::Result<Pod, BootError> {
    let now = Timestamp::from_ns(config.realtime_start_ns.wrapping_add(ground.kernel.now_ns()));
    let listing = Arc::<Listing>::default();
    let (facts, limits) = (ProcFacts::new(&listing), rights::limits(&config.rights));
    // Number 0 is the host's terminal, also where that does its own line discipline.
    let terminals = Terminals::new(file_system(7), u32::from(has_host_terminal(config)), now);
    let (namespace, page_cache, leased_names) = name_space(&ground, config, &facts, &terminals, now)?;
    let temporary = memory_store(&ground.pool, 6, 0o1777, now).map_err(BootError::Root)?;
    let current = working_directory(&namespace, config, now)?;
    let vdso = vdso_of(&ground, config);
    let base = mapping_base(limits.soft(Resource::Stack), 0);
    let shared = SharedState::new(ground.pool.clone());
    let home = || {
        let space = AddressSpace::new(shared.clone(), SLOT_SELF, base, space_limits(&limits));
        Arc::new(Space::new(&ground.kernel, space))
    };
    let (memory, empty_space, files) = (home(), home(), ProcessFiles::new(&namespace, current));
    let numbers = namespace.clone();
    let inet = Inet::new(&ground.kernel, Box::new(move || numbers.number()));
    let system = Arc::new(System {
        images: exos::load::KnownImages::default(),
        kernel: ground.kernel,
        platform: ground.platform,
        ipc: Ipc::new(&ground.pool),
        pool: ground.pool,
        shared,
        locks: LockTable::new(ground.scheduler.clone()),
        scheduler: ground.scheduler,
        processes: Processes::default(),
        futexes: FutexTable::default(),
        async_account: Arc::default(),
        empty_space,
        listing,
        files: Files {
            namespace,
            temporary,
            terminals,
            unix: Arc::default(),
            inet,
            netlink: Netlink::new(facts.clone()),
            page_cache,
            disks: ground.disks,
        },
        vdso,
        options: options(config),
        counters: Counters::default(),
        time_zone: Mutex::default(),
        realtime_offset_ns: AtomicI64::new(config.realtime_start_ns.cast_signed()),
        hostname: Mutex::new(config.hostname.clone()),
        domain_name: Mutex::new(b"(none)".to_vec()),
        processor_count: ground.clock.processor_count,
        named_missing: Mutex::new([0; 8]),
        shows_calls: AtomicBool::new(options(config).trace),
    });
    follow_network(&system, leased_names);
    let (process, thread) = first_process(&system, config, memory, files).map_err(BootError::Root)?;
    facts.set_system(&system);
    system.listing.add_process(process.clone(), thread.clone());
    system.files.terminals.set_job_control(PodJobs::new(&system));
    if let Some(tickets) = &config.tickets {
        lottery::fund_first(&system, &process, tickets).map_err(BootError::Tickets)?;
    }
    let pod = Pod { system, process, thread };
    connect_streams(&pod, ground.streams, config, now).map_err(BootError::Root)?;
    Ok(pod)
}

/// What a change of the network's addresses has follow: names of servers that were leased, and news by netlink.
fn follow_network(system: &Arc<System>, leased_names: Option<InodeRef>) {
    let changed = Arc::downgrade(system);
    system.files.inet.stack().on_change(move || {
        let Some(system) = changed.upgrade() else { return };
        if let Some(file) = &leased_names {
            let now = Timestamp::from_ns(system.realtime_ns());
            etc_files::name_leased(file, system.files.inet.stack().leased_name_servers(), now);
        }
        system.files.netlink.tell_changes();
    });
}

fn options(config: &Config) -> Options {
    Options {
        trace: config.flags.contains(Flags::TRACE),
        stats: config.flags.contains(Flags::STATS),
        profile: config.flags.contains(Flags::PROFILE),
        rewrite: !config.flags.contains(Flags::NO_REWRITE),
        has_init: config.flags.contains(Flags::INIT),
    }
}

/// The vDSO, if there is memory for it.
fn vdso_of(ground: &Ground, config: &Config) -> Option<VdsoPages> {
    let pages = VdsoPages::new(
        &ground.pool,
        VDSO_IMAGE,
        &VdsoData {
            clock: ground.clock,
            realtime_offset_ns: config.realtime_start_ns,
            has_clock: true,
            has_processor_number: false,
        },
    );
    pages.ok()
}

/// The root with everything that is mounted in it, what bounds the pages of host directories there, and the file for
/// name servers that a lease names.
type Mounted = (Arc<Namespace>, Arc<PageCache>, Option<InodeRef>);

/// Mounts everything.
fn name_space(
    ground: &Ground,
    config: &Config,
    facts: &Arc<ProcFacts>,
    terminals: &Arc<Terminals>,
    now: Timestamp,
) -> core::result::Result<Mounted, BootError> {
    let shares = Shares::new(config, &ground.served, &ground.pool);
    let live = shares.root().map_err(share_error)?;
    let written = live.as_ref().filter(|(_, is_written)| *is_written).map(|(root, _)| root.clone());
    let (base, is_live) = match (live, ground.root) {
        (Some((live, _)), _) => (live, true),
        (None, Some((bytes, first))) => {
            let frames = erofs_root::ImageFrames { first, pool: ground.pool.clone() };
            let image = erofs_root::ErofsRoot::open(bytes, Some(frames), file_system(1));
            shares.over(image.map_err(BootError::RootImage)?)
        }
        (None, None) => (memory_store(&ground.pool, 1, 0o755, now).map_err(BootError::Root)?, false),
    };
    let identity = Identity { device: file_system(2), magic: overlay::OVERLAY_MAGIC };
    let limits = STORE_LIMITS;
    let over = if is_live { overlay::over_live } else { overlay::over };
    let (kind, source) = if written.is_some() { ("9p", "host") } else { ("overlay", "overlay") };
    let root = match &written {
        Some(root) => root.clone(),
        None => over(ground.pool.clone(), identity, limits, &base).map_err(BootError::Root)?,
    };
    let description = MountDescription { kind, source, flags: MountFlags::default() };
    let namespace = Namespace::new(root, description);
    let (of_interfaces, has_card) = (facts.clone(), config.network.is_some());
    let disks = ground.disks.clone();
    let interfaces: text_fs::Files = Arc::new(move || {
        let mut files = of_interfaces.interface_files(has_card);
        files.extend(disk_text::files(&disks));
        files
    });
    mount_all(&namespace, ground, facts, interfaces, terminals, now).map_err(BootError::Root)?;
    device_fs::register(&namespace, &ground.kernel);
    disks::register(&namespace, &ground.disks);
    let temporaries = || (TEMPORARY_MINOR_FIRST..).zip(&config.temporaries);
    let mount = |(minor, temporary): (u32, &Temporary)| {
        let mounted = mount_temporary(&namespace, &ground.pool, minor, temporary, now);
        mounted.map_err(|error| share_error((temporary.path.clone(), error)))
    };
    // Whatever lies below another comes after it, or would be hidden by it.
    let is_in_share = |path: &[u8]| config.mounts.iter().any(|mount| lies_below(path, &mount.path));
    temporaries().filter(|(_, it)| !is_in_share(&it.path)).try_for_each(mount)?;
    shares.mount(&namespace, now).map_err(share_error)?;
    temporaries().filter(|(_, it)| is_in_share(&it.path)).try_for_each(mount)?;
    // A root that is written keeps its own files: those of this run are mounted over them.
    let store = written.map(|_| memory_store(&ground.pool, 11, 0o755, now)).transpose().map_err(BootError::Root)?;
    let leased_names = etc_files::make(&namespace, store, config, now);
    if config.flags.contains(Flags::READ_ONLY_ROOT) {
        namespace.seal_root();
    }
    Ok((namespace, shares.into_cache(), leased_names))
}

/// Whether a path leads through another, which is not the root.
fn lies_below(path: &[u8], above: &[u8]) -> bool {
    let above = above.strip_suffix(b"/").unwrap_or(above);
    !above.is_empty() && path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"))
}

fn share_error((path, error): Refused) -> BootError {
    BootError::Share(path, error)
}

fn mount_all(
    namespace: &Arc<Namespace>,
    ground: &Ground,
    facts: &Arc<ProcFacts>,
    interfaces: text_fs::Files,
    terminals: &Terminals,
    now: Timestamp,
) -> Result<()> {
    let devices = memory_store(&ground.pool, 5, 0o755, now)?;
    device_fs::populate(&devices, now)?;
    disks::populate(&devices, &ground.disks, now)?;
    let restricted = MountFlags::NO_SET_ID | MountFlags::NO_DEVICES | MountFlags::NO_EXECUTE;
    let proc = proc_fs::root(facts.clone(), file_system(3), now);
    let sys = text_fs::system_tree(ground.clock.processor_count, interfaces, file_system(4), now);
    let groups = ControlGroups::new(facts.clone());
    facts.set_groups(&groups);
    let groups = group_fs::root(groups, file_system(8), now);
    let shared = memory_store(&ground.pool, 10, 0o1777, now)?;
    let mounts: [(&[u8], InodeRef, &'static str, MountFlags); 6] = [
        (b"/dev", devices, "tmpfs", MountFlags::NO_SET_ID),
        (b"/dev/shm", shared, "tmpfs", MountFlags::NO_SET_ID),
        (b"/dev/pts", terminals.root(), "devpts", MountFlags::NO_SET_ID | MountFlags::NO_EXECUTE),
        (b"/proc", proc, "proc", restricted),
        (b"/sys", sys, "sysfs", restricted),
        (b"/sys/fs/cgroup", groups, "cgroup2", restricted),
    ];
    for (path, root, kind, flags) in mounts {
        let place = ensure_directory(namespace, path, 0o755, now)?;
        namespace.mount(&place, root, MountDescription { kind, source: kind, flags });
    }
    let programs = memory_store(&ground.pool, 9, 0o755, now)?;
    lottery_programs::populate(&programs, lottery::names(), Creation { permissions: 0o555, uid: 0, gid: 0, now })?;
    let place = ensure_directory(namespace, lottery_programs::DIRECTORY, 0o755, now)?;
    let flags = MountFlags::NO_SET_ID | MountFlags::NO_DEVICES | MountFlags::READ_ONLY;
    namespace.mount(&place, programs, MountDescription { kind: "tmpfs", source: "lottery", flags });
    ensure_directory(namespace, b"/tmp", 0o1777, now)?;
    Ok(())
}

/// Mounts an empty directory in memory.
fn mount_temporary(
    namespace: &Arc<Namespace>,
    pool: &Arc<FramePool>,
    minor: u32,
    temporary: &Temporary,
    now: Timestamp,
) -> Result<()> {
    let place = ensure_path(namespace, &temporary.path, now)?;
    let mut flags = MountFlags::NO_SET_ID | MountFlags::NO_DEVICES;
    flags.set(MountFlags::NO_EXECUTE, !temporary.is_executable);
    let bytes_max = Some(temporary.size_max_bytes).filter(|bytes| *bytes > 0);
    let limits = StoreLimits { bytes_max: bytes_max.unwrap_or(STORE_LIMITS.bytes_max), ..STORE_LIMITS };
    let store = memory_store_within(pool, minor, temporary.permissions, limits, now)?;
    namespace.mount(&place, store, MountDescription { kind: "tmpfs", source: "tmpfs", flags });
    Ok(())
}

/// Finds a directory, or makes it.
fn ensure_directory(namespace: &Arc<Namespace>, path: &[u8], permissions: u32, now: Timestamp) -> Result<Location> {
    let credentials = Credentials::ROOT;
    let caller = Caller { root: namespace.root(), credentials: &credentials, umask: 0, now };
    match namespace.lookup(&caller, namespace.root(), path, LookupFlags::DIRECTORY) {
        Err(Errno::ENOENT) => namespace.create(&caller, namespace.root(), path, NewNode::Directory, permissions),
        found => found,
    }
}

/// A memory file system's root.
fn memory_store(pool: &Arc<FramePool>, minor: u32, permissions: u32, now: Timestamp) -> Result<InodeRef> {
    memory_store_within(pool, minor, permissions, STORE_LIMITS, now)
}

fn memory_store_within(
    pool: &Arc<FramePool>,
    minor: u32,
    permissions: u32,
    limits: StoreLimits,
    now: Timestamp,
) -> Result<InodeRef> {
    let identity = Identity { device: file_system(minor), magic: TMPFS_MAGIC };
    let creation = Creation { permissions, uid: 0, gid: 0, now };
    let root = MemoryFs::create(pool.clone(), identity, limits, creation)?;
    Ok(root)
}

/// As much as the pod may have, which can change.
const STORE_LIMITS: StoreLimits = StoreLimits { bytes_max: u64::MAX, inode_count_max: INODE_COUNT_MAX };

fn working_directory(
    namespace: &Arc<Namespace>,
    config: &Config,
    now: Timestamp,
) -> core::result::Result<Location, BootError> {
    let of_user = Credentials::of_user(config.uid, config.gid);
    let credentials = Credentials { groups: config.groups.clone(), ..of_user };
    let caller = Caller { root: namespace.root(), credentials: &credentials, umask: 0, now };
    namespace
        .lookup(&caller, namespace.root(), &config.working_directory, LookupFlags::DIRECTORY)
        .map_err(|error| BootError::WorkingDirectory(config.working_directory.clone(), error))
}

#[cfg(test)]
mod tests {
    use super::lies_below;

    #[test]
    fn what_lies_below_a_mount_leads_through_it() {
        for (path, above, expected) in [
            (&b"/app/cache"[..], &b"/app"[..], true),
            (b"/app/cache", b"/app/", true),
            (b"/app", b"/app", false),
            (b"/apple", b"/app", false),
            (b"/app", b"/app/cache", false),
            (b"/app", b"/", false),
        ] {
            assert_eq!(lies_below(path, above), expected, "{path:?} {above:?}");
        }
    }
}
