//! Random sequences of calls from an environment that holds few capabilities.
//!
//! The child draws call and arguments from pools in which good and bad ones are mixed; its generator's state is in
//! the page that it shares with the case, so that a sequence goes on after the child slept for ever, stopped itself
//! or destroyed its own memory: the case starts it again, or makes a new one. After every seed all that the child had
//! must have come back.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::call::{Call, EnvironmentField, ProcessorField, ProcessorState};
use aegis_abi::layout::{
    FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, KERNEL_BASE, LIBOS_BASE, LIBOS_END, LIBOS_IMAGE_BASE, PAGE_SIZE,
    PAGE_TABLE_WINDOW,
};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights};
use aegis_rt::call;
use aegis_rt::gate::{self, Message};

use crate::child::{self, CHILD_SCRATCH_BASE, CHILD_SHARED_BASE, Child, shared};
use crate::memory::{free_slot, repeat, slot, take};
use crate::suite::{CaseResult, Failure, Machine};
use crate::{expect, expect_equal, expect_ok, probe, s08_hostile, thread, wait};

/// Seeds of one run.
const SEED_COUNT: u64 = 64;
/// Calls for each seed.
const CALL_COUNT: u64 = 2000;

/// A small generator (xorshift with a multiplication at the end; Vigna 2016).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any word.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.word() >> 16) % limit
    }

    fn pick(&mut self, pool: &[u64]) -> u64 {
        let index = self.below(pool.len() as u64) as usize;
        pool[index]
    }
}

/// Words of the shared page.
const STATE: usize = 0;
const CALLS: usize = 1;
const FRAMES: usize = 2;
const SUCCEEDED: usize = 3;
/// Where the pointers of calls point to: entries and terms with random words.
const BUFFER: usize = 64;
const BUFFER_WORDS: u64 = 128;

