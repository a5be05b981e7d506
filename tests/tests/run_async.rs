//! Asynchronous input and output of disks, and of `fio` where it is: what was written is what is read.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, compile_with, is_there};

/// An image of zeros, and a name for `--disk`.
fn image(name: &str, bytes: u64) -> PathBuf {
    let path = std::env::temp_dir().join(format!("aegis-async-{}-{name}.img", std::process::id()));
    std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("the temporary folder is writable");
    path
}

#[test]
fn blocks_past_the_pages_of_a_disk() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux/disk_async.c");
    let text = std::fs::read_to_string(source).expect("the program's source is in the tree");
    let Some(program) = compile_with("gcc", "disk_async", &text, &["-O1", "-w", "-static"]) else { return };
    // Once in twelve runs nobody looked at what the second processor had started.
    for processors in ["1", "2", "2", "2", "2", "2", "2", "2", "2"] {
        let image = image(processors, 4 << 20);
        let disk = image.display().to_string();
        let options = ["--cpus", processors, "--disk", &disk];
        let ended = aegis(&options, &[&program.display().to_string(), "/dev/vda"], b"");
        let output = String::from_utf8_lossy(&ended.output).into_owned();
        assert_eq!((output.matches("as they were written").count(), ended.status), (2, 0), "{output}");
        let _ = std::fs::remove_file(image);
    }
}

#[test]
fn fio_finds_what_it_wrote() {
    if !is_there("fio") {
        return;
    }
    for engine in ["libaio", "io_uring"] {
        let image = image(engine, 8 << 20);
        let disk = image.display().to_string();
        for (place, direct) in [("/tmp/fio", "0"), ("/dev/vda", "1")] {
            let name = format!("--filename={place}");
            let (engine, direct) = (format!("--ioengine={engine}"), format!("--direct={direct}"));
            let job = ["fio", "--name=job", &name, &engine, &direct, "--size=4m", "--bs=4k", "--rw=randrw"];
            let more = ["--iodepth=16", "--verify=crc32c", "--thread", "--minimal"];
            let command: Vec<&str> = job.into_iter().chain(more).collect();
            let ended = aegis(&["--disk", &disk], &command, b"");
            assert_eq!(ended.status, 0, "{}", String::from_utf8_lossy(&ended.output));
        }
        let _ = std::fs::remove_file(image);
    }
}
