//! Linux's functions: Debian's package has no table of them, so the kernel itself is asked, once for each version.
//!
//! The micro program, started as the first process with `--symbols`, prints `/proc/kallsyms`. Without address
//! randomisation, which the tuned command line turns off, the addresses are the same in every start.

use std::time::Duration;

use aegis_launch::symbols::Symbols;

use crate::failure::Failure;
use crate::guest::{Event, Guest, Limits};
use crate::linux::{Kernel, TUNED};
use crate::system::{LinuxLine, MEMORY_MIB, Machines, Shape};

/// Some megabytes over an emulated serial port.
const LIMITS: Limits = Limits { silence: Duration::from_secs(60), total: Duration::from_secs(300) };

/// The functions of the kernel, from the cache or from itself.
pub(super) fn get(machines: &Machines, kernel: &Kernel) -> Result<Symbols, Failure> {
    let path = machines.cache.join(format!("linux/functions-{}", kernel.version));
    if let Ok(text) = std::fs::read_to_string(&path) {
        return Ok(Symbols::of_kallsyms(&text));
    }
    let text = ask(machines, kernel)?;
    let fresh = machines.cache.join(format!("linux/functions.{}.tmp", std::process::id()));
    let written = std::fs::write(&fresh, &text).and_then(|()| std::fs::rename(&fresh, &path));
    written.map_err(|error| Failure::file("writing", path, error))?;
    Ok(Symbols::of_kallsyms(&text))
}

fn ask(machines: &Machines, kernel: &Kernel) -> Result<String, Failure> {
    let initramfs = machines.rows_initramfs(&machines.micro)?;
    let line = LinuxLine {
        qemu: &machines.qemu,
        kernel: &kernel.image,
        initramfs: &initramfs,
        memory_mib: MEMORY_MIB,
        append: format!("{TUNED} -- --symbols"),
        firmware: None,
        shape: Shape { icount_shift: None, cpu_count: 1 },
    }
    .build();
    let mut guest = Guest::start(&line, LIMITS)?;
    let mut lines: Vec<String> = Vec::new();
    while let Event::Line(line, _) = guest.next() {
        match line.strip_prefix("done ") {
            Some(count) if count.parse() == Ok(lines.len()) => return Ok(lines.join("\n") + "\n"),
            Some(_) => break,
            None if is_symbol(&line) => lines.push(line),
            None => {}
        }
    }
    Err(Failure::Trace("Linux did not say where its functions are (--only aegis does without)".into()))
}

/// The kernel may say other things on the same port.
fn is_symbol(line: &str) -> bool {
    matches!(line.split_whitespace().collect::<Vec<_>>().as_slice(),
        [address, kind, _] if address.len() >= 6 && u64::from_str_radix(address, 16).is_ok() && kind.len() == 1)
}
