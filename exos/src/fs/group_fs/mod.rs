//! `/sys/fs/cgroup`: control groups (cgroup v2) as directories, what they are and may use as texts in them.
//!
//! The rules are in [`tree`]; here are names, formats and the errors of what is written. A text is made at the first
//! read after `open` and stays the same until the offset returns to 0. Files of a group that was removed answer
//! `ENODEV`. Everything belongs to user 0: groups are not handed to other users.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, SetAttributes, Timestamp};
use super::open_file::{OpenFile, OpenRequest, SeekSupport};
use super::permission::Credentials;
use super::transfer::{Destination, Source, put_from};
use super::vnode::{Creation, DirectoryEntry, EntryConsumer, Inode, InodeRef, NewNode, RenameMode};
use crate::error::{Errno, Result};
use crate::sync::Mutex;
use crate::task::schedule::WEIGHT_DEFAULT;
use crate::task::weight::{NICE_MAX, NICE_MIN, nice_of, of_nice};

pub mod tree;

use tree::{ControlGroups, MemoryUse, Nodes, ROOT};

/// cgroup v2's magic number (Linux `magic.h`).
pub const CGROUP2_MAGIC: u64 = 0x6367_7270;
/// Numbers of inodes for a group and its files.
const FILE_COUNT_MAX: u64 = 32;
/// Longest text that can be written to a file here.
const WRITE_BYTES_MAX: usize = 4096;
/// `cpu.weight`.
const WEIGHTS: core::ops::RangeInclusive<u64> = 1..=10_000;
/// The `cpu.weight` that is as much as one task with nice 0.
const WEIGHT_OF_TASK: u64 = 100;

/// Where a file is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everywhere,
    NotInRoot,
    /// The pod's own.
    OnlyInRoot,
    /// Where `cpu` is handed to the group.
    Controlled,
}

/// Files of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Controllers,
    Events,
    Processes,
    Statistics,
    Control,
    Threads,
    Type,
    Max,
    CpuStatistics,
    Weight,
    WeightNice,
    MemoryCurrent,
    MemoryEvents,
    MemoryHigh,
    MemoryMax,
    MemoryMin,
    MemoryStatistics,
}

impl Text {
    const ALL: [(&'static str, Self, u32, Scope); 17] = [
        ("cgroup.controllers", Self::Controllers, 0o444, Scope::Everywhere),
        ("cgroup.events", Self::Events, 0o444, Scope::NotInRoot),
        ("cgroup.procs", Self::Processes, 0o644, Scope::Everywhere),
        ("cgroup.stat", Self::Statistics, 0o444, Scope::Everywhere),
        ("cgroup.subtree_control", Self::Control, 0o644, Scope::Everywhere),
        ("cgroup.threads", Self::Threads, 0o644, Scope::Everywhere),
        ("cgroup.type", Self::Type, 0o644, Scope::NotInRoot),
        ("cpu.max", Self::Max, 0o644, Scope::Controlled),
        ("cpu.stat", Self::CpuStatistics, 0o444, Scope::Everywhere),
        ("cpu.weight", Self::Weight, 0o644, Scope::Controlled),
        ("cpu.weight.nice", Self::WeightNice, 0o644, Scope::Controlled),
        ("memory.current", Self::MemoryCurrent, 0o444, Scope::OnlyInRoot),
        ("memory.events", Self::MemoryEvents, 0o444, Scope::OnlyInRoot),
        ("memory.high", Self::MemoryHigh, 0o444, Scope::OnlyInRoot),
        ("memory.max", Self::MemoryMax, 0o444, Scope::OnlyInRoot),
        ("memory.min", Self::MemoryMin, 0o444, Scope::OnlyInRoot),
        ("memory.stat", Self::MemoryStatistics, 0o444, Scope::OnlyInRoot),
    ];

    fn of(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|row| row.0.as_bytes() == name).map(|row| row.1)
    }

