//! The texts as programs read them through `/proc`, against the formats of Linux 6.1.

use exos::error::Errno;
use exos::fs::location::Location;
use exos::fs::metadata::Timestamp;
use exos::fs::open_file::OpenRequest;
use exos::fs::permission::Credentials;
use exos::fs::walk::{Caller, LookupFlags};
use exos::task::capability::Capabilities;
use exos::task::limits::{Limit, Resource};
use exos::task::signal::{Disposition, Signal};

use crate::task::process::Ending;
use crate::task::used_time::{GoneTimes, UsedTime};
use crate::testing::pod::{LIMIT_BYTES, START_S, World};

/// The value behind `label` in a text of `label:\tvalue` lines.
fn field<'a>(text: &'a str, label: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{label} is missing in\n{text}")).trim()
}

#[test]
fn maps_lines_have_linuxs_columns() {
    let world = World::new();
    let file = world.create("/a file", &[7; 0x3000]);
    world.map_zeros(0x10_0000, 0x2000);
    world.map_code(0x5555_5555_4000, 0x1000, &file, 0x2000);
    let inode = file.metadata().inode_number;
    let head = format!("555555554000-555555555000 r-xp 00002000 00:02 {inode} ");
    let expected = format!("00100000-00102000 rw-p 00000000 00:00 0 \n{head:<73}/a file\n");
    assert_eq!(world.read("/proc/self/maps").unwrap(), expected);
}

#[test]
fn statm_and_status_count_what_is_present() {
    let world = World::new();
    world.map_zeros(0x10_0000, 0x4000);
    world.pod.process.space().lock().write_all(0x10_0000, &[1]).unwrap();
    let (resident, peak) = {
        let totals = world.pod.process.space().lock().totals();
        (totals.resident_anonymous + totals.resident_file, totals.resident_peak)
    };
    assert!(resident >= 1);
    assert_eq!(world.read("/proc/self/statm").unwrap(), format!("4 {resident} 0 0 0 4 0\n"));
    let status = world.read("/proc/self/status").unwrap();
    assert!(status.contains("\nVmSize:\t      16 kB\n"), "{status}");
    assert_eq!(field(&status, "VmRSS"), format!("{} kB", resident * 4));
    assert_eq!(field(&status, "VmHWM"), format!("{} kB", peak * 4));
    assert_eq!(field(&status, "VmData"), "16 kB");
    let rollup = world.read("/proc/self/smaps_rollup").unwrap();
    let head = format!("{:<73}[rollup]\n", "00100000-00104000 ---p 00000000 00:00 0 ");
    assert!(rollup.starts_with(&head), "{rollup}");
    assert!(rollup.contains(&format!("Rss:            {:>8} kB\n", resident * 4)), "{rollup}");
}

#[test]
fn status_tells_identity_and_signals() {
    let world = World::new();
    {
        let mut signals = world.pod.process.signals.lock();
        let caught = Disposition { handler: 0x1000, ..Disposition::default() };
        signals.dispositions.set(Signal::INT, caught).unwrap();
        signals.dispositions.set(Signal::PIPE, Disposition { handler: 1, ..caught }).unwrap();
        world.pod.thread.identities.lock().groups = vec![4, 27];
    }
    world.pod.thread.signals.lock().set_mask(Signal::USR1.bit());
    let status = world.read("/proc/self/status").unwrap();
    assert!(status.starts_with("Name:\tprogram\nUmask:\t0022\nState:\tR (running)\nTgid:\t1\nNgid:\t0\nPid:\t1\n"));
    assert!(status.contains("\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t4 27 \n"), "{status}");
    assert_eq!(field(&status, "SigCgt"), "0000000000000002");
    assert_eq!(field(&status, "SigIgn"), "0000000000001000");
    assert_eq!(field(&status, "SigBlk"), "0000000000000200");
    assert_eq!(field(&status, "CapEff"), "000001ffffffffff");
    assert_eq!(field(&status, "Threads"), "1");
    assert_eq!((field(&status, "Cpus_allowed"), field(&status, "Cpus_allowed_list")), ("3", "0-1"));
    assert!(status.lines().all(|line| line.split_once(":\t").is_some()), "{status}");
    world.pod.thread.identities.lock().capabilities = Capabilities::of_user(5);
    assert_eq!(field(&world.read("/proc/self/status").unwrap(), "CapEff"), "0000000000000000");
}

fn used(whole_ms: u64, system_ms: u64) -> UsedTime {
    UsedTime { whole_ns: whole_ms * 1_000_000, system_ns: system_ms * 1_000_000 }
}

