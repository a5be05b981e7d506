//! Every call with good arguments but one: a slot that is empty, out of range, of another type, or without the right.
//!
//! The table has a row for every call that takes a slot; a call of the contract that is in no row fails the case.

use aegis_abi::call::Call;
use aegis_abi::device::DeviceOperation;
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_MACHINE, SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call;
use aegis_rt::gate::gate_entry;

use crate::memory::{SCRATCH_BASE, free_slot, slot, take};
use crate::s08_hostile::issue;
use crate::suite::{CaseResult, Failure, Machine};
use crate::{child, expect, expect_ok, thread};

/// Slots of the fixture, one good capability of each type, in the order of `KINDS`.
const FRAMES: CapSlot = free_slot(0);
const ENVIRONMENT: CapSlot = slot(0);
const PROCESSOR: CapSlot = slot(64);
const BELL: CapSlot = free_slot(1);
const GATE: CapSlot = free_slot(2);
const DEVICE: CapSlot = SLOT_DEVICE_FIRST;
const SPACE: CapSlot = free_slot(3);
const GOOD: [CapSlot; 8] = [FRAMES, ENVIRONMENT, PROCESSOR, BELL, GATE, DEVICE, SLOT_MACHINE, SPACE];
/// Without any right: the same, from here on.
const POWERLESS: u32 = 8;
/// Empty.
const EMPTY: CapSlot = free_slot(24);

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A capability of any type; no right is asked for.
    Any,
    /// A capability of the type with this index in `GOOD`; no right is asked for.
    Type(usize),
    /// The same, and some right is needed.
    Right(usize),
    /// A space, or an environment for its home space; some right is needed.
    Space,
    /// An environment or a processor; some right is needed.
    Funded,
    /// The same without a right.
    AnyFunded,
    /// An empty slot.
    Target,
    /// The same, where slots of spaces alone count too.
    SpaceTarget,
}

const F: usize = 0;
const E: usize = 1;
const P: usize = 2;
const B: usize = 3;
const G: usize = 4;
const D: usize = 5;
const M: usize = 6;
const S: usize = 7;

/// A call that would succeed, or fail for another reason than the arguments listed.
struct Row {
    number: u64,
    words: [u64; 6],
    arguments: [Option<(usize, Kind)>; 3],
}

fn row(number: u64, words: [u64; 6], arguments: &[(usize, Kind)]) -> Row {
    Row { number, words, arguments: core::array::from_fn(|index| arguments.get(index).copied()) }
}

/// Calls that take no slot: `Null`, `Sleep`, `GateReply`, `ExtensionCall`.
const WITHOUT_SLOTS: [u64; 4] = [0, 22, 29, 59];

