//! Which compiler, which `core`, and which linker make the guest binaries for `x86_64-unknown-none`.
//!
//! Two ways lead there. *Prebuilt*: a `rustc` whose installation has the target's libraries, as rustup installs them
//! from `rust-toolchain.toml`. *Build-std*: a `rustc` that comes with the library's source, such as Debian's
//! `rustc-web` with `rust-web-src`, for machines that cannot reach Rust's server; `core` and `alloc` are then
//! compiled with the program, which on a stable compiler needs `RUSTC_BOOTSTRAP`. Each way has a build folder of its
//! own: changing compiler or linker flags in one folder would compile `core` again every time.
//!
//! The search is done on facts gathered first ([`Candidate`]), so that the choice itself is tested without any
//! toolchain.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::errors::Error;
use crate::process;

/// The target of every guest binary: no operating system, no vector registers, no red zone, static
/// position-independent.
pub(crate) const GUEST_TARGET: &str = "x86_64-unknown-none";

/// The first release that the workspace builds with; equals `rust-version` in `Cargo.toml`.
const OLDEST: (u32, u32) = (1, 95);

/// Where `core` and `alloc` for the guest come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// Installed with the compiler.
    Prebuilt,
    /// Compiled from the source that is installed beside the compiler.
    BuildStd,
}

/// Which linker joins the guest binaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Linker {
    /// The compiler's own `rust-lld`.
    Bundled,
    /// An LLVM linker from elsewhere.
    Lld(PathBuf),
    /// GNU ld, which understands the same arguments for what is asked of it here.
    Gnu(PathBuf),
}

/// A compiler that was found, and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    rustc: PathBuf,
    cargo: PathBuf,
    version: (u32, u32),
    has_target: bool,
    has_source: bool,
    bundled_linker: bool,
}

/// The choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toolchain {
    rustc: PathBuf,
    cargo: PathBuf,
    library: Library,
    linker: Linker,
}

impl Toolchain {
    /// Looks at the machine and chooses; `AEGIS_TOOLCHAIN` narrows the choice.
    pub(crate) fn find(root: &Path) -> Result<Toolchain, Error> {
        let wanted = match std::env::var("AEGIS_TOOLCHAIN").as_deref() {
            Err(_) | Ok("") => None,
            Ok("prebuilt") => Some(Library::Prebuilt),
            Ok("build-std") => Some(Library::BuildStd),
            Ok(other) => {
                return Err(Error::Toolchain(format!(
                    "AEGIS_TOOLCHAIN is '{other}', but must be prebuilt or build-std"
                )));
            }
        };
        let active = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let names = [active, OsString::from("/usr/bin/rustc"), OsString::from("/usr/local/bin/rustc")];
        let candidates: Vec<Candidate> = names.iter().filter_map(|name| Candidate::examine(root, name)).collect();
        let search: Vec<PathBuf> =
            std::env::var_os("PATH").map(|folders| std::env::split_paths(&folders).collect()).unwrap_or_default();
        choose(&candidates, wanted, &search)
    }

    /// Where this toolchain's guest builds live.
    pub(crate) fn target_dir(&self, host_target_dir: &Path) -> PathBuf {
        host_target_dir.join(match self.library {
            Library::Prebuilt => "bare",
            Library::BuildStd => "bare-build-std",
        })
    }

    /// A cargo command for the guest target. `CARGO` and its like, set by the cargo that runs this, would lead the
    /// inner one back to the outer toolchain; `RUSTFLAGS` would replace the target's flags of `.cargo/config.toml`.
    pub(crate) fn cargo(&self, root: &Path, subcommand: &str) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(root).arg(subcommand).args(["--target", GUEST_TARGET]);
        for name in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTDOC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "LD_LIBRARY_PATH"]
        {
            command.env_remove(name);
        }
        command.env("RUSTC", &self.rustc);
        if let Some(folder) = self.cargo.parent() {
            command.env("PATH", path_with(folder));
        }
        if self.library == Library::BuildStd {
            command.env("RUSTC_BOOTSTRAP", "1");
            command.args(["-Zbuild-std=core,alloc", "-Zbuild-std-features=compiler-builtins-mem"]);
        }
        match &self.linker {
            Linker::Bundled => {}
            Linker::Lld(linker) => {
                command.env("CARGO_TARGET_X86_64_UNKNOWN_NONE_LINKER", linker);
            }
            Linker::Gnu(linker) => {
                command.env("CARGO_TARGET_X86_64_UNKNOWN_NONE_LINKER", linker);
                command.env("CARGO_TARGET_X86_64_UNKNOWN_NONE_RUSTFLAGS", "-Clinker-flavor=ld");
            }
        }
        command
    }
}

