//! What is asked at the entry of a system call while exos's reserve of memory is not whole (`exos::reserve`).
//!
//! A call that makes something, or makes something grow, is refused with the error that Linux has for it, before it has
//! done anything: that is why nothing behind this gate has to undo a half-made object because a small allocation
//! failed. Calls that write to what is there ask where they allocate. All others are let in; while most of the reserve
//! is gone, those that neither end nor give up anything make room first.
//!
//! Neighbours: [`crate::entry::table::dispatch`], [`crate::task::out_of_memory`].

use exos::error::{Errno, Result};
use exos::reserve::{self, Level};
use syscalls::Sysno;

use crate::abi::linux::EPOLL_CTL_ADD;
use crate::call::context::{Arguments, Context};
use crate::task::out_of_memory::{level_after_giving, make_room};

/// The error of a call that is refused.
fn refusal(call: Sysno, arguments: &Arguments) -> Option<Errno> {
    match call {
        Sysno::open | Sysno::openat | Sysno::openat2 | Sysno::creat | Sysno::open_by_handle_at => Some(Errno::ENOMEM),
        Sysno::mkdir | Sysno::mkdirat | Sysno::mknod | Sysno::mknodat | Sysno::symlink | Sysno::symlinkat => {
            Some(Errno::ENOSPC)
        }
        Sysno::link | Sysno::linkat | Sysno::setxattr | Sysno::lsetxattr | Sysno::fsetxattr => Some(Errno::ENOSPC),
        Sysno::pipe | Sysno::pipe2 => Some(Errno::ENFILE),
        Sysno::socket | Sysno::socketpair | Sysno::accept | Sysno::accept4 | Sysno::connect | Sysno::bind => {
            Some(Errno::ENOMEM)
        }
        Sysno::eventfd | Sysno::eventfd2 | Sysno::epoll_create | Sysno::epoll_create1 | Sysno::timerfd_create => {
            Some(Errno::ENOMEM)
        }
        Sysno::signalfd | Sysno::signalfd4 | Sysno::inotify_init | Sysno::inotify_init1 | Sysno::inotify_add_watch => {
            Some(Errno::ENOMEM)
        }
        Sysno::memfd_create | Sysno::pidfd_open | Sysno::pidfd_getfd | Sysno::setgroups => Some(Errno::ENOMEM),
        Sysno::io_uring_setup | Sysno::io_uring_register => Some(Errno::ENOMEM),
        // One that only fetches is let in.
        Sysno::io_uring_enter => (arguments[1] as u32 > 0).then_some(Errno::EAGAIN),
        Sysno::epoll_ctl => (arguments[1] == u64::from(EPOLL_CTL_ADD)).then_some(Errno::ENOMEM),
        Sysno::mmap
        | Sysno::mremap
        | Sysno::remap_file_pages
        | Sysno::mprotect
        | Sysno::mlock
        | Sysno::mlock2
        | Sysno::mlockall => Some(Errno::ENOMEM),
        Sysno::fork | Sysno::vfork | Sysno::clone | Sysno::clone3 | Sysno::execve | Sysno::execveat => {
            Some(Errno::ENOMEM)
        }
        Sysno::timer_create | Sysno::io_setup | Sysno::rt_sigqueueinfo | Sysno::rt_tgsigqueueinfo => {
            Some(Errno::EAGAIN)
        }
        Sysno::shmget | Sysno::shmat | Sysno::semget | Sysno::semop | Sysno::semtimedop => Some(Errno::ENOMEM),
        Sysno::msgget | Sysno::msgsnd | Sysno::mq_open | Sysno::mq_timedsend => Some(Errno::ENOMEM),
        _ => None,
    }
}

/// Whether a call ends or gives up something, so that it must not wait for memory.
fn gives_up(call: Sysno) -> bool {
    matches!(
        call,
        Sysno::exit
            | Sysno::exit_group
            | Sysno::close
            | Sysno::close_range
            | Sysno::munmap
            | Sysno::unlink
            | Sysno::unlinkat
            | Sysno::rmdir
            | Sysno::rt_sigreturn
            | Sysno::kill
            | Sysno::tkill
            | Sysno::tgkill
            | Sysno::timer_delete
            | Sysno::wait4
            | Sysno::waitid
    )
}

/// Lets a call in, or says what it answers. Called where no lock is held, while the reserve is not whole.
///
/// # Errors
/// What Linux answers where the kernel has no memory for what the call makes.
#[cold]
pub fn pass(context: &Context<'_>, number: u64, arguments: &Arguments) -> Result<()> {
    let Some(call) = Sysno::new(usize::try_from(number).unwrap_or(usize::MAX)) else { return Ok(()) };
    let mut level = level_after_giving(&context.system.pool, Level::Whole);
    let refusal = refusal(call, arguments);
    while level != Level::Whole && refusal.is_some() && context.system.pool.await_frames() {
        level = reserve::refilled_level();
    }
    match (level, refusal) {
        (Level::Whole, _) => Ok(()),
        (_, Some(error)) => Err(error),
        (Level::Low, None) if !gives_up(call) => {
            make_room(context);
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{gives_up, refusal};
    use exos::error::Errno;
    use syscalls::Sysno;

    #[test]
    fn what_makes_is_refused_and_what_gives_up_never() {
        for (call, error) in [
            (Sysno::symlink, Errno::ENOSPC),
            (Sysno::openat, Errno::ENOMEM),
            (Sysno::pipe2, Errno::ENFILE),
            (Sysno::timer_create, Errno::EAGAIN),
            (Sysno::clone, Errno::ENOMEM),
        ] {
            assert_eq!(refusal(call, &[0; 6]), Some(error), "{call}");
        }
        assert_eq!(refusal(Sysno::epoll_ctl, &[3, 1, 0, 0, 0, 0]), Some(Errno::ENOMEM));
        assert_eq!(refusal(Sysno::epoll_ctl, &[3, 2, 0, 0, 0, 0]), None, "what is taken out of a set");
        for call in Sysno::iter().filter(|call| gives_up(*call)) {
            assert_eq!(refusal(call, &[1; 6]), None, "{call}");
        }
    }
}
