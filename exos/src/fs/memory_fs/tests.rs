//! Limits, lifetimes, cookies, pages and seals of the memory file system. Behaviour by paths:
//! `tests/linux_oracle`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Identity, Limits, MemoryFs, MemoryNode, TMPFS_MAGIC, ensure_node};
use crate::error::Errno;
use crate::fake::FakeMachine;
use crate::fs::metadata::DeviceNumber;
use crate::fs::page::PAGE_BYTES;
use crate::fs::seals::Seals;
use crate::fs::test_support::{BY_ROOT, LARGE, NOW, pool, tmpfs_root};
use crate::fs::transfer::{Buffer, Destination, Source};
use crate::fs::vnode::{Allocate, InodeRef, NewNode, WritePosition, downcast};
use crate::mem::frames::FramePool;
use crate::mem::source::{PageError, PageIntent};
use crate::platform::Kernel;
use crate::preempt::Interruption;
use crate::preempt::test_support::interrupted_after;

fn file(directory: &InodeRef, name: &str) -> InodeRef {
    directory.create(name.as_bytes(), NewNode::Regular, BY_ROOT).unwrap()
}

fn write(inode: &InodeRef, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
    inode.write_at(WritePosition::At(offset), &mut &bytes[..], NOW).map(|(_, done)| done)
}

fn read(inode: &InodeRef, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = Buffer::with_limit(length);
    inode.read_at(offset, &mut buffer).unwrap();
    buffer.bytes
}

fn frames_used(pool: &Arc<FramePool>) -> u64 {
    let statistics = pool.statistics();
    statistics.held - statistics.free
}

fn names_from(directory: &InodeRef, cookie: u64, limit: usize) -> (Vec<Vec<u8>>, u64) {
    let mut names = Vec::new();
    let reached = directory.read_directory(cookie, &mut |entry| {
        if names.len() == limit {
            return false;
        }
        names.push(entry.name.to_vec());
        true
    });
    (names, reached.unwrap())
}

#[test]
fn limits_are_enforced_and_given_back() {
    let pool = pool();
    let limits = Limits { bytes_max: 3 * 4096, inode_count_max: 3 };
    let root = tmpfs_root(&pool, 1, limits);
    let first = file(&root, "a");
    file(&root, "b");
    let third = root.create(b"c", NewNode::Regular, BY_ROOT);
    assert_eq!(third.err(), Some(Errno::ENOSPC));
    assert_eq!(write(&first, 0, &[1; 5 * 4096]), Ok(3 * 4096));
    assert_eq!(write(&first, 3 * 4096, &[1]), Err(Errno::ENOSPC));
    assert_eq!(root.statistics().free_block_count, 0);
    root.unlink(b"a", NOW).unwrap();
    assert_eq!(root.statistics().free_block_count, 0, "still open");
    assert_eq!(read(&first, 4095, 2), [1, 1]);
    drop(first);
    assert_eq!(root.statistics().free_block_count, 3);
    assert_eq!(root.statistics().free_inode_count, 1);
    assert_eq!(frames_used(&pool), 0);
    file(&root, "c");
}

#[test]
fn writes_leave_memory_to_programs() {
    let pool = pool();
    let root = tmpfs_root(&pool, 1, LARGE);
    let large = file(&root, "large");
    let limit_bytes = pool.statistics().limit as usize * 4096;
    let megabyte = vec![1; 1 << 20];
    let mut done = 0;
    let refusal = loop {
        match write(&large, done as u64, &megabyte) {
            Ok(count) => done += count,
            Err(error) => break error,
        }
    };
    assert_eq!((refusal, done), (Errno::ENOSPC, limit_bytes - limit_bytes / 16));
    assert_eq!(write(&large, 0, &[2]), Ok(1), "what is there can be changed");
    assert!(pool.allocate().is_ok());
    root.unlink(b"large", NOW).unwrap();
    drop(large);
    assert_eq!(write(&file(&root, "small"), 0, &megabyte), Ok(1 << 20));
}

