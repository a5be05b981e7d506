//! `aegis memory POD SIZE`: an order to the manager.

use std::time::Instant;

use aegis_link::orders::{Action, amount_of_memory};

use super::{ANSWER_LIMIT, Desk, Job, Why};
use crate::options::values::parse_memory_range;
use crate::start::pod_quota_mib;

/// Frames in a mebibyte.
const FRAMES_PER_MIB: u64 = 256;

/// Why a pod cannot have what was asked for.
pub(super) fn too_much(name: &str) -> String {
    format!("{name}: the machine has not so much beside what is guaranteed to the other pods")
}

impl Desk {
    /// Has the manager guarantee memory to a pod, and set the most that it can have.
    pub(super) fn change_memory(&mut self, number: u64, pod: &str, range: &str) -> Result<(), String> {
        let pod = self.pod(pod)?;
        let (guaranteed, limit) = parse_memory_range(range)?;
        let frames =
            |bytes| u32::try_from(pod_quota_mib(bytes) * FRAMES_PER_MIB).map_err(|_| format!("{range}: too much"));
        let amount = amount_of_memory(frames(guaranteed)?, frames(limit)?);
        if !self.orders.give(Action::Memory, pod, amount, Why::Tickets(number)) {
            return Err("the machine's manager does not listen".into());
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Tickets { deadline: Instant::now() + ANSWER_LIMIT };
        }
        Ok(())
    }
}
