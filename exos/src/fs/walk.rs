//! The path walk, as path_resolution(7) and Linux's error precedence have it.
//!
//! A walk holds where it is and the path that is still to go. Following a link puts its target before the
//! rest of the path, so a trailing slash behind a link lands behind its target, which is what Linux means
//! by it. The last component is not taken by [`Walk::to_last`]; the caller decides whether it is looked up,
//! created or removed.

use alloc::borrow::Cow;
use core::ops::Range;

use bitflags::bitflags;

use super::known_walks::Walkers;
use super::location::Location;
use super::metadata::{FileKind, Timestamp};
use super::name::Name;
use super::permission::{AccessMask, Credentials};
use super::vnode::{LinkTarget, PATH_BYTES_MAX};
use crate::error::{Errno, Result};
use crate::preempt;

/// Most links followed in one walk.
pub const LINK_FOLLOW_MAX: usize = 40;

/// The walker: everything about the calling task that operations on paths need.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Its root directory: `/`, and where `..` ends.
    pub root: &'a Location,
    /// User, groups and capabilities that access is checked with.
    pub credentials: &'a Credentials,
    /// Permission bits that new files do not get.
    pub umask: u32,
    /// Now, for the times of files.
    pub now: Timestamp,
}

impl Caller<'_> {
    /// Checks the permissions of an inode.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check(&self, location: &Location, mask: AccessMask) -> Result<()> {
        self.credentials.check(location.inode().protection(), mask)
    }
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name(Name),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// None: the path is `/`.
    Root,
}

/// The last component, as it stands in the path.
enum Found {
    Name(Range<usize>),
    Dot,
    DotDot,
    Root,
}

/// What to do at the end of a lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupFlags {
    /// Follow a link in the last component.
    pub follow: bool,
    /// Insist on a directory.
    pub directory: bool,
}

impl LookupFlags {
    /// Follow links, take anything.
    pub const FOLLOW: Self = Self { follow: true, directory: false };
    /// The link itself, take anything.
    pub const NO_FOLLOW: Self = Self { follow: false, directory: false };
    /// Follow links, take a directory.
    pub const DIRECTORY: Self = Self { follow: true, directory: true };
}

bitflags! {
    /// Where a walk may not go (`resolve` of openat2(2)).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Restriction: u32 {
        /// From one mount to another (`RESOLVE_NO_XDEV`): `EXDEV`.
        const ONE_MOUNT = 1;
        /// Along links that jump (`RESOLVE_NO_MAGICLINKS`): `ELOOP`.
        const NO_JUMPS = 2;
        /// Along links (`RESOLVE_NO_SYMLINKS`): `ELOOP`.
        const NO_LINKS = 4;
        /// Out of the directory where it starts (`RESOLVE_BENEATH`): `EXDEV`.
        const BENEATH = 8;
        /// The directory where it starts is its root (`RESOLVE_IN_ROOT`): jumps are `EXDEV`.
        const IN_ROOT = 16;
    }
}

/// A walk in progress.
pub struct Walk<'a> {
    caller: Caller<'a>,
    here: Location,
    path: Cow<'a, [u8]>,
    position: usize,
    link_count: usize,
    /// What went before can be known beforehand.
    is_steady: bool,
    /// Everybody may search the directories.
    is_for_all: bool,
    /// It went up, or along a link.
    has_turned: bool,
    restriction: Restriction,
    /// Where it started, if it may not go out of there.
    start: Option<Location>,
}

/// How long the name is with which a path begins: eight bytes at a time, as every component of every walk is measured.
#[inline]
fn length_of_name(path: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (chunks, rest) = path.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        let word = u64::from_le_bytes(*chunk) ^ (ONES * b'/' as u64);
        // The lowest bit that stays is the top bit of the first byte that is zero.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return index * 8 + zeros.trailing_zeros() as usize / 8;
        }
    }
    let in_rest = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    path.len() - rest.len() + in_rest
}

