//! The native rows of suite micro: what exists only through the kernel contract (`bench/native`) or exos's native
//! interface (`bench/micro/rows_exos.c`), and what stands beside it.
//!
//! A native row has a figure on Aegis only. In the columns of the other systems stand the figures of the row that is
//! the best that Linux can do for the same purpose, and the report says which: a table without that would compare
//! nothing. Where Linux has several ways, the cheaper one stands there, also where it does less: `futex_pp_rt` beside
//! calls into another environment stays in one address space.

use std::path::{Path, PathBuf};

use aegis_abi::boot::{PART_CONFIG, PART_INIT};
use aegis_image::{bundle, flat};
use aegis_launch::errors::Error;
use aegis_launch::machine::accel::firmware_for;
use aegis_launch::machine::artifacts::Artifacts;
use aegis_launch::machine::qemu::MachineKind;

use super::failure::Failure;
use super::guest::Line;
use super::system::{MEMORY_MIB, Shape, bare_machine};

/// A native row, and what stands beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NativeRow {
    pub(super) name: &'static str,
    /// The row of the C program.
    pub(super) beside: &'static str,
    /// How many of the native operation are in one of that row's.
    pub(super) parts: u32,
    /// What it runs on: the kernel contract alone (`bench/native`), or exos (`bench/micro/rows_exos.c`).
    pub(super) is_bare: bool,
}

impl NativeRow {
    /// As reports show it.
    pub(super) fn shown(self) -> String {
        if self.parts == 1 { self.beside.into() } else { format!("{} / {}", self.beside, self.parts) }
    }
}

const fn row(name: &'static str, beside: &'static str) -> NativeRow {
    NativeRow { name, beside, parts: 1, is_bare: true }
}

const fn half(name: &'static str, beside: &'static str) -> NativeRow {
    NativeRow { name, beside, parts: 2, is_bare: true }
}

const fn exos(name: &'static str, beside: &'static str) -> NativeRow {
    NativeRow { name, beside, parts: 1, is_bare: false }
}

/// All native rows, in the order of a report.
pub(super) const ROWS: [NativeRow; 45] = [
    row("native_null_call", "null_getppid_raw"),
    row("native_syscall_no_stack", "null_getppid_raw"),
    row("native_syscall_with_stack", "null_getppid_raw"),
    row("native_exc_unaligned", "trap_segv_skip"),
    row("native_exc_overflow", "trap_div_sigfpe"),
    row("native_exc_illegal", "trap_ud2_sigill"),
    row("native_exc_protection", "trap_segv_skip"),
    row("native_trap", "trap_segv_skip"),
    row("native_fault_existing", "pf_existing_touch"),
    row("native_fault_existing_batch", "pf_existing_touch"),
    row("native_map_unmap_1p", "mmap_munmap_1p"),
    row("native_take_map_free_1p", "mmap_touch_munmap_1p"),
    row("native_dirty", "dirty_pagemap"),
    row("native_prot1", "mprotect_vma_1p"),
    row("native_prot100", "prot100"),
    row("native_unprot100", "unprot100"),
    row("native_trap_reprotect", "segv_mprot_ret_reprot"),
    row("native_appel1", "appel1"),
    row("native_appel2_perpage", "appel2_perpage"),
    row("native_malloc_free_64", "malloc_free_64"),
    half("native_pct_oneway", "futex_pp_rt"),
    row("native_pct_rt", "futex_pp_rt"),
    half("native_pct_send", "futex_pp_rt"),
    row("native_lrpc", "futex_pp_rt"),
    row("native_lrpc_trusted", "futex_pp_rt"),
    row("native_msg_4k", "pipe_4k_stream"),
    row("native_yield_directed", "ctxsw_yield_2proc"),
    row("native_ctxsw_yield", "ctxsw_yield_2proc"),
    row("native_pipe_1B_rt", "pipe_pingpong_1B_rt"),
    row("native_pipe_4k_rt", "pipe_4k_rt"),
    row("native_pipe_4k_stream", "pipe_4k_stream"),
    row("native_shm_yield_rt", "shm_pp_yield_rt"),
    row("native_bell_rt", "futex_pp_rt"),
    row("native_pct_rt@same", "futex_pp_rt@same"),
    row("native_pipe_1B_rt@diff", "pipe_pingpong_1B_rt@diff"),
    row("native_pipe_4k_stream@diff", "pipe_4k_stream@diff"),
    row("native_shm_spin_rt@diff", "shm_pp_spin_rt@diff"),
    row("native_bell_rt@diff", "futex_pp_rt@diff"),
    exos("exos_fault_skip", "trap_segv_skip"),
    exos("exos_fault_reprotect", "segv_mprot_ret_reprot"),
    exos("exos_appel1", "appel1"),
    exos("exos_appel2_perpage", "appel2_perpage"),
    exos("exos_watch_store", "appel2_perpage"),
    exos("exos_watch_load", "appel2_perpage"),
    exos("exos_dirty", "dirty_pagemap"),
];

