//! From one environment to another: protected control transfer, procedure calls made of it, yields.
//!
//! The bare rows count what a caller and a callee need that agree on the registers; `native_lrpc` trusts neither and
//! goes through the runtime, which saves all that the calling convention keeps and moves a whole message through
//! memory.

use core::arch::global_asm;
use core::sync::atomic::Ordering;

use aegis_abi::CapSlot;
use aegis_abi::call::{GateCall, GateReply, GateSend};
use aegis_abi::types::SLOT_NONE;
use aegis_rt::call;
use aegis_rt::gate::{MESSAGE_WORD_COUNT, Message, gate_call};

use crate::harness::{Row, timed};
use crate::memory::Measured;
use crate::peer::{self, PEER_PARENT_PROCESSOR, Peer, WORD_TURN};
use crate::ring::copy;

pub(crate) const ROWS: &[Row] = &[
    ("native_pct_oneway", pct_one_way),
    ("native_pct_rt", pct_round),
    ("native_pct_rt@same", pct_round),
    ("native_pct_send", pct_send),
    ("native_lrpc", lrpc),
    ("native_lrpc_trusted", lrpc_trusted),
    ("native_msg_4k", message_4k),
    ("native_yield_directed", yield_directed),
    ("native_ctxsw_yield", yield_any),
];

const PAGE_BYTES: usize = 4096;
/// Slices are not shorter than that.
const SHORT_SLICE_NS: u64 = 1_000_000;

unsafe extern "C" {
    fn bare_server();
    fn bare_transfers(count: u64, gate: u64, number: u64) -> u64;
    fn trusted_call(gate: u64, value: u64) -> u64;
}

global_asm!(
    // Adds one to the message's first word and gives all others back as they came. A reply comes back only if it was
    // interrupted; then it has been given.
    "bare_server:",
    "inc rsi",
    "mov eax, {reply}",
    "syscall",
    "mov eax, {reply}",
    "syscall",
    "ud2",
    // bare_transfers(count, gate, number): the first word of the message at the end; every other register of it comes
    // back as it went, so what has to survive is kept there.
    "bare_transfers:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov r12, rdi",
    "mov r13, rdx",
    "mov rdi, rsi",
    "xor esi, esi",
    "2:",
    "mov rax, r13",
    "syscall",
    "test eax, eax",
    "jnz 3f",
    "dec r12",
    "jnz 2b",
    "3:",
    "mov rax, rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    // The stub of a client that trusts the server to keep what the calling convention keeps.
    "trusted_call:",
    "mov eax, {call}",
    "syscall",
    "mov rax, rsi",
    "ret",
    reply = const GateReply::NUMBER,
    call = const GateCall::NUMBER,
);

extern "C" fn serve_bare(_: u64) -> ! {
    peer::serve_at(bare_server as *const () as u64)
}

fn server() -> Result<Peer, &'static str> {
    peer::start(serve_bare, 0)
}

fn calls(count: u64) -> Measured {
    let peer = server()?;
    let mut made = 0;
    // SAFETY: the server gives back every register that the routine relies on.
    let elapsed_ns = timed(|| made = unsafe { bare_transfers(count, u64::from(peer.gate.0), GateCall::NUMBER) });
    if made == count { Ok(elapsed_ns) } else { Err("GateCall") }
}

fn pct_round(count: u64) -> Measured {
    calls(count)
}

/// A call is two transfers.
fn pct_one_way(count: u64) -> Measured {
    Ok(calls(count / 2)? * count / (count / 2) / 2)
}

/// A message that nobody replies to: the server takes it and waits again, then the sender goes on.
fn pct_send(count: u64) -> Measured {
    let peer = server()?;
    let mut state = u64::MAX;
    // SAFETY: a send changes no register of the message.
    let elapsed_ns = timed(|| state = unsafe { bare_transfers(count, u64::from(peer.gate.0), GateSend::NUMBER) });
    // The first word is the sender's own, and every send was taken: otherwise the last one was refused.
    if state == 0 && call::null().is_ok() { Ok(elapsed_ns) } else { Err("GateSend") }
}

