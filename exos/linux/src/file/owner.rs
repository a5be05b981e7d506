//! The process that is told of an open file by a signal: its owner (`F_SETOWN`), once `O_ASYNC` is set, a lease has to
//! be given up, something happens in a directory (`F_NOTIFY`), or urgent data comes to a socket (`SIGURG`).
//!
//! A [`FileOwner`] is attached to the description and goes with it. It waits at the file's queue like any sleeper, and
//! turns what it is told into a signal. Whether it may tell is decided when it tells, by the process that named the
//! owner.

use alloc::sync::{Arc, Weak};

use exos::error::Result;
use exos::fs::description::Description;
use exos::fs::readiness::{Readiness, Registration, Waiter};
use exos::fs::watch::{Watcher, event};
use exos::net::SocketFile;
use exos::sync::Mutex;
use exos::task::capability::Capability;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::abi::linux::{DN_ACCESS, DN_ATTRIB, DN_CREATE, DN_DELETE, DN_MODIFY, DN_MULTISHOT, DN_RENAME};
use crate::call::context::Context;
use crate::task::process::Process;
use crate::task::system::System;

/// What `F_NOTIFY` asks for.
pub mod notice {}

/// What a number of an owner is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// `F_OWNER_TID`.
    #[default]
    Thread,
    /// `F_OWNER_PID`.
    Process,
    /// `F_OWNER_PGRP`.
    Group,
}

/// The process to tell; number 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    /// What the number is.
    pub kind: Kind,
    /// Thread, process or group number, as `kind` says.
    pub number: u32,
    /// Real and effective user of the process that named it, and whether that one may signal all others.
    named_by: ([u32; 2], bool),
}

/// What a [`FileOwner`] keeps.
#[derive(Default)]
struct State {
    owner: Owner,
    /// `F_SETSIG`; `None`: `SIGIO`, without facts about the file.
    signal: Option<Signal>,
    /// The descriptor that the facts name.
    descriptor: i32,
    /// It is a socket, and the events of its hang-up are told as such.
    is_socket: bool,
    /// The side of a pipe or terminal that the description is, for events that concern both.
    is_readable: bool,
    /// What happens in the directory, and what of it is told.
    watcher: Option<(Arc<Watcher>, u32)>,
}

/// The receiver of an open file's changes, and the signal.
pub struct FileOwner {
    system: Weak<System>,
    state: Mutex<State>,
    /// While `O_ASYNC` is set.
    readiness: Mutex<Option<Registration>>,
    /// While a directory is watched.
    notices: Mutex<Option<Registration>>,
    /// Of a socket: what is told of urgent data.
    urgent: Mutex<Option<(Arc<Urgent>, Registration)>>,
}

/// Tells an owner of urgent data, whether `O_ASYNC` is set or not.
struct Urgent(Weak<FileOwner>);

impl Waiter for Urgent {
    fn wake(&self, events: Readiness) {
        // Told apart from all that happens with it.
        if events == Readiness::PRIORITY
            && let Some(owner) = self.0.upgrade()
        {
            owner.send_signal(Signal::URG, PLAIN);
        }
    }
}

impl FileOwner {
    /// That of a description, if it has one.
    #[must_use]
    pub fn of(description: &Description) -> Option<Arc<Self>> {
        description.attachment()?.downcast().ok()
    }

    /// That of a description, which it gets if it has none. `ENOMEM`.
    pub fn made_for(context: &Context<'_>, description: &Description) -> Result<Arc<Self>> {
        if let Some(known) = Self::of(description) {
            return Ok(known);
        }
        let state = State {
            is_socket: description.extension::<SocketFile>().is_some(),
            is_readable: description.is_readable(),
            ..State::default()
        };
        let made = Arc::new(Self {
            system: Arc::downgrade(context.system),
            state: Mutex::new(state),
            readiness: Mutex::default(),
            notices: Mutex::default(),
            urgent: Mutex::default(),
        });
        if let Some(queue) = description.wait_queue().filter(|_| made.state.lock().is_socket) {
            let urgent = Arc::new(Urgent(Arc::downgrade(&made)));
            let waiter: Weak<dyn Waiter> = Arc::<Urgent>::downgrade(&urgent);
            *made.urgent.lock() = Some((urgent, queue.register(waiter, Readiness::PRIORITY)));
        }
        description.attach(made.clone())?;
        Ok(made)
    }