#[test]
fn what_the_kernel_has_given_to_others_is_no_room_for_files() {
    let machine = FakeMachine::with_frames(4096);
    let pool = FramePool::new(machine.clone(), machine.clone(), 16 << 20);
    let others = machine.allocate_frames(1024, 0).expect("frames for exos's own structures");
    let root = tmpfs_root(&pool, 1, LARGE);
    let large = file(&root, "large");
    let room = 3072 - 4096 / 16;
    assert_eq!(write(&large, 0, &vec![1; 16 << 20]), Ok(room * 4096), "the pool's limit is more than there is");
    let left = core::iter::from_fn(|| pool.allocate().ok()).count();
    assert_eq!(left, 4096 / 16, "and programs have theirs");
    machine.free_frames(others).unwrap();
    assert_eq!(
        write(&large, room as u64 * 4096, &vec![1; 16 << 20]),
        Ok((1024 - 4096 / 16) * 4096),
        "until it is back"
    );
}

#[test]
fn mappings_leave_memory_to_programs_as_writes_do() {
    let machine = FakeMachine::new();
    let pool = FramePool::new(machine.clone(), machine.clone(), 16 << 20);
    let root = tmpfs_root(&pool, 1, LARGE);
    let large = file(&root, "large");
    large.truncate(16 << 20, NOW).unwrap();
    let touch = |index, intent| large.page(index, intent).map(|_| ());
    let (last, room) = (4095, 4096 - 4096 / 16);
    let done = (0..last).take_while(|index| touch(*index, PageIntent::WriteShared).is_ok()).count();
    assert_eq!(done, room as usize);
    assert_eq!(touch(last, PageIntent::WriteShared), Err(PageError::Failed));
    assert_eq!(touch(last, PageIntent::Read), Err(PageError::Failed));
    assert_eq!(touch(0, PageIntent::WriteShared), Ok(()), "what is there can be changed");
    assert_eq!(core::iter::from_fn(|| pool.allocate().ok()).count(), 4096 / 16);
    // A pod that may be given more asks for it.
    machine.set_frame_limit(4096);
    machine.grow_frame_limit(512, 1 << 20);
    let pool = FramePool::new(machine.clone(), machine.clone(), 64 << 20);
    let other = file(&tmpfs_root(&pool, 2, LARGE), "other");
    other.truncate(32 << 20, NOW).unwrap();
    let touched = (0..8192).find_map(|index| other.page(index, PageIntent::WriteShared).err());
    assert_eq!(touched, Some(PageError::OutOfMemory));
}

#[test]
fn a_write_waits_for_memory_that_the_pod_can_have() {
    let machine = FakeMachine::new();
    let pool = FramePool::new(machine.clone(), machine.clone(), 64 << 20);
    machine.set_frame_limit(1024);
    machine.grow_frame_limit(512, 4096);
    let root = tmpfs_root(&pool, 1, LARGE);
    assert_eq!(root.statistics().block_count, 4096, "what it may become");
    let large = file(&root, "large");
    let room = (4096 - 4096 / 16) * 4096;
    assert_eq!(write(&large, 0, &vec![1; 16 << 20]), Ok(room), "one write, all that there can be");
    assert_eq!(write(&large, room as u64, &[1]), Err(Errno::ENOSPC));
    drop((large, root.unlink(b"large", NOW)));
    machine.set_frame_limit(1024);
    let all = file(&root, "allocated");
    let whole = all.allocate(Allocate::Extend, 0, room as u64, NOW);
    assert_eq!((whole, all.metadata().block_count), (Ok(()), room as u64 / 512));
    let own = Limits { bytes_max: 4096, inode_count_max: 3 };
    let small = file(&tmpfs_root(&pool, 2, own), "small");
    machine.set_frame_limit(1024);
    assert_eq!(write(&small, 4096, &[1]).map(|_| write(&small, 0, &[1])), Ok(Err(Errno::ENOSPC)));
    assert_eq!(pool.statistics().limit, 1024, "its own limit is no reason to ask for more");
}

#[test]
fn listing_survives_changes() {
    let root = tmpfs_root(&pool(), 1, LARGE);
    for name in ["a", "b", "c", "d", "e"] {
        file(&root, name);
    }
    let (first, cookie) = names_from(&root, 0, 2);
    assert_eq!(first, [b"a", b"b"]);
    root.unlink(b"b", NOW).unwrap();
    root.unlink(b"c", NOW).unwrap();
    file(&root, "0");
    let (rest, end) = names_from(&root, cookie, 9);
    assert_eq!(rest, [b"d", b"e", b"0"]);
    assert_eq!(names_from(&root, end, 9), (Vec::new(), end));
    file(&root, "b");
    assert_eq!(names_from(&root, end, 9).0, [b"b"]);
    assert_eq!(names_from(&root, cookie, 1), ([b"d".to_vec()].to_vec(), cookie + 2));
}