#[test]
fn stat_has_52_fields_behind_a_name_with_brackets() {
    let world = World::new();
    let (ended_threads, children) = (used(6_170, 170), used(50, 20));
    *world.pod.process.times.lock() = GoneTimes { ended_threads, children, ..GoneTimes::default() };
    *world.pod.thread.name.lock() = b"a) (b".to_vec();
    let text = world.read("/proc/self/stat").unwrap();
    let rest = text.strip_prefix("1 (a) (b) ").unwrap().strip_suffix('\n').unwrap();
    let fields: Vec<&str> = rest.split(' ').collect();
    assert_eq!(fields.len(), 50, "{text}");
    // State, parent; times in ticks; priority; threads; start time.
    assert_eq!((fields[0], fields[1], &fields[11..15]), ("R", "0", &["600", "17", "3", "2"][..]));
    assert_eq!((fields[15], fields[17]), ("20", "1"));
    assert_eq!(fields[19], "1234");
    assert_eq!(fields[22], "18446744073709551615");
    let system = &world.pod.system;
    system.scheduler.adopt(0, &world.pod.thread.task);
    let _ = system.scheduler.block(0, None, 0);
    assert!(world.read("/proc/self/stat").unwrap().contains(") S "));
    world.pod.process.pause.lock().stopped_by = Some(Signal::STOP);
    assert!(world.read("/proc/self/stat").unwrap().contains(") T "));
    world.pod.process.end(Ending::Exited(0));
    assert!(world.read("/proc/self/stat").unwrap().contains(") Z "));
}

#[test]
fn limits_is_a_table() {
    let world = World::new();
    let limit = Limit { soft: 5, hard: u64::MAX };
    world.pod.process.limits.lock().set(Resource::Nice as usize, limit, true).unwrap();
    let text = world.read("/proc/self/limits").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 17);
    assert_eq!(lines[0], "Limit                     Soft Limit           Hard Limit           Units     ");
    assert_eq!(lines[4], "Max stack size            8388608              unlimited            bytes     ");
    assert_eq!(lines[14], "Max nice priority         5                    unlimited            ");
}

#[test]
fn the_program_tells_what_it_was_started_with() {
    let world = World::new();
    {
        let mut image = world.pod.process.image.lock();
        let image = alloc::sync::Arc::make_mut(&mut image);
        image.arguments = vec![b"ls".to_vec(), b"".to_vec(), b"-l".to_vec()];
        image.environment = vec![b"A=1".to_vec()];
    }
    assert_eq!(world.read("/proc/self/cmdline").unwrap(), "ls\0\0-l\0");
    assert_eq!(world.read("/proc/1/environ").unwrap(), "A=1\0");
    assert_eq!(world.read("/proc/thread-self/comm").unwrap(), "program\n");
    assert_eq!(world.read("/proc/self/cgroup").unwrap(), "0::/\n");
    assert_eq!(world.read("/proc/2/comm"), Err(Errno::ENOENT));
    assert_eq!(world.read("/proc/self/task/2/comm"), Err(Errno::ENOENT));
}

#[test]
fn mounts_are_those_of_the_name_space() {
    let world = World::new();
    let text = world.read("/proc/mounts").unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("overlay / overlay rw,relatime 0 0"));
    assert!(text.contains("\nproc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"), "{text}");
    assert!(text.contains("\nsysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0\n"), "{text}");
    assert!(text.contains("\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n"), "{text}");
    let text = world.read("/proc/self/mountinfo").unwrap();
    assert!(text.starts_with("1 1 0:2 / / rw,relatime - overlay overlay rw\n"), "{text}");
    assert!(text.contains(" 1 0:3 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw\n"), "{text}");
}

#[test]
fn descriptors_tell_offset_and_flags() {
    let world = World::new();
    let file = world.create("/f", b"12345");
    world.pod.process.files.add(file.clone(), true).unwrap();
    let inode = file.metadata().inode_number;
    let expected = format!("pos:\t5\nflags:\t02100002\nmnt_id:\t1\nino:\t{inode}\n");
    assert_eq!(world.read("/proc/self/fdinfo/3").unwrap(), expected);
    assert_eq!(world.read("/proc/self/fd/3").unwrap(), "12345");
    assert_eq!(world.read("/proc/self/fdinfo/9"), Err(Errno::ENOENT));
}