    fn row(self) -> &'static (&'static str, Self, u32, Scope) {
        &Self::ALL[self as usize]
    }

    fn is_in(self, group: u64, nodes: &Nodes<'_>) -> bool {
        match self.row().3 {
            Scope::Everywhere => true,
            Scope::NotInRoot => group != ROOT,
            Scope::OnlyInRoot => group == ROOT,
            Scope::Controlled => group != ROOT && nodes.is_controlled(group),
        }
    }

    fn make(self, group: u64, nodes: &Nodes<'_>) -> Result<String> {
        if !nodes.exists(group) || !self.is_in(group, nodes) {
            return Err(Errno::ENODEV);
        }
        let list = |numbers: Vec<u32>| numbers.iter().map(|number| format!("{number}\n")).collect();
        let controller = |is_there| String::from(if is_there { "cpu\n" } else { "" });
        if self.row().3 == Scope::OnlyInRoot {
            return Ok(self.of_memory(&nodes.provider.memory()?));
        }
        Ok(match self {
            Self::MemoryCurrent
            | Self::MemoryEvents
            | Self::MemoryHigh
            | Self::MemoryMax
            | Self::MemoryMin
            | Self::MemoryStatistics => return Err(Errno::ENODEV),
            Self::Controllers => controller(nodes.is_controlled(group)),
            Self::Control => controller(nodes.hands_on(group)),
            Self::Events => format!("populated {}\nfrozen 0\n", u8::from(nodes.is_populated(group))),
            Self::Processes => list(nodes.provider.processes(group)),
            Self::Threads => list(nodes.provider.threads(group)),
            Self::Statistics => {
                format!("nr_descendants {}\nnr_dying_descendants 0\n", nodes.descendant_count(group))
            }
            Self::Type if !nodes.is_valid_domain(group) => String::from("domain invalid\n"),
            Self::Type if nodes.is_thread_root(group) => String::from("domain threaded\n"),
            Self::Type => String::from("domain\n"),
            Self::Max => match nodes.limit(group)? {
                (Some(quota_us), period_us) => format!("{quota_us} {period_us}\n"),
                (None, period_us) => format!("max {period_us}\n"),
            },
            Self::Weight => format!("{}\n", weight_of(nodes.amount(group)?)),
            Self::WeightNice => format!("{}\n", nice_of(nodes.amount(group)?)),
            Self::CpuStatistics => {
                let usage = nodes.usage(group)?;
                let used_us = usage.used_ns / 1000;
                let mut text = format!("usage_usec {used_us}\nuser_usec {used_us}\nsystem_usec 0\n");
                if group != ROOT && nodes.is_controlled(group) {
                    let (periods, throttled) = (usage.period_count, usage.throttled_count);
                    let throttled_us = usage.throttled_ns / 1000;
                    let rest =
                        format!("nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled_us}\n");
                    text.push_str(&rest);
                }
                text
            }
        })
    }

    /// A text about the pod's memory.
    fn of_memory(self, memory: &MemoryUse) -> String {
        match self {
            Self::MemoryCurrent => format!("{}\n", memory.current),
            Self::MemoryMax => format!("{}\n", memory.limit),
            Self::MemoryMin => format!("{}\n", memory.guaranteed),
            Self::MemoryEvents => {
                let MemoryUse { end_count, killed_count, .. } = memory;
                format!("low 0\nhigh 0\nmax {end_count}\noom {end_count}\noom_kill {killed_count}\noom_group_kill 0\n")
            }
            Self::MemoryStatistics => {
                let MemoryUse { anonymous, structures, stacks, .. } = memory;
                let (file, kernel) = (memory.current.saturating_sub(*anonymous), structures + stacks);
                format!("anon {anonymous}\nfile {file}\nkernel {kernel}\nkernel_stack {stacks}\nslab {structures}\n")
            }
            _ => String::from("max\n"),
        }
    }

    fn take(self, group: u64, nodes: &mut Nodes<'_>, text: &str) -> Result<()> {
        if !nodes.exists(group) || !self.is_in(group, nodes) {
            return Err(Errno::ENODEV);
        }
        match self {
            Self::Control => nodes.set_control(group, text),
            Self::Processes => nodes.attach(group, parse_process(text)?),
            Self::Threads => nodes.attach_thread(group, parse_process(text)?),
            Self::Type => Err(if text == "threaded" { Errno::EOPNOTSUPP } else { Errno::EINVAL }),
            Self::Max => {
                let (quota_us, period_us) = parse_limit(text)?;
                nodes.set_limit(group, quota_us, period_us)
            }
            Self::Weight => {
                let weight = text.parse().map_err(|_| Errno::EINVAL)?;
                if !WEIGHTS.contains(&weight) {
                    return Err(Errno::ERANGE);
                }
                nodes.set_amount(group, (weight * WEIGHT_DEFAULT + WEIGHT_OF_TASK / 2) / WEIGHT_OF_TASK)
            }
            Self::WeightNice => {
                let nice = text.parse().map_err(|_| Errno::EINVAL)?;
                if !(NICE_MIN..=NICE_MAX).contains(&nice) {
                    return Err(Errno::ERANGE);
                }
                nodes.set_amount(group, of_nice(nice))
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The `cpu.weight` of an amount of tickets.
fn weight_of(amount: u64) -> u64 {
    ((amount * WEIGHT_OF_TASK + WEIGHT_DEFAULT / 2) / WEIGHT_DEFAULT).max(1)
}

/// A process or thread number; 0 is the caller's.
fn parse_process(text: &str) -> Result<u32> {
    let number: i32 = text.parse().map_err(|_| Errno::EINVAL)?;
    u32::try_from(number).map_err(|_| Errno::EINVAL)
}

/// `max` or a quota, and a period if one is given.
fn parse_limit(text: &str) -> Result<(Option<u64>, Option<u64>)> {
    let mut words = text.split_ascii_whitespace();
    let number = |word: &str| word.parse::<u64>().map_err(|_| Errno::EINVAL);
    let quota_us = match words.next().ok_or(Errno::EINVAL)? {
        "max" => None,
        word => Some(number(word)?),
    };
    Ok((quota_us, words.next().map(number).transpose()?))
}

struct GroupFs {
    groups: Arc<ControlGroups>,
    device: DeviceNumber,
    created: Timestamp,
}

/// The root directory of a tree of groups.
pub fn root(groups: Arc<ControlGroups>, device: DeviceNumber, now: Timestamp) -> InodeRef {
    let fs = Arc::new(GroupFs { groups, device, created: now });
    Arc::new(GroupInode { fs, group: ROOT, text: None })
}

/// A group's directory, or a file in it.
struct GroupInode {
    fs: Arc<GroupFs>,
    group: u64,
    text: Option<Text>,
}

impl GroupInode {
    fn sibling(&self, group: u64, text: Option<Text>) -> InodeRef {
        Arc::new(Self { fs: self.fs.clone(), group, text })
    }

    fn directory(&self) -> Result<Nodes<'_>> {
        if self.text.is_some() { Err(Errno::ENOTDIR) } else { Ok(self.fs.groups.lock()) }
    }

    fn number(&self) -> u64 {
        self.group * FILE_COUNT_MAX + self.text.map_or(0, |text| text as u64 + 1)
    }
}

impl Inode for GroupInode {
    fn metadata(&self) -> Metadata {
        let (kind, permissions, link_count) = match self.text {
            Some(text) => (FileKind::Regular, text.row().2, 1),
            None => (FileKind::Directory, 0o755, 2 + self.fs.groups.lock().children(self.group).len() as u32),
        };
        let time = self.fs.created;
        Metadata {
            device: self.fs.device,
            inode_number: self.number(),
            kind,
            permissions,
            link_count,
            uid: 0,
            gid: 0,
            device_node: DeviceNumber::default(),
            size_bytes: 0,
            block_count: 0,
            accessed: time,
            modified: time,
            changed: time,
            created: None,
        }
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        let nodes = self.directory()?;
        if let Some(child) = nodes.child(self.group, name) {
            return Ok(self.sibling(child, None));
        }
        let text = Text::of(name).filter(|text| nodes.exists(self.group) && text.is_in(self.group, &nodes));
        text.map(|text| self.sibling(self.group, Some(text))).ok_or(Errno::ENOENT)
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        /// Groups come behind all files; a group's cookie is its number, so others may come and go.
        const GROUP_COOKIES: u64 = 1 << 8;
        let (texts, groups) = {
            let nodes = self.directory()?;
            let texts: Vec<_> = Text::ALL.iter().filter(|row| row.1.is_in(self.group, &nodes)).collect();
            let mut groups = nodes.children(self.group);
            groups.sort_unstable_by_key(|(_, group)| *group);
            (texts, groups)
        };
        let texts = texts.into_iter().map(|row| {
            let cookie = row.1 as u64 + 1;
            (row.0.as_bytes().to_vec(), cookie, self.group * FILE_COUNT_MAX + cookie, FileKind::Regular)
        });
        let groups = groups
            .into_iter()
            .map(|(name, group)| (name, GROUP_COOKIES + group, group * FILE_COUNT_MAX, FileKind::Directory));
        let mut position = cookie;
        for (name, next_cookie, inode_number, kind) in texts.chain(groups).filter(|entry| entry.1 > cookie) {
            if !consumer(DirectoryEntry { name: &name, inode_number, kind, next_cookie }) {
                break;
            }
            position = next_cookie;
        }
        Ok(position)
    }

    fn create(&self, name: &[u8], node: NewNode<'_>, _: Creation) -> Result<InodeRef> {
        match node {
            NewNode::Directory if Text::of(name).is_some() => Err(Errno::EEXIST),
            NewNode::Directory => {
                let group = self.directory()?.make(self.group, name)?;
                Ok(self.sibling(group, None))
            }
            NewNode::Regular => Err(Errno::EACCES),
            _ => Err(Errno::EPERM),
        }
    }

    fn unlink(&self, _: &[u8], _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn remove_directory(&self, name: &[u8], _: Timestamp) -> Result<()> {
        self.directory()?.remove(self.group, name)
    }

    fn rename(&self, _: &[u8], _: &InodeRef, _: &[u8], _: RenameMode, _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn link(&self, _: &[u8], _: &InodeRef, _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn set_attributes(&self, _: SetAttributes, _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn open(&self, _: OpenRequest, _: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        let Some(text) = self.text else { return Ok(None) };
        if !self.fs.groups.lock().exists(self.group) {
            return Err(Errno::ENODEV);
        }
        Ok(Some(Arc::new(OpenText { fs: self.fs.clone(), group: self.group, text, made: Mutex::new(None) })))
    }

    fn read_at(&self, _: u64, _: &mut dyn Destination) -> Result<usize> {
        Err(if self.text.is_none() { Errno::EISDIR } else { Errno::EINVAL })
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            magic: CGROUP2_MAGIC,
            block_bytes: 4096,
            block_count: 0,
            free_block_count: 0,
            inode_count: 0,
            free_inode_count: 0,
        }
    }
}

/// An open file.
struct OpenText {
    fs: Arc<GroupFs>,
    group: u64,
    text: Text,
    made: Mutex<Option<Arc<String>>>,
}

impl OpenFile for OpenText {
    fn read(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        let known = self.made.lock().clone().filter(|_| offset != 0);
        let text = match known {
            Some(text) => text,
            None => {
                let made = Arc::new(self.text.make(self.group, &self.fs.groups.lock())?);
                *self.made.lock() = Some(made.clone());
                made
            }
        };
        put_from(text.as_bytes(), offset, destination)
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        let length = source.remaining();
        if length >= WRITE_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        let mut value = alloc::vec![0; length];
        if source.take(&mut value) < length {
            return Err(Errno::EFAULT);
        }
        let text = core::str::from_utf8(&value).map_err(|_| Errno::EINVAL)?;
        self.text.take(self.group, &mut self.fs.groups.lock(), text.trim())?;
        Ok(length)
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Offsets
    }
}

#[cfg(test)]
mod tests;
