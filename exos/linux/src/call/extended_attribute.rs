//! Extended attributes: the twelve calls. The rules are `exos::fs::namespace`'s.

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::extended_attribute::{AttributeChange, NAME_BYTES_MAX};
use exos::fs::location::Location;

use super::file_metadata::{find, location_of};
use crate::abi::linux::AT_SYMLINK_NOFOLLOW;
use crate::abi::user_memory::{read_string, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::Access;

entries! {
    getxattr: LIMITS;
    lgetxattr: LIMITS;
    fgetxattr: LIMITS;
    listxattr: LIMITS;
    llistxattr: LIMITS;
    flistxattr: LIMITS;
    setxattr: LIMITS;
    lsetxattr: LIMITS;
    fsetxattr: LIMITS;
    removexattr: LIMITS;
    lremovexattr: LIMITS;
    fremovexattr: LIMITS;
}

const LIMITS: &str = "no access control lists; files of host directories have none";
/// Longest value.
const VALUE_BYTES_MAX: u64 = 65_536;

/// Reads a name. `ERANGE`: empty or too long.
fn read_name(context: &Context<'_>, name: u64) -> Result<Vec<u8>> {
    let name = read_string(context.memory, name, NAME_BYTES_MAX, Errno::ERANGE)?;
    if name.is_empty() { Err(Errno::ERANGE) } else { Ok(name) }
}

/// Hands bytes to the program, or tells how many there are if it has no room at all. `ERANGE`: too little.
fn answer(context: &Context<'_>, bytes: &[u8], address: u64, size: u64) -> Result<u64> {
    if size != 0 && (bytes.len() as u64) > size {
        return Err(Errno::ERANGE);
    }
    if size != 0 {
        write_all(context.memory, address, bytes)?;
    }
    Ok(bytes.len() as u64)
}

fn get_from(context: &Context<'_>, location: &Location, [name, value, size]: [u64; 3]) -> Result<u64> {
    let name = read_name(context, name)?;
    let access = Access::new(context);
    let bytes = access.namespace().extended_attribute(&access.caller(), location, &name)?;
    answer(context, &bytes, value, size)
}

fn list_of(context: &Context<'_>, location: &Location, [list, size]: [u64; 2]) -> Result<u64> {
    let access = Access::new(context);
    let names = access.namespace().extended_attribute_names(&access.caller(), location)?;
    answer(context, &names, list, size)
}

fn set_in(context: &Context<'_>, location: &Location, [name, value, size, flags]: [u64; 4]) -> Result<u64> {
    let change = match flags as u32 {
        0 => AttributeChange::Any,
        1 => AttributeChange::Create,
        2 => AttributeChange::Replace,
        // Must be there and must not.
        3 => AttributeChange::Never,
        _ => return Err(Errno::EINVAL),
    };
    let name = read_name(context, name)?;
    if size > VALUE_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let value = read_vec(context.memory, value, size, VALUE_BYTES_MAX as usize)?;
    let access = Access::new(context);
    access.namespace().set_extended_attribute(&access.caller(), location, &name, Some(&value), change).map(|()| 0)
}

fn remove_from(context: &Context<'_>, location: &Location, name: u64) -> Result<u64> {
    let name = read_name(context, name)?;
    let access = Access::new(context);
    let change = AttributeChange::Replace;
    access.namespace().set_extended_attribute(&access.caller(), location, &name, None, change).map(|()| 0)
}

/// `getxattr(2)`.
pub fn getxattr(context: &mut Context<'_>, [path, name, value, size, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, 0)?;
    get_from(context, &location, [name, value, size])
}

/// `listxattr(2)`.
pub fn listxattr(context: &mut Context<'_>, [path, list, size, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, 0)?;
    list_of(context, &location, [list, size])
}

/// `setxattr(2)`.
pub fn setxattr(context: &mut Context<'_>, [path, name, value, size, flags, _]: Arguments) -> Result<u64> {
    let location = find(context, path, 0)?;
    set_in(context, &location, [name, value, size, flags])
}

/// `removexattr(2)`.
pub fn removexattr(context: &mut Context<'_>, [path, name, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, 0)?;
    remove_from(context, &location, name)
}

/// `lgetxattr(2)`.
pub fn lgetxattr(context: &mut Context<'_>, [path, name, value, size, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, AT_SYMLINK_NOFOLLOW)?;
    get_from(context, &location, [name, value, size])
}

/// `llistxattr(2)`.
pub fn llistxattr(context: &mut Context<'_>, [path, list, size, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, AT_SYMLINK_NOFOLLOW)?;
    list_of(context, &location, [list, size])
}

/// `lsetxattr(2)`.
pub fn lsetxattr(context: &mut Context<'_>, [path, name, value, size, flags, _]: Arguments) -> Result<u64> {
    let location = find(context, path, AT_SYMLINK_NOFOLLOW)?;
    set_in(context, &location, [name, value, size, flags])
}

/// `lremovexattr(2)`.
pub fn lremovexattr(context: &mut Context<'_>, [path, name, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, AT_SYMLINK_NOFOLLOW)?;
    remove_from(context, &location, name)
}

/// `fgetxattr(2)`.
pub fn fgetxattr(context: &mut Context<'_>, [descriptor, name, value, size, ..]: Arguments) -> Result<u64> {
    let location = location_of(context, descriptor, false)?;
    get_from(context, &location, [name, value, size])
}

/// `flistxattr(2)`.
pub fn flistxattr(context: &mut Context<'_>, [descriptor, list, size, ..]: Arguments) -> Result<u64> {
    let location = location_of(context, descriptor, false)?;
    list_of(context, &location, [list, size])
}

/// `fsetxattr(2)`.
pub fn fsetxattr(context: &mut Context<'_>, [descriptor, name, value, size, flags, _]: Arguments) -> Result<u64> {
    let location = location_of(context, descriptor, false)?;
    set_in(context, &location, [name, value, size, flags])
}

/// `fremovexattr(2)`.
pub fn fremovexattr(context: &mut Context<'_>, [descriptor, name, ..]: Arguments) -> Result<u64> {
    let location = location_of(context, descriptor, false)?;
    remove_from(context, &location, name)
}