const EDGES: [u64; 20] = [
    0,
    1,
    2,
    3,
    8,
    255,
    256,
    257,
    511,
    512,
    513,
    4095,
    4096,
    4097,
    0xffff_ffff,
    1 << 32,
    1 << 52,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

const ADDRESSES: [u64; 16] = [
    CHILD_SCRATCH_BASE,
    CHILD_SCRATCH_BASE + PAGE_SIZE,
    CHILD_SCRATCH_BASE + (2 << 20),
    CHILD_SCRATCH_BASE + (1 << 30),
    CHILD_SCRATCH_BASE + 8,
    0x40_0000,
    0x1_0000,
    0x7fff_ffff_e000,
    0x7fff_ffff_f000,
    LIBOS_BASE,
    LIBOS_END - PAGE_SIZE,
    PAGE_TABLE_WINDOW,
    KERNEL_BASE,
    0xffff_ffff_8020_0000,
    0x5555_0000_0000_0000,
    0,
];

/// Addresses whose loss ends the child.
const OWN_ADDRESSES: [u64; 4] = [FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, LIBOS_IMAGE_BASE, CHILD_SHARED_BASE];

fn random_word(random: &mut Random) -> u64 {
    match random.below(16) {
        0..=5 => random.below(24),
        6 => u64::from(SLOT_SELF.0),
        7 => random.pick(&EDGES),
        8 | 9 => random.pick(&ADDRESSES),
        10 => CHILD_SHARED_BASE + 8 * (BUFFER as u64 + random.below(BUFFER_WORDS)),
        11 => shared().get(FRAMES) + random.below(12),
        12 => (shared().get(FRAMES) + random.below(12)) * PAGE_SIZE,
        13 => wait::now_ns() + random.below(100_000),
        14 => random.below(64) << 32 | random.below(4),
        _ => random.word(),
    }
}

/// What each call's arguments are, by its number: s slot, o slot of the object it works on, t slot to fill, r rights,
/// c count, f frame, x field, a address, p pointer to the buffer, w when.
const SHAPES: [&[u8]; 60] = [
    b"", b"strcc", b"sotr", b"s", b"s", b"sx", b"tcfx", b"s", b"stc", b"so", b"opc", b"tsc", b"o", b"ox", b"os",
    b"ocw", b"tosxaa", b"oaac", b"o", b"ox", b"o", b"s", b"px", b"ts", b"s", b"s", b"tsac", b"s", b"s", b"", b"sxx",
    b"sx", b"sxa", b"sxcxxc", b"sxs", b"sx", b"sscc", b"sscc", b"spc", b"sc", b"ox", b"sw", b"t", b"s", b"ox", b"oo",
    b"ox", b"oo", b"", b"", b"", b"", b"oxc", b"", b"", b"", b"oc", b"oxafc", b"s", b"xxssxx",
];

/// An argument that fits, or any word.
fn argument(random: &mut Random, shape: u8) -> u64 {
    if random.below(5) == 0 {
        return random_word(random);
    }
    match shape {
        b's' => 1 + random.below(23),
        b'o' => random.pick(&[1, 1, 9, 9, 12, 15, 16, 17]),
        b't' => 15 + random.below(9),
        b'r' => random.below(1 << 11),
        b'c' => random.pick(&[0, 1, 1, 1, 2, 2, 3, 4, 8, 9, 16]),
        b'f' => random.pick(&[u64::MAX, u64::MAX, shared().get(FRAMES) + 1]),
        b'x' => random.below(4),
        b'a' => random.pick(&ADDRESSES),
        b'w' => wait::now_ns() + random.below(100_000),
        _ => CHILD_SHARED_BASE + 8 * (BUFFER as u64 + 4 * random.below(BUFFER_WORDS / 4)),
    }
}

/// Fills four words of the buffer with a bind entry or a term that may make sense, or with anything.
fn scribble(random: &mut Random) {
    let shared = shared();
    let at = BUFFER + 4 * random.below(BUFFER_WORDS / 4) as usize;
    let words = match random.below(3) {
        0 => {
            let count = random.pick(&[1, 1, 2, 4]);
            [
                random.below(4) | random.below(8) << 32,
                random.pick(&ADDRESSES[..4]),
                shared.get(FRAMES) + random.below(8),
                count | random.pick(&[8, 8, 14, 15, 16]) << 32,
            ]
        }
        1 => [
            random.below(3) | random.below(4) << 32,
            random.pick(&[0, 2, 2]) | random.pick(&[8, 10, 10, 14]) << 32,
            (shared.get(FRAMES) + random.below(8)) * PAGE_SIZE + 8 * random.below(512),
            random.pick(&[0, 1, wait::now_ns(), u64::MAX]),
        ],
        _ => core::array::from_fn(|_| random_word(random)),
    };
    for (index, word) in words.into_iter().enumerate() {
        shared.set(at + index, word);
    }
}

/// Whether the child would lose its code, stack or shared page; sometimes it may.
fn is_spared(random: &mut Random, number: u64, words: &[u64; 6]) -> bool {
    let own_slot = (4..=6).contains(&words[0]);
    let takes_slot = matches!(number, 3 | 4 | 7 | 9 | 11);
    let own_environment = words[0] == u64::from(SLOT_SELF.0);
    let binds_own = number == 10 && own_environment && random.below(64) != 0;
    let stops_itself = number == 18 && words[0] == 9;
    let is_deadly = takes_slot && own_slot || stops_itself;
    let is_own = |page: &u64| page.abs_diff(words[2]) < 64 * PAGE_SIZE;
    let binds_one = number == 57 && own_environment && OWN_ADDRESSES.iter().any(is_own);
    binds_own && touches_own(random) || (is_deadly || binds_one) && random.below(32) != 0
}

/// Random entries rarely name an address of the child's own; those that do are made harmless.
fn touches_own(_: &mut Random) -> bool {
    let shared = shared();
    (0..BUFFER_WORDS as usize).any(|index| {
        let page = shared.get(BUFFER + index) & !(PAGE_SIZE - 1);
        OWN_ADDRESSES.iter().any(|own| page.abs_diff(*own) < 64 * PAGE_SIZE)
    })
}

extern "C" fn random_child(_: u64) -> ! {
    // Exceptions end the environment; the case makes another one.
    s08_hostile::set_all_entries(0);
    let shared = shared();
    let mut random = Random(shared.get(STATE) | 1);
    while shared.get(CALLS) < CALL_COUNT {
        scribble(&mut random);
        let number = match random.below(32) {
            0 => random.word(),
            _ => random.below(SHAPES.len() as u64),
        };
        let shape = SHAPES.get(number as usize).copied().unwrap_or(b"");
        let words: [u64; 6] = core::array::from_fn(|index| match shape.get(index) {
            Some(shape) => argument(&mut random, *shape),
            None => random.word(),
        });
        let is_spared = is_spared(&mut random, number, &words);
        shared.set(STATE, random.0);
        shared.increment(CALLS);
        if is_spared {
            continue;
        }
        if random.below(64) == 0 {
            // A way out of masks that garbage may have left behind.
            aegis_rt::control::set_masked(random.below(2) == 0);
        }
        // SAFETY: this environment exists to be broken.
        let (status, _) = unsafe { call::issue_words(number, &words) };
        if status == 0 {
            shared.increment(SUCCEEDED);
        }
    }
    wait::forever()
}

/// Grants the child what it plays with.
fn equip(machine: &Machine, child: &Child, sibling: &Child) -> CaseResult {
    let grant = |source, target, rights| call::cap_grant(source, child.environment, CapSlot(target), rights);
    let first = expect_ok!(call::cap_read(free_slot(0), 1));
    child.shared.set(FRAMES, first);
    expect_ok!(grant(free_slot(0), 8, Rights::all()));
    expect_ok!(grant(child.processor, 9, Rights::READ | Rights::CONTROL));
    expect_ok!(grant(free_slot(1), 10, Rights::RING | Rights::WAIT));
    expect_ok!(grant(free_slot(2), 11, Rights::CALL));
    expect_ok!(grant(sibling.environment, 12, Rights::READ));
    if machine.info.device_count > 0 {
        expect_ok!(grant(SLOT_DEVICE_FIRST, 13, Rights::READ));
    }
    expect_ok!(grant(free_slot(0), 14, Rights::READ));
    Ok(())
}

extern "C" fn echo(_: u64, message: &mut Message) {
    message.reverse();
}

extern "C" fn echo_server(_: u64) -> ! {
    probe::install();
    gate::register(echo);
    // SAFETY: nothing in the save area is needed any more.
    unsafe { gate::serve() }
}

/// What every random case has: frames, a bell, a server's gate, a sibling.
fn set_up(machine: &Machine) -> Result<Child, Failure> {
    expect_ok!(take(free_slot(0), 8));
    expect_ok!(call::bell_create(free_slot(1), SLOT_NONE));
    let server = expect_ok!(thread::spawn(0, echo_server, 0));
    let entry = gate::gate_entry as *const () as u64;
    expect_ok!(call::gate_create(free_slot(2), server.processor, entry, 1));
    expect!(server.await_state(ProcessorState::Accepting));
    Ok(expect_ok!(child::make_silent(machine, 7, 0)))
}

/// Children that were made, calls that succeeded.
static TALLY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn frames_free() -> u64 {
    call::environment_read(SLOT_SELF, EnvironmentField::FramesFree).unwrap_or(0)
}

/// Ends a child and gives back what we had for it.
fn discard(child: &Child) -> CaseResult {
    // SAFETY: a child's memory is its own.
    repeat(|| unsafe { call::environment_destroy(child.environment) });
    // SAFETY: the processor ended with its environment.
    repeat(|| unsafe { call::cap_drop(child.processor) });
    let number = (child.environment.0 - slot(0).0) / child::CHILD_SLOT_COUNT;
    let address = crate::memory::SHARED_BASE + u64::from(number) * PAGE_SIZE;
    expect_ok!(crate::memory::unmap(address, 1));
    expect_ok!(call::frame_free(child.shared_slot));
    expect_ok!(call::frame_free(child.frames));
    Ok(())
}

/// Whether the child waits for something that need not come.
fn is_stuck(child: &Child) -> Option<bool> {
    let state = call::processor_read(child.processor, ProcessorField::State).ok()?;
    Some(![ProcessorState::Ready as u64, ProcessorState::Running as u64].contains(&state))
}

/// Lets the child with this number make its calls, as often as it has to be started or made for that.
fn run_seed(machine: &Machine, number: u32, sibling: &Child, seed: u64) -> CaseResult {
    let mut state = Random::new(seed).0;
    let mut calls = 0;
    while calls < CALL_COUNT {
        let child = expect_ok!(child::make_silent(machine, number, 120));
        equip(machine, &child, sibling)?;
        child.shared.set(STATE, state);
        child.shared.set(CALLS, calls);
        expect_ok!(child::start(&child, random_child, 0));
        supervise(&child)?;
        // A store through a stray pointer may have hit the count; the sequence goes on all the same.
        let reached = child.shared.get(CALLS);
        calls = if reached > calls && reached <= CALL_COUNT { reached } else { calls + 100 };
        state = child.shared.get(STATE);
        TALLY[0].fetch_add(1, Ordering::SeqCst);
        TALLY[1].fetch_add(child.shared.get(SUCCEEDED).min(CALL_COUNT), Ordering::SeqCst);
        discard(&child)?;
    }
    Ok(())
}

/// Starts the child again whenever it waits; returns when it has made all its calls or cannot go on.
fn supervise(child: &Child) -> CaseResult {
    let mut last = 0;
    loop {
        let _ = call::yield_to(SLOT_NONE);
        let calls = child.shared.get(CALLS);
        let stopped = call::environment_read(child.environment, EnvironmentField::Stopped);
        s08_hostile::expect_known_stop(expect_ok!(stopped))?;
        if calls >= CALL_COUNT || stopped != Ok(0) {
            return Ok(());
        }
        let Some(stuck) = is_stuck(child) else {
            return Ok(());
        };
        if !stuck || calls != last {
            last = calls;
            continue;
        }
        // SAFETY: the child has memory of its own.
        let _ = unsafe { call::processor_stop(child.processor) };
        repeat(|| child::start(child, random_child, 0));
    }
}

pub(crate) fn random_calls(machine: &Machine) -> CaseResult {
    let sibling = set_up(machine)?;
    let free = frames_free();
    for seed in 1..=SEED_COUNT {
        if let Err(failure) = run_seed(machine, 0, &sibling, seed) {
            crate::suite::print(format_args!("random seed {seed}"));
            return Err(failure);
        }
        expect_equal!(frames_free(), free);
    }
    // The sequences are worth something: some calls succeed, and children live for a while.
    let [children, succeeded] = [TALLY[0].load(Ordering::SeqCst), TALLY[1].load(Ordering::SeqCst)];
    expect!(succeeded >= SEED_COUNT * CALL_COUNT / 20);
    expect!(children <= SEED_COUNT * 8);
    // The server has seen a lot and still serves.
    let mut message: Message = [7; 11];
    message[0] = 1;
    expect!(gate::gate_call(free_slot(2), &mut message).is_ok());
    expect_equal!(message[10], 1);
    Ok(())
}

/// Two children with one seed each, at the same time where there are two processors.
pub(crate) fn random_calls_on_two(machine: &Machine) -> CaseResult {
    let sibling = set_up(machine)?;
    for seed in 1..=12 {
        let children =
            [expect_ok!(child::make_silent(machine, 0, 120)), expect_ok!(child::make_silent(machine, 1, 120))];
        for (index, child) in children.iter().enumerate() {
            equip(machine, child, &sibling)?;
            child.shared.set(STATE, Random::new(1000 + 2 * seed + index as u64).0);
            expect_ok!(child::start(child, random_child, 0));
        }
        for child in &children {
            supervise(child)?;
        }
        for child in &children {
            discard(child)?;
        }
    }
    Ok(())
}

const _: () = assert!(SHAPES.len() as u64 == Call::ALL[Call::ALL.len() - 1].0 + 1);
