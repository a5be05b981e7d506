//! Stacks: from a processor's registers to the chain of calls that led there.
//!
//! A frame is left by the call frame table (`.eh_frame`, `.debug_frame`) of the file that its instruction
//! belongs to; without one, by RBP where that looks like a frame pointer. The entries of the kernel and of exos
//! have no table: there the interrupted context lies at RSP, in the same layout in both
//! (`abi::upcall::UpcallFrame`), and the walk goes on in it. So one stack leads from the kernel through exos
//! into the program.
//!
//! Nothing of the guest is believed: depth and reads are bounded, a walk that goes nowhere ends, and what was
//! found before stays.

use aegis_abi::layout::{PROGRAM_BASE, PROGRAM_END};
use aegis_abi::upcall::{ControlPage, USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame};
use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection,
};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};

use super::gdb::Registers;

/// Most frames of a stack; what is further out is left away.
pub(super) const DEPTH_MAX: usize = 256;
/// How far a frame pointer may be from the stack pointer.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// Most descriptions of functions in one table.
const DESCRIPTION_COUNT_MAX: usize = 1 << 20;
const RCX: usize = 2;
const RBP: usize = 6;
const RSP: usize = 7;
/// Number of the return address among DWARF's registers.
const RETURN_ADDRESS: u16 = 16;
/// Words of an [`UpcallFrame`] by DWARF's numbers of registers.
const SAVED: [usize; 16] = [14, 12, 13, 11, 9, 8, 10, 22, 7, 6, 5, 4, 3, 2, 1, 0];
const SAVED_RIP: usize = 19;
const SAVED_CS: usize = 20;
const SAVED_SS: usize = 23;
/// Where the control page holds the address behind a program's `syscall`.
const SYSCALL_RIP_AT: u64 = core::mem::offset_of!(ControlPage, syscall_rip) as u64;
const SAVED_WORDS: usize = size_of::<UpcallFrame>() / 8;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Reads a word of the guest's memory.
pub(super) trait Memory {
    /// `None` if it is not there.
    fn word(&mut self, address: u64) -> Option<u64>;
}

/// What an address belongs to, as unwinding needs to know it.
pub(super) struct Code<'a> {
    /// The file's table, if it has one.
    pub(super) table: Option<&'a FrameTable>,
    /// What is added to the file's addresses.
    pub(super) bias: u64,
    /// The kernel's or exos's code.
    pub(super) is_system: bool,
}

/// The functions of a file and how to leave them.
#[derive(Debug)]
pub(super) struct FrameTable {
    section: Vec<u8>,
    address: u64,
    is_debug: bool,
    /// First address, length, place in the section; ascending.
    functions: Vec<(u64, u64, usize)>,
}

impl FrameTable {
    /// The table of an ELF file; `None` if it has none that can be read.
    pub(super) fn of_elf(bytes: &[u8]) -> Option<Self> {
        let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
        let table = |name: &str, is_debug: bool| {
            let section = file.section_by_name(name)?;
            let data = section.data().ok().filter(|data| !data.is_empty())?;
            let table = Self { section: data.to_vec(), address: section.address(), is_debug, functions: Vec::new() };
            Some(table.indexed()).filter(|table| !table.functions.is_empty())
        };
        table(".eh_frame", false).or_else(|| table(".debug_frame", true))
    }

    fn indexed(mut self) -> Self {
        let mut functions = Vec::new();
        match self.is_debug {
            true => collect(&self.debug_frame(), &self.bases(), &mut functions),
            false => collect(&self.eh_frame(), &self.bases(), &mut functions),
        }
        functions.sort_unstable();
        self.functions = functions;
        self
    }

    fn debug_frame(&self) -> DebugFrame<Bytes<'_>> {
        let mut section = DebugFrame::new(&self.section, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn eh_frame(&self) -> EhFrame<Bytes<'_>> {
        let mut section = EhFrame::new(&self.section, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.address)
    }

