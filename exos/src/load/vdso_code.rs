//! The vDSO's instructions, as bytes with their mnemonics beside them.
//!
//! Bytes rather than an assembler file, because the code lives in the *program's* address space, is
//! placed by [`super::vdso`] at run time, and must not depend on how exos itself is compiled. Only
//! the few instructions below occur; jumps and references to the data page are symbols that
//! [`assemble`] resolves. The host tests call the result and compare.
//!
//! Conventions: the System V calling convention; only caller-saved registers change; whatever the
//! data page cannot answer goes to the system call of the same meaning.

use alloc::vec::Vec;

/// Offsets in the data page, which lies right below the vDSO's first page.
pub(crate) mod field {
    /// See `abi::boot::SystemPage`, as the next three.
    pub(crate) const BASE_NS: u32 = 0;
    pub(crate) const BASE_TSC: u32 = 8;
    pub(crate) const MULTIPLIER: u32 = 16;
    /// 32 bits.
    pub(crate) const SHIFT: u32 = 24;
    /// 32 bits: 0 sends every clock to the system call.
    pub(crate) const HAS_CLOCK: u32 = 28;
    /// Nanoseconds to add to the time since start for the time since 1970.
    pub(crate) const REALTIME_OFFSET_NS: u32 = 32;
    /// 32 bits: 0 sends `getcpu` to the system call, else RDTSCP's ECX holds node << 12 | processor.
    pub(crate) const HAS_PROCESSOR_NUMBER: u32 = 40;
}

/// Exported functions, in the order of their labels in [`CODE`].
pub(crate) const FUNCTIONS: [&str; 5] =
    ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time", "__vdso_clock_getres", "__vdso_getcpu"];

/// A place in the code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    /// Entry of `FUNCTIONS[n]`.
    Function(usize),
    /// The system call instead of `FUNCTIONS[n]`.
    SystemCall(usize),
    /// Nanoseconds since start in RAX; changes RCX and RDX.
    ReadClock,
    Monotonic,
    NoTimeval,
    NoTimezone,
    NoResult,
    NoResolution,
    NoProcessor,
    NoNode,
}

