//! `/proc` over a small provider: names, links, texts, and descriptions that jump.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{DescriptorView, OpenText, ProcessLink, ProcessProvider, ProcessText, SystemText};
use crate::error::{Errno, Result};
use crate::fs::description::{Description, StatusFlags};
use crate::fs::location::{Location, MountFlags};
use crate::fs::metadata::{DeviceNumber, Timestamp};
use crate::fs::namespace::{Access, OpenFlags};
use crate::fs::permission::Owner;
use crate::fs::test_support::{NOW, World, contents, described};
use crate::fs::transfer::Buffer;
use crate::fs::vnode::{InodeRef, NewNode, ProcessName};
use crate::fs::walk::LookupFlags;
use crate::sync::Mutex;

struct Facts {
    root: Location,
    descriptors: Mutex<Vec<Arc<Description>>>,
    reads: Arc<Mutex<u32>>,
    is_closed: Mutex<bool>,
}

/// A text of a process; or of a descriptor, by its number.
struct Answer(core::result::Result<(ProcessName, ProcessText), u32>, Arc<Mutex<u32>>);

impl OpenText for Answer {
    fn append(&self, out: &mut Vec<u8>) -> Result<()> {
        match &self.0 {
            Ok((name, text)) => {
                *self.1.lock() += 1;
                out.extend_from_slice(format!("{name:?} {text:?} {}\n", *self.1.lock()).as_bytes());
            }
            Err(number) => out.extend_from_slice(format!("pos:\t{number}\n").as_bytes()),
        }
        Ok(())
    }

