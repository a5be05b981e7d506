//! `aegis tickets POD N` and `aegis memory POD SIZE`: orders to the manager.

use std::time::Instant;

use aegis_abi::call::TICKET_AMOUNT_MAX;
use aegis_link::orders::{Action, TicketHolder, amount_of_memory};

use super::report::ANSWER_LIMIT;
use super::state::{ControlServer, Job, OrderReason};
use crate::remote::request::no_amount;
use crate::start::memory::pod_quota_frames;

/// Why a pod cannot have what was asked for.
pub(super) fn too_much(name: &str) -> String {
    format!("{name}: the machine has not so much beside what is guaranteed to the other pods")
}

impl ControlServer {
    /// A pod or currency by its name.
    pub(super) fn ticket_holder(&self, name: &str) -> Result<TicketHolder, String> {
        if let Some(number) = self.payers.find(name) {
            return Ok(TicketHolder::Currency(number as u32));
        }
        self.pod(name).map(|pod| TicketHolder::Pod(pod as u32)).map_err(|why| {
            match self.payers.names().collect::<Vec<_>>()[..] {
                [] => why,
                ref names => format!("{why}; currencies are {}", names.join(", ")),
            }
        })
    }

    /// A pod's or currency's name.
    pub(super) fn ticket_holder_name(&self, holder: TicketHolder) -> String {
        match holder {
            TicketHolder::Currency(number) => self.payers.name(number as usize).to_owned(),
            TicketHolder::Pod(pod) => self.pods.get(pod as usize).map_or_else(String::new, |pod| pod.name.clone()),
        }
    }

    pub(super) fn change_tickets(&mut self, number: u64, holder: &str, amount: u64) -> Result<(), String> {
        let holder = self.ticket_holder(holder)?;
        if !(1..=TICKET_AMOUNT_MAX).contains(&amount) {
            return Err(no_amount(&amount.to_string()));
        }
        self.order_change(number, Action::Tickets, holder, amount)
    }

    /// Has the manager guarantee memory to a pod, and set the most that it can have, in bytes for programs.
    pub(super) fn change_memory(&mut self, number: u64, pod: &str, guaranteed: u64, limit: u64) -> Result<(), String> {
        let pod = self.pod(pod)?;
        let (holder, extent_count) = (TicketHolder::Pod(pod as u32), self.pods[pod].extent_count);
        let frames = |bytes| {
            let count = u32::try_from(pod_quota_frames(bytes, extent_count));
            count.map_err(|_| format!("{}M: too much", bytes >> 20))
        };
        let amount = amount_of_memory(frames(guaranteed)?, frames(limit)?);
        self.order_change(number, Action::Memory, holder, amount)
    }

    fn order_change(&mut self, number: u64, what: Action, holder: TicketHolder, amount: u64) -> Result<(), String> {
        if !self.orders.takes(1) || !self.orders.give(what, holder, amount, OrderReason::Tickets(number)) {
            return Err("the machine's manager does not listen".into());
        }
        self.begin(number, Job::Tickets { deadline: Instant::now() + ANSWER_LIMIT })
    }
}