    /// The first address of the function at `address`; known also where a file's names were taken away.
    pub(super) fn function_at(&self, address: u64) -> Option<u64> {
        let index = self.functions.partition_point(|(start, ..)| *start <= address).checked_sub(1)?;
        let (start, length, _) = self.functions[index];
        (address - start < length).then_some(start)
    }

    /// The caller's registers, if the table knows the function at `address` (without the bias).
    fn leave(&self, address: u64, registers: &Registers, memory: &mut dyn Memory) -> Option<Registers> {
        let index = self.functions.partition_point(|(start, ..)| *start <= address).checked_sub(1)?;
        let (start, length, offset) = self.functions[index];
        if address - start >= length {
            return None;
        }
        match self.is_debug {
            true => leave(&self.debug_frame(), &self.bases(), offset.into(), address, registers, memory),
            false => leave(&self.eh_frame(), &self.bases(), offset.into(), address, registers, memory),
        }
    }
}

fn collect<'a, S>(section: &S, bases: &BaseAddresses, functions: &mut Vec<(u64, u64, usize)>)
where
    S: UnwindSection<Bytes<'a>>,
{
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(description) = partial.parse(S::cie_from_offset) else { continue };
        let (start, length) = (description.initial_address(), description.len());
        // What the linker threw away begins at 0.
        if start != 0 && length != 0 && functions.len() < DESCRIPTION_COUNT_MAX {
            functions.push((start, length, description.offset()));
        }
    }
}

fn leave<'a, S>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    address: u64,
    registers: &Registers,
    memory: &mut dyn Memory,
) -> Option<Registers>
where
    S: UnwindSection<Bytes<'a>>,
{
    let description = section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
    let mut context = UnwindContext::new();
    let row = description.unwind_info_for_address(section, bases, &mut context, address).ok()?;
    let value = |register: Register| registers.general.get(usize::from(register.0)).copied();
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        // Expressions are those of the stubs that jump to other files; the innermost function is all that is lost.
        return None;
    };
    let frame = value(*register)?.checked_add_signed(*offset)?;
    let mut saved = |register: Register| match row.register(register) {
        RegisterRule::Offset(offset) => memory.word(frame.checked_add_signed(offset)?),
        RegisterRule::ValOffset(offset) => frame.checked_add_signed(offset),
        RegisterRule::Register(other) => value(other),
        RegisterRule::SameValue | RegisterRule::Undefined => value(register),
        _ => None,
    };
    let mut caller = *registers;
    // An undefined return address is how the outermost function says so.
    if matches!(row.register(Register(RETURN_ADDRESS)), RegisterRule::Undefined) {
        return None;
    }
    caller.rip = saved(Register(RETURN_ADDRESS))?;
    for (number, register) in caller.general.iter_mut().enumerate() {
        if let Some(found) = u16::try_from(number).ok().and_then(|number| saved(Register(number))) {
            *register = found;
        }
    }
    caller.general[RSP] = frame;
    Some(caller)
}

/// The instruction and the callers' return addresses, innermost first. `code` says what an address belongs to.
pub(super) fn stack<'a>(start: Registers, memory: &mut dyn Memory, code: &mut dyn FnMut(u64) -> Code<'a>) -> Vec<u64> {
    let mut frames = vec![start.rip];
    let mut registers = start;
    // Of a return address, the call before it is what counts: the next instruction may be another function's.
    let mut is_return = false;
    while frames.len() < DEPTH_MAX {
        let at = registers.rip.wrapping_sub(u64::from(is_return));
        let here = code(at);
        let left = match here.table.and_then(|table| table.leave(at.wrapping_sub(here.bias), &registers, memory)) {
            Some(caller) => Some((caller, true)),
            // The entries of kernel and exos, behind their call of Rust.
            None if here.is_system && is_return => interrupted(&registers, memory).map(|context| (context, false)),
            None => {
                let entered = here.is_system.then(|| registers_before_entry(&registers, memory)).flatten();
                let caller = || by_frame_pointer(&registers, memory).map(|caller| (caller, true));
                entered.map(|context| (context, false)).or_else(caller)
            }
        };
        let Some((caller, next_is_return)) = left else { break };
        let moves = caller.general[RSP] > registers.general[RSP] || !next_is_return;
        if caller.rip < 4096 || !moves {
            break;
        }
        frames.push(caller.rip);
        registers = caller;
        is_return = next_is_return;
    }
    frames
}

