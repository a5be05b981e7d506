//! Pools in files as users write them, and the images behind them.

use std::path::{Path, PathBuf};

use super::{MachinePool, POOL_POD_COUNT_MAX, foreign_driver, has_pool};
use crate::options::drivers::{drivers, parse_driver};
use crate::verb::up_file::{UpFile, parse};
use aegis_launch::pool::medium::ImageFile;
use aegis_launch::pool::{Pool, look};
use aegis_link::disks::DiskFlags;

/// A folder with an image of 16 MiB, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-up-pool-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::File::create(path.join("pool.img")).and_then(|file| file.set_len(16 << 20)).expect("a file");
        Self(path)
    }

    fn file(&self, pods: &[(&str, &str)]) -> UpFile {
        parse(&text(pods), &self.0).unwrap_or_else(|why| panic!("{why}"))
    }

    fn take(&self, pods: &[(&str, &str)]) -> Result<Option<MachinePool>, String> {
        Ok(self.told(pods)?.map(|(pool, _)| pool))
    }

    /// The same with what the user is told.
    fn told(&self, pods: &[(&str, &str)]) -> Result<Option<(MachinePool, Vec<String>)>, String> {
        MachinePool::take_and_tell(&self.file(pods), false).map_err(|why| why.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(pods: &[(&str, &str)]) -> String {
    let pods = pods.iter().map(|(name, disks)| format!("[pod.{name}]\nprogram = \"ls\"\ndisk = [{disks}]\n"));
    format!("[disk.pool]\nimage = \"pool.img\"\n{}", pods.collect::<String>())
}

fn refusal(text: &str) -> String {
    match parse(text, Path::new("/f")) {
        Err(error) => error.to_string(),
        Ok(file) => panic!("{text}: {file:?}"),
    }
}

#[test]
fn a_pool_is_read() {
    let pods = [("db", "\"pool:db,size=4G\""), ("web", "\"own.raw\",\n\"pool:web\", \"pool:old,ro\"")];
    let file = parse(&text(&pods), Path::new("/f")).expect("understood");
    assert_eq!(file.pool.as_deref(), Some(Path::new("/f/pool.img")));
    let web = &file.pods[1].options.disks;
    assert_eq!((web.disks.len(), file.pods[1].extent_count(), file.pods[0].extent_count()), (1, 2, 1));
    let (pooled, own) = (DiskFlags::POOLED, DiskFlags::empty());
    assert_eq!(web.config().disks, [own, pooled, pooled | DiskFlags::READ_ONLY]);
    assert!(has_pool(&file));
    let unused = parse(&text(&[("a", "")]), Path::new("/f")).expect("understood");
    assert!(!has_pool(&unused) && MachinePool::take_and_tell(&unused, false).expect("left alone").is_none());
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let many = |count: usize, disk: &str| {
        let names: Vec<String> = (0..count).map(|number| format!("p{number}")).collect();
        let pods: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), disk)).collect();
        text(&pods)
    };
    let nine: Vec<String> = (0..9).map(|number| format!("\"pool:e{number}\"")).collect();
    let full = text(&[("a", &nine[..4].join(",")), ("b", &nine[4..].join(","))]);
    let crowd = many(POOL_POD_COUNT_MAX, "") + "[pod.last]\nprogram = \"ls\"\ndisk = [\"pool:x\"]\n";
    let pod = "[pod.a]\nprogram = \"ls\"\n";
    for (text, part) in [
        (format!("{pod}disk = [\"x\",\n\"pool:a\"]\n"), "line 4: disk: pool:a: no pool; write [disk.pool]"),
        (format!("{pod}[disk.pool]\n"), "line 3: [disk.pool] has no image"),
        (format!("{pod}[disk.pool]\nimage = \"i\"\nsize = 1\n"), "line 5: size: unknown; known here: image"),
        (format!("{pod}[disk.pool]\nimage = 1\n"), "line 4: image: a string is wanted"),
        (format!("{pod}[disk.other]\nimage = \"i\"\n"), "line 3: other: unknown; known here: [disk.pool]"),
        (text(&[("a", "\"pool:x\""), ("b", "\"pool:x,ro\"")]), "line 8: disk: pool:x: pod a has it already"),
        (text(&[("a", "\"pool:x\", \"pool:x\"")]), "line 5: disk: pool:x: twice the same"),
        (text(&[("a", "\"pool:x,size=5K\"")]), "line 5: disk: 5K: an extent has whole MiB"),
        (text(&[("a", "1")]), "line 5: disk: a string is wanted"),
        (full, "line 8: disk: pool:e8: the pods of a machine have at most 8 extents"),
        (crowd, "13 pods; a machine with a pool has at most 12"),
    ] {
        let why = refusal(&text);
        assert!(why.contains(part), "{text}: {why}");
    }
}

