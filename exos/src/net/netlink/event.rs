//! What is told to groups: how the network has changed, as the difference of two [`NetworkView`]s. So it is the same
//! whatever changed it: a request, a router, a DHCP server, or time.

use alloc::vec::Vec;

use super::message::{Answers, Request, Writer};
use super::route::{self, Question, kind};
use crate::error::Result;
use crate::net::view::{NetworkView, RouteView};
use crate::reserve;

/// Groups, by their numbers (`RTNLGRP_*`).
mod group {
    pub(super) const LINK: u32 = 1;
    pub(super) const ADDRESS_V4: u32 = 5;
    pub(super) const ROUTE_V4: u32 = 7;
    pub(super) const ADDRESS_V6: u32 = 9;
    pub(super) const ROUTE_V6: u32 = 11;
}

/// A message to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) group: u32,
    pub(super) bytes: Vec<u8>,
}

struct Teller<'a> {
    answers: &'a Answers,
    events: Vec<Event>,
}

impl Teller<'_> {
    /// Tells of something that is there now, or is not any more, as `view` had it.
    fn tell(
        &mut self,
        group: u32,
        is_gone: bool,
        view: &NetworkView,
        write: impl FnOnce(&Question<'_>, &mut Writer),
    ) -> Result<()> {
        let request = Request { kind: 0, flags: 0, sequence: 0, whole: &[] };
        let question = Question { request, view, port: 0, answers: self.answers, can_administer: false };
        let mut out = Writer::new();
        write(&question, &mut out);
        let mut bytes = out.finish()?;
        // Each kind is followed by the one that says that it is gone.
        if let (true, Some(kind)) = (is_gone, bytes.get_mut(4)) {
            *kind += 1;
        }
        reserve::reserve(&mut self.events, 1)?;
        self.events.push(Event { group, bytes });
        Ok(())
    }

    fn addresses(&mut self, is_gone: bool, (of, but): (&NetworkView, &NetworkView)) -> Result<()> {
        for interface in &of.interfaces {
            let others = but.by_index(interface.index).map_or(&[][..], |other| &other.addresses);
            for own in interface.addresses.iter().filter(|own| !others.contains(own)) {
                let group = if own.address.is_ipv4() { group::ADDRESS_V4 } else { group::ADDRESS_V6 };
                self.tell(group, is_gone, of, |question, out| route::address(question, interface, own, 0, out))?;
            }
        }
        Ok(())
    }

    fn routes(&mut self, is_gone: bool, (of, but): (&NetworkView, &NetworkView)) -> Result<()> {
        for is_v4 in [true, false] {
            let (all, others): (Vec<RouteView>, Vec<RouteView>) = (of.routes(is_v4)?, but.routes(is_v4)?);
            let group = if is_v4 { group::ROUTE_V4 } else { group::ROUTE_V6 };
            for one in all.iter().filter(|one| !others.contains(one)) {
                self.tell(group, is_gone, of, |question, out| route::route(question, one, 0, out))?;
            }
        }
        Ok(())
    }
}

/// What is to be told of a change from `old` to `new`: interfaces, then addresses, then routes, what is gone first.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn events(old: &NetworkView, new: &NetworkView, answers: &Answers) -> Result<Vec<Event>> {
    let mut teller = Teller { answers, events: Vec::new() };
    for interface in &new.interfaces {
        let was_so = old.by_index(interface.index).is_some_and(|known| known.flags() == interface.flags());
        if !was_so {
            teller.tell(group::LINK, false, new, |question, out| route::link(question, interface, out))?;
        }
    }
    teller.addresses(true, (old, new))?;
    teller.addresses(false, (new, old))?;
    teller.routes(true, (old, new))?;
    teller.routes(false, (new, old))?;
    Ok(teller.events)
}

/// `RTM_NEWLINK`, `RTM_NEWADDR`, `RTM_NEWROUTE`: each has the number below that of its end.
const _: () = assert!(kind::NEW_ADDRESS + 1 == kind::DELETE_ADDRESS && kind::NEW_ROUTE + 1 == kind::DELETE_ROUTE);
