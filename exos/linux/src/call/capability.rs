//! Capabilities: `capget`, `capset`, and the options of `prctl` that concern them. The rules are
//! `exos::task::capability`'s.

use exos::error::{Errno, Result};
use exos::task::capability::{AmbientChange, Capabilities, Capability, CapabilitySet};

use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::{
    PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, PR_CAP_AMBIENT_IS_SET, PR_CAP_AMBIENT_LOWER, PR_CAP_AMBIENT_RAISE,
    PR_CAPBSET_DROP, PR_CAPBSET_READ, PR_GET_KEEPCAPS, PR_GET_SECUREBITS, PR_SET_KEEPCAPS, PR_SET_SECUREBITS,
};
use crate::abi::user_memory::{read_array, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;

entries! {
    capget;
    capset;
}

/// `_LINUX_CAPABILITY_VERSION_1` to `_3`: the first has one word for each set.
const VERSIONS: [(u32, usize); 3] = [(0x1998_0330, 1), (0x2007_1026, 2), (0x2008_0522, 2)];
/// Effective, permitted, inheritable.
const SET_COUNT: usize = 3;

/// The number of words for each set, and the process that is meant. A version that is unknown is answered with the
/// newest, and is `None`.
fn read_header(context: &Context<'_>, header: u64) -> Result<Option<(usize, u32)>> {
    let version = u32::from_le_bytes(read_array(context.memory, header)?);
    let Some((_, words)) = VERSIONS.iter().find(|(number, _)| *number == version) else {
        let [.., (newest, _)] = VERSIONS;
        write_all(context.memory, header, &newest.to_le_bytes())?;
        return Ok(None);
    };
    let bytes: [u8; 8] = read_array(context.memory, header)?;
    Ok(Some((*words, get::u32(&bytes, 4))))
}

/// `capget(2)`.
pub fn capget(context: &mut Context<'_>, [header, data, ..]: Arguments) -> Result<u64> {
    let found = read_header(context, header)?;
    if data == 0 {
        return Ok(0);
    }
    let (words, pid) = found.ok_or(Errno::EINVAL)?;
    if (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let held = if pid == 0 || pid == context.process.pid || pid == context.thread.tid() {
        context.thread.identities.lock().capabilities
    } else {
        let mut others = context.system.processes.all();
        let held = others.find_map(|process| match process.thread(pid) {
            Some(thread) => Some(thread.identities.lock().capabilities),
            None => (process.pid == pid).then(|| process.identities.lock().capabilities),
        });
        held.ok_or(Errno::ESRCH)?
    };
    let sets = [held.effective, held.permitted, held.inheritable];
    let encoder = (0..words).fold(Encoder::new(), |encoder, word| {
        sets.iter().fold(encoder, |encoder, set| encoder.u32((set.0 >> (32 * word)) as u32))
    });
    write_all(context.memory, data, &encoder.finish())?;
    Ok(0)
}

/// `capset(2)`: of the caller only.
pub fn capset(context: &mut Context<'_>, [header, data, ..]: Arguments) -> Result<u64> {
    let (words, pid) = read_header(context, header)?.ok_or(Errno::EINVAL)?;
    if pid != 0 && pid != context.thread.tid() {
        return Err(Errno::EPERM);
    }
    let length = words * SET_COUNT * 4;
    let bytes = read_vec(context.memory, data, length as u64, length)?;
    let set = |index: usize| {
        let parts = (0..words).map(|word| u64::from(get::u32(&bytes, (word * SET_COUNT + index) * 4)) << (32 * word));
        CapabilitySet(parts.fold(0, |all, part| all | part) & CapabilitySet::ALL.0)
    };
    change(context, |held| held.set(set(0), set(1), set(2)))
}

/// The options of `prctl(2)` that concern capabilities; every other is `EINVAL`.
pub(super) fn option(context: &Context<'_>, option: u64, arguments: [u64; 4]) -> Result<u64> {
    let [argument, ..] = arguments;
    match option {
        PR_GET_KEEPCAPS => Ok(u64::from(context.thread.identities.lock().capabilities.keeps())),
        PR_SET_KEEPCAPS => set_keeps(context, argument),
        PR_CAPBSET_READ => read_bound(context, argument),
        PR_CAPBSET_DROP => drop_bound(context, argument),
        PR_GET_SECUREBITS => Ok(u64::from(context.thread.identities.lock().capabilities.secure_bits())),
        PR_SET_SECUREBITS => set_secure_bits(context, argument),
        PR_CAP_AMBIENT => ambient(context, arguments),
        _ => Err(Errno::EINVAL),
    }
}

/// `PR_CAPBSET_READ`.
fn read_bound(context: &Context<'_>, number: u64) -> Result<u64> {
    let bounding = context.thread.identities.lock().capabilities.bounding;
    Ok(u64::from(bounding.contains(Capability::new(number)?)))
}

/// `PR_CAPBSET_DROP`.
fn drop_bound(context: &Context<'_>, number: u64) -> Result<u64> {
    if !context.can(Capability::SETPCAP) {
        return Err(Errno::EPERM);
    }
    let capability = Capability::new(number)?;
    change(context, |held| held.drop_bound(capability))
}

/// `PR_SET_KEEPCAPS`.
fn set_keeps(context: &Context<'_>, wanted: u64) -> Result<u64> {
    if wanted > 1 {
        return Err(Errno::EINVAL);
    }
    change(context, |held| held.set_keeps(wanted == 1))
}

/// `PR_SET_SECUREBITS`.
fn set_secure_bits(context: &Context<'_>, bits: u64) -> Result<u64> {
    change(context, |held| held.set_secure_bits(bits))
}

/// `PR_CAP_AMBIENT`.
fn ambient(context: &Context<'_>, [operation, number, fourth, fifth]: [u64; 4]) -> Result<u64> {
    if operation == PR_CAP_AMBIENT_CLEAR_ALL {
        return match [number, fourth, fifth] {
            [0, 0, 0] => change_ambient(context, AmbientChange::Clear),
            _ => Err(Errno::EINVAL),
        };
    }
    let capability = Capability::new(number)?;
    match operation {
        _ if fourth != 0 || fifth != 0 => Err(Errno::EINVAL),
        PR_CAP_AMBIENT_IS_SET => {
            Ok(u64::from(context.thread.identities.lock().capabilities.ambient.contains(capability)))
        }
        PR_CAP_AMBIENT_RAISE => change_ambient(context, AmbientChange::Raise(capability)),
        PR_CAP_AMBIENT_LOWER => change_ambient(context, AmbientChange::Lower(capability)),
        _ => Err(Errno::EINVAL),
    }
}

fn change_ambient(context: &Context<'_>, wanted: AmbientChange) -> Result<u64> {
    change(context, |held| held.change_ambient(wanted))
}

/// Changes what the calling thread holds.
fn change(context: &Context<'_>, change: impl FnOnce(&mut Capabilities) -> Result<()>) -> Result<u64> {
    context
        .thread
        .change_identities(context.system, context.process, |identities| change(&mut identities.capabilities))
        .map(|()| 0)
}