#[test]
fn mapped_pages_outlive_the_file_and_stay_the_same() {
    let pool = pool();
    let root = tmpfs_root(&pool, 1, LARGE);
    let inode = file(&root, "f");
    assert!(inode.is_mappable());
    assert_eq!(inode.page(0, PageIntent::Read).err(), Some(PageError::BeyondEnd));
    inode.truncate(5000, NOW).unwrap();
    let hole = inode.page(1, PageIntent::Read).unwrap();
    assert_eq!(hole.valid_bytes, 5000 - PAGE_BYTES);
    write(&inode, 4096, b"new").unwrap();
    let same = inode.page(1, PageIntent::WriteShared).unwrap();
    assert_eq!(same.frame.frame(), hole.frame.frame());
    let mut bytes = [0; 3];
    pool.bytes().read(hole.frame.frame(), 0, &mut bytes);
    assert_eq!(&bytes, b"new");
    pool.bytes().write(same.frame.frame(), 0, b"map");
    assert_eq!(read(&inode, 4096, 3), b"map");
    inode.truncate(0, NOW).unwrap();
    root.unlink(b"f", NOW).unwrap();
    drop((inode, same));
    assert_eq!(frames_used(&pool), 1);
    drop(hole);
    assert_eq!(frames_used(&pool), 0);
}

#[test]
fn allocation_reserves_and_holes_free() {
    let pool = pool();
    let root = tmpfs_root(&pool, 1, LARGE);
    let inode = file(&root, "f");
    inode.allocate(Allocate::KeepSize, 0, 3 * 4096, NOW).unwrap();
    assert_eq!((inode.metadata().size_bytes, inode.metadata().block_count), (0, 24));
    write(&inode, 0, &[7; 3 * 4096]).unwrap();
    inode.allocate(Allocate::PunchHole, 100, 2 * 4096, NOW).unwrap();
    assert_eq!(frames_used(&pool), 2);
    let bytes = read(&inode, 0, 3 * 4096);
    let is_hole = |index: &usize| (100..100 + 2 * 4096).contains(index);
    assert!((0..3 * 4096).all(|index| (bytes[index] == 0) == is_hole(&index)));
    let huge = inode.allocate(Allocate::Extend, 0, 1 << 40, NOW);
    assert_eq!(huge, Err(Errno::ENOSPC));
    assert_eq!(inode.allocate(Allocate::Extend, 1 << 62, 1 << 62, NOW), Err(Errno::EFBIG));
    assert_eq!(inode.truncate(1 << 63, NOW), Err(Errno::EFBIG));
    assert_eq!(write(&inode, i64::MAX as u64, &[1]), Err(Errno::EFBIG));
    assert_eq!(write(&inode, i64::MAX as u64 - 1, &[1, 2]), Ok(1));
}

/// Memory of a program that ends after some bytes.
struct Faulty {
    wanted: usize,
    good: usize,
}

impl Destination for Faulty {
    fn remaining(&self) -> usize {
        self.wanted
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.good);
        self.good -= count;
        self.wanted -= count;
        count
    }
}

impl Source for Faulty {
    fn remaining(&self) -> usize {
        self.wanted
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.good);
        into[..count].fill(9);
        self.good -= count;
        self.wanted -= count;
        count
    }
}

#[test]
fn faults_in_the_program_give_short_counts() {
    let root = tmpfs_root(&pool(), 1, LARGE);
    let inode = file(&root, "f");
    let copy = |wanted, good| {
        let mut source = Faulty { wanted, good };
        inode.write_at(WritePosition::At(0), &mut source, NOW).map(|(_, done)| done)
    };
    assert_eq!(copy(100, 0), Err(Errno::EFAULT));
    assert_eq!(copy(100, 40), Ok(40));
    assert_eq!(copy(200_000, 100_001), Ok(100_001));
    assert_eq!(inode.metadata().size_bytes, 100_001);
    let get = |wanted, good| inode.read_at(10, &mut Faulty { wanted, good });
    assert_eq!(get(100, 0), Err(Errno::EFAULT));
    assert_eq!(get(9000, 5000), Ok(5000));
    assert_eq!(get(200_000, 200_000), Ok(99_991));
}