    /// Names the owner; `number` 0 names nobody.
    pub fn set_owner(&self, context: &Context<'_>, kind: Kind, number: u32) {
        let identities = context.thread.identities.lock();
        let named_by = ([identities.uid[0], identities.uid[1]], identities.can(Capability::KILL));
        self.state.lock().owner = Owner { kind, number, named_by };
    }

    /// The caller owns it unless somebody does.
    pub fn set_default_owner(&self, context: &Context<'_>) {
        if self.state.lock().owner.number == 0 {
            self.set_owner(context, Kind::Process, context.process.pid);
        }
    }

    /// The owner, nobody once it has ended.
    #[must_use]
    pub fn owner(&self) -> Owner {
        let owner = self.state.lock().owner;
        let is_there = self.system.upgrade().is_some_and(|system| match owner.kind {
            Kind::Process => system.processes.get(owner.number).is_some(),
            Kind::Group => system.processes.in_group(owner.number).next().is_some(),
            Kind::Thread => system.processes.named(owner.number).is_some(),
        });
        if is_there { owner } else { Owner { number: 0, ..owner } }
    }

    /// `F_SETSIG`.
    pub fn set_signal(&self, signal: Option<Signal>) {
        self.state.lock().signal = signal;
    }

    /// `F_GETSIG`.
    #[must_use]
    pub fn signal(&self) -> Option<Signal> {
        self.state.lock().signal
    }

    /// Begins to tell of the file's readiness, or ends it.
    pub fn set_async(self: &Arc<Self>, description: &Description, descriptor: u64, is_wanted: bool) {
        if !is_wanted {
            drop(self.readiness.lock().take());
            return;
        }
        self.set_descriptor(descriptor);
        let mut interest = Readiness::empty();
        interest.set(Readiness::READ, description.is_readable());
        interest.set(Readiness::WRITE, description.is_writable());
        let waiter: Weak<dyn Waiter> = Arc::<Self>::downgrade(self);
        let mut place = self.readiness.lock();
        if place.is_none() {
            *place = description.wait_queue().map(|queue| queue.register(waiter, interest));
        }
    }

    /// Facts about the file name this descriptor.
    pub fn set_descriptor(&self, descriptor: u64) {
        self.state.lock().descriptor = descriptor as i32;
    }

    /// Begins to tell what happens in a directory: bits of [`notice`], none to end it. `EMFILE`, `ENOSPC`, `ENOMEM`.
    pub fn set_notices(self: &Arc<Self>, context: &Context<'_>, description: &Description, wanted: u32) -> Result<()> {
        let before = (self.notices.lock().take(), self.state.lock().watcher.take());
        if wanted & !DN_MULTISHOT == 0 {
            return Ok(());
        }
        // One more kind is one more: the others stay.
        let wanted = wanted | before.1.as_ref().map_or(0, |(_, wanted)| *wanted);
        drop(before);
        let kinds = wanted & !DN_MULTISHOT;
        let table = [
            (DN_ACCESS, event::ACCESS),
            (DN_MODIFY, event::MODIFY),
            (DN_CREATE, event::CREATE | event::MOVED_TO),
            (DN_DELETE, event::DELETE | event::MOVED_FROM),
            (DN_RENAME, event::MOVED_FROM),
            (DN_ATTRIB, event::ATTRIB),
        ];
        let mask = table.iter().filter(|(kind, _)| kinds & kind != 0).fold(0, |mask, (_, events)| mask | events);
        let watcher = context.system.files.namespace.watches().watcher()?;
        watcher.add(description.inode(), mask)?;
        let waiter: Weak<dyn Waiter> = Arc::<Self>::downgrade(self);
        let place = watcher.told_queue().register(waiter, Readiness::READ);
        self.state.lock().watcher = Some((watcher, wanted));
        *self.notices.lock() = Some(place);
        Ok(())
    }