    fn set(&self, value: &[u8]) -> Result<()> {
        match (&self.0, value) {
            (Ok((_, ProcessText::OutOfMemoryAdjust)), b"10") => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl ProcessProvider for Facts {
    fn current(&self) -> (u32, u32) {
        (7, 8)
    }

    fn processes(&self) -> Vec<u32> {
        alloc::vec![1, 7]
    }

    fn owner(&self, name: ProcessName) -> Option<(u32, u32)> {
        let threads = self.threads(name);
        let has_thread = name.thread.is_none_or(|thread| threads.contains(&thread));
        (matches!(name.process, 1 | 7) && has_thread).then_some((5, 6))
    }

    fn named(&self, name: ProcessName) -> Option<ProcessName> {
        self.owner(name).map(|_| name)
    }

    fn threads(&self, name: ProcessName) -> Vec<u32> {
        if name.process == 1 { alloc::vec![1] } else { alloc::vec![7, 8] }
    }

    fn open_text(&self, name: ProcessName, text: ProcessText) -> Result<Arc<dyn OpenText>> {
        Ok(Arc::new(Answer(Ok((name, text)), self.reads.clone())))
    }

    fn check_look(&self, _: ProcessName) -> Result<()> {
        if *self.is_closed.lock() { Err(Errno::EACCES) } else { Ok(()) }
    }

    fn process_link(&self, _: ProcessName, link: ProcessLink) -> Result<Location> {
        match link {
            ProcessLink::Program => Err(Errno::ENOENT),
            _ => Ok(self.root.clone()),
        }
    }

    fn descriptors(&self, _: ProcessName) -> Vec<u32> {
        (0..self.descriptors.lock().len() as u32).collect()
    }

    fn descriptor(&self, _: ProcessName, number: u32) -> Result<DescriptorView> {
        let descriptors = self.descriptors.lock();
        let description = descriptors.get(number as usize).ok_or(Errno::EBADF)?;
        Ok(DescriptorView {
            location: description.location().clone(),
            is_readable: description.is_readable(),
            is_writable: description.is_writable(),
        })
    }

    fn open_descriptor_text(&self, _: ProcessName, number: u32) -> Result<Arc<dyn OpenText>> {
        Ok(Arc::new(Answer(Err(number), self.reads.clone())))
    }

    fn system_text(&self, text: SystemText, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(format!("{text:?}\n").as_bytes());
        Ok(())
    }

    fn set_system_text(&self, _: SystemText, _: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }
}

fn world() -> (World, Arc<Facts>) {
    let world = World::tmpfs();
    let caller = world.caller();
    let over = world.namespace.create(&caller, &world.root, b"/proc", NewNode::Directory, 0o755);
    let facts = Arc::new(Facts {
        root: world.root.clone(),
        descriptors: Mutex::default(),
        reads: Arc::default(),
        is_closed: Mutex::default(),
    });
    let root = super::root(facts.clone(), DeviceNumber { major: 0, minor: 21 }, NOW);
    world.namespace.mount(&over.unwrap(), root, described(MountFlags::empty()));
    (world, facts)
}

fn link(world: &World, path: &str) -> Result<Vec<u8>> {
    world.namespace.read_link(&world.caller(), &world.root, path.as_bytes())
}

fn open(world: &World, path: &str) -> Result<Arc<Description>> {
    world.open(path, Access::Read, OpenFlags::empty(), StatusFlags::empty())
}

#[test]
fn names_and_texts() {
    let (world, _) = world();
    assert_eq!(link(&world, "/proc/self"), Ok(b"7".to_vec()));
    assert_eq!(link(&world, "/proc/thread-self"), Ok(b"7/task/8".to_vec()));
    assert_eq!(world.get("/proc/meminfo"), Ok(b"Memory\n".to_vec()));
    assert_eq!(world.get("/proc/sys/kernel/random/uuid"), Ok(b"Uuid\n".to_vec()));
    assert_eq!(
        world.get("/proc/mounts"),
        world.get("/proc/self/mounts").map(|text| {
            let line = core::str::from_utf8(&text).unwrap();
            line.replace(" 2", " 1").into_bytes()
        })
    );
    assert_eq!(world.get("/proc/9/stat"), Err(Errno::ENOENT));
    assert_eq!(world.get("/proc/07/stat"), Err(Errno::ENOENT));
    assert_eq!(world.get("/proc/self/task/9/stat"), Err(Errno::ENOENT));
    assert_eq!(world.get("/proc/self/task/8/task"), Err(Errno::ENOENT));
    assert_eq!(world.get("/proc/sys/kernel"), Err(Errno::EISDIR));
    let created = world.open("/proc/x", Access::Write, OpenFlags::CREATE, StatusFlags::empty());
    assert_eq!(created.err(), Some(Errno::ENOENT));
}

#[test]
fn a_text_stays_the_same_while_it_is_read() {
    let (world, _) = world();
    let file = open(&world, "/proc/self/task/8/status").unwrap();
    assert_eq!(file.metadata().size_bytes, 0);
    let read = |length| {
        let mut buffer = Buffer::with_limit(length);
        file.read(&mut buffer, NOW).map(|_| buffer.bytes)
    };
    let mut text = read(20).unwrap();
    open(&world, "/proc/self/stat").and_then(|other| contents(&other)).unwrap();
    text.extend(read(1000).unwrap());
    assert!(text.ends_with(b"Status 1\n"), "{text:?}");
    assert_eq!(read(10), Ok(Vec::new()));
    assert!(contents(&file).unwrap().ends_with(b"Status 3\n"));
    let adjust =
        world.open("/proc/self/oom_score_adj", Access::ReadWrite, OpenFlags::TRUNCATE, StatusFlags::empty()).unwrap();
    assert_eq!(adjust.write(&mut &b"10"[..], NOW), Ok(2));
    assert_eq!(adjust.write(&mut &b"x"[..], NOW), Err(Errno::EINVAL));
}

fn every_name(inode: &InodeRef) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let mut is_first = true;
        let reached = inode.read_directory(cookie, &mut |entry| {
            let accepted = core::mem::take(&mut is_first);
            if accepted {
                names.push(entry.name.to_vec());
            }
            accepted
        });
        match reached.unwrap() {
            same if same == cookie => return names,
            next => cookie = next,
        }
    }
}

#[test]
fn every_listed_name_is_found_and_no_number_twice() {
    let (world, facts) = world();
    facts.descriptors.lock().push(world.create("/file"));
    let find = |path: &str| {
        let flags = LookupFlags::FOLLOW;
        world.namespace.lookup(&world.caller(), &world.root, path.as_bytes(), flags).unwrap()
    };
    let mut numbers = alloc::collections::BTreeMap::new();
    let mut pending = alloc::vec![find("/proc").inode().clone()];
    while let Some(directory) = pending.pop() {
        let names = every_name(&directory);
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "twice: {name:?}");
            let inode = directory.lookup(name).unwrap();
            let metadata = inode.metadata();
            let before = numbers.insert(metadata.inode_number, name.clone());
            // Threads show the descriptors of their process, which are the same files.
            if before.is_some() && matches!(&name[..], b"fd" | b"fdinfo") {
                continue;
            }
            assert_eq!(before, None, "number of {name:?}");
            if metadata.kind == crate::fs::metadata::FileKind::Directory {
                pending.push(inode);
            }
        }
    }
    assert!(numbers.len() > 100);
}

