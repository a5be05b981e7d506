//! What the first environment finds: boot information, system page, capabilities, its own page tables, and walls
//! where walls must be.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::ABI_VERSION;
use aegis_abi::call::EnvironmentField;
use aegis_abi::layout::{
    BOOT_INFO_BASE, FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, FIRST_SAVE_AREA_FRAME_COUNT, KERNEL_BASE, LIBOS_END,
    PAGE_SIZE, PAGE_TABLE_WINDOW, SYSTEM_PAGE_BASE,
};
use aegis_abi::memory::{BindFlags, entry};
use aegis_abi::types::{
    CapType, SLOT_BUNDLE, SLOT_DEVICE_FIRST, SLOT_FIRST_PROCESSOR, SLOT_MACHINE, SLOT_NONE, SLOT_SELF,
};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::{call, clock, control};

use crate::memory::{SCRATCH_BASE, directory_address, map, slot, table_entry, take, window_address};
use crate::probe::{self, GENERAL_PROTECTION, PAGE_FAULT, PRESENT, USER, WRITE};
use crate::suite::{CaseResult, Machine, Suite};
use crate::vector::{self, Registers};
use crate::{expect, expect_equal, expect_ok, expect_refused, thread, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s00_boot",
    cases: &[
        ("boot_information_is_sane", boot_information_is_sane),
        ("first_capabilities_are_where_the_contract_says", first_capabilities),
        ("memory_and_processors_are_what_the_host_gave", host_expectations),
        ("system_page_tells_time", system_page_tells_time),
        ("control_page_names_itself", control_page_names_itself),
        ("own_page_tables_are_readable", own_page_tables_are_readable),
        ("own_page_tables_are_not_writable", own_page_tables_are_not_writable),
        ("kernel_pages_are_not_writable_by_us", kernel_pages_are_not_writable),
        ("kernel_memory_is_out_of_reach", kernel_memory_is_out_of_reach),
        ("null_pages_are_out_of_reach", null_pages_are_out_of_reach),
        ("privileged_instructions_fault", privileged_instructions_fault),
        ("null_call_keeps_registers", null_call_keeps_registers),
        ("vector_state_is_each_processors_own", vector_state_is_own),
        ("new_processors_start_with_clean_vector_state", vector_state_starts_clean),
        ("fs_base_is_each_processors_own", fs_base_is_own),
    ],
};

fn boot_information_is_sane(machine: &Machine) -> CaseResult {
    let info = &machine.info;
    expect_equal!(info.abi_version, ABI_VERSION);
    expect!(info.frame_count_free > 0);
    expect!(info.frame_count_total >= info.frame_count_free + info.bundle_frame_count);
    expect!(info.bundle_frame_count > 1);
    expect!(info.device_count <= 64);
    expect_equal!(info.control_address, FIRST_CONTROL_BASE);
    expect!(info.boot_ns > 0);
    expect!(info.boot_ns < 60_000_000_000);
    let free = expect_ok!(call::environment_read(SLOT_SELF, EnvironmentField::FramesFree));
    expect!(free <= info.frame_count_free);
    expect_equal!(call::environment_read(SLOT_SELF, EnvironmentField::Stopped), Ok(0));
    Ok(())
}

fn first_capabilities(machine: &Machine) -> CaseResult {
    let type_of = |slot: CapSlot| call::cap_read(slot, 0).map(|word| word & 0xffff_ffff);
    let rights_of = |slot| Rights::from_bits_truncate(call::cap_read(slot, 0).map_or(0, |word| (word >> 32) as u32));
    expect_equal!(type_of(SLOT_SELF), Ok(CapType::Environment as u64));
    expect_equal!(type_of(SLOT_FIRST_PROCESSOR), Ok(CapType::Processor as u64));
    expect_equal!(type_of(SLOT_MACHINE), Ok(CapType::Machine as u64));
    expect!(rights_of(SLOT_MACHINE).contains(Rights::LOG | Rights::CONTROL));
    expect_equal!(type_of(SLOT_BUNDLE), Ok(CapType::Frames as u64));
    expect_equal!(call::cap_read(SLOT_BUNDLE, 1), Ok(machine.info.bundle_frame));
    expect_equal!(call::cap_read(SLOT_BUNDLE, 2), Ok(machine.info.bundle_frame_count));
    for number in 0..machine.info.device_count {
        let device = CapSlot(SLOT_DEVICE_FIRST.0 + number);
        expect_equal!(type_of(device), Ok(CapType::Device as u64));
    }
    expect_refused!(call::cap_read(SLOT_NONE, 0), Status::BadSlot);
    let beyond = CapSlot(SLOT_DEVICE_FIRST.0 + machine.info.device_count);
    expect_refused!(call::cap_read(beyond, 0), Status::BadSlot);
    Ok(())
}

