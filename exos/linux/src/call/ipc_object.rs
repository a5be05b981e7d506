//! What the calls of System V objects share: the caller's identity, the flags, `struct ipc64_perm`.

use exos::error::{Errno, Result};
use exos::ipc::permission::{Caller, Ownership};

use crate::abi::bytes::{Encoder, get};
use crate::abi::user_memory::{UserMemory, read_array};
use crate::call::context::Context;
use crate::task::identities::Identities;

/// `IPC_CREAT`.
const IPC_CREAT: u64 = 0o1000;
/// `IPC_EXCL`.
const IPC_EXCL: u64 = 0o2000;
/// `IPC_NOWAIT`.
pub(super) const IPC_NOWAIT: u64 = 0o4000;
/// `IPC_RMID`.
pub(super) const IPC_RMID: u32 = 0;
/// `IPC_SET`.
pub(super) const IPC_SET: u32 = 1;
/// `IPC_STAT`.
pub(super) const IPC_STAT: u32 = 2;
/// `IPC_INFO`.
pub(super) const IPC_INFO: u32 = 3;
/// Bytes of `struct ipc64_perm`.
pub(super) const OWNERSHIP_BYTES: usize = 48;

const SECOND_NS: u64 = 1_000_000_000;

/// The caller's identity, for the length of a call.
pub(super) struct Asker {
    identities: Identities,
    pid: u32,
    now_s: u64,
}

impl Asker {
    /// The calling thread now.
    pub(super) fn new(context: &Context<'_>) -> Self {
        Self {
            identities: context.thread.identities.lock().clone(),
            pid: context.process.pid,
            now_s: context.system.realtime_ns() / SECOND_NS,
        }
    }

    /// As the tables want it.
    pub(super) fn caller(&self) -> Caller<'_> {
        Caller {
            uid: self.identities.uid[1],
            gid: self.identities.gid[1],
            groups: &self.identities.groups,
            capabilities: self.identities.capabilities.effective,
            pid: self.pid,
            now_s: self.now_s,
        }
    }
}

/// `IPC_CREAT` and `IPC_EXCL` of a call that looks an object up.
pub(super) fn making(flags: u64) -> (bool, bool) {
    (flags & IPC_CREAT != 0, flags & IPC_EXCL != 0)
}

/// A number that names an object. `EINVAL`: negative.
pub(super) fn id_of(word: u64) -> Result<i32> {
    let id = word as u32 as i32;
    if id < 0 { Err(Errno::EINVAL) } else { Ok(id) }
}

/// `struct ipc64_perm`, with more behind it.
pub(super) fn encode_ownership(ownership: &Ownership, id: i32) -> Encoder {
    Encoder::new()
        .i32(ownership.key)
        .u32(ownership.uid)
        .u32(ownership.gid)
        .u32(ownership.creator_uid)
        .u32(ownership.creator_gid)
        .u32(ownership.mode)
        .u16((id >> 15) as u16)
        .zero_to(OWNERSHIP_BYTES)
}

/// What `IPC_SET` takes from `struct ipc64_perm`: user, group, mode.
pub(super) fn read_ownership(memory: &dyn UserMemory, address: u64) -> Result<(u32, u32, u32)> {
    let bytes: [u8; OWNERSHIP_BYTES] = read_array(memory, address)?;
    Ok((get::u32(&bytes, 4), get::u32(&bytes, 8), get::u32(&bytes, 20)))
}
