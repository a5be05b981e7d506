//! Images from archive or layout to a root in the cache, and their end.

use super::{Pull, Store};
use crate::images::digest::Digest;
use crate::images::engines::Stored;
use crate::images::errors::ImageError;
use crate::images::source::ImageSource;
use crate::images::testing::{Folder, Tar, config, layout};
use aegis_image::tree::LastLink;
use std::path::Path;

fn layers() -> Vec<Vec<u8>> {
    let lower =
        Tar::default().file("etc/passwd", b"web:x:33:44::/srv:/bin/sh\n").file("gone", b"x").file("bin/p", b"p");
    vec![lower.bytes(), Tar::default().file(".wh.gone", b"").bytes()]
}

/// An archive as `docker save` writes it, its legacy links included.
fn docker_archive(layers: &[Vec<u8>], tag: &str) -> Vec<u8> {
    let config = config(layers, "{\"User\":\"web\",\"WorkingDir\":\"/made\"}");
    let id = Digest::of(config.as_bytes());
    let list = format!(
        "[{{\"Config\":\"{}.json\",\"RepoTags\":[\"{tag}\"],\"Layers\":[\"one/layer.tar\",\"two/layer.tar\"]}}]",
        id.digits()
    );
    Tar::default()
        .file("manifest.json", list.as_bytes())
        .file(&format!("{}.json", id.digits()), config.as_bytes())
        .symlink("one/layer.tar", "../real.tar")
        .file("two/layer.tar", &layers[1])
        .file("real.tar", &layers[0])
        .bytes()
}

fn count(folder: &Path, room: &str) -> usize {
    std::fs::read_dir(folder.join(room)).expect("a room").count()
}

#[test]
fn an_image_is_kept_shared_found_and_removed() {
    let (cache, input) = (Folder::new("store"), Folder::new("input"));
    let store = Store::at(&cache.0).expect("a store");
    let path = input.file("saved.tar", &docker_archive(&layers(), "web:1"));
    let image = store.obtain(&ImageSource::DockerArchive(path, None), Pull::IfMissing).expect("an image");
    assert_eq!(image.accounts.identity("web").expect("there").uid, 33);
    assert_eq!((image.settings.user.as_deref(), image.name.as_deref()), (Some("web"), Some("docker.io/library/web:1")));
    let bytes = crate::root::pack::check_image(&image.root).expect("a sound root");
    let root = aegis_image::erofs::read::Image::open(&bytes).expect("a root");
    let has = |path: &str| root.resolve(path.as_bytes(), LastLink::Keep).is_ok();
    assert!(has("/made") && has("/bin/p"));
    assert!(!has("/gone"));

    layout(&input.0.join("layout"), &layers(), "{}");
    let other = ImageSource::Layout(input.0.join("layout"), None);
    let other = store.obtain(&other, Pull::IfMissing).expect("an image of the same layers");
    assert_eq!((count(&cache.0, "layers"), store.records().len()), (2, 2), "layers are shared");
    let kept = store.obtain(&ImageSource::Kept("web:1".into()), Pull::IfMissing).expect("by name");
    assert_eq!(kept.id, image.id);
    let digits = &other.id.digits()[..12];
    assert!(store.obtain(&ImageSource::Kept(digits.into()), Pull::IfMissing).is_ok());

    store.remove("web:1").expect("removed");
    assert!(store.obtain(&ImageSource::Kept("web:1".into()), Pull::IfMissing).is_err());
    assert_eq!((count(&cache.0, "layers"), store.records().len()), (2, 1), "the other image needs them");
    store.remove(digits).expect("removed");
    assert_eq!((count(&cache.0, "layers"), count(&cache.0, "roots"), count(&cache.0, "records")), (0, 0, 0));
    assert!(store.remove("web:1").is_err());
}

#[test]
fn a_name_moves_to_the_image_that_has_it_now() {
    let (cache, input) = (Folder::new("moves"), Folder::new("moves-input"));
    let store = Store::at(&cache.0).expect("a store");
    let first = input.file("a.tar", &docker_archive(&layers(), "web:1"));
    let changed = [layers()[0].clone(), Tar::default().file("new", b"").bytes()];
    let second = input.file("b.tar", &docker_archive(&changed, "web:1"));
    let first = store.obtain(&ImageSource::DockerArchive(first, None), Pull::IfMissing).expect("first");
    let second = store.obtain(&ImageSource::DockerArchive(second, None), Pull::IfMissing).expect("second");
    let found = store.obtain(&ImageSource::Kept("web:1".into()), Pull::IfMissing).expect("found");
    assert!(found.id == second.id && found.id != first.id);
    assert_eq!(store.records().iter().filter(|record| record.names.is_empty()).count(), 1);
}