impl std::fmt::Display for Toolchain {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let library = match self.library {
            Library::Prebuilt => "its prebuilt core",
            Library::BuildStd => "core built from source",
        };
        write!(out, "{} with {library}, linker ", self.rustc.display())?;
        match &self.linker {
            Linker::Bundled => write!(out, "rust-lld (the compiler's own)"),
            Linker::Lld(linker) => write!(out, "{} (LLVM)", linker.display()),
            Linker::Gnu(linker) => write!(out, "{} (GNU)", linker.display()),
        }
    }
}

/// Prints the choice.
pub(crate) fn print(root: &Path) -> Result<(), Error> {
    println!("{}", Toolchain::find(root)?);
    Ok(())
}

impl Candidate {
    /// Asks a compiler about itself; `None` if it is not there or does not answer.
    fn examine(root: &Path, rustc: &OsString) -> Option<Candidate> {
        let ask = |arguments: &[&str]| {
            let mut command = Command::new(rustc);
            command.current_dir(root).args(arguments);
            if rustc == "/usr/bin/rustc" || rustc == "/usr/local/bin/rustc" {
                command.env_remove("LD_LIBRARY_PATH");
            }
            process::answer(&mut command)
        };
        let about = ask(&["-vV"])?;
        let field =
            |name: &str| about.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_string());
        let version = parse_version(&field("release:")?)?;
        let host = field("host:")?;
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?);
        let libraries = sysroot.join("lib/rustlib");
        Some(Candidate {
            rustc: sysroot.join("bin/rustc"),
            cargo: sysroot.join("bin/cargo"),
            version,
            has_target: libraries.join(GUEST_TARGET).join("lib").is_dir(),
            has_source: libraries.join("src/rust/library/core/Cargo.toml").is_file(),
            bundled_linker: libraries.join(host).join("bin/rust-lld").is_file(),
        })
        .filter(|candidate| candidate.rustc.is_file() && candidate.cargo.is_file())
    }
}

/// The first compiler with the target; failing that, the first with the library's source.
fn choose(candidates: &[Candidate], wanted: Option<Library>, search: &[PathBuf]) -> Result<Toolchain, Error> {
    let new_enough = |candidate: &&Candidate| candidate.version >= OLDEST;
    let prebuilt = candidates.iter().filter(new_enough).find(|candidate| candidate.has_target);
    let source = candidates.iter().filter(new_enough).find(|candidate| candidate.has_source);
    let found = match wanted {
        Some(Library::Prebuilt) => prebuilt.map(|candidate| (candidate, Library::Prebuilt)),
        Some(Library::BuildStd) => source.map(|candidate| (candidate, Library::BuildStd)),
        None => prebuilt
            .map(|candidate| (candidate, Library::Prebuilt))
            .or(source.map(|candidate| (candidate, Library::BuildStd))),
    };
    let Some((candidate, library)) = found else {
        return Err(Error::Toolchain(no_toolchain(candidates)));
    };
    let linker = choose_linker(candidate, search).ok_or_else(|| {
        Error::Toolchain(
            "no linker for the guest binaries: neither the compiler's rust-lld, nor ld.lld, nor ld (install binutils)"
                .to_string(),
        )
    })?;
    Ok(Toolchain { rustc: candidate.rustc.clone(), cargo: candidate.cargo.clone(), library, linker })
}

