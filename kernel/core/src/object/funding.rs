//! A processor's part in the lottery, and the set of those that want to run. Who wins is decided in `funding.rs` above.

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
        /// What it passes on to whom it called last.
        pub(crate) transfer: Option<(ProcessorId, TicketId)> = None,
        /// What it used since the last draw that it won: the next one is as much later.
        pub(crate) unpaid_ns: u64 = 0,
        /// What it paid of that, or of what it uses next, in draws that it won while it ran: settled with the funding.
        pub(crate) prepaid_ns: u64 = 0,
        pub(crate) is_ready: bool = false,
        /// Is ready since the clock or a device woke it, and was not drawn for yet.
        pub(crate) is_woken: bool = false,
        pub(crate) is_touched: bool = false,
        pub(crate) next_touched: Option<ProcessorId> = None,
    }
}

begins! {
    /// Those that want to run and do not. Members are marked in their objects; the sum names the only one, if there is
    /// one.
    #[derive(Clone, Copy)]
    pub(crate) struct ReadySet {
        pub(crate) count: u32 = 0,
        /// Exclusive or of the members' numbers.
        pub(crate) sum: usize = 0,
        /// Whom the unfunded go on from.
        pub(crate) last_unfunded: usize = 0,
        /// Whom those that woke go on from.
        pub(crate) last_woken: usize = 0,
    }
}

impl ReadySet {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The member, if there is just one.
    pub(crate) fn only(&self) -> Option<ProcessorId> {
        ProcessorId::from_index(self.sum).filter(|_| self.count == 1)
    }
}
