//! Bytes that a machine is started from: its kernel's file, and what it finds its program in.
//!
//! The division is another on each system: what Linux has in its kernel, Aegis has in its library OS, which is in the
//! image. So only the sum compares the systems; the parts say where it is. Linux's kernel is a compressed file.

use std::path::Path;

use aegis_launch::cache::Cache;
use aegis_launch::machine::artifacts::Artifacts;
use aegis_launch::machine::boot;
use aegis_launch::root::{Source, prepare};

use super::super::failure::Failure;
use super::super::filter::RowFilter;
use super::super::result::{Cell, Column, Row, Table};
use super::super::system::Machines;

/// The rows, in their order.
pub(super) const ROWS: [&str; 3] = ["bytes_kernel", "bytes_image", "bytes_kernel_and_image"];

/// The table of the rows that are asked for.
pub(super) fn table(
    machines: &Machines,
    busybox: &Path,
    initramfs: &Path,
    filter: &RowFilter,
) -> Result<Option<Table>, Failure> {
    let mut columns = Vec::new();
    let mut sizes = Vec::new();
    if machines.has_aegis() {
        let artifacts = Artifacts::find();
        let root = prepare(Source::Program(busybox), &[], Cache::open().as_ref())?;
        let bundle = boot::build(&artifacts.flat_library_os()?, &[], &[], Some(&root.image))?;
        sizes.push([length(&artifacts.kernel())?, bundle.size_bytes]);
        let command = "kernel.elf with its symbols, and the boot bundle: exos, configuration, root with busybox";
        columns.push(Column { key: "aegis".into(), title: "Aegis".into(), command: command.into() });
    }
    if let Some(kernel) = &machines.linux {
        sizes.push([length(&kernel.image)?, length(initramfs)?]);
        let command = "vmlinuz, which is compressed and has no modules in it, and the initramfs with busybox";
        columns.push(Column { key: "linux".into(), title: "Linux".into(), command: command.into() });
    }
    let rows = ROWS.iter().enumerate().filter(|(_, name)| filter.finds(name)).map(|(index, name)| {
        let bytes = |[kernel, image]: &[u64; 2]| [*kernel, *image, kernel + image][index];
        let cell = |sizes: &[u64; 2]| Cell::Values(vec![bytes(sizes) as f64]);
        Row { name: (*name).into(), cells: sizes.iter().map(cell).collect(), beside: None }
    });
    let rows: Vec<Row> = rows.collect();
    Ok((!rows.is_empty()).then(|| Table {
        suite: "boot".into(),
        unit: "bytes".into(),
        compared: (columns.len() == 2).then_some((0, 1)),
        columns,
        rows,
    }))
}

fn length(path: &Path) -> Result<u64, Failure> {
    let metadata = std::fs::metadata(path).map_err(|error| Failure::file("reading", path.into(), error))?;
    Ok(metadata.len())
}
