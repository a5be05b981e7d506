//! `aegis tickets POD N` and `aegis memory POD SIZE`: orders to the manager.

use std::time::Instant;

use aegis_abi::call::TICKET_AMOUNT_MAX;
use aegis_link::orders::{Action, CURRENCY_FIRST, amount_of_memory};

use super::report::ANSWER_LIMIT;
use super::state::{ControlServer, Job, OrderReason};
use crate::options::values::parse_memory_range;
use crate::start::memory::pod_quota_mib;

/// Frames in a mebibyte.
const FRAMES_PER_MIB: u64 = 256;

/// Why a pod cannot have what was asked for.
pub(super) fn too_much(name: &str) -> String {
    format!("{name}: the machine has not so much beside what is guaranteed to the other pods")
}

impl ControlServer {
    /// The manager's number of a pod or currency.
    pub(super) fn ticket_holder(&self, name: &str) -> Result<usize, String> {
        if let Some(number) = self.payers.find(name) {
            return Ok(CURRENCY_FIRST as usize + number);
        }
        self.pod(name).map_err(|why| match self.payers.names().collect::<Vec<_>>()[..] {
            [] => why,
            ref names => format!("{why}; currencies are {}", names.join(", ")),
        })
    }

    /// A pod's or currency's name by that number.
    pub(super) fn ticket_holder_name(&self, number: usize) -> String {
        match number.checked_sub(CURRENCY_FIRST as usize) {
            Some(number) => self.payers.name(number).to_owned(),
            None => self.pods.get(number).map_or_else(String::new, |pod| pod.name.clone()),
        }
    }

    pub(super) fn change_tickets(&mut self, number: u64, pod: &str, amount: &str) -> Result<(), String> {
        let pod = self.ticket_holder(pod)?;
        let wanted = || format!("{amount}: a number of tickets from 1 to {TICKET_AMOUNT_MAX} is wanted");
        let amount: u64 = amount.parse().map_err(|_| wanted())?;
        if !(1..=TICKET_AMOUNT_MAX).contains(&amount) {
            return Err(wanted());
        }
        if !self.orders.give(Action::Tickets, pod, amount, OrderReason::Tickets(number)) {
            return Err("the machine's manager does not listen".into());
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Tickets { deadline: Instant::now() + ANSWER_LIMIT };
        }
        Ok(())
    }

    /// Has the manager guarantee memory to a pod, and set the most that it can have.
    pub(super) fn change_memory(&mut self, number: u64, pod: &str, range: &str) -> Result<(), String> {
        let pod = self.pod(pod)?;
        let (guaranteed, limit) = parse_memory_range(range)?;
        let frames =
            |bytes| u32::try_from(pod_quota_mib(bytes) * FRAMES_PER_MIB).map_err(|_| format!("{range}: too much"));
        let amount = amount_of_memory(frames(guaranteed)?, frames(limit)?);
        if !self.orders.give(Action::Memory, pod, amount, OrderReason::Tickets(number)) {
            return Err("the machine's manager does not listen".into());
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Tickets { deadline: Instant::now() + ANSWER_LIMIT };
        }
        Ok(())
    }
}