#[test]
fn appends_are_at_the_end() {
    let root = tmpfs_root(&pool(), 1, LARGE);
    let inode = file(&root, "f");
    let append = |bytes: &[u8]| inode.write_at(WritePosition::End, &mut &bytes[..], NOW);
    assert_eq!(append(&[1; 3]), Ok((0, 3)));
    assert_eq!(append(&[2; 100_000]), Ok((3, 100_000)));
    assert_eq!(append(&[3]), Ok((100_003, 1)));
    assert_eq!(read(&inode, 100_002, 9), [2, 3]);
}

#[test]
fn seals_hold() {
    let root = tmpfs_root(&pool(), 1, LARGE);
    let plain = file(&root, "f");
    assert_eq!(plain.seals().unwrap().get(), Seals::SEAL);
    assert_eq!(plain.seals().unwrap().add(Seals::GROW), Err(Errno::EPERM));
    assert!(root.seals().is_none());
    let node: Arc<MemoryNode> = downcast(&root).unwrap();
    let inode = node.create_memory_file(BY_ROOT, Seals::empty()).unwrap();
    write(&inode, 0, b"0123456789").unwrap();
    let seals = inode.seals().unwrap();
    seals.add(Seals::GROW).unwrap();
    assert_eq!(write(&inode, 8, b"abc"), Err(Errno::EPERM));
    assert_eq!(write(&inode, 8, b"ab"), Ok(2));
    assert_eq!(inode.truncate(11, NOW), Err(Errno::EPERM));
    seals.add(Seals::SHRINK | Seals::WRITE).unwrap();
    assert_eq!(inode.truncate(9, NOW), Err(Errno::EPERM));
    assert_eq!(write(&inode, 0, b"x"), Err(Errno::EPERM));
    assert_eq!(inode.allocate(Allocate::PunchHole, 0, 1, NOW), Err(Errno::EPERM));
    seals.add(Seals::SEAL).unwrap();
    assert_eq!(seals.add(Seals::SHRINK), Err(Errno::EPERM));
    assert_eq!(read(&inode, 0, 20), b"01234567ab");
}

#[test]
fn names_do_not_cross_file_systems() {
    let pool = pool();
    let (root, other) = (tmpfs_root(&pool, 1, LARGE), tmpfs_root(&pool, 2, LARGE));
    let inode = file(&root, "f");
    assert_eq!(other.link(b"f", &inode, NOW), Err(Errno::EXDEV));
    let deep = ensure_node(&root, b"/x/y/z", NewNode::Directory, BY_ROOT).unwrap();
    assert_eq!(deep.metadata().link_count, 2);
    assert_eq!(root.metadata().link_count, 3);
    let replace = crate::fs::vnode::RenameMode::Replace;
    assert_eq!(root.rename(b"f", &other, b"f", replace, NOW), Err(Errno::EXDEV));
    let unnamed = root.create_unnamed(BY_ROOT, true).unwrap();
    assert_eq!(unnamed.metadata().link_count, 0);
    root.link(b"named", &unnamed, NOW).unwrap();
    assert_eq!(unnamed.metadata().link_count, 1);
    root.unlink(b"f", NOW).unwrap();
    assert_eq!(root.link(b"g", &inode, NOW), Err(Errno::ENOENT));
}

#[test]
fn no_inodes_no_root() {
    let limits = Limits { bytes_max: 0, inode_count_max: 0 };
    let identity = Identity { device: DeviceNumber::default(), magic: TMPFS_MAGIC };
    let root = MemoryFs::create(pool(), identity, limits, BY_ROOT);
    assert_eq!(root.err(), Some(Errno::ENOSPC));
}

/// Bytes of a program that has others write to the same file while its own write goes on.
struct Meddler<'a> {
    left: usize,
    file: &'a InodeRef,
    refused: Vec<Errno>,
}

