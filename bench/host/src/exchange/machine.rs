//! The machines that scripts are played to: the ones of `aegis test`, with a card.

use std::path::PathBuf;
use std::time::Duration;

use aegis_launch::cache::Cache;
use aegis_launch::errors::Error;
use aegis_launch::machine::artifacts::{Artifacts, find_qemu};
use aegis_link::drivers::Model;

use super::link::Link;
use super::player::Player;
use crate::card;
use crate::compile;
use crate::failure::Failure;
use crate::guest::{Guest, Limits, Line};
use crate::linux::{Flavour, Kernel};
use crate::system::{LinuxLine, Shape, System, aegis_line};

/// Memory of either machine in MiB.
const MEMORY_MIB: u32 = 256;
/// Longest time that the program in the guest may say nothing, and that all may take.
const LIMITS: Limits = Limits { silence: Duration::from_secs(60), total: Duration::from_secs(3600) };

/// What both machines are started from.
#[derive(Debug)]
pub(super) struct Machines {
    qemu: PathBuf,
    tool: PathBuf,
    kernel: Kernel,
    agent: PathBuf,
    initramfs: PathBuf,
    /// Where the wire lies.
    directory: PathBuf,
}

impl Machines {
    pub(super) fn prepare(has_aegis: bool) -> Result<Self, Failure> {
        let qemu = find_qemu()?;
        if has_aegis {
            Artifacts::find().check()?;
        }
        let cache = Cache::open().ok_or(Failure::NoCache)?.directory().to_path_buf();
        let tool = std::env::current_exe().map_err(|error| Error::Host("finding this tool's own file", error))?;
        let agent = compile::agent(&cache)?;
        let mut kernel = Kernel::get(&cache, Flavour::Cloud)?;
        let directory = std::env::temp_dir().join(format!("aegis-frames.{}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(|error| Failure::file("writing", directory.clone(), error))?;
        let initramfs = directory.join("initramfs");
        card::write_initramfs(&mut kernel, &cache, &agent, &initramfs)?;
        Ok(Self { qemu, tool, kernel, agent, initramfs, directory })
    }

    /// Starts a system and waits until it obeys.
    pub(super) fn start(&self, system: System) -> Result<Player, Failure> {
        // The wire of a machine before this one.
        let _ = std::fs::remove_file(self.wire());
        let link = Link::open(&self.wire())?;
        let guest = Guest::start_with_input(&self.line(system), LIMITS)?;
        let mut player = Player::new(link, guest)?;
        let not_up = |why: String| Failure::NotUp(system.title(), why);
        player.wait_until_ready().map_err(not_up)?;
        let up = player.order("up").map_err(not_up)?;
        if up != "0" {
            return Err(not_up(format!("no network: {up}")));
        }
        // Addresses of version 6 have to be found free, which takes their time.
        std::thread::sleep(Duration::from_millis(2500));
        Ok(player)
    }

    fn wire(&self) -> PathBuf {
        self.directory.join("wire")
    }

    fn line(&self, system: System) -> Line {
        if system == System::Aegis {
            let network = format!("socket={}", self.wire().display());
            let options = ["-q", "-M", "pc", "--network", &network, "--host-access"];
            return aegis_line(&self.tool, MEMORY_MIB, &options, vec![self.agent.clone().into()]);
        }
        let mut line = LinuxLine {
            qemu: &self.qemu,
            kernel: &self.kernel.image,
            initramfs: &self.initramfs,
            memory_mib: MEMORY_MIB,
            append: format!("{} {}", system.kernel_words(), card::APPEND),
            firmware: None,
            shape: Shape { icount_shift: None, cpu_count: 1 },
        }
        .build();
        card::add(&mut line, Model::Virtio, &Link::backend(&self.wire()));
        line
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // Left-overs only take room.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