    /// Sends a signal for each event of the directory; true if there was something to look at.
    fn tell_notices(&self) -> bool {
        let watched = self.state.lock().watcher.clone();
        let Some((watcher, wanted)) = watched else { return false };
        let mut is_any = false;
        while let Some(mask) = watcher.take_mask() {
            is_any = true;
            if mask & event::ALL == 0 {
                continue;
            }
            let moved = mask & event::MOVED_FROM != 0;
            let as_deleted = moved && wanted & DN_DELETE != 0;
            let as_renamed = moved && wanted & DN_RENAME != 0;
            for _ in 0..if moved { u32::from(as_deleted) + u32::from(as_renamed) } else { 1 } {
                self.send(MESSAGE);
            }
            if wanted & DN_MULTISHOT == 0 {
                let ended = self.state.lock().watcher.take();
                drop(ended);
                return true;
            }
        }
        is_any
    }

    /// Sends the owner its signal, with `si_code` and `si_band`.
    fn send(&self, (code, band): (i32, u32)) {
        let (signal, descriptor) = {
            let state = self.state.lock();
            (state.signal, state.descriptor)
        };
        let (signal, info) = match signal {
            Some(signal) => (signal, SignalInfo { code, errno: 0, payload: SignalPayload::File { band, descriptor } }),
            None => (Signal::IO, PLAIN),
        };
        self.send_signal(signal, info);
    }

    fn send_signal(&self, signal: Signal, info: SignalInfo) {
        let Some(system) = self.system.upgrade() else { return };
        let owner = self.state.lock().owner;
        let tell = |process: Arc<Process>| {
            if !may_tell(&owner, &process) {
                return;
            }
            let thread = process.thread(owner.number).filter(|_| owner.kind == Kind::Thread);
            if process.spares(signal) {
                return;
            }
            let send = |signal, info| match &thread {
                Some(thread) => process.raise_in_thread(thread, signal, info),
                None => process.queue(signal, info),
            };
            // As on Linux, a process with too many signals waiting gets the one that says only that something happened.
            if send(signal, info).is_err() {
                let _ = send(Signal::IO, PLAIN);
            }
        };
        match owner.kind {
            _ if owner.number == 0 => {}
            Kind::Group => system.processes.in_group(owner.number).for_each(tell),
            _ => system.processes.named(owner.number).into_iter().for_each(tell),
        }
    }
}

/// `SIGIO` of `SI_KERNEL`.
const PLAIN: SignalInfo =
    SignalInfo { code: 0x80, errno: 0, payload: SignalPayload::Sender { pid: 0, uid: 0, value: 0 } };
/// `POLL_IN`, `POLL_OUT`, `POLL_MSG`, `POLL_HUP`, each with its `si_band`.
const INPUT: (i32, u32) = (1, 0x41);
const OUTPUT: (i32, u32) = (2, 0x304);
const MESSAGE: (i32, u32) = (3, 0x441);
const HANG_UP: (i32, u32) = (6, 0x18);

/// Whether the process that named the owner may signal this one.
fn may_tell(owner: &Owner, process: &Process) -> bool {
    let theirs = process.identities.lock().uid;
    let ([real, effective], may_all) = owner.named_by;
    may_all || [real, effective].iter().any(|uid| *uid == theirs[0] || *uid == theirs[2])
}

impl Waiter for FileOwner {
    fn wake(&self, events: Readiness) {
        // A lease's holder is told so; it asked for no other events of that kind.
        if events == Readiness::PRIORITY {
            return self.send(MESSAGE);
        }
        if self.tell_notices() || self.readiness.lock().is_none() {
            return;
        }
        let (is_socket, is_readable) = {
            let state = self.state.lock();
            (state.is_socket, state.is_readable)
        };
        let kind = if is_socket && events.contains(Readiness::HANG_UP) {
            HANG_UP
        } else if is_readable && events.intersects(Readiness::READ | Readiness::HANG_UP | Readiness::ERROR) {
            INPUT
        } else {
            OUTPUT
        };
        self.send(kind);
    }
}
