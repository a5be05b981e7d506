//! `--mount`, and `-v` as other engines have it.

use std::ffi::OsString;
use std::path::PathBuf;

use aegis_launch::machine::mounts::{Volume, parse_volume};
use aegis_link::config::Temporary;

use crate::options::values::parse_temporary;

/// What `--mount` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mount {
    /// A directory or a file of this host, or a volume.
    Directory(Volume),
    /// A directory in memory.
    Memory(Temporary),
}

/// `-v`: as [`parse_volume`], and a path alone for a volume that has no directory of this host.
pub(crate) fn parse_place(text: OsString) -> Result<Volume, String> {
    match text.to_str() {
        Some(path) if path.starts_with('/') && !path.contains(':') => {
            parse_volume(format!("x:{path}").into()).map(|volume| Volume { host: PathBuf::new(), ..volume })
        }
        _ => parse_volume(text),
    }
}

/// `type=bind|volume|tmpfs,source=…,target=…[,readonly]`, keys as docker and podman spell them.
pub(crate) fn parse_mount(text: &str) -> Result<Mount, String> {
    let (mut kind, mut source, mut target, mut is_read_only) = ("volume", "", "", false);
    let mut of_memory = Vec::new();
    for word in text.split(',') {
        let (key, value) = word.split_once('=').unwrap_or((word, "true"));
        match key {
            "type" => kind = value,
            "source" | "src" => source = value,
            "target" | "destination" | "dst" => target = value,
            "readonly" | "ro" => is_read_only = value == "true" || value == "1",
            "rw" => is_read_only = value == "false" || value == "0",
            "tmpfs-size" | "tmpfs-mode" => of_memory.push(word),
            _ => return Err(format!("{word}: there are type, source, target, readonly, tmpfs-size and tmpfs-mode")),
        }
    }
    let has_source = !source.is_empty();
    match kind {
        "tmpfs" if has_source || is_read_only => Err("a tmpfs has no source, and can be written to".into()),
        "tmpfs" => {
            let options = if of_memory.is_empty() { "rw".to_owned() } else { of_memory.join(",") };
            parse_temporary(&format!("{target}:{options}")).map(Mount::Memory)
        }
        "bind" | "volume" if !of_memory.is_empty() => Err(format!("{}: is for type=tmpfs", of_memory[0])),
        "bind" if !has_source => Err("source is missing".into()),
        "bind" | "volume" => {
            let mut volume = parse_volume(format!("x:{target}").into())?;
            // A path without a slash is none of a volume's, which a bind has not.
            let is_bare = kind == "bind" && !source.contains('/');
            volume.host = if is_bare { format!("./{source}").into() } else { source.into() };
            Ok(Mount::Directory(Volume { is_read_only, ..volume }))
        }
        _ => Err(format!("type={kind}: bind, volume or tmpfs")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Mount, parse_mount, parse_place};
    use aegis_launch::machine::mounts::Volume;

    #[test]
    fn mounts_are_directories_or_memory() {
        let volume = |host: &str, is_read_only| Volume { host: host.into(), guest: "/d".into(), is_read_only };
        for (text, expected) in [
            ("type=bind,source=/a,target=/d", volume("/a", false)),
            ("type=bind,src=a,dst=/d,ro=true", volume("./a", true)),
            ("source=a,destination=/d,readonly", volume("a", true)),
            ("type=volume,dst=/d,rw", volume("", false)),
        ] {
            assert_eq!(parse_mount(text), Ok(Mount::Directory(expected)), "{text}");
        }
        let Ok(Mount::Memory(memory)) = parse_mount("type=tmpfs,target=/t,tmpfs-size=1m") else { panic!("memory") };
        assert_eq!((memory.path.as_slice(), memory.size_max_bytes), (&b"/t"[..], 1 << 20));
        for text in
            ["type=bind,target=/d", "type=image,source=x,target=/d", "type=tmpfs,source=a,target=/d", "target=d"]
        {
            assert!(parse_mount(text).is_err(), "{text}");
        }
        assert_eq!(parse_place("/d".into()), Ok(volume("", false)));
        assert_eq!(parse_place("x:/d:ro".into()), Ok(volume("x", true)));
        for text in ["/", "d", "/a/../b", ":/d"] {
            assert!(parse_place(text.into()).is_err(), "{text}");
        }
    }
}
