//! Protected control transfer: the registers are the message.
//!
//! Eleven words go there and come back in RSI RDX R10 R8 R9 RBX RBP R12–R15; this module moves them between registers
//! and a [`Message`]. A server registers a handler and enters [`serve`], which never returns.
#![allow(unsafe_code, reason = "messages are registers, which only assembly can name")]

use aegis_abi::call::{GateCall, GateReply, GateSend};
use aegis_abi::upcall::ControlPage;
use aegis_abi::{CapSlot, Status};
use core::mem::offset_of;

use crate::call::Refusal;
use crate::control;

/// Words of a message.
pub const MESSAGE_WORD_COUNT: usize = 11;

/// A message: RSI RDX R10 R8 R9 RBX RBP R12 R13 R14 R15.
pub type Message = [u64; MESSAGE_WORD_COUNT];

/// Library word that holds the gate handler.
pub const WORD_GATE_HANDLER: usize = 2;

/// Handles a call: the message is the request and becomes the reply.
pub type GateHandler = extern "C" fn(badge: u64, message: &mut Message);

/// Calls through `gate` and waits for the reply, which replaces `message`.
pub fn gate_call(gate: CapSlot, message: &mut Message) -> Result<(), Refusal> {
    transfer(GateCall::NUMBER, gate, message)
}

/// Sends `message` without waiting for a reply.
pub fn gate_send(gate: CapSlot, message: &Message) -> Result<(), Refusal> {
    let mut copy = *message;
    transfer(GateSend::NUMBER, gate, &mut copy)
}

fn transfer(number: u64, gate: CapSlot, message: &mut Message) -> Result<(), Refusal> {
    // SAFETY: the routine keeps the C calling convention and writes only the message.
    let word = unsafe { gate_transfer(u64::from(gate.0), message, number) };
    match Status::from_word(word) {
        Some(Status::Ok) => Ok(()),
        Some(status) => Err(Refusal { status, value: message[1] }),
        None => Err(Refusal { status: Status::UnknownCall, value: 0 }),
    }
}

/// Registers the handler that [`gate_entry`] calls on this virtual processor.
pub fn register(handler: GateHandler) {
    control::set_library_word::<WORD_GATE_HANDLER>(handler as usize as u64);
}

/// Waits for calls for ever; each enters at [`gate_entry`] on a fresh save area. A wait that is interrupted begins
/// again.
///
/// # Safety
/// Everything in this processor's save area is given up.
pub unsafe fn serve() -> ! {
    // SAFETY: no call is in hand, so the words are delivered to no caller.
    unsafe { gate_reply(&[0; MESSAGE_WORD_COUNT]) }
}

unsafe extern "C" {
    /// Where gates of this processor should enter: calls the registered handler and replies with what it leaves in
    /// the message.
    pub fn gate_entry();
    fn gate_transfer(gate: u64, message: *mut Message, number: u64) -> u64;
    fn gate_reply(message: *const Message) -> !;
}

core::arch::global_asm!(
    ".global gate_transfer",
    "gate_transfer:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rsi",
    "mov rax, rdx",
    "mov rdx, [rsi + 8]",
    "mov r10, [rsi + 16]",
    "mov r8, [rsi + 24]",
    "mov r9, [rsi + 32]",
    "mov rbx, [rsi + 40]",
    "mov rbp, [rsi + 48]",
    "mov r12, [rsi + 56]",
    "mov r13, [rsi + 64]",
    "mov r14, [rsi + 72]",
    "mov r15, [rsi + 80]",
    "mov rsi, [rsi]",
    "syscall",
    "mov rcx, [rsp]",
    "mov [rcx], rsi",
    "mov [rcx + 8], rdx",
    "mov [rcx + 16], r10",
    "mov [rcx + 24], r8",
    "mov [rcx + 32], r9",
    "mov [rcx + 40], rbx",
    "mov [rcx + 48], rbp",
    "mov [rcx + 56], r12",
    "mov [rcx + 64], r13",
    "mov [rcx + 72], r14",
    "mov [rcx + 80], r15",
    "pop rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".global gate_entry",
    "gate_entry:",
    "push r15", // keeps the stack aligned: the message is eleven words
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push rbp",
    "push rbx",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "mov rsi, rsp",
    "xor ebp, ebp",
    "call qword ptr gs:[{gate_handler}]",
    "mov rdi, rsp",
    ".global gate_reply",
    "gate_reply:",
    "mov rsi, [rdi]",
    "mov rdx, [rdi + 8]",
    "mov r10, [rdi + 16]",
    "mov r8, [rdi + 24]",
    "mov r9, [rdi + 32]",
    "mov rbx, [rdi + 40]",
    "mov rbp, [rdi + 48]",
    "mov r12, [rdi + 56]",
    "mov r13, [rdi + 64]",
    "mov r14, [rdi + 72]",
    "mov r15, [rdi + 80]",
    "2:",
    "mov eax, {reply}",
    "syscall",
    // The wait was interrupted: the caller that queued is gone, or an upcall is due. The reply was given; wait again.
    "jmp 2b",
    gate_handler = const offset_of!(ControlPage, library) + 8 * WORD_GATE_HANDLER,
    reply = const GateReply::NUMBER,
);