/// The context that an entry saved at RSP.
fn interrupted(registers: &Registers, memory: &mut dyn Memory) -> Option<Registers> {
    let mut words = [0; SAVED_WORDS];
    for (index, word) in words.iter_mut().enumerate() {
        *word = memory.word(registers.general[RSP].checked_add(index as u64 * 8)?)?;
    }
    let mut context = *registers;
    for (register, place) in context.general.iter_mut().zip(SAVED) {
        *register = words[place];
    }
    context.rip = words[SAVED_RIP];
    Some(context)
}

/// The context that an entry is about to save, or a resume to restore: assembly, in which nothing was called yet.
fn registers_before_entry(registers: &Registers, memory: &mut dyn Memory) -> Option<Registers> {
    let stack = registers.general[RSP];
    let mut context = *registers;
    if stack < PROGRAM_END {
        // The program's registers but for RIP: `syscall` and a trampoline leave it in RCX, the kernel then in the
        // control page.
        let is_programs = |address: &u64| (PROGRAM_BASE..PROGRAM_END).contains(address);
        let in_register = Some(registers.general[RCX]).filter(is_programs);
        let in_page = || memory.word(registers.gs_base.checked_add(SYSCALL_RIP_AT)?).filter(is_programs);
        context.rip = in_register.or_else(|| (registers.ring != 0).then(in_page).flatten())?;
        return Some(context);
    }
    // The words are pushed from the last one down: those below RSP are still in their registers.
    for pushed in 1..=SAVED_WORDS as u64 {
        let frame = stack.checked_add(pushed * 8)?.checked_sub(SAVED_WORDS as u64 * 8)?;
        let mut word = |index: usize| match frame + index as u64 * 8 {
            address if address >= stack => memory.word(address),
            _ => None,
        };
        let is_frame = word(SAVED_SS) == Some(USER_STACK_SELECTOR) && word(SAVED_CS) == Some(USER_CODE_SELECTOR);
        if !is_frame {
            continue;
        }
        context.rip = word(SAVED_RIP)?;
        for (register, place) in context.general.iter_mut().zip(SAVED) {
            *register = word(place).unwrap_or(*register);
        }
        return Some(context);
    }
    None
}

fn by_frame_pointer(registers: &Registers, memory: &mut dyn Memory) -> Option<Registers> {
    let (frame, stack) = (registers.general[RBP], registers.general[RSP]);
    let is_near = frame % 8 == 0 && frame.checked_sub(stack).is_some_and(|bytes| bytes < FRAME_BYTES_MAX);
    if !is_near {
        return None;
    }
    let mut caller = *registers;
    caller.general[RBP] = memory.word(frame)?;
    caller.rip = memory.word(frame.checked_add(8)?)?;
    caller.general[RSP] = frame.checked_add(16)?;
    Some(caller)
}