#[test]
fn an_image_of_podman_has_the_name_that_podman_has_for_it() {
    let cache = Folder::new("stored");
    let store = Store::at(&cache.0).expect("a store");
    let stored = |id: Option<&str>, name: &str| Stored { id: id.map(str::to_owned), name: Some(name.into()) };
    let write = |layers: Vec<Vec<u8>>| {
        move |path: &Path| {
            std::fs::write(path, docker_archive(&layers, "other:1")).expect("writable");
            Ok(())
        }
    };
    let first = store.take_stored(stored(None, "localhost/web:2"), write(layers())).expect("an image");
    assert_eq!(first.name.as_deref(), Some("localhost/web:2"), "not what the archive says");
    let kept = |name: &str| store.obtain(&ImageSource::Kept(name.into()), Pull::IfMissing).map(|image| image.id);
    assert_eq!(kept("web:2").expect("by name"), first.id);
    let changed = vec![layers()[0].clone(), Tar::default().file("new", b"").bytes()];
    let second = store.take_stored(stored(None, "localhost/web:2"), write(changed)).expect("another");
    assert_eq!(kept("web:2").expect("by name"), second.id);
    // It is built again as it was: nothing is saved, and the name is its own again.
    let again = store.take_stored(stored(Some(first.id.digits()), "localhost/web:2"), |_| panic!("it is here"));
    assert_eq!(again.expect("an image").id, first.id);
    assert_eq!(kept("web:2").expect("by name"), first.id);
}

#[test]
fn nothing_of_a_wrong_image_stays() {
    let (cache, input) = (Folder::new("wrong"), Folder::new("wrong-input"));
    let store = Store::at(&cache.0).expect("a store");
    let source = || ImageSource::Layout(input.0.join("layout"), None);
    layout(&input.0.join("layout"), &layers(), "{}");
    let blob = input.0.join("layout/blobs/sha256").join(Digest::of(&layers()[0]).digits());
    let mut bytes = layers()[0].clone();
    bytes[600] ^= 1;
    std::fs::write(&blob, &bytes).expect("written");
    let error = store.obtain(&source(), Pull::IfMissing).expect_err("changed");
    assert!(matches!(error, ImageError::Digest { .. }), "{error}");
    std::fs::remove_file(&blob).expect("removed");
    let error = store.obtain(&source(), Pull::IfMissing).expect_err("gone");
    assert!(matches!(error, ImageError::Missing(_)), "{error}");
    layout(&input.0.join("layout"), &[Tar::default().file("../../out", b"x").bytes()], "{}");
    let error = store.obtain(&source(), Pull::IfMissing).expect_err("hostile").to_string();
    assert!(error.contains("../../out") && error.contains("leads out"), "{error}");
    assert_eq!((count(&cache.0, "layers"), count(&cache.0, "roots"), store.records().len()), (0, 0, 0));
    assert!(!cache.0.join("out").exists() && !cache.0.parent().expect("a folder").join("out").exists());
}

#[test]
fn what_a_killed_pull_left_goes_with_the_next_image_that_is_asked_for() {
    let (cache, input) = (Folder::new("killed"), Folder::new("killed-input"));
    let store = Store::at(&cache.0).expect("a store");
    let path = input.file("saved.tar", &docker_archive(&layers(), "web:1"));
    let left = cache.0.join("layers/root.1.tmp");
    std::fs::write(&left, "half").expect("writable");
    store.obtain(&ImageSource::DockerArchive(path, None), Pull::IfMissing).expect("an image");
    assert!(!left.exists() && count(&cache.0, "layers") == 2);
    // What another is making stays.
    std::fs::write(&left, "half").expect("writable");
    let other = store.lock(rustix::fs::FlockOperation::LockShared).expect("a lock");
    store.obtain(&ImageSource::Kept("web:1".into()), Pull::IfMissing).expect("by name");
    assert!(left.exists());
    drop(other);
    store.obtain(&ImageSource::Kept("web:1".into()), Pull::IfMissing).expect("by name");
    assert!(!left.exists());
}

#[test]
fn what_is_not_there_says_so() {
    let cache = Folder::new("absent");
    let store = Store::at(&cache.0).expect("a store");
    for (source, part) in [
        (ImageSource::Kept("nginx".into()), "docker-archive:FILE"),
        (ImageSource::Layout(cache.0.clone(), None), "index.json"),
        (ImageSource::DockerArchive(cache.0.clone(), None), "oci:DIR names a directory"),
        (ImageSource::LayoutArchive("/no/such".into(), None), "/no/such"),
    ] {
        let error = store.obtain(&source, Pull::IfMissing).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
}