fn no_toolchain(candidates: &[Candidate]) -> String {
    let mut text = format!(
        "no Rust {}.{} or later can build for {GUEST_TARGET}: `make setup` installs one (docs/building.md says which)",
        OLDEST.0, OLDEST.1
    );
    for candidate in candidates {
        text += &format!(
            "\n  {}: {}.{}, {} the target, {} the library's source",
            candidate.rustc.display(),
            candidate.version.0,
            candidate.version.1,
            if candidate.has_target { "with" } else { "without" },
            if candidate.has_source { "with" } else { "without" },
        );
    }
    text
}

/// The compiler's own linker, else an LLVM linker, else GNU ld.
fn choose_linker(candidate: &Candidate, search: &[PathBuf]) -> Option<Linker> {
    if candidate.bundled_linker || find_program(search, |name| name == "rust-lld").is_some() {
        return Some(Linker::Bundled);
    }
    find_program(search, |name| name == "ld.lld" || name.starts_with("ld.lld-"))
        .map(Linker::Lld)
        .or_else(|| find_program(search, |name| name == "ld").map(Linker::Gnu))
}

fn find_program(search: &[PathBuf], wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    search.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten().find_map(|entry| {
        let is_wanted = entry.file_name().to_str().is_some_and(&wanted);
        is_wanted.then(|| entry.path())
    })
}

/// `PATH` with `folder` first, so that cargo's own subcommands are those of the same toolchain.
fn path_with(folder: &Path) -> OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&rest));
    std::env::join_paths(folders).unwrap_or(rest)
}

/// `1.95.0-nightly` is (1, 95).
fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, version: (u32, u32)) -> Candidate {
        Candidate {
            rustc: PathBuf::from(format!("/{name}/rustc")),
            cargo: PathBuf::from(format!("/{name}/cargo")),
            version,
            has_target: false,
            has_source: false,
            bundled_linker: true,
        }
    }

    #[test]
    fn a_prebuilt_library_wins_over_one_from_source_wherever_it_is() {
        let source = Candidate { has_source: true, ..candidate("debian", (1, 96)) };
        let prebuilt = Candidate { has_target: true, ..candidate("rustup", (1, 95)) };
        let both = [source, prebuilt];
        let choice = choose(&both, None, &[]).unwrap();
        assert_eq!((choice.library, choice.rustc), (Library::Prebuilt, "/rustup/rustc".into()));
        let choice = choose(&both, Some(Library::BuildStd), &[]).unwrap();
        assert_eq!((choice.library, choice.rustc), (Library::BuildStd, "/debian/rustc".into()));
        assert_eq!(choose(&both[..1], None, &[]).unwrap().library, Library::BuildStd);
    }

    #[test]
    fn what_is_forced_is_not_replaced_by_the_other() {
        let source = [Candidate { has_source: true, ..candidate("debian", (1, 96)) }];
        let error = choose(&source, Some(Library::Prebuilt), &[]).unwrap_err().to_string();
        assert!(error.contains("/debian/rustc: 1.96, without the target, with the library's source"));
    }

    #[test]
    fn an_old_compiler_is_passed_over() {
        let old = [Candidate { has_target: true, ..candidate("old", (1, 94)) }];
        assert!(choose(&old, None, &[]).is_err());
    }

    #[test]
    fn linkers_are_taken_in_order() {
        let folder = std::env::temp_dir().join(format!("xtask-linkers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let search = [folder.clone()];
        let bare = Candidate { bundled_linker: false, ..candidate("debian", (1, 96)) };
        let place = |name: &str| std::fs::write(folder.join(name), "").unwrap();
        assert_eq!(choose_linker(&bare, &search), None);
        place("ld");
        assert_eq!(choose_linker(&bare, &search), Some(Linker::Gnu(folder.join("ld"))));
        place("ld.lld-22");
        assert_eq!(choose_linker(&bare, &search), Some(Linker::Lld(folder.join("ld.lld-22"))));
        place("rust-lld");
        assert_eq!(choose_linker(&bare, &search), Some(Linker::Bundled));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn versions_are_read_with_any_suffix() {
        assert_eq!(parse_version("1.95.0"), Some((1, 95)));
        assert_eq!(parse_version("1.98.0-nightly"), Some((1, 98)));
        assert_eq!(parse_version("unknown"), None);
    }
}