#[cfg(test)]
mod tests {
    use super::{Code, DEPTH_MAX, FrameTable, Memory, RBP, RSP, SAVED_RIP, stack};
    use crate::profile::gdb::Registers;
    use std::collections::HashMap;

    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            self.0.get(&address).copied()
        }
    }

    fn none<'a>(is_system: bool) -> Code<'a> {
        Code { table: None, bias: 0, is_system }
    }

    fn at(rip: u64, rsp: u64, rbp: u64) -> Registers {
        let mut registers = Registers { rip, ..Registers::default() };
        registers.general[RSP] = rsp;
        registers.general[RBP] = rbp;
        registers
    }

    #[test]
    fn frame_pointers_where_there_is_no_table() {
        let mut memory = Words([(0x1010, 0x1030), (0x1018, 0x5000), (0x1030, 0), (0x1038, 0x6000)].into());
        let frames = stack(at(0x4000, 0x1000, 0x1010), &mut memory, &mut |_| none(false));
        assert_eq!(frames, [0x4000, 0x5000, 0x6000]);
    }

    #[test]
    fn a_register_that_is_no_frame_pointer_ends_the_walk() {
        for rbp in [0, 0x1001, 0xff8, 0x1000 + (1 << 20), u64::MAX] {
            let mut memory = Words((0..64).map(|word| (0x1000 + word * 8, 0x7777)).collect());
            assert_eq!(stack(at(0x4000, 0x1000, rbp), &mut memory, &mut |_| none(false)), [0x4000]);
        }
    }

    #[test]
    fn a_stack_that_leads_nowhere_has_an_end() {
        // Each frame is the next one.
        let mut memory = Words((0..100_000).map(|word| (0x1000 + word * 8, 0x1000 + word * 8 + 16)).collect());
        let frames = stack(at(0x4000, 0x1000, 0x1000), &mut memory, &mut |_| none(false));
        assert_eq!(frames.len(), DEPTH_MAX);
        // A frame that is its own caller.
        let mut memory = Words([(0x1000, 0x1000), (0x1008, 0x5000)].into());
        assert_eq!(stack(at(0x4000, 0x1000, 0x1000), &mut memory, &mut |_| none(false)).len(), 2);
    }

    #[test]
    fn from_the_system_into_what_it_interrupted() {
        let (entry, frame) = (0xffff_8000_0100_0010_u64, 0xffff_8000_0010_9000_u64);
        let mut words: HashMap<u64, u64> = (0..24).map(|word| (frame + word * 8, 0)).collect();
        words.insert(frame + SAVED_RIP as u64 * 8, 0x40_1000);
        words.insert(frame + 22 * 8, 0x1000);
        words.insert(frame + 10 * 8, 0x1010);
        words.extend([(0x1010, 0), (0x1018, 0x40_2000)]);
        // A function of the system, called by an entry that left the context above.
        words.extend([(frame - 16, 0), (frame - 8, entry)]);
        let mut code = |address: u64| none(address > u64::MAX / 2);
        let frames = stack(at(0xffff_8000_0100_2000, frame - 64, frame - 16), &mut Words(words), &mut code);
        assert_eq!(frames, [0xffff_8000_0100_2000, entry, 0x40_1000, 0x40_2000]);
    }

    #[test]
    fn an_entry_that_has_saved_a_part_or_nothing() {
        let (entry, top) = (0xffff_8000_0100_0010_u64, 0xffff_8000_0010_9000_u64);
        let mut code = |address: u64| none(address > u64::MAX / 2);
        // SS, RSP, RFLAGS, CS and RIP are pushed; RBP is still the program's.
        let words = [(8, 0x2b), (16, 0x1000), (24, 0x202), (32, 0x33), (40, 0x40_1000)];
        let words: HashMap<u64, u64> = words.map(|(below, word)| (top - below, word)).into();
        let mut memory = Words(words.into_iter().chain([(0x1010, 0), (0x1018, 0x40_2000)]).collect());
        let frames = stack(at(entry, top - 40, 0x1010), &mut memory, &mut code);
        assert_eq!(frames, [entry, 0x40_1000, 0x40_2000]);
        // Nothing is: RSP is the program's, and RIP where the kernel left it.
        let mut registers = at(entry, 0x1000, 0);
        (registers.ring, registers.gs_base) = (3, 0xffff_8000_0000_3000);
        let mut memory = Words([(registers.gs_base + super::SYSCALL_RIP_AT, 0x40_1000)].into());
        assert_eq!(stack(registers, &mut memory, &mut code), [entry, 0x40_1000]);
        registers.ring = 0;
        registers.general[2] = 0x40_3000;
        assert_eq!(stack(registers, &mut memory, &mut code), [entry, 0x40_3000]);
    }

    #[test]
    fn this_program_has_a_table() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let table = FrameTable::of_elf(&own).unwrap();
        assert!(table.functions.len() > 1000);
        assert!(FrameTable::of_elf(b"\x7fELF").is_none());
    }
}