#[test]
fn a_kernel_that_drives_disks_has_no_pool_beside_it() {
    let in_kernel = drivers(&[parse_driver("disk=kernel").expect("a driver")]);
    let all = [drivers(&[]), in_kernel];
    let file = |disk| parse(&text(&[("a", disk), ("b", "")]), Path::new("/f")).expect("understood");
    assert_eq!(foreign_driver(&file("\"pool:x\""), &all).map(|(pod, _)| pod), Some(1));
    assert_eq!(foreign_driver(&file("\"own\""), &all), None);
    assert_eq!(foreign_driver(&file("\"pool:x\""), &all[..1]), None);
}

#[test]
fn pods_get_their_extents() {
    let folder = Folder::new("extents");
    let pods = [("db", "\"pool:db,size=4M\", \"pool:log,size=1M\""), ("web", "\"own.raw\", \"pool:web,size=2M,ro\"")];
    let (pool, made) = folder.told(&pods).expect("room").expect("a pool");
    assert_eq!(made.len(), 3);
    assert_eq!(made[2], format!("web: extent web of 2 MiB was made in {}", folder.0.join("pool.img").display()));
    let shown: Vec<_> = pool.extents.iter().map(|it| (it.pod, it.is_read_only, it.first_sector >> 11)).collect();
    assert_eq!(shown, [(0, false, 1), (0, false, 5), (1, true, 6)]);
    assert_eq!((pool.image.path.clone(), pool.image.is_read_only), (folder.0.join("pool.img"), false));
    let why = folder.take(&pods).expect_err("its machine runs");
    assert!(why.ends_with("pool.img: another machine or tool uses it; a pool is one machine's at a time"), "{why}");
    drop(pool);
    // What is there needs no size, in whatever order.
    let pods = [("web", "\"pool:web\""), ("db", "\"pool:log\"")];
    let (again, made) = folder.told(&pods).expect("there").expect("a pool");
    assert!(made.is_empty(), "{made:?}");
    assert_eq!(again.extents.iter().map(|it| (it.pod, it.sector_count)).collect::<Vec<_>>(), [(0, 4096), (1, 2048)]);
    drop(again);
    for (pods, part) in [
        ([("web", "\"pool:db\"")], "web: "),
        ([("web", "\"pool:db\"")], "extent db belongs to pod db; `aegis pool give IMAGE db web` clears it"),
        ([("db", "\"pool:db,size=5M\"")], "extent db has 4 MiB, and its size does not change"),
        ([("db", "\"pool:new\"")], "there is no extent new; with a size it is made: pool:new,size=1G"),
        ([("db", "\"pool:new,size=9M\"")], "no room for extent new: 8 MiB are free in one piece"),
        ([("db", "\"pool:db\", \"pool.img\"")], "pool.img is the pool, of which a pod has extents"),
    ] {
        let why = folder.take(&pods).expect_err(part);
        assert!(why.contains(part) && !why.contains('\n'), "{why}");
    }
}

#[test]
fn a_dry_run_makes_nothing() {
    let folder = Folder::new("dry");
    let file = folder.file(&[("db", "\"pool:db,size=4M\"")]);
    let (pool, made) = MachinePool::take_and_tell(&file, true).expect("room").expect("a pool");
    assert!(made[0].starts_with("db: extent db of 4 MiB would be made in "), "{made:?}");
    assert_eq!((pool.extents[0].first_sector, pool.extents[0].sector_count), (2048, 8192));
    let path = folder.0.join("pool.img");
    assert!(std::fs::read(&path).expect("a file").iter().all(|byte| *byte == 0));
    // Nor does it keep anybody from the image.
    let mut made = Pool::open(ImageFile::lock(&path).expect("nobody has it")).expect("new");
    made.create("db", Some("db"), 8192).expect("room");
    assert_eq!(look(&mut ImageFile::look(&path).expect("an image")).expect("a pool").len(), 1);
}