/// The row of that name.
pub(super) fn find(name: &str) -> Option<NativeRow> {
    ROWS.into_iter().find(|row| row.name == name)
}

/// The program of the native rows, and where its bundles are written.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) qemu: &'a Path,
    /// Where files are written.
    pub(super) cache: &'a Path,
    kernel: PathBuf,
    image: Vec<u8>,
}

impl<'a> Program<'a> {
    /// Finds it.
    pub(super) fn find(qemu: &'a Path, cache: &'a Path) -> Result<Self, Failure> {
        let artifacts = Artifacts::find();
        let path = artifacts.native_bench();
        let elf = std::fs::read(&path).map_err(|error| Failure::file("reading", path.clone(), error))?;
        let image = flat::from_elf(&elf).map_err(|why| Error::ArtifactBad(path, why.to_string()))?;
        Ok(Self { qemu, cache, kernel: artifacts.kernel(), image })
    }

    /// Writes the bundle that runs `words` (`bench/native/src/main.rs`). It is gone when the answer is dropped.
    pub(super) fn bundle(&self, words: &[String; 4]) -> Result<BundleFile, Failure> {
        self.bundle_with(words.join(" ").as_bytes())
    }

    /// The same with any configuration.
    pub(super) fn bundle_with(&self, configuration: &[u8]) -> Result<BundleFile, Failure> {
        let path = self.path();
        let parts: [(u32, &[u8]); 2] = [(PART_INIT, &self.image), (PART_CONFIG, configuration)];
        let bytes = bundle::write(Vec::new(), &parts);
        let bytes = bytes.map_err(|why| Error::ArtifactBad(path.clone(), why.to_string()))?;
        std::fs::write(&path, bytes).map_err(|error| Failure::file("writing", path.clone(), error))?;
        Ok(BundleFile(path))
    }

    /// The line of the machine that runs what is in the bundle.
    pub(super) fn line(&self, shape: Shape) -> Line {
        let mut arguments = bare_machine(MEMORY_MIB, shape);
        if let Some(firmware) = firmware_for(MachineKind::Pc) {
            arguments.extend(["-bios".into(), firmware.into()]);
        }
        arguments.extend(["-device".into(), "isa-debug-exit,iobase=0xf4,iosize=0x04".into()]);
        arguments.extend(["-kernel".into(), self.kernel.clone().into()]);
        arguments.extend(["-initrd".into(), self.path().into()]);
        Line { program: self.qemu.into(), arguments }
    }

    fn path(&self) -> PathBuf {
        self.cache.join(format!("native.{}.bundle", std::process::id()))
    }
}

/// A file that goes when it is dropped.
#[derive(Debug)]
pub(super) struct BundleFile(PathBuf);

impl Drop for BundleFile {
    fn drop(&mut self) {
        // Nothing to be done if somebody else removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::ROWS;

    #[test]
    fn the_program_and_this_table_have_the_same_rows() {
        let sources = [
            include_str!("../../native/src/rows_call.rs"),
            include_str!("../../native/src/rows_memory.rs"),
            include_str!("../../native/src/rows_transfer.rs"),
            include_str!("../../native/src/rows_channel.rs"),
        ];
        let names = sources.iter().flat_map(|text| text.split("    (\"").skip(1));
        let mut names: Vec<&str> = names.filter_map(|it| it.split('"').next()).collect();
        let mut rows: Vec<&str> = ROWS.iter().filter(|row| row.is_bare).map(|row| row.name).collect();
        names.sort_unstable();
        rows.sort_unstable();
        assert_eq!(names, rows);
        assert!(rows.iter().all(|name| name.starts_with("native_")));
    }

    #[test]
    fn what_stands_beside_is_a_row_of_the_program_on_as_many_processors() {
        let sources = [
            include_str!("../../micro/rows_cpu.c"),
            include_str!("../../micro/rows_memory.c"),
            include_str!("../../micro/rows_process.c"),
        ];
        let exos = include_str!("../../micro/rows_exos.c");
        for row in ROWS {
            assert!(row.is_bare || exos.contains(&format!("{{\"{}\", ", row.name)), "{}", row.name);
            let base = row.beside.split('@').next().unwrap_or_default();
            let entry = format!("{{\"{base}\", ");
            assert!(sources.iter().any(|text| text.contains(&entry)), "{} beside {}", row.name, row.beside);
            assert_eq!(row.name.contains('@'), row.beside.contains('@'), "{}", row.name);
        }
    }
}