fn host_expectations(machine: &Machine) -> CaseResult {
    if machine.expected.cpu_count != 0 {
        expect_equal!(u64::from(machine.cpu_count), machine.expected.cpu_count);
    }
    if machine.expected.memory_mib != 0 {
        let mib = (machine.info.frame_count_free * PAGE_SIZE) >> 20;
        expect!(mib < machine.expected.memory_mib);
        // The kernel keeps little: its image, a table entry of each frame, the bundle.
        expect!(mib >= machine.expected.memory_mib - 8 - machine.expected.memory_mib / 64);
        // Names of frames go as high as memory does, with at most the hole of a PC in between.
        let highest_mib = (machine.info.frame_count_total * PAGE_SIZE) >> 20;
        expect!(highest_mib >= mib && highest_mib <= machine.expected.memory_mib + 2048);
    }
    Ok(())
}

fn system_page_tells_time(_: &Machine) -> CaseResult {
    // SAFETY: mapped by the kernel.
    let page = unsafe { clock::system_page() };
    expect!((1..=8).contains(&page.processor_count));
    expect!(page.tsc_hz > 1_000_000);
    expect!(page.slice_ns > 0);
    expect_equal!(page.vector_state_mask & 3, 3);
    let mut last = wait::now_ns();
    for _ in 0..1000 {
        let now = wait::now_ns();
        expect!(now >= last);
        last = now;
    }
    // One million time-stamp ticks are what the frequency says, to a thousandth.
    let ns = clock::nanoseconds_at(page, page.clock_base_tsc + page.tsc_hz);
    let second = ns - page.clock_base_ns;
    expect!(second.abs_diff(1_000_000_000) < 1_000_000);
    Ok(())
}

fn control_page_names_itself(_: &Machine) -> CaseResult {
    expect_equal!(control::control_address(), FIRST_CONTROL_BASE);
    expect_equal!(control::save_area_base(), FIRST_SAVE_AREA_BASE);
    let top = FIRST_SAVE_AREA_BASE + FIRST_SAVE_AREA_FRAME_COUNT * PAGE_SIZE;
    expect_equal!(control::save_area_top(), top);
    // The page below the save area is not mapped, so that a stack that grows too far faults.
    expect!(probe::is_unmapped(FIRST_SAVE_AREA_BASE - 8));
    Ok(())
}

fn own_page_tables_are_readable(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::WRITE));
    let word = table_entry(SCRATCH_BASE);
    expect_equal!(word & entry::FRAME_MASK, frame * PAGE_SIZE);
    let bits = entry::PRESENT | entry::USER | entry::WRITE | entry::NO_EXECUTE;
    expect_equal!(word & bits, bits);
    expect_equal!(table_entry(SCRATCH_BASE + PAGE_SIZE), 0);
    // The directory entry is seen one level up.
    let directory = expect_ok_probe(probe::read(directory_address(SCRATCH_BASE)))?;
    expect_equal!(directory & (entry::PRESENT | entry::LARGE), entry::PRESENT);
    let boot = table_entry(BOOT_INFO_BASE);
    expect_equal!(boot & (entry::PRESENT | entry::WRITE), entry::PRESENT);
    Ok(())
}

fn expect_ok_probe(result: Result<u64, probe::Fault>) -> Result<u64, crate::suite::Failure> {
    result.map_err(|fault| crate::suite::Failure { line: line!(), found: fault.address })
}

fn own_page_tables_are_not_writable(_: &Machine) -> CaseResult {
    let targets = [
        window_address(FIRST_CONTROL_BASE),
        directory_address(FIRST_CONTROL_BASE),
        // The root's own entry for the window.
        0xffff_8442_2110_8840,
    ];
    for address in targets {
        let before = expect_ok_probe(probe::read(address))?;
        let fault = probe::write(address, before).err();
        expect!(fault.is_some_and(|f| f.is_page_fault(address, PRESENT | WRITE | USER)));
    }
    let fault = probe::execute(window_address(FIRST_CONTROL_BASE)).err();
    expect!(fault.is_some_and(|f| f.vector == PAGE_FAULT));
    Ok(())
}