#[test]
fn descriptor_links_jump() {
    let (world, facts) = world();
    world.put("/file", b"content");
    let file = open(&world, "/file").unwrap();
    let (reader, writer) = world.namespace.pipe(StatusFlags::NON_BLOCKING, Owner::default(), Timestamp::default());
    facts.descriptors.lock().extend([file, reader.clone(), writer]);
    assert_eq!(link(&world, "/proc/self/fd/0"), Ok(b"/file".to_vec()));
    let number = reader.metadata().inode_number;
    let pipe_name = format!("pipe:[{number}]").into_bytes();
    assert_eq!(link(&world, "/proc/self/fd/1"), Ok(pipe_name));
    assert_eq!(link(&world, "/proc/self/fd/9"), Err(Errno::ENOENT));
    world.namespace.unlink(&world.caller(), &world.root, b"file").unwrap();
    assert_eq!(link(&world, "/proc/self/fd/0"), Ok(b"/file (deleted)".to_vec()));
    assert_eq!(world.get("/proc/self/fd/0"), Ok(b"content".to_vec()));
    let again = world.open("/proc/self/fd/2", Access::Write, OpenFlags::empty(), StatusFlags::empty()).unwrap();
    assert_eq!(again.write(&mut &b"through"[..], NOW), Ok(7));
    let mut buffer = Buffer::with_limit(9);
    assert_eq!(reader.read(&mut buffer, NOW), Ok(7));
    let no_follow = StatusFlags::NO_FOLLOW;
    let refused = world.open("/proc/self/fd/0", Access::Read, OpenFlags::empty(), no_follow);
    assert_eq!(refused.err(), Some(Errno::ELOOP));
    assert_eq!(world.get("/proc/self/exe"), Err(Errno::ENOENT));
    assert_eq!(link(&world, "/proc/self/cwd"), Ok(b"/".to_vec()));
    world.put("/other", b"x");
    assert_eq!(world.get("/proc/self/cwd/other"), Ok(b"x".to_vec()));
    assert_eq!(world.get("/proc/self/fdinfo/1"), Ok(b"pos:\t1\n".to_vec()));
    let view = world.namespace.lookup(&world.caller(), &world.root, b"/proc/self/fd/2", LookupFlags::NO_FOLLOW);
    assert_eq!(view.unwrap().inode().metadata().permissions, 0o300);
}

#[test]
fn descriptors_of_a_process_that_is_closed_are_nobodys_to_see() {
    let (world, facts) = world();
    world.put("/file", b"text");
    facts.descriptors.lock().push(open(&world, "/file").unwrap());
    for is_closed in [false, true] {
        *facts.is_closed.lock() = is_closed;
        let expected = is_closed.then_some(Errno::EACCES);
        assert_eq!(open(&world, "/proc/1/fdinfo").err(), expected);
        assert_eq!(open(&world, "/proc/1/fdinfo/0").err(), expected);
        assert_eq!(open(&world, "/proc/1/fd/0").err(), expected);
        assert_eq!(link(&world, "/proc/1/fd/0").err(), expected);
    }
}
