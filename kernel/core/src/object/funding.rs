//! A processor's part in the lottery, and the set of those that want to run. The winner is decided in `funding.rs`
//! above.

use aegis_lottery::{CurrencyId, Lottery, TicketId};

use crate::id::{ENVIRONMENT_COUNT_MAX, Id, PROCESSOR_COUNT_MAX, ProcessorId};

/// The base, a currency for each environment and each processor.
const CURRENCIES: usize = 1 + ENVIRONMENT_COUNT_MAX + PROCESSOR_COUNT_MAX;
/// One that funds each environment and each processor, one that each processor transfers, one that is being replaced.
const TICKETS: usize = ENVIRONMENT_COUNT_MAX + 2 * PROCESSOR_COUNT_MAX + 1;
pub(crate) type KernelLottery = Lottery<CURRENCIES, TICKETS>;

begins! {
    /// A processor's part in the lottery.
    pub(crate) struct Funding {
        /// Its client; the base stands for none.
        pub(crate) client: CurrencyId = CurrencyId::BASE,
        /// What funds it, of its environment's currency.
        pub(crate) ticket: Option<TicketId> = None,
        /// What it passes on to the processor that it called last.
        pub(crate) transfer: Option<(ProcessorId, TicketId)> = None,
        /// What it used since the last draw that it won: the next one is as much later.
        pub(crate) unpaid_ns: u64 = 0,
        /// What it paid of that, or of what it uses next, in draws that it won while it ran: settled with the funding.
        pub(crate) prepaid_ns: u64 = 0,
        is_ready: bool = false,
        /// Is ready since the clock or a device woke it, and was not drawn for yet.
        pub(crate) is_woken: bool = false,
        pub(crate) is_touched: bool = false,
        pub(crate) next_touched: Option<ProcessorId> = None,
    }
}

impl Funding {
    pub(crate) fn new(client: CurrencyId, ticket: Option<TicketId>, unpaid_ns: u64) -> Self {
        Self { client, ticket, unpaid_ns, ..Self::EMPTY }
    }

    /// Whether its processor is in the ready set.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }
}

begins! {
    /// Those that want to run and do not. Members are marked in their objects; the sum names the only one, if there is
    /// one.
    #[derive(Clone, Copy)]
    pub(crate) struct ReadySet {
        count: u32 = 0,
        /// Exclusive or of the members' numbers.
        sum: usize = 0,
        /// The processor that the turn of the unfunded goes on from.
        pub(crate) last_unfunded: usize = 0,
        /// The processor that the turn of the woken goes on from.
        pub(crate) last_woken: usize = 0,
    }
}

impl ReadySet {
    #[inline(always)]
    pub(crate) fn add(&mut self, processor: ProcessorId, funding: &mut Funding) {
        debug_assert!(!funding.is_ready, "it is in no queue");
        (funding.is_ready, funding.is_woken) = (true, false);
        self.count += 1;
        self.sum ^= processor.index();
    }

    /// Takes a processor out; false if it is not there.
    #[inline(always)]
    pub(crate) fn remove(&mut self, processor: ProcessorId, funding: &mut Funding) -> bool {
        let was_there = core::mem::take(&mut funding.is_ready);
        if was_there {
            debug_assert_ne!(self.count, 0, "every member was counted");
            self.count -= 1;
            self.sum ^= processor.index();
        }
        was_there
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The member that is not this one, of two.
    pub(crate) fn other(&self, processor: ProcessorId) -> Option<ProcessorId> {
        ProcessorId::from_index(self.sum ^ processor.index())
    }

    #[cfg(test)]
    pub(crate) fn holds(&self, members: &[ProcessorId]) -> bool {
        members.len() as u32 == self.count && members.iter().fold(0, |sum, id| sum ^ id.index()) == self.sum
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The member, if there is just one.
    pub(crate) fn only(&self) -> Option<ProcessorId> {
        ProcessorId::from_index(self.sum).filter(|_| self.count == 1)
    }
}