fn kernel_pages_are_not_writable(_: &Machine) -> CaseResult {
    for address in [BOOT_INFO_BASE, SYSTEM_PAGE_BASE] {
        let fault = probe::write(address, 0).err();
        expect!(fault.is_some_and(|f| f.is_page_fault(address, PRESENT | WRITE | USER)));
        let fault = probe::execute(address).err();
        expect!(fault.is_some_and(|f| f.vector == PAGE_FAULT && f.address == address));
    }
    Ok(())
}

fn kernel_memory_is_out_of_reach(_: &Machine) -> CaseResult {
    let addresses = [
        LIBOS_END - PAGE_SIZE,
        // The page tables' window ends here; the kernel's entries are beyond.
        PAGE_TABLE_WINDOW + (1 << 39),
        window_address(KERNEL_BASE),
        window_address(0xffff_ffff_8020_0000),
        KERNEL_BASE,
        KERNEL_BASE + (1 << 20),
        KERNEL_BASE + (2 << 20),
        0xffff_ffff_8000_0000,
        0xffff_ffff_8020_0000,
        0xffff_ffff_ffff_f000,
    ];
    for address in addresses {
        for fault in [probe::read(address).err(), probe::write(address, 1).err(), probe::execute(address).err()] {
            expect!(fault.is_some_and(|f| f.vector == PAGE_FAULT && f.address == address));
            expect!(fault.is_some_and(|f| f.error_code & USER != 0));
        }
    }
    for address in [0x0000_8000_0000_0000, 0xffff_7fff_ffff_f000, 0x1234_5678_9abc_def0] {
        let fault = probe::read(address).err();
        expect!(fault.is_some_and(|f| f.vector == GENERAL_PROTECTION && f.error_code == 0));
        expect!(probe::write(address, 1).is_err());
        expect!(probe::execute(address).is_err());
    }
    Ok(())
}

fn null_pages_are_out_of_reach(_: &Machine) -> CaseResult {
    for address in [0, 8, 0xfff, 0xfff8] {
        let fault = probe::read(address).err();
        expect!(fault.is_some_and(|f| f.vector == PAGE_FAULT && f.error_code == USER));
    }
    Ok(())
}

/// Declares one assembly routine for each instruction: name and text.
macro_rules! routines {
    ($($name:ident: $($text:literal),+;)*) => {
        unsafe extern "C" { $( fn $name(); )* }
        core::arch::global_asm!($( concat!(stringify!($name), ":"), $($text,)+ "ret", )*);
        const PRIVILEGED: &[unsafe extern "C" fn()] = &[$( $name, )*];
    };
}

routines! {
    privileged_cli: "cli";
    privileged_hlt: "hlt";
    privileged_in: "mov edx, 0x3f8", "in al, dx";
    privileged_out: "mov edx, 0xf4", "out dx, al";
    privileged_cr0: "mov rax, cr0";
    privileged_cr3: "mov rax, cr3", "mov cr3, rax";
    privileged_rdmsr: "mov ecx, 0xc0000080", "rdmsr";
    privileged_wrmsr: "mov ecx, 0xc0000080", "wrmsr";
    privileged_lgdt: "lgdt [rsp]";
    privileged_lidt: "lidt [rsp]";
    privileged_ltr: "mov eax, 0x28", "ltr ax";
    privileged_invlpg: "invlpg [rsp]";
    privileged_swapgs: "swapgs";
    privileged_sysret: "sysretq";
    privileged_xsetbv: "xor ecx, ecx", "xor edx, edx", "mov eax, 1", "xsetbv";
    privileged_wbinvd: "wbinvd";
    privileged_clts: "clts";
    privileged_interrupt: "int 0x20";
    privileged_double_fault: "int 8";
}

fn privileged_instructions_fault(_: &Machine) -> CaseResult {
    for (index, routine) in PRIVILEGED.iter().enumerate() {
        let fault = probe::run(*routine, 0, 0).err();
        if fault.is_none_or(|f| f.vector != GENERAL_PROTECTION) {
            return Err(crate::suite::Failure { line: line!(), found: index as u64 });
        }
    }
    Ok(())
}

unsafe extern "C" {
    /// Makes the null call with a pattern in every register; RAX: those that came back changed, one bit each.
    fn null_call_check() -> u64;
}

core::arch::global_asm!(
    "null_call_check:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    ".irp register,rbx,rbp,rsi,rdi,r8,r9,r10,r12,r13,r14,r15",
    "lea \\register, [rip + null_call_check]",
    "rol \\register, 7",
    ".endr",
    "xor eax, eax",
    "syscall",
    "lea rcx, [rip + null_call_check]",
    "rol rcx, 7",
    ".irp register,rbx,rbp,rsi,rdi,r8,r9,r10,r12,r13,r14,r15",
    "sub \\register, rcx",
    "or rax, \\register",
    ".endr",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
);