fn rows(entry: &BindEntry) -> [Row; 49] {
    use Kind::{Any, AnyFunded, Funded, Right, Space, SpaceTarget, Target, Type};
    let at = |slot: CapSlot| u64::from(slot.0);
    let (frames, environment, processor) = (at(FRAMES), at(ENVIRONMENT), at(PROCESSOR));
    let (bell, gate, device, machine) = (at(BELL), at(GATE), at(DEVICE), at(SLOT_MACHINE));
    let empty = at(EMPTY);
    let rip = gate_entry as *const () as u64;
    let text = b"x".as_ptr() as u64;
    let entries = core::ptr::from_ref(entry) as u64;
    [
        row(1, [frames, empty, 1, 0, 1, 0], &[(0, Any), (1, Target)]),
        row(2, [frames, environment, 40, 1, 0, 0], &[(0, Any), (1, Right(E))]),
        row(3, [frames, 0, 0, 0, 0, 0], &[(0, Any)]),
        row(4, [frames, 0, 0, 0, 0, 0], &[(0, Any)]),
        row(5, [frames, 0, 0, 0, 0, 0], &[(0, Any)]),
        row(6, [empty, 1, u64::MAX, 0, 0, 0], &[(0, Target)]),
        row(7, [frames, 0, 0, 0, 0, 0], &[(0, Type(F))]),
        row(8, [frames, empty, 4, 0, 0, 0], &[(0, Type(F)), (1, Target)]),
        row(9, [frames, environment, 0, 0, 0, 0], &[(0, Type(F)), (1, Right(E))]),
        row(10, [environment, entries, 1, 0, 0, 0], &[(0, Space)]),
        row(11, [empty, frames, 0, 0, 0, 0], &[(0, Target), (1, Type(F))]),
        row(12, [environment, 0, 0, 0, 0, 0], &[(0, Right(E))]),
        row(13, [environment, 0, 0, 0, 0, 0], &[(0, Right(E))]),
        row(14, [environment, bell, 0, 0, 0, 0], &[(0, Right(E)), (1, Right(B))]),
        row(15, [environment, 1, u64::MAX, 0, 0, 0], &[(0, Right(E))]),
        row(
            16,
            [empty, environment, frames, 1, SCRATCH_BASE, SCRATCH_BASE + 4096],
            &[(0, Target), (1, Right(E)), (2, Right(F))],
        ),
        row(17, [processor, rip, 0, 0, 0, 0], &[(0, Right(P))]),
        row(18, [processor, 0, 0, 0, 0, 0], &[(0, Right(P))]),
        row(19, [processor, 0, 0, 0, 0, 0], &[(0, Right(P))]),
        row(20, [processor, 0, 0, 0, 0, 0], &[(0, Right(P))]),
        row(21, [processor, 0, 0, 0, 0, 0], &[(0, Type(P))]),
        row(23, [empty, processor, 0, 0, 0, 0], &[(0, Target), (1, Right(P))]),
        row(24, [bell, 0, 0, 0, 0, 0], &[(0, Right(B))]),
        row(25, [bell, 0, 0, 0, 0, 0], &[(0, Right(B))]),
        row(26, [empty, processor, rip, 0, 0, 0], &[(0, Target), (1, Right(P))]),
        row(27, [gate, 0, 0, 0, 0, 0], &[(0, Right(G))]),
        row(28, [gate, 0, 0, 0, 0, 0], &[(0, Right(G))]),
        row(30, [device, 0, 0, 0, 0, 0], &[(0, Right(D))]),
        row(31, [device, DeviceOperation::Disable as u64, 0, 0, 0, 0], &[(0, Right(D))]),
        row(32, [device, 0, SCRATCH_BASE, 0, 0, 0], &[(0, Right(D))]),
        row(33, [device, 0, 0, 1, 0, 0], &[(0, Right(D))]),
        row(34, [device, 0, bell, 0, 0, 0], &[(0, Right(D)), (2, Right(B))]),
        row(35, [device, 0, 0, 0, 0, 0], &[(0, Right(D))]),
        row(36, [device, frames, 0, 1, 0, 0], &[(0, Right(D)), (1, Right(F))]),
        row(37, [device, frames, 0, 1, 0, 0], &[(0, Right(D)), (1, Type(F))]),
        row(38, [machine, text, 1, 0, 0, 0], &[(0, Right(M))]),
        row(39, [machine, 0, 0, 0, 0, 0], &[(0, Right(M))]),
        row(40, [environment, 0, 0, 0, 0, 0], &[(0, Right(E))]),
        row(41, [bell, u64::MAX, 0, 0, 0, 0], &[(0, Right(B))]),
        row(42, [empty, 0, 0, 0, 0, 0], &[(0, SpaceTarget)]),
        row(43, [at(SPACE), 0, 0, 0, 0, 0], &[(0, Space)]),
        row(44, [environment, 1000, 0, 0, 0, 0], &[(0, Funded)]),
        row(45, [processor, processor, 0, 0, 0, 0], &[(0, Funded), (1, AnyFunded)]),
        row(46, [processor, 0, 0, 0, 0, 0], &[(0, Funded)]),
        row(47, [environment, u64::from(SLOT_SELF.0), 0, 0, 0, 0], &[(0, Right(E)), (1, Right(E))]),
        row(52, [environment, 0, 0, 0, 0, 0], &[(0, Right(E))]),
        row(56, [environment, 0, 0, 0, 0, 0], &[(0, Right(E))]),
        row(57, [environment, 0, SCRATCH_BASE, 0, u64::from(FRAMES.0) << 32 | 1, 0], &[(0, Space)]),
        row(58, [bell, 0, 0, 0, 0, 0], &[(0, Right(B))]),
    ]
}

