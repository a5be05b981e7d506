//! Linux machines with a network card on PCI, as `aegis run -M pc` has it.

use std::path::{Path, PathBuf};

use aegis_link::drivers::Model;

use super::cpio;
use super::failure::Failure;
use super::guest::Line;
use super::linux::Kernel;

/// Virtio's card.
const VIRTIO: &str = "virtio-net-pci,disable-legacy=on,disable-modern=off,rx_queue_size=1024,guest_announce=off";

/// Writes an initramfs whose first process is `init`, with the drivers that it loads (bench/net/linux_network.h).
pub(crate) fn write_initramfs(kernel: &mut Kernel, cache: &Path, init: &Path, target: &Path) -> Result<(), Failure> {
    write_with_modules(&kernel.network_modules(cache)?, init, target)
}

/// The same with any modules.
pub(crate) fn write_with_modules(modules: &[PathBuf], init: &Path, target: &Path) -> Result<(), Failure> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| Failure::file("reading", path.into(), error));
    let mut files = vec![("init".to_string(), read(init)?)];
    for module in modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        files.push((format!("modules/{name}"), read(module)?));
    }
    let written = cpio::with_files(&files).and_then(|archive| std::fs::write(target, archive));
    written.map_err(|error| Failure::file("writing", target.into(), error))
}

/// The kernel's words behind its own: the card has an old name, and its first process knows that it is that.
pub(crate) const APPEND: &str = "net.ifnames=0 -- --init";
/// Its two parts, for what stands between them.
pub(crate) const APPEND_NAMES: &str = "net.ifnames=0";
pub(crate) const APPEND_INIT: &str = "--init";

/// Gives a Linux machine a card of this model; `backend` is a kind of network with its options.
pub(crate) fn add(line: &mut Line, model: Model, backend: &str) {
    let (kind, options) = backend.split_once(',').unwrap_or((backend, ""));
    let network = format!("{kind},id=net0{}{options}", if options.is_empty() { "" } else { "," });
    // What has firmware of its own would boot from there.
    let card = if model == Model::Virtio { VIRTIO.to_owned() } else { format!("{},romfile=", model.name()) };
    let card = format!("{card},mac=52:54:00:12:34:56,netdev=net0");
    line.arguments.extend(["-netdev".into(), network.into(), "-device".into(), card.into()]);
}