fn null_call_keeps_registers(_: &Machine) -> CaseResult {
    // SAFETY: the routine keeps the C calling convention.
    expect_equal!(unsafe { null_call_check() }, 0);
    Ok(())
}

static THREADS_DONE: AtomicU64 = AtomicU64::new(0);
static THREADS_WRONG: AtomicU64 = AtomicU64::new(0);

/// Threads of the vector cases.
const VECTOR_THREADS: u32 = 3;
/// Times that each processor checks its registers.
const VECTOR_ROUNDS: u64 = 60;

/// Loads patterns, lets others run in several ways, and counts what came back wrong.
fn churn_vector_state(seed: u64) -> u64 {
    let mut wrong = 0;
    for round in 0..VECTOR_ROUNDS {
        let pattern = Registers::pattern(seed << 8 | round);
        let mxcsr = 0x1f80 | (seed as u32 & 3) << 13;
        pattern.load();
        vector::set_control(mxcsr);
        match round % 4 {
            0 => drop_outcome(call::null()),
            1 => drop_outcome(call::yield_to(SLOT_NONE)),
            2 => wait::pause(20_000),
            _ => {
                let _ = probe::read(8);
            }
        }
        wrong += u64::from(Registers::store() != pattern);
        wrong += u64::from(vector::control() != mxcsr);
    }
    vector::set_control(0x1f80);
    wrong
}

fn drop_outcome(_: call::Outcome) {}

extern "C" fn vector_thread(seed: u64) -> ! {
    probe::install();
    THREADS_WRONG.fetch_add(churn_vector_state(seed), Ordering::SeqCst);
    THREADS_DONE.fetch_add(1, Ordering::SeqCst);
    wait::forever()
}

fn vector_state_is_own(_: &Machine) -> CaseResult {
    THREADS_DONE.store(0, Ordering::SeqCst);
    THREADS_WRONG.store(0, Ordering::SeqCst);
    for number in 0..VECTOR_THREADS {
        expect_ok!(thread::spawn(number, vector_thread, u64::from(number) + 1));
    }
    expect_equal!(churn_vector_state(0), 0);
    let done = || THREADS_DONE.load(Ordering::SeqCst) == u64::from(VECTOR_THREADS);
    expect!(wait::until(done));
    expect_equal!(THREADS_WRONG.load(Ordering::SeqCst), 0);
    Ok(())
}

extern "C" fn clean_thread(_: u64) -> ! {
    let registers = Registers::store();
    let wrong = u64::from(registers != Registers::ZERO) + u64::from(vector::control() != 0x1f80);
    THREADS_WRONG.store(wrong, Ordering::SeqCst);
    THREADS_DONE.store(1, Ordering::SeqCst);
    wait::forever()
}

fn vector_state_starts_clean(_: &Machine) -> CaseResult {
    THREADS_DONE.store(0, Ordering::SeqCst);
    Registers::pattern(77).load();
    expect_ok!(thread::spawn(0, clean_thread, 0));
    expect!(wait::until(|| THREADS_DONE.load(Ordering::SeqCst) == 1));
    expect_equal!(THREADS_WRONG.load(Ordering::SeqCst), 0);
    Ok(())
}

extern "C" fn fs_thread(number: u64) -> ! {
    let mut wrong = u64::from(vector::fs_base() != 0);
    for round in 0..VECTOR_ROUNDS {
        let base = number << 32 | round << 12;
        vector::set_fs_base(base);
        drop_outcome(call::yield_to(SLOT_NONE));
        wrong += u64::from(vector::fs_base() != base);
    }
    THREADS_WRONG.fetch_add(wrong, Ordering::SeqCst);
    THREADS_DONE.fetch_add(1, Ordering::SeqCst);
    wait::forever()
}

fn fs_base_is_own(_: &Machine) -> CaseResult {
    THREADS_DONE.store(0, Ordering::SeqCst);
    THREADS_WRONG.store(0, Ordering::SeqCst);
    vector::set_fs_base(0x7000);
    for number in 0..3 {
        expect_ok!(thread::spawn(number, fs_thread, u64::from(number) + 1));
    }
    expect!(wait::until(|| THREADS_DONE.load(Ordering::SeqCst) == 3));
    expect_equal!(THREADS_WRONG.load(Ordering::SeqCst), 0);
    expect_equal!(vector::fs_base(), 0x7000);
    vector::set_fs_base(0);
    Ok(())
}