/// A bad word for an argument and the status that it must give.
type Corruption = (u64, Status);

fn corruptions(kind: Kind, each: &mut dyn FnMut(Corruption) -> CaseResult) -> CaseResult {
    if matches!(kind, Kind::Target | Kind::SpaceTarget) {
        each((u64::from(SLOT_NONE.0), Status::BadSlot))?;
        each((u64::from(BELL.0), Status::SlotInUse))?;
    } else {
        each((u64::from(EMPTY.0), Status::BadSlot))?;
    }
    // Slots up to there hold what `SpaceCreate` makes (docs/abi.md).
    let end = if kind == Kind::SpaceTarget { 4096 + 4352 } else { 4096 };
    for beyond in [end, u64::from(u32::MAX)] {
        each((beyond, Status::BadSlot))?;
    }
    for wide in [1 << 32, 1 << 63 | u64::from(FRAMES.0), u64::MAX] {
        each((wide, Status::BadArgument))?;
    }
    let (typed, powerful): (&[usize], &[usize]) = match &kind {
        Kind::Type(good) => (core::slice::from_ref(good), &[]),
        Kind::Right(good) => (core::slice::from_ref(good), core::slice::from_ref(good)),
        Kind::Space => (&[E, S], &[E, S]),
        Kind::Funded => (&[E, P], &[E, P]),
        Kind::AnyFunded => (&[E, P], &[]),
        Kind::Any | Kind::Target | Kind::SpaceTarget => (&[], &[]),
    };
    for (other, slot) in GOOD.into_iter().enumerate() {
        if !typed.is_empty() && !typed.contains(&other) {
            each((u64::from(slot.0), Status::WrongType))?;
        }
    }
    for good in powerful {
        each((u64::from(free_slot(POWERLESS + *good as u32).0), Status::MissingRight))?;
    }
    Ok(())
}

pub(crate) fn one_bad_slot(machine: &Machine) -> CaseResult {
    expect!(machine.info.device_count > 0);
    expect_ok!(child::make(machine, 0, 0));
    expect_ok!(thread::make(0));
    expect_ok!(take(FRAMES, 16));
    expect_ok!(call::bell_create(BELL, SLOT_NONE));
    expect_ok!(call::space_create(SPACE));
    expect_ok!(call::gate_create(GATE, PROCESSOR, gate_entry as *const () as u64, 0));
    for (index, good) in GOOD.into_iter().enumerate() {
        let target = free_slot(POWERLESS + index as u32);
        // The frames of the fixture keep no descendants, so that calls that want none get as far as possible.
        let source = if index == F { slot(65) } else { good };
        let count = call::cap_read(source, 2).unwrap_or(0);
        expect_ok!(call::cap_derive(source, target, Rights::empty(), 0, count));
    }
    let entry = BindEntry::map(SCRATCH_BASE, 0, 1, FRAMES, BindFlags::empty());
    let rows = rows(&entry);
    for (number, _) in Call::ALL {
        let is_there = rows.iter().any(|row| row.number == *number);
        expect!(is_there || WITHOUT_SLOTS.contains(number));
    }
    for row in &rows {
        for (index, kind) in row.arguments.into_iter().flatten() {
            corruptions(kind, &mut |(word, expected)| {
                let mut words = row.words;
                words[index] = word;
                let (status, value) = issue(row.number, &words);
                let names_argument = expected != Status::BadArgument || value == index as u64;
                if status == Some(expected) && names_argument {
                    return Ok(());
                }
                let found = row.number << 48
                    | (index as u64) << 40
                    | (expected as u64) << 16
                    | status.map_or(0xffff, |status| status as u64);
                Err(Failure { line: line!(), found })
            })?;
        }
    }
    Ok(())
}