impl<'a> Walk<'a> {
    /// Starts at `start`, or at the root for an absolute path.
    ///
    /// # Errors
    /// `ENOENT`: the path is empty. `ENAMETOOLONG`. `ENOTDIR`: `start` is not a directory.
    pub fn new(caller: &Caller<'a>, start: &Location, path: &'a [u8]) -> Result<Self> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let here = match path.first() {
            None => return Err(Errno::ENOENT),
            Some(b'/') => caller.root.clone(),
            Some(_) if start.is_directory() => start.clone(),
            Some(_) => return Err(Errno::ENOTDIR),
        };
        Ok(Self {
            caller: *caller,
            here,
            path: Cow::Borrowed(path),
            position: 0,
            link_count: 0,
            is_steady: true,
            is_for_all: true,
            has_turned: false,
            restriction: Restriction::empty(),
            start: None,
        })
    }

    /// The same walk, which may not go everywhere.
    ///
    /// # Errors
    /// `EXDEV`: it starts at the root and may not leave a directory.
    pub fn restricted(mut self, restriction: Restriction) -> Result<Self> {
        self.restriction = restriction;
        if restriction.contains(Restriction::BENEATH) {
            if self.path.first() == Some(&b'/') {
                return Err(Errno::EXDEV);
            }
            self.start = Some(self.here.clone());
        }
        Ok(self)
    }

    /// Whether the walk may go from where it is to `next`.
    ///
    /// # Errors
    /// `EXDEV`.
    pub(super) fn check_step(&self, next: &Location) -> Result<()> {
        let crosses = self.restriction.contains(Restriction::ONE_MOUNT) && next.mount().id != self.here.mount().id;
        if crosses { Err(Errno::EXDEV) } else { Ok(()) }
    }

    /// What the walk may not leave.
    pub(super) fn scope(&self) -> Option<Location> {
        let is_in_root = self.restriction.contains(Restriction::IN_ROOT);
        self.start.clone().or_else(|| is_in_root.then(|| self.caller.root.clone()))
    }

    /// Where the walk is: after [`Self::to_last`], the directory of the last component.
    pub fn here(&self) -> &Location {
        &self.here
    }

    /// Where the walk has ended.
    pub(super) fn into_here(self) -> Location {
        self.here
    }

    /// Walks up to the last component; also says whether a slash follows it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EIO`.
    pub fn to_last(&mut self) -> Result<(Last, bool)> {
        let (found, has_slash) = self.find_last()?;
        let last = match found {
            Found::Name(name) => Last::Name(Name::from(&self.path[name])),
            Found::Dot => Last::Dot,
            Found::DotDot => Last::DotDot,
            Found::Root => Last::Root,
        };
        Ok((last, has_slash))
    }

    fn find_last(&mut self) -> Result<(Found, bool)> {
        loop {
            self.skip_slashes();
            if self.position == self.path.len() {
                return Ok((Found::Root, false));
            }
            self.check_search()?;
            let path = &*self.path;
            let start = self.position;
            let end = start + length_of_name(&path[start..]);
            self.position = end;
            self.skip_slashes();
            let path = &*self.path;
            let name = &path[start..end];
            if self.position == path.len() {
                let last = match name {
                    b"." => Found::Dot,
                    b".." => Found::DotDot,
                    _ => Found::Name(start..end),
                };
                return Ok((last, end < path.len()));
            }
            match name {
                b"." => {}
                b".." => self.go_up()?,
                name => {
                    if let Some(next) = self.here.step(name)? {
                        self.check_step(&next)?;
                        self.enter(next)?;
                    }
                }
            }
            if !self.here.is_directory() && self.position < self.path.len() {
                return Err(Errno::ENOTDIR);
            }
        }
    }

    /// Whether one may search the directory where the walk is; notes what that depends on.
    fn check_search(&mut self) -> Result<()> {
        const ALL_EXECUTE: u32 = 0o111;
        let inode = self.here.inode();
        let protection = inode.protection();
        self.is_for_all &= protection.permissions & ALL_EXECUTE == ALL_EXECUTE;
        if !self.here.entry().is_steady() {
            self.is_steady = false;
            inode.check_search()?;
        }
        self.caller.credentials.check(protection, AccessMask::EXECUTE)
    }

    pub(super) fn go_up(&mut self) -> Result<()> {
        self.has_turned = true;
        if !self.restriction.is_empty() {
            if self.start.as_ref().is_some_and(|start| start == &self.here) {
                return Err(Errno::EXDEV);
            }
            self.check_step(&self.here.parent(self.caller.root))?;
        }
        self.here = self.here.parent(self.caller.root);
        Ok(())
    }

    /// The callers for which the finished walk would lead to the same place again; `None`: that cannot be known.
    pub(super) fn walkers(&self, is_absolute: bool) -> Option<Walkers> {
        if !self.is_steady || (self.has_turned && !is_absolute) {
            return None;
        }
        match self.is_for_all {
            true => Some(Walkers::All),
            false => self.caller.credentials.may_search_all().then_some(Walkers::Privileged),
        }
    }

    /// Takes the last component for a lookup to its end.
    ///
    /// # Errors
    /// Those of [`Self::to_last`].
    pub fn finish(mut self, flags: LookupFlags) -> Result<Location> {
        self.run(flags)?;
        Ok(self.here)
    }

    /// As [`Self::finish`], to where the walk is then.
    pub(super) fn run(&mut self, flags: LookupFlags) -> Result<()> {
        let LookupFlags { mut follow, mut directory } = flags;
        loop {
            let (last, has_slash) = self.find_last()?;
            follow |= has_slash;
            directory |= has_slash;
            match last {
                Found::Root | Found::Dot => {}
                Found::DotDot => self.go_up()?,
                Found::Name(name) => {
                    if let Some(next) = self.here.step(&self.path[name])? {
                        self.check_step(&next)?;
                        if follow && next.inode().kind() == FileKind::Symlink {
                            self.restore_slash(has_slash);
                            self.follow(&next)?;
                            if self.position < self.path.len() {
                                continue;
                            }
                        } else {
                            self.here = next;
                        }
                    }
                }
            }
            if directory && !self.here.is_directory() {
                return Err(Errno::ENOTDIR);
            }
            return Ok(());
        }
    }

    /// Goes on behind the link at `link`, which was the last component: the walk's path is then the link's
    /// target, unless it was a jump. Returns whether there is something left to walk.
    ///
    /// # Errors
    /// `ELOOP`, `ENOENT`, those of [`super::vnode::Inode::follow_link`].
    pub(super) fn follow_last(&mut self, link: &Location) -> Result<bool> {
        self.follow(link)?;
        Ok(self.position < self.path.len())
    }

    fn enter(&mut self, next: Location) -> Result<()> {
        if next.inode().kind() == FileKind::Symlink {
            self.restore_slash(true);
            return self.follow(&next);
        }
        self.here = next;
        Ok(())
    }

    /// Steps back onto the slash that was skipped, so that it stays between a link's target and the rest.
    fn restore_slash(&mut self, has_slash: bool) {
        self.position -= usize::from(has_slash);
    }

    fn follow(&mut self, link: &Location) -> Result<()> {
        self.link_count += 1;
        self.has_turned = true;
        if self.link_count > LINK_FOLLOW_MAX {
            return Err(Errno::ELOOP);
        }
        if self.restriction.contains(Restriction::NO_LINKS) {
            return Err(Errno::ELOOP);
        }
        preempt::unless_killed()?;
        match link.inode().follow_link()? {
            LinkTarget::Jump(_) if self.restriction.contains(Restriction::NO_JUMPS) => return Err(Errno::ELOOP),
            LinkTarget::Jump(_) if self.restriction.intersects(Restriction::BENEATH | Restriction::IN_ROOT) => {
                return Err(Errno::EXDEV);
            }
            LinkTarget::Jump(location) => {
                self.check_step(&location)?;
                self.here = location;
            }
            LinkTarget::Path(target) => {
                match target.first() {
                    None => return Err(Errno::ENOENT),
                    Some(b'/') if self.start.is_some() => return Err(Errno::EXDEV),
                    Some(b'/') => {
                        self.check_step(self.caller.root)?;
                        self.here = self.caller.root.clone();
                    }
                    Some(_) => {}
                }
                let mut path = target;
                path.extend_from_slice(&self.path[self.position..]);
                self.path = Cow::Owned(path);
                self.position = 0;
            }
        }
        Ok(())
    }

    fn skip_slashes(&mut self) {
        while self.path.get(self.position) == Some(&b'/') {
            self.position += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::length_of_name;
    use alloc::vec;

    #[test]
    fn a_name_ends_at_its_slash_or_with_the_path() {
        for length in 0..40 {
            let mut path = vec![b'n'; length];
            assert_eq!(length_of_name(&path), length);
            for first in 0..length {
                path[first] = b'/';
                for second in first..length {
                    path[second] = b'/';
                    assert_eq!(length_of_name(&path), first);
                    path[second] = if second == first { b'/' } else { b'0' };
                }
                path[first] = b'.';
            }
        }
    }
}