#[test]
fn what_is_written_is_kept_or_refused() {
    let world = World::new();
    assert_eq!(world.write("/proc/self/comm", "0123456789abcdefg"), Ok(17));
    assert_eq!(*world.pod.thread.name.lock(), b"0123456789abcde");
    assert_eq!(world.write("/proc/self/oom_score_adj", "-500\n"), Ok(5));
    assert_eq!(world.read("/proc/self/oom_score_adj").unwrap(), "-500\n");
    assert_eq!(world.write("/proc/self/oom_score_adj", "1001"), Err(Errno::EINVAL));
    assert_eq!(world.write("/proc/self/oom_score_adj", "x"), Err(Errno::EINVAL));
    assert_eq!(world.write("/proc/sys/kernel/hostname", "box\n"), Ok(4));
    assert_eq!(world.read("/proc/sys/kernel/hostname").unwrap(), "box\n");
    assert_eq!(*world.pod.system.hostname.lock(), b"box");
    assert_eq!(world.write("/proc/sys/vm/overcommit_ratio", "1"), Err(Errno::EPERM));
    assert_eq!(world.write("/proc/sys/vm/swappiness", "33"), Ok(2));
    assert_eq!(world.write("/proc/sys/vm/swappiness", ""), Ok(0));
    assert_eq!(world.write("/proc/sys/vm/swappiness", "9999"), Err(Errno::EINVAL));
    assert_eq!(world.read("/proc/sys/vm/swappiness").unwrap(), "33\n");
}

#[test]
fn meminfo_is_the_pods() {
    let world = World::new();
    let text = world.read("/proc/meminfo").unwrap();
    assert!(text.starts_with(&format!("MemTotal:       {:>8} kB\nMemFree:        ", LIMIT_BYTES / 1024)), "{text}");
    let kib = |label| field(&text, label).strip_suffix(" kB").unwrap().parse::<u64>().unwrap();
    assert!(kib("MemFree") <= kib("MemTotal") && kib("MemFree") > 0);
    assert_eq!(kib("MemAvailable"), kib("MemFree"));
    assert_eq!(kib("MemTotal"), kib("MemFree") + kib("Cached") + kib("AnonPages"));
    assert_eq!(field(&text, "HugePages_Total"), "0");
}

#[test]
fn times_follow_the_clock() {
    let world = World::new();
    // 12.34 s up, two processors, 6.17 s used.
    assert_eq!(world.read("/proc/uptime").unwrap(), "12.34 18.51\n");
    let stat = world.read("/proc/stat").unwrap();
    assert!(stat.starts_with("cpu  617 0 0 1851 0 0 0 0 0 0\ncpu0 617 0 0 617 0 "), "{stat}");
    assert!(stat.contains(&format!("\nbtime {START_S}\n")), "{stat}");
    assert_eq!(world.read("/proc/loadavg").unwrap(), "0.00 0.00 0.00 1/1 1\n");
}

#[test]
fn identifiers_are_random_uuids_and_the_boots_stays() {
    let world = World::new();
    let boot = world.read("/proc/sys/kernel/random/boot_id").unwrap();
    let parts: Vec<usize> = boot.trim_end().split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12]);
    assert_eq!((&boot[14..15], boot.len()), ("4", 37));
    assert_eq!(world.read("/proc/sys/kernel/random/boot_id").unwrap(), boot);
    let uuid = || world.read("/proc/sys/kernel/random/uuid").unwrap();
    assert_ne!(uuid(), uuid());
}

#[test]
fn cpuinfo_names_what_can_be_used() {
    let world = World::new();
    {
        let mut cpuid = world.platform.cpuid.lock();
        cpuid.insert((0, 0), [7, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]);
        // Family 6, model 0x55, stepping 7; fpu, sse2; fma, avx.
        cpuid.insert((1, 0), [0x0005_0657, 8 << 8, 1 << 12 | 1 << 28, 1 | 1 << 26]);
        cpuid.insert((7, 0), [0, 1 << 5 | 1 << 16, 0, 0]);
        cpuid.insert((0x8000_0000, 0), [0x8000_0008, 0, 0, 0]);
        cpuid.insert((0x8000_0001, 0), [0, 0, 1, 1 << 29]);
        cpuid.insert((0x8000_0002, 0), [u32::from_le_bytes(*b"  Te"), u32::from_le_bytes(*b"st 9"), 0, 0]);
        cpuid.insert((0x8000_0008, 0), [0x302e, 0, 0, 0]);
    }
    let text = world.read("/proc/cpuinfo").unwrap();
    assert_eq!(text.matches("processor\t: ").count(), 2);
    assert!(text.starts_with("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"), "{text}");
    assert!(text.contains("\nmodel name\t: Test 9\nstepping\t: 7\n"), "{text}");
    assert!(text.contains("\nflags\t\t: fpu sse2 lm fma avx lahf_lm avx2\n"), "{text}");
    assert!(text.contains("\naddress sizes\t: 46 bits physical, 48 bits virtual\n"), "{text}");
    assert!(text.ends_with("power management:\n\n"));
    *world.platform.vector_state.lock() = 3;
    let text = world.read("/proc/cpuinfo").unwrap();
    assert!(text.contains("\nflags\t\t: fpu sse2 lm lahf_lm\n"), "{text}");
}

