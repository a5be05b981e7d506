//! Extended attributes: the rights to see and change them (xattr(7)).
//!
//! The part of the name before the first point decides: `user` attributes go by the file's permissions and only regular
//! files and directories have them; `trusted` ones are for `CAP_SYS_ADMIN` alone and not there for others; `security`
//! ones everybody may read. Access control lists (`system`) are not there.

use alloc::vec::Vec;

use super::Namespace;
use crate::error::{Errno, Result};
use crate::fs::extended_attribute::AttributeChange;
use crate::fs::location::Location;
use crate::fs::metadata::FileKind;
use crate::fs::permission::{AccessMask, MODE_STICKY};
use crate::fs::walk::Caller;
use crate::fs::watch::event;
use crate::task::capability::Capability;

const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";

impl Namespace {
    /// The value of an attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EACCES`, `EOPNOTSUPP`.
    pub fn extended_attribute(&self, caller: &Caller<'_>, location: &Location, name: &[u8]) -> Result<Vec<u8>> {
        check(caller, location, name, AccessMask::READ)?;
        location.inode().extended_attribute(name)
    }

    /// Sets an attribute; `None` takes it away.
    ///
    /// # Errors
    /// `ENODATA`, `EEXIST`, `EPERM`, `EACCES`, `EROFS`, `EOPNOTSUPP`, `ENOSPC`, `ENOMEM`.
    pub fn set_extended_attribute(
        &self,
        caller: &Caller<'_>,
        location: &Location,
        name: &[u8],
        value: Option<&[u8]>,
        change: AttributeChange,
    ) -> Result<()> {
        location.mount().check_writable()?;
        check(caller, location, name, AccessMask::WRITE)?;
        location.inode().set_extended_attribute(name, value, change, caller.now)?;
        self.watches.tell(location, event::ATTRIB, false);
        Ok(())
    }

    /// The names of those that the caller may know of, each with a zero byte behind it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn extended_attribute_names(&self, caller: &Caller<'_>, location: &Location) -> Result<Vec<u8>> {
        let mut names = location.inode().extended_attribute_names()?;
        if !caller.credentials.can(Capability::SYS_ADMIN) {
            let mut kept = Vec::new();
            kept.try_reserve_exact(names.len()).map_err(|_| Errno::ENOMEM)?;
            let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(TRUSTED));
            shown.for_each(|name| kept.extend_from_slice(name));
            names = kept;
        }
        Ok(names)
    }
}

/// Whether the caller may do with the attribute what it wishes.
fn check(caller: &Caller<'_>, location: &Location, name: &[u8], mask: AccessMask) -> Result<()> {
    let credentials = caller.credentials;
    let writes = mask.contains(AccessMask::WRITE);
    let hidden = if writes { Errno::EPERM } else { Errno::ENODATA };
    if name.starts_with(SECURITY) {
        let may_write = name.len() > SECURITY.len() && credentials.can(Capability::SYS_ADMIN);
        return if writes && !may_write { Err(Errno::EPERM) } else { Ok(()) };
    }
    if name.starts_with(TRUSTED) {
        return match (credentials.can(Capability::SYS_ADMIN), name.len() > TRUSTED.len()) {
            (false, _) => Err(hidden),
            (true, false) => Err(Errno::EINVAL),
            (true, true) => Ok(()),
        };
    }
    let kind = location.inode().kind();
    let is_user = name.starts_with(USER);
    if is_user && !matches!(kind, FileKind::Regular | FileKind::Directory) {
        return Err(hidden);
    }
    if is_user && writes && kind == FileKind::Directory {
        let metadata = location.inode().metadata();
        if metadata.permissions & MODE_STICKY != 0 && !credentials.is_owner(&metadata) {
            return Err(Errno::EPERM);
        }
    }
    caller.check(location, mask)?;
    match is_user {
        false => Err(Errno::EOPNOTSUPP),
        true if name.len() == USER.len() => Err(Errno::EINVAL),
        true => Ok(()),
    }
}