enum Part {
    At(Label),
    /// Instructions without references.
    Do(&'static [u8]),
    /// An opcode that ends in a 32-bit displacement to a label.
    Jump(&'static [u8], Label),
    /// An opcode, a displacement to a data field, and the bytes that follow it in the instruction.
    Data(&'static [u8], u32, &'static [u8]),
}

use Label::{
    Function, Monotonic, NoNode, NoProcessor, NoResolution, NoResult, NoTimeval, NoTimezone, ReadClock, SystemCall,
};
use Part::{At, Data, Do, Jump};

const CALL: &[u8] = &[0xe8];
const JUMP_IF_EQUAL: &[u8] = &[0x0f, 0x84];
const JUMP_IF_ABOVE: &[u8] = &[0x0f, 0x87];
const JUMP_IF_NO_CARRY: &[u8] = &[0x0f, 0x83];
const RETURN_ZERO: &[u8] = &[0x31, 0xc0, 0xc3]; // xor eax, eax; ret
const CLOCK_NUMBER_MAX: u8 = 11;

#[rustfmt::skip]
const CODE: &[Part] = &[
    // int clock_gettime(clockid_t clock /* edi */, struct timespec *time /* rsi */)
    At(Function(0)),
    Do(&[0x83, 0xff, CLOCK_NUMBER_MAX]),                 // cmp edi, 11
    Jump(JUMP_IF_ABOVE, SystemCall(0)),
    Do(&[0xb8, 0xf3, 0x08, 0x00, 0x00]),                 // mov eax, 0x8f3: clocks 0, 1, 4, 5, 6, 7, 11
    Do(&[0x0f, 0xa3, 0xf8]),                             // bt eax, edi
    Jump(JUMP_IF_NO_CARRY, SystemCall(0)),
    Data(&[0x83, 0x3d], field::HAS_CLOCK, &[0]),         // cmp dword ptr [has_clock], 0
    Jump(JUMP_IF_EQUAL, SystemCall(0)),
    Jump(CALL, ReadClock),
    Do(&[0xb9, 0x21, 0x08, 0x00, 0x00]),                 // mov ecx, 0x821: clocks 0, 5, 11 count from 1970
    Do(&[0x0f, 0xa3, 0xf9]),                             // bt ecx, edi
    Jump(JUMP_IF_NO_CARRY, Monotonic),
    Data(&[0x48, 0x03, 0x05], field::REALTIME_OFFSET_NS, &[]), // add rax, [realtime_offset_ns]
    At(Monotonic),
    Do(&[0x31, 0xd2]),                                   // xor edx, edx
    Do(&[0xb9, 0x00, 0xca, 0x9a, 0x3b]),                 // mov ecx, 1000000000
    Do(&[0x48, 0xf7, 0xf1]),                             // div rcx
    Do(&[0x48, 0x89, 0x06]),                             // mov [rsi], rax
    Do(&[0x48, 0x89, 0x56, 0x08]),                       // mov [rsi + 8], rdx
    Do(RETURN_ZERO),

    // int gettimeofday(struct timeval *time /* rdi */, struct timezone *zone /* rsi */)
    At(Function(1)),
    Data(&[0x83, 0x3d], field::HAS_CLOCK, &[0]),         // cmp dword ptr [has_clock], 0
    Jump(JUMP_IF_EQUAL, SystemCall(1)),
    Do(&[0x48, 0x85, 0xff]),                             // test rdi, rdi
    Jump(JUMP_IF_EQUAL, NoTimeval),
    Jump(CALL, ReadClock),
    Data(&[0x48, 0x03, 0x05], field::REALTIME_OFFSET_NS, &[]), // add rax, [realtime_offset_ns]
    Do(&[0x31, 0xd2]),                                   // xor edx, edx
    Do(&[0xb9, 0x00, 0xca, 0x9a, 0x3b]),                 // mov ecx, 1000000000
    Do(&[0x48, 0xf7, 0xf1]),                             // div rcx
    Do(&[0x48, 0x89, 0x07]),                             // mov [rdi], rax
    Do(&[0x48, 0x89, 0xd0]),                             // mov rax, rdx
    Do(&[0x31, 0xd2]),                                   // xor edx, edx
    Do(&[0xb9, 0xe8, 0x03, 0x00, 0x00]),                 // mov ecx, 1000
    Do(&[0x48, 0xf7, 0xf1]),                             // div rcx
    Do(&[0x48, 0x89, 0x47, 0x08]),                       // mov [rdi + 8], rax
    At(NoTimeval),
    Do(&[0x48, 0x85, 0xf6]),                             // test rsi, rsi
    Jump(JUMP_IF_EQUAL, NoTimezone),
    Do(&[0x48, 0xc7, 0x06, 0x00, 0x00, 0x00, 0x00]),     // mov qword ptr [rsi], 0
    At(NoTimezone),
    Do(RETURN_ZERO),

    // time_t time(time_t *result /* rdi */)
    At(Function(2)),
    Data(&[0x83, 0x3d], field::HAS_CLOCK, &[0]),         // cmp dword ptr [has_clock], 0
    Jump(JUMP_IF_EQUAL, SystemCall(2)),
    Jump(CALL, ReadClock),
    Data(&[0x48, 0x03, 0x05], field::REALTIME_OFFSET_NS, &[]), // add rax, [realtime_offset_ns]
    Do(&[0x31, 0xd2]),                                   // xor edx, edx
    Do(&[0xb9, 0x00, 0xca, 0x9a, 0x3b]),                 // mov ecx, 1000000000
    Do(&[0x48, 0xf7, 0xf1]),                             // div rcx
    Do(&[0x48, 0x85, 0xff]),                             // test rdi, rdi
    Jump(JUMP_IF_EQUAL, NoResult),
    Do(&[0x48, 0x89, 0x07]),                             // mov [rdi], rax
    At(NoResult),
    Do(&[0xc3]),                                         // ret

    // int clock_getres(clockid_t clock /* edi */, struct timespec *resolution /* rsi */)
    At(Function(3)),
    Do(&[0x83, 0xff, CLOCK_NUMBER_MAX]),                 // cmp edi, 11
    Jump(JUMP_IF_ABOVE, SystemCall(3)),
    Do(&[0xb8, 0x93, 0x08, 0x00, 0x00]),                 // mov eax, 0x893: clocks 0, 1, 4, 7, 11
    Do(&[0x0f, 0xa3, 0xf8]),                             // bt eax, edi
    Jump(JUMP_IF_NO_CARRY, SystemCall(3)),
    Do(&[0x48, 0x85, 0xf6]),                             // test rsi, rsi
    Jump(JUMP_IF_EQUAL, NoResolution),
    Do(&[0x48, 0xc7, 0x06, 0x00, 0x00, 0x00, 0x00]),     // mov qword ptr [rsi], 0
    Do(&[0x48, 0xc7, 0x46, 0x08, 0x01, 0x00, 0x00, 0x00]), // mov qword ptr [rsi + 8], 1
    At(NoResolution),
    Do(RETURN_ZERO),

    // int getcpu(unsigned *processor /* rdi */, unsigned *node /* rsi */, void *unused)
    At(Function(4)),
    Data(&[0x83, 0x3d], field::HAS_PROCESSOR_NUMBER, &[0]), // cmp dword ptr [has_processor_number], 0
    Jump(JUMP_IF_EQUAL, SystemCall(4)),
    Do(&[0x0f, 0x01, 0xf9]),                             // rdtscp
    Do(&[0x48, 0x85, 0xff]),                             // test rdi, rdi
    Jump(JUMP_IF_EQUAL, NoProcessor),
    Do(&[0x89, 0xc8]),                                   // mov eax, ecx
    Do(&[0x25, 0xff, 0x0f, 0x00, 0x00]),                 // and eax, 0xfff
    Do(&[0x89, 0x07]),                                   // mov [rdi], eax
    At(NoProcessor),
    Do(&[0x48, 0x85, 0xf6]),                             // test rsi, rsi
    Jump(JUMP_IF_EQUAL, NoNode),
    Do(&[0xc1, 0xe9, 0x0c]),                             // shr ecx, 12
    Do(&[0x89, 0x0e]),                                   // mov [rsi], ecx
    At(NoNode),
    Do(RETURN_ZERO),

    At(ReadClock),
    Do(&[0x0f, 0xae, 0xe8]),                             // lfence: not read ahead of what precedes (SDM 2, RDTSC)
    Do(&[0x0f, 0x31]),                                   // rdtsc
    Do(&[0x48, 0xc1, 0xe2, 0x20]),                       // shl rdx, 32
    Do(&[0x48, 0x09, 0xd0]),                             // or rax, rdx
    Data(&[0x48, 0x2b, 0x05], field::BASE_TSC, &[]),     // sub rax, [base_tsc]
    Do(&[0x73, 0x02, 0x31, 0xc0]),                       // jae +2; xor eax, eax: never before the base
    Data(&[0x48, 0xf7, 0x25], field::MULTIPLIER, &[]),   // mul qword ptr [multiplier]
    Data(&[0x8b, 0x0d], field::SHIFT, &[]),              // mov ecx, [shift]
    Do(&[0x48, 0x0f, 0xad, 0xd0]),                       // shrd rax, rdx, cl
    Data(&[0x48, 0x03, 0x05], field::BASE_NS, &[]),      // add rax, [base_ns]
    Do(&[0xc3]),                                         // ret

    At(SystemCall(0)),
    Do(&[0xb8, 0xe4, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xc3]), // mov eax, 228; syscall; ret
    At(SystemCall(1)),
    Do(&[0xb8, 0x60, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xc3]), // mov eax, 96; syscall; ret
    At(SystemCall(2)),
    Do(&[0xb8, 0xc9, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xc3]), // mov eax, 201; syscall; ret
    At(SystemCall(3)),
    Do(&[0xb8, 0xe5, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xc3]), // mov eax, 229; syscall; ret
    At(SystemCall(4)),
    Do(&[0xb8, 0x35, 0x01, 0x00, 0x00, 0x0f, 0x05, 0xc3]), // mov eax, 309; syscall; ret
];

/// The code for a place `code_offset` bytes behind the start of the vDSO, whose data page begins
/// `data_distance` bytes before that start; and the offset of each of [`FUNCTIONS`] in it, with its
/// length.
pub(crate) fn assemble(code_offset: u64, data_distance: u64) -> (Vec<u8>, [(u64, u64); FUNCTIONS.len()]) {
    let mut code = Vec::new();
    let mut position = code_offset;
    for part in CODE {
        position += part_bytes(part);
        match part {
            At(_) => {}
            Do(bytes) => code.extend_from_slice(bytes),
            Jump(opcode, label) => {
                code.extend_from_slice(opcode);
                let target = code_offset + offset_of(*label);
                code.extend_from_slice(&(target.wrapping_sub(position) as i32).to_le_bytes());
            }
            Data(opcode, offset, rest) => {
                code.extend_from_slice(opcode);
                let displacement = i64::from(*offset) - data_distance as i64 - position as i64;
                code.extend_from_slice(&(displacement as i32).to_le_bytes());
                code.extend_from_slice(rest);
            }
        }
    }
    let bounds = core::array::from_fn(|index| {
        let start = offset_of(Function(index));
        let end = match index + 1 {
            FUNCTION_COUNT => offset_of(ReadClock),
            next => offset_of(Function(next)),
        };
        (start, end - start)
    });
    (code, bounds)
}

const FUNCTION_COUNT: usize = FUNCTIONS.len();

pub(crate) fn code_bytes() -> u64 {
    CODE.iter().map(part_bytes).sum()
}

fn part_bytes(part: &Part) -> u64 {
    let count = match part {
        At(_) => 0,
        Do(bytes) => bytes.len(),
        Jump(opcode, _) => opcode.len() + 4,
        Data(opcode, _, rest) => opcode.len() + 4 + rest.len(),
    };
    count as u64
}

fn offset_of(label: Label) -> u64 {
    let before = CODE.iter().take_while(|part| !matches!(part, At(found) if *found == label));
    before.map(part_bytes).sum()
}
