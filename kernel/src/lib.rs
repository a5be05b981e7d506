//! The kernel: glue between the pure core (`kernel/core`) and the machine (`kernel/machine`).
//!
//! Start: the machine boots and calls the binary's main function, and that calls [`start`], which takes memory for the
//! tables, describes the device functions, starts the other processors, makes the first environment from the boot
//! bundle and enters it. From then on everything begins in `entry`.
//!
//! Two binaries are made of it: this package's, which is the kernel, and that of `extended/`, which hands an extension
//! to [`start`] (ADR 0075).
#![cfg_attr(target_os = "none", no_std)]

#[cfg(target_os = "none")]
mod devices;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod hardware;

#[cfg(target_os = "none")]
pub use {bare::start, hardware::Hardware};

#[cfg(target_os = "none")]
mod bare {
    use aegis_abi::FrameNumber;
    use aegis_abi::boot::SystemPage;
    use aegis_abi::layout::{LARGE_PAGE_FRAMES, PAGE_SHIFT, PAGE_SIZE};
    use aegis_kernel_core::{BlockEntry, Extension, FirstEnvironment, FrameEntry, Setup, State};
    use aegis_machine as machine;
    use machine::{Boot, ExitCode, log};

    use crate::entry::{self, HANDLERS, KERNEL};
    use crate::{devices, hardware::Hardware, hardware::Kernel};

    /// How long a virtual processor runs before others get their turn, unless the command line says `slice_ms=`.
    const SLICE_MS: u64 = 10;
    /// Slices may be this long at most.
    const SLICE_MS_MAX: u64 = 100;

    /// The boot processor, once the machine is up; with what extends the kernel, if something does.
    pub fn start(mut boot: Boot, extension: Option<&'static dyn Extension<Hardware>>) -> ! {
        let Some((address, length_bytes)) = boot.bundle else {
            give_up(format_args!("no boot bundle was loaded (the host's -initrd)"));
        };
        let first = FirstEnvironment {
            bundle_frame: FrameNumber(address >> PAGE_SHIFT),
            bundle_frame_count: length_bytes.div_ceil(PAGE_SIZE),
        };
        if !address.is_multiple_of(PAGE_SIZE) {
            give_up(format_args!("the boot bundle at {address:#x} does not begin at a page"));
        }
        machine::set_handlers(&HANDLERS);
        let mut state = KERNEL.lock();
        state.machine.extension = extension;
        set_up(&mut state, &mut boot);
        devices::describe(&mut state, &boot);
        if let Err(error) = state.start_first_environment(first) {
            give_up(format_args!("the boot bundle cannot be started: {error:?}"));
        }
        drop(state);
        machine::start_processors(|_| run());
        run()
    }

    /// Enters whatever the scheduler gives this processor.
    fn run() -> ! {
        let mut frame = machine::idle_frame();
        entry::enter(&mut frame, State::on_kick);
        machine::enter(&frame)
    }

    /// Takes the memory of the tables and makes the rest free.
    fn set_up(state: &mut Kernel, boot: &mut Boot) {
        let frame_count = boot.memory.frame_end();
        let block_count = frame_count.div_ceil(LARGE_PAGE_FRAMES);
        let frames = boot.memory.take_slice(frame_count as usize, FrameEntry::RESERVED);
        let blocks = boot.memory.take_slice(block_count as usize, BlockEntry::EMPTY);
        let (Some(frames), Some(blocks), Some(pages)) = (frames, blocks, boot.memory.take_frames(2, 1)) else {
            give_up(format_args!("too little memory for the ownership table of {frame_count} frames"));
        };
        let system_page = FrameNumber(pages.start);
        let template_root = FrameNumber(pages.start + 1);
        machine::physical_zero(template_root);
        for slot in [machine::KERNEL_SLOT_DIRECT, machine::KERNEL_SLOT_IMAGE] {
            machine::physical_store_words(template_root, slot, [machine::kernel_slot_entry(slot)]);
        }
        let slice_ns = slice_ms(boot.command_line) * 1_000_000;
        write_system_page(system_page, boot, slice_ns);
        let lottery_key = lottery_key(boot.command_line);
        let setup = Setup { frames, blocks, template_root, system_page, slice_ns, lottery_key };
        if let Err(error) = state.init(setup) {
            give_up(format_args!("the tables cannot be set up: {error:?}"));
        }
        for range in boot.memory.free_ranges() {
            state.add_free_frames(FrameNumber(range.start), range.count);
        }
    }

    fn slice_ms(command_line: &str) -> u64 {
        let asked = machine::command_line::value(command_line, "slice_ms").and_then(|value| value.parse().ok());
        asked.unwrap_or(SLICE_MS).clamp(1, SLICE_MS_MAX)
    }

    /// The 32 hexadecimal digits of `lottery=`: the host tool makes the draws unforeseeable, or repeatable.
    fn lottery_key(command_line: &str) -> [u64; 2] {
        let digits = machine::command_line::value(command_line, "lottery").unwrap_or_default();
        let key = u128::from_str_radix(digits, 16).unwrap_or(0);
        [(key >> 64) as u64, key as u64]
    }

    /// Fills the page that every environment sees.
    fn write_system_page(frame: FrameNumber, boot: &Boot, slice_ns: u64) {
        let page = SystemPage {
            clock_base_ns: boot.clock.base_ns,
            clock_base_tsc: boot.clock.base_tsc,
            clock_multiplier: boot.clock.multiplier,
            clock_shift: boot.clock.shift,
            processor_count: machine::processor_count() as u32,
            tsc_hz: boot.clock.tsc_hz,
            vector_state_mask: machine::vector_state_mask(),
            slice_ns,
        };
        machine::physical_zero(frame);
        machine::physical_store_words(frame, 0, page.to_words());
    }

    /// The machine was started in a way that cannot work: says so and ends it.
    fn give_up(why: core::fmt::Arguments<'_>) -> ! {
        log!(Error, "{why}");
        machine::power_off(ExitCode::Panic)
    }
}
