//! inotify: `inotify_init`, `inotify_add_watch`, `inotify_rm_watch`. Watches and events are `exos::fs::watch`'s.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::permission::AccessMask;
use exos::fs::walk::LookupFlags;
use exos::fs::watch::{Watcher, event};

use crate::abi::file::status_flags;
use crate::abi::linux::{AT_FDCWD, O_CLOEXEC, O_NONBLOCK};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, read_path, start_of};

entries! {
    inotify_init;
    inotify_init1;
    inotify_add_watch: "changes by the host are not seen";
    inotify_rm_watch;
}

/// `inotify_init(2)`.
pub fn inotify_init(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    inotify_init1(context, [0; 6])
}

/// `inotify_init1(2)`.
pub fn inotify_init1(context: &mut Context<'_>, [flags, ..]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let namespace = &context.system.files.namespace;
    let watcher = namespace.watches().watcher()?;
    let now = crate::file::paths::now(context);
    let description = namespace.anonymous("anon_inode:inotify", watcher, status_flags(flags), now);
    context.process.files.add(description, flags & O_CLOEXEC != 0)
}

fn with_watcher<T>(description: &Arc<Description>, act: impl FnOnce(&Watcher) -> Result<T>) -> Result<T> {
    act(description.extension::<Watcher>().ok_or(Errno::EINVAL)?)
}

/// `inotify_add_watch(2)`.
pub fn inotify_add_watch(context: &mut Context<'_>, [descriptor, path, mask, ..]: Arguments) -> Result<u64> {
    let mask = mask as u32;
    if mask & event::KNOWN == 0 || mask & !event::KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let description = context.process.files.get(descriptor)?;
    let is_contradiction = mask & event::MASK_ADD != 0 && mask & event::MASK_CREATE != 0;
    if is_contradiction {
        return Err(Errno::EINVAL);
    }
    with_watcher(&description, |_| Ok(()))?;
    let path = read_path(context, path)?;
    let start = start_of(context, AT_FDCWD as u64, &path)?;
    let access = Access::new(context);
    let flags = LookupFlags { follow: mask & event::DONT_FOLLOW == 0, directory: mask & event::ONLY_DIRECTORY != 0 };
    let location = access.namespace().lookup(&access.caller(), &start, &path, flags)?;
    access.caller().check(&location, AccessMask::READ)?;
    with_watcher(&description, |watcher| watcher.add(location.inode(), mask)).map(|number| number as u64)
}

/// `inotify_rm_watch(2)`.
pub fn inotify_rm_watch(context: &mut Context<'_>, [descriptor, number, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    with_watcher(&description, |watcher| watcher.remove(number as u32 as i32)).map(|()| 0)
}