impl Source for Meddler<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        if !self.file.metadata().size_bytes.is_multiple_of(7) {
            // In the middle of the write: another writer waits, and ends here only because it is killed.
            let outcomes = [
                self.file.write_at(WritePosition::End, &mut &b"x"[..], NOW).map(|_| ()),
                write(self.file, 0, b"y").map(|_| ()),
                self.file.truncate(1, NOW),
                self.file.allocate(Allocate::Extend, 0, 1 << 20, NOW),
            ];
            self.refused.extend(outcomes.into_iter().filter_map(Result::err));
        }
        into.fill(7);
        self.left -= into.len();
        into.len()
    }
}

#[test]
fn a_long_append_is_not_torn() {
    let (root, pool) = {
        let pool = pool();
        (tmpfs_root(&pool, 1, LARGE), pool)
    };
    let file = file(&root, "a");
    write(&file, 0, &[1; 7]).unwrap();
    let mut source = Meddler { left: 2 << 16, file: &file, refused: Vec::new() };
    let (outcome, _) = interrupted_after(1, Interruption::Kill, || file.write_at(WritePosition::End, &mut source, NOW));
    assert_eq!(outcome, Ok((7, 2 << 16)));
    assert_eq!(source.refused, [Errno::EINTR; 4]);
    let bytes = read(&file, 0, 1 << 20);
    assert!(bytes.len() == 7 + (2 << 16) && bytes[..7] == [1; 7] && bytes[7..].iter().all(|byte| *byte == 7));
    // The next one is alone again.
    assert_eq!(write(&file, 0, b"z"), Ok(1));
    file.truncate(0, NOW).unwrap();
    assert_eq!(frames_used(&pool), 0);
}

#[test]
fn whoever_is_killed_writes_and_reads_no_further() {
    let root = tmpfs_root(&pool(), 1, LARGE);
    let file = file(&root, "a");
    let bytes = vec![3; 8 << 16];
    let (written, point_count) = interrupted_after(1, Interruption::Kill, || write(&file, 0, &bytes));
    assert_eq!((written, point_count), (Ok(2 << 16), 2));
    assert_eq!(write(&file, 0, &bytes), Ok(8 << 16), "the mark of the one who was killed is gone");
    let mut buffer = Buffer::with_limit(8 << 16);
    let (read, _) = interrupted_after(1, Interruption::Kill, || file.read_at(0, &mut buffer));
    assert!((1 << 16..4 << 16).contains(&read.unwrap()));
    let (read, _) = interrupted_after(0, Interruption::Signal, || file.read_at(0, &mut Buffer::with_limit(8 << 16)));
    assert_eq!(read, Ok(8 << 16), "a signal that does not end the process ends no read of a file");
}

#[test]
fn space_is_reserved_and_given_back_piece_by_piece() {
    let pool = pool();
    let root = tmpfs_root(&pool, 1, LARGE);
    let file = file(&root, "a");
    let length = 1000 * 4096;
    let allocate = |mode| file.allocate(mode, 0, length, NOW);
    let (outcome, _) = interrupted_after(2, Interruption::Signal, || allocate(Allocate::Extend));
    assert_eq!((outcome, file.metadata().size_bytes), (Err(Errno::EINTR), 0));
    assert_eq!(frames_used(&pool), 3 * 128);
    assert_eq!(interrupted_after(u64::MAX, Interruption::None, || allocate(Allocate::Extend)), (Ok(()), 7));
    assert_eq!((file.metadata().size_bytes, frames_used(&pool)), (length, 1000));
    allocate(Allocate::PunchHole).unwrap();
    assert_eq!((file.metadata().block_count, frames_used(&pool)), (0, 0));
    // A hole as large as a file can be has nothing to look at.
    file.truncate(1 << 62, NOW).unwrap();
    assert_eq!(write(&file, 1 << 61, &[1; 5000]), Ok(5000));
    file.allocate(Allocate::PunchHole, 1, 1 << 62, NOW).unwrap();
    assert_eq!(frames_used(&pool), 0);
    allocate(Allocate::KeepSize).unwrap();
    let (_, point_count) = interrupted_after(0, Interruption::Kill, || file.truncate(4096, NOW));
    assert!(point_count >= 7, "{point_count}");
    assert_eq!((file.metadata().block_count, frames_used(&pool)), (8, 1));
    drop(file);
    root.unlink(b"a", NOW).unwrap();
    assert_eq!((frames_used(&pool), root.statistics().free_block_count), (0, pool.limit_at_most()));
}
