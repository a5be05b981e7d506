//! Servers of others in suite `net`: nginx and redis, each in a root of its own, the same files on both systems.

use std::path::{Path, PathBuf};

use aegis_launch::errors::Error;
use aegis_launch::root::HOSTNAME;
use aegis_launch::root::pack_host::HostRoot;

use crate::failure::Failure;
use crate::tree_images::RootFiles;

/// The place of bench/net/server.c in their roots: it starts the program and answers marks.
pub(super) const STARTER: &str = "/bench/server";
/// Where libraries of `--programs` are put; bench/net/server.c says so to the program.
const LIBRARIES: &str = "/bench/lib";
/// Where the host and such a folder keep programs and libraries.
const PROGRAM_FOLDERS: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "bin"];
const LIBRARY_FOLDER: &str = "usr/lib/x86_64-linux-gnu";

/// A server.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    file: &'static str,
    package: &'static str,
    /// Its files, in /bench.
    files: &'static [(&'static str, &'static str)],
    /// Its words, and behind them nothing that has blanks.
    pub(super) words: &'static [&'static str],
    /// What it is asked until it has started.
    pub(super) hello: &'static str,
}

pub(super) const NGINX: Program = Program {
    name: "nginx",
    file: "nginx",
    package: "nginx-light",
    files: &[("nginx.conf", include_str!("../../../net/nginx.conf")), ("f", include_str!("../../../net/page.txt"))],
    words: &["-c", "/bench/nginx.conf"],
    hello: NGINX_GET,
};
pub(super) const NGINX_GET: &str = "GET /f HTTP/1.1\r\nHost: a\r\n\r\n";

pub(super) const REDIS: Program = Program {
    name: "redis",
    file: "redis-server",
    package: "redis-server",
    files: &[("redis.conf", include_str!("../../../net/redis.conf"))],
    words: &["/bench/redis.conf"],
    hello: "SET key value\r\n",
};
pub(super) const REDIS_GET: &str = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";

impl Program {
    /// Its path on the host: where Debian installs it, or below a folder into which packages were unpacked.
    fn found(&self, folder: Option<&Path>) -> Option<PathBuf> {
        let bases = [Some(Path::new("/")), folder].into_iter().flatten();
        let places = bases.flat_map(|base| PROGRAM_FOLDERS.map(|inner| base.join(inner).join(self.file)));
        places.into_iter().find(|path| path.is_file())
    }

    /// Its path in the machine.
    pub(super) fn place(&self) -> String {
        format!("/bench/{}", self.file)
    }

    /// The files of its root; `Err` in the answer says that it is not here.
    pub(super) fn root(
        &self,
        cache: &Path,
        server: &Path,
        modules: &[PathBuf],
        folder: Option<&Path>,
    ) -> Result<Result<RootFiles, String>, Failure> {
        let Some(program) = self.found(folder) else {
            let why = format!("{} is not on this host (apt install {}, or --programs)", self.file, self.package);
            return Ok(Err(why));
        };
        let search = std::env::var_os("PATH").unwrap_or_default();
        let mut tree = HostRoot::minimal(HOSTNAME, &search);
        let mut put = |host: &Path, guest: &str| tree.with(host, Some(guest.as_bytes())).map_err(Error::Root);
        put(&program, &self.place())?;
        put(server, STARTER)?;
        for module in modules {
            put(module, &format!("/modules/{}", module.file_name().unwrap_or_default().to_string_lossy()))?;
        }
        let libraries = folder.map(|folder| folder.join(LIBRARY_FOLDER)).filter(|libraries| libraries.is_dir());
        if let Some(libraries) = libraries {
            put(&libraries, LIBRARIES)?;
        }
        let directory = cache.join("net");
        for (name, text) in self.files {
            let path = directory.join(name);
            let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, text));
            written.map_err(|error| Failure::file("writing", path.clone(), error))?;
            put(&path, &format!("/bench/{name}"))?;
        }
        let packed = tree.finish().map_err(Error::Root)?;
        RootFiles::of(cache, &format!("net-{}", self.name), &packed).map(Ok)
    }
}
