//! Sockets in files at paths of any length.
//!
//! Linux takes 107 bytes of a socket's path, and an engine's folders with an identifier of 64 digits are longer. So the
//! folder is opened, and the socket is named from its descriptor; only the socket's own name has to be short.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Does something with a socket's path that is short.
fn with_short<T>(path: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = if parent == Path::new("") { Path::new(".") } else { parent };
    let folder = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(parent)?;
    work(&PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
}

/// Calls whoever listens there.
///
/// # Errors
/// The host's; `InvalidInput` for a name (not a path) that is too long.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short(path, |path| UnixStream::connect(path))
}

/// Makes a socket there, and listens.
///
/// # Errors
/// As [`connect`].
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    with_short(path, |path| UnixListener::bind(path))
}

#[cfg(test)]
mod tests {
    use super::{bind, connect};
    use std::io::{ErrorKind, Read, Write};

    #[test]
    fn folders_may_be_as_long_as_they_like() {
        let top = std::env::temp_dir().join(format!("aegis-socket-{}", std::process::id()));
        let folder = top.join("d".repeat(200)).join("e".repeat(64));
        std::fs::create_dir_all(&folder).expect("writable");
        let path = folder.join("container.sock");
        assert_eq!(connect(&path).expect_err("nobody").kind(), ErrorKind::NotFound);
        let listener = bind(&path).expect("bound");
        assert_eq!(bind(&path).expect_err("taken").kind(), ErrorKind::AddrInUse);
        connect(&path).expect("called").write_all(b"x").expect("said");
        let mut heard = String::new();
        listener.accept().expect("a call").0.read_to_string(&mut heard).expect("heard");
        assert_eq!(heard, "x");
        drop(listener);
        assert_eq!(connect(&path).expect_err("nobody").kind(), ErrorKind::ConnectionRefused);
        assert_eq!(bind(&folder.join("n".repeat(200))).expect_err("a long name").kind(), ErrorKind::InvalidInput);
        std::fs::remove_dir_all(top).expect("ours");
    }
}