#[test]
fn every_text_can_be_read() {
    let world = World::new();
    let texts = exos::fs::proc_fs::SystemText::ALL.iter().map(|row| format!("/proc/{}", row.0));
    let own = exos::fs::proc_fs::ProcessText::ALL.iter().map(|row| format!("/proc/self/{}", row.0));
    for path in texts.chain(own) {
        let text = world.read(&path).unwrap_or_else(|error| panic!("{path}: {error:?}"));
        // Without a card nothing listens to groups, and without a disk nothing is counted.
        let may_be_empty = ["auxv", "environ", "cmdline", "maps", "dev_mcast", "diskstats", "partitions"]
            .iter()
            .any(|name| path.ends_with(name));
        assert!(may_be_empty || !text.is_empty(), "{path}");
    }
}

#[test]
fn a_process_comes_and_goes() {
    let world = World::new();
    let listing = alloc::sync::Arc::<crate::task::listing::Listing>::default();
    let facts = super::ProcFacts::new(&listing);
    listing.add_process(world.pod.process.clone(), world.pod.thread.clone());
    use exos::fs::proc_fs::ProcessProvider;
    use exos::fs::vnode::ProcessName;
    let name = ProcessName { process: 1, thread: None, birth: 0 };
    assert_eq!((facts.processes(), facts.current(), facts.owner(name)), (vec![1], (1, 1), Some((0, 0))));
    let text = exos::fs::proc_fs::ProcessText::Status;
    assert_eq!(facts.open_text(name, text).err(), Some(Errno::ENOENT), "no system yet");
    listing.remove_process(1);
    listing.remove_process(1);
    assert_eq!((facts.processes(), facts.owner(name), facts.threads(name)), (vec![], None, vec![]));
}

/// What was found stays with the process that it was found of.
#[test]
fn a_number_that_is_given_again_is_another() {
    let (world, other) = (World::new(), World::new());
    let namespace = world.pod.system.files.namespace.clone();
    let root = &namespace.root();
    let caller = Caller { root, credentials: &Credentials::ROOT, umask: 0, now: Timestamp::default() };
    let find = |start: &Location, path: &[u8]| namespace.lookup(&caller, start, path, LookupFlags::FOLLOW);
    let facts = world.pod.system.listing.clone();
    let paths = ["1", "1/fd", "1/ns", "1/task", "1/task/1", "1/status", "1/exe"];
    let held = paths.map(|path| {
        let found = namespace.lookup(&caller, root, format!("/proc/{path}").as_bytes(), LookupFlags::default());
        (path, found.unwrap_or_else(|error| panic!("{path}: {error:?}")))
    });
    let names = |place: &Location| place.inode().read_directory(0, &mut |_| true).map(|_| ());
    for (path, place) in &held[..5] {
        assert_eq!(names(place), Ok(()), "{path}");
    }
    facts.remove_process(1);
    for is_given_again in [false, true] {
        if is_given_again {
            facts.add_process(other.pod.process.clone(), other.pod.thread.clone());
            assert!(find(root, b"/proc/1/status").is_ok());
        }
        for (path, place) in &held[..5] {
            assert_eq!(names(place), Err(Errno::ENOENT), "{path}");
        }
        let errors = [(0, "status", Errno::ESRCH), (1, "0", Errno::ENOENT), (2, "pid", Errno::ENOENT)];
        for (which, name, error) in errors.into_iter().chain([(3, "1", Errno::ESRCH), (4, "stat", Errno::ESRCH)]) {
            let found = find(&held[which].1, name.as_bytes()).map(|_| ());
            assert_eq!(found, Err(error), "{name} in {}", held[which].0);
        }
        let opened =
            held[5].1.inode().open(OpenRequest { read: true, write: false, non_blocking: false }, &Credentials::ROOT);
        assert_eq!(opened.err(), Some(Errno::ESRCH));
        assert_eq!(held[6].1.inode().follow_link().err(), Some(Errno::ENOENT));
        assert!(facts.process(held[0].1.inode().process_name().unwrap()).is_err());
    }
}
