//! Channels between two environments: the specialised pipe, a word in shared memory, bells.
//!
//! Rows with `@diff` have both sides on a processor each, as they never give theirs up.

use core::sync::atomic::Ordering;

use aegis_abi::CapSlot;
use aegis_rt::{call, control};

use crate::harness::{Row, timed};
use crate::memory::Measured;
use crate::peer::{self, PEER_BELLS, PEER_PARENT_PROCESSOR, Shared, WORD_TURN};
use crate::ring::{Ring, Wait};

pub(crate) const ROWS: &[Row] = &[
    ("native_pipe_1B_rt", pipe_1b),
    ("native_pipe_1B_rt@diff", pipe_1b_spinning),
    ("native_pipe_4k_rt", pipe_4k),
    ("native_pipe_4k_stream", pipe_stream),
    ("native_pipe_4k_stream@diff", pipe_stream_spinning),
    ("native_shm_yield_rt", shared_yielding),
    ("native_shm_spin_rt@diff", shared_spinning),
    ("native_bell_rt", bells),
    ("native_bell_rt@diff", bells),
];

const PAGE_BYTES: usize = 4096;
/// Bit of a peer's argument: it spins instead of yielding.
const SPINS: u64 = 1 << 32;

/// How the peer waits.
fn peer_wait(argument: u64) -> Wait {
    if argument & SPINS != 0 { Wait::Spin } else { Wait::Yield(PEER_PARENT_PROCESSOR) }
}

fn own_wait(argument: u64, processor: CapSlot) -> Wait {
    if argument & SPINS != 0 { Wait::Spin } else { Wait::Yield(processor) }
}

/// Sends back what it gets; the argument's low half is the length of a message.
extern "C" fn echo(argument: u64) -> ! {
    let shared = peer::shared();
    let [there, back] = rings(shared, peer_wait(argument));
    let mut buffer = [0; PAGE_BYTES];
    let buffer = &mut buffer[..argument as u32 as usize % (PAGE_BYTES + 1)];
    peer::say_ready();
    loop {
        there.read(buffer);
        back.write(buffer);
    }
}

fn rings(shared: &'static Shared, wait: Wait) -> [Ring; 2] {
    [Ring::new(shared, 0, wait), Ring::new(shared, 1, wait)]
}

/// A message there and one back.
fn pipe_round(count: u64, argument: u64) -> Measured {
    let peer = peer::start(echo, argument)?;
    let [there, back] = rings(peer.shared, own_wait(argument, peer.processor));
    let length = argument as u32 as usize;
    let message = [7; PAGE_BYTES];
    let mut answer = [0; PAGE_BYTES];
    let mut round = || {
        there.write(&message[..length]);
        back.read(&mut answer[..length]);
    };
    round();
    let elapsed_ns = timed(|| (0..count).for_each(|_| round()));
    if answer[..length] == message[..length] { Ok(elapsed_ns) } else { Err("another message came back") }
}

fn pipe_1b(count: u64) -> Measured {
    pipe_round(count, 1)
}

fn pipe_1b_spinning(count: u64) -> Measured {
    pipe_round(count, SPINS | 1)
}

fn pipe_4k(count: u64) -> Measured {
    pipe_round(count, PAGE_BYTES as u64)
}

/// Writes pages for ever.
extern "C" fn pour(argument: u64) -> ! {
    let [there, _] = rings(peer::shared(), peer_wait(argument));
    let page = [7; PAGE_BYTES];
    peer::say_ready();
    loop {
        there.write(&page);
    }
}

/// Messages one way; the first one is not measured.
fn stream(count: u64, argument: u64) -> Measured {
    let peer = peer::start(pour, argument)?;
    let [there, _] = rings(peer.shared, own_wait(argument, peer.processor));
    let mut buffer = [0; PAGE_BYTES];
    there.read(&mut buffer);
    let elapsed_ns = timed(|| (0..count).for_each(|_| there.read(&mut buffer)));
    if buffer == [7; PAGE_BYTES] { Ok(elapsed_ns) } else { Err("another message came") }
}

fn pipe_stream(count: u64) -> Measured {
    stream(count, 0)
}

fn pipe_stream_spinning(count: u64) -> Measured {
    stream(count, SPINS)
}

/// Answers each odd number in the shared word with the next even one.
extern "C" fn answer_words(argument: u64) -> ! {
    let word = peer::shared().word(WORD_TURN);
    let wait = peer_wait(argument);
    peer::say_ready();
    let mut turn = 1;
    loop {
        while word.load(Ordering::Acquire) != turn {
            wait.wait();
        }
        word.store(turn + 1, Ordering::Release);
        turn += 2;
    }
}

/// A word in shared memory, there and back.
fn shared_round(count: u64, argument: u64) -> Measured {
    let peer = peer::start(answer_words, argument)?;
    let word = peer.shared.word(WORD_TURN);
    let wait = own_wait(argument, peer.processor);
    let mut turn = 1;
    let mut round = || {
        word.store(turn, Ordering::Release);
        while word.load(Ordering::Acquire) != turn + 1 {
            wait.wait();
        }
        turn += 2;
    };
    round();
    Ok(timed(|| (0..count).for_each(|_| round())))
}

fn shared_yielding(count: u64) -> Measured {
    shared_round(count, 0)
}

fn shared_spinning(count: u64) -> Measured {
    shared_round(count, SPINS)
}

/// Sleeps until the bell was rung, and takes its count.
fn await_bell(bell: CapSlot) {
    while call::bell_await(bell).is_err() {
        // Something else is pending that nobody asked for.
        let _ = control::take_pending();
    }
}

extern "C" fn answer_bells(_: u64) -> ! {
    peer::say_ready();
    loop {
        await_bell(PEER_BELLS[0]);
        let _ = call::bell_ring(PEER_BELLS[1]);
    }
}

/// A bell rung there and one back, each waited for asleep.
fn bells(count: u64) -> Measured {
    let peer = peer::start(answer_bells, 0)?;
    let round = || {
        let _ = call::bell_ring(peer.bells[0]);
        await_bell(peer.bells[1]);
    };
    round();
    Ok(timed(|| (0..count).for_each(|_| round())))
}