extern "C" fn increment(_: u64, message: &mut Message) {
    message[0] += 1;
}

extern "C" fn serve_increments(_: u64) -> ! {
    peer::serve_with(increment)
}

fn lrpc(count: u64) -> Measured {
    let peer = peer::start(serve_increments, 0)?;
    let mut message = [0; MESSAGE_WORD_COUNT];
    let elapsed_ns = timed(|| {
        for _ in 0..count {
            if gate_call(peer.gate, &mut message).is_err() {
                break;
            }
        }
    });
    if message[0] == count { Ok(elapsed_ns) } else { Err("GateCall") }
}

fn lrpc_trusted(count: u64) -> Measured {
    let peer = server()?;
    let mut value = 0;
    // SAFETY: the server keeps the calling convention's registers.
    let elapsed_ns = timed(|| (0..count).for_each(|_| value = unsafe { trusted_call(u64::from(peer.gate.0), value) }));
    if value == count { Ok(elapsed_ns) } else { Err("GateCall") }
}

/// Takes the 4 KiB that lie in the shared pages to where nobody else can change them.
extern "C" fn take_message(_: u64, message: &mut Message) {
    let mut own = [const { core::mem::MaybeUninit::<u8>::uninit() }; PAGE_BYTES];
    let from = peer::shared().rings[0].as_ptr().cast::<u8>();
    // SAFETY: both have a page of bytes.
    unsafe { copy(from, own.as_mut_ptr().cast(), PAGE_BYTES) };
    // SAFETY: copied above.
    message[0] += u64::from(unsafe { own[PAGE_BYTES - 1].assume_init() });
}

extern "C" fn serve_messages(_: u64) -> ! {
    peer::serve_with(take_message)
}

/// 4 KiB written into shared frames, and the call that says so.
fn message_4k(count: u64) -> Measured {
    let peer = peer::start(serve_messages, 0)?;
    let page = [1_u8; PAGE_BYTES];
    let to = peer.shared.rings[0].as_ptr().cast_mut().cast::<u8>();
    let mut message = [0; MESSAGE_WORD_COUNT];
    let elapsed_ns = timed(|| {
        for _ in 0..count {
            // SAFETY: both have a page of bytes, and the server reads only during a call.
            unsafe { copy(page.as_ptr(), to, PAGE_BYTES) };
            if gate_call(peer.gate, &mut message).is_err() {
                break;
            }
        }
    });
    if message[0] == count { Ok(elapsed_ns) } else { Err("GateCall") }
}

/// Yields for ever, to the processor in the slot or to the one that the scheduler picks, and counts.
extern "C" fn yielder(slot: u64) -> ! {
    let turns = peer::shared().word(WORD_TURN);
    peer::say_ready();
    loop {
        let _ = call::yield_to(CapSlot(slot as u32));
        turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Both sides' switches count, so half as many rounds.
fn yields(count: u64, theirs: CapSlot, ours: impl Fn(&Peer) -> CapSlot) -> Measured {
    let peer = peer::start(yielder, u64::from(theirs.0))?;
    let target = ours(&peer);
    let turns = peer.shared.word(WORD_TURN);
    let before = turns.load(Ordering::Relaxed);
    let mut failures = 0;
    let elapsed_ns = timed(|| (0..count / 2).for_each(|_| failures += u64::from(call::yield_to(target).is_err())));
    let turned = turns.load(Ordering::Relaxed) - before;
    // A slice that ends in between is a turn more or less.
    let ended_max = elapsed_ns / SHORT_SLICE_NS;
    if failures == 0 && turned.abs_diff(count / 2) <= 1 + ended_max { Ok(elapsed_ns) } else { Err("Yield") }
}

fn yield_directed(count: u64) -> Measured {
    yields(count, PEER_PARENT_PROCESSOR, |peer| peer.processor)
}

fn yield_any(count: u64) -> Measured {
    yields(count, SLOT_NONE, |_| SLOT_NONE)
}
