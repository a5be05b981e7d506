//! Funding, and the winner of the next slice: the kernel's use of the lottery (`docs/adr/0017`).
//!
//! An environment has a currency, which a ticket of its creator's funds, or of another's that pays for it; a processor
//! is a client with a currency of its own, which a ticket of its environment's funds. A processor that waits for a
//! reply funds its callee, by a ticket in its own currency; as it does not run, all that it is worth flows there.
//!
//! The tables of the lottery are brought in line with what processors do when a draw needs them, not when that changes:
//! whatever changed is in the `touched` list. So a protected call, a wake, a sleep or a hand-over costs a store, and
//! one that was undone by the next draw nothing. Invariants: a processor that is not touched is ready in the lottery
//! exactly if it is in the ready set, and transfers exactly if it calls; one that runs is touched. A draw can only name
//! a member of the ready set, whatever the lottery answers (INV-5).

use aegis_abi::call::{TICKET_AMOUNT_MAX, TICKET_VALUE_ONE};
use aegis_lottery::{AMOUNT_SUM_MAX, COMPENSATION_ONE, CurrencyId, Error, Random, TicketId, Used, VALUE_ONE};

use crate::id::{CPU_COUNT_MAX, ENVIRONMENT_COUNT_MAX, EnvironmentId, Id, PROCESSOR_COUNT_MAX, ProcessorId};
use crate::object::{Funding, Queue};
use crate::{Machine, State};

/// What the kernel issues a ticket with, and what a processor keeps of its own currency.
const AMOUNT: u64 = aegis_abi::call::TICKET_AMOUNT_DEFAULT;
/// By which part of a slice its end may be late without being felt at once.
const SMALL_OVERRUN_PART: u64 = 64;
/// How many slices one that runs pays in advance at most, and how many it is due for draws that it missed.
const KEPT_SLICES_MAX: u64 = 8;
/// How often at most those that run win before one that is ready does.
const PREPAID_COUNT_MAX: usize = CPU_COUNT_MAX * (KEPT_SLICES_MAX as usize + 1);
const _: () = {
    let tickets_of_one = (ENVIRONMENT_COUNT_MAX + PROCESSOR_COUNT_MAX) as u64;
    assert!(tickets_of_one * TICKET_AMOUNT_MAX <= AMOUNT_SUM_MAX, "no currency's sum can be too large");
    assert!(TICKET_VALUE_ONE == VALUE_ONE);
};

impl<M: Machine> State<'_, M> {
    pub(crate) fn is_in_ready(&self, processor: ProcessorId) -> bool {
        self.processors[processor].funding.is_ready()
    }

    #[inline(always)]
    pub(crate) fn add_to_ready(&mut self, processor: ProcessorId) {
        self.ready.add(processor, &mut self.processors[processor].funding);
        self.touch(processor);
    }

    /// Takes a processor out of the ready set; false if it is not there (it is being handed a slice already).
    #[inline(always)]
    pub(crate) fn take_from_ready(&mut self, processor: ProcessorId) -> bool {
        let was_ready = self.ready.remove(processor, &mut self.processors[processor].funding);
        if was_ready {
            self.touch(processor);
        }
        was_ready
    }

    /// Notes that a processor does something else than the lottery knows.
    pub(crate) fn touch(&mut self, processor: ProcessorId) {
        let funding = &mut self.processors[processor].funding;
        if !funding.is_touched {
            funding.is_touched = true;
            funding.next_touched = self.touched.replace(processor);
        }
    }

    /// Brings the lottery in line with what processors do. `counts_running`: a running processor counts as competing,
    /// which for a draw it does not.
    pub(crate) fn settle_funding(&mut self, counts_running: bool) {
        // Transfers that are over go first: the new ones could close a cycle with them.
        let mut next = self.touched;
        while let Some(processor) = next {
            let object = &mut self.processors[processor];
            next = object.funding.next_touched;
            let callee = object.transfer.calling.map(|call| call.callee);
            if let Some((to, ticket)) = object.funding.transfer
                && callee != Some(to)
            {
                object.funding.transfer = None;
                // It is there: nobody else knows of it.
                let _ = self.lottery.destroy_ticket(ticket);
            }
        }
        let mut next = self.touched.take();
        while let Some(processor) = next {
            let object = &mut self.processors[processor];
            next = object.funding.next_touched.take();
            object.funding.is_touched = false;
            let is_running = object.is_running();
            let is_ready = object.funding.is_ready() || is_running && counts_running;
            // What was paid in advance comes first.
            let funding = &mut object.funding;
            let covered_ns = funding.unpaid_ns.min(funding.prepaid_ns);
            (funding.unpaid_ns, funding.prepaid_ns) = (funding.unpaid_ns - covered_ns, funding.prepaid_ns - covered_ns);
            let (client, unpaid_ns) = (funding.client, funding.unpaid_ns);
            let compensation =
                if is_ready && !is_running { self.unpaid(unpaid_ns).compensation() } else { COMPENSATION_ONE };
            let _ = self.lottery.set_client(client, is_ready, compensation);
            let object = &self.processors[processor];
            let callee = object.transfer.calling.map(|call| call.callee);
            if let Some(callee) = callee.filter(|_| object.funding.transfer.is_none()) {
                let to = self.processors[callee].funding.client;
                // Refused only where the callee funds its caller already; then it runs with what it has.
                let ticket = self.lottery.transfer(client, to, AMOUNT);
                self.processors[processor].funding.transfer = ticket.ok().map(|ticket| (callee, ticket));
            }
            if is_running {
                self.touch(processor);
            }
        }
    }

    /// What a processor weighs less or more by in a draw. An overrun that is hardly more than what it takes to leave is
    /// carried over instead, so that a processor that uses up its slices keeps its weight.
    fn unpaid(&self, unpaid_ns: u64) -> Used {
        let slice_ns = self.slice_ns;
        let is_small = (slice_ns..=slice_ns + slice_ns / SMALL_OVERRUN_PART).contains(&unpaid_ns);
        Used { used_ns: if is_small { slice_ns } else { unpaid_ns }, slice_ns }
    }

    /// A processor won a draw: it waited for what it had used.
    pub(crate) fn pay(&mut self, processor: ProcessorId) {
        let unpaid_ns = self.processors[processor].funding.unpaid_ns;
        let paid_ns = self.unpaid(unpaid_ns).used_ns;
        let environment = self.processors[processor].environment_id();
        let debt_ns = core::mem::take(&mut self.environments[environment].debt_ns);
        self.processors[processor].funding.unpaid_ns = unpaid_ns.saturating_sub(paid_ns).saturating_add(debt_ns);
        self.paid_ns += paid_ns;
        self.note_presence(environment);
    }

    /// A processor that runs elsewhere won a draw: the payer of its slice pays one in advance. `None`: it does not run.
    fn prepay(&mut self, winner: ProcessorId) -> Option<()> {
        let cpu = self.processors[winner].cpu().filter(|_| !self.is_in_ready(winner))?;
        let (payer, most_ns) = (self.cpus[cpu].payer.unwrap_or(winner), KEPT_SLICES_MAX * self.slice_ns);
        let prepaid_ns = &mut self.processors[payer].funding.prepaid_ns;
        let before_ns = core::mem::replace(prepaid_ns, most_ns.min(*prepaid_ns + self.slice_ns));
        self.paid_ns += *prepaid_ns - before_ns;
        // With as much in advance as can be kept it is not in the rest of the draw.
        let may_win = *prepaid_ns < most_ns;
        let _ = self.lottery.set_client(self.processors[winner].funding.client, may_win, COMPENSATION_ONE);
        self.touch(payer);
        Some(())
    }

    /// An environment and those that pay for it, the first one apart, whose currency is all that there is.
    fn next_payer(&self, environment: EnvironmentId) -> Option<EnvironmentId> {
        self.environments[environment].payer.filter(|payer| Some(*payer) != self.first_environment)
    }

    /// A processor of an environment takes part in draws, or did until now: what was paid up to now it has not missed.
    pub(crate) fn note_presence(&mut self, environment: EnvironmentId) {
        let mut next = Some(environment);
        while let Some(id) = next {
            self.environments[id].present_ns = self.paid_ns;
            next = self.next_payer(id);
        }
    }

    /// The tickets that fund a ready processor, all that compete with them, and what had been paid when anything of
    /// them last took part in a draw. `None`: something else that they fund is ready, so they miss no draw.
    fn lone_part(&mut self, processor: ProcessorId) -> Option<(u64, u64, u64)> {
        self.settle_funding(true);
        let mut ticket = self.processors[processor].funding.ticket?;
        let (mut present_ns, mut next) = (0, Some(self.processors[processor].environment_id()));
        while let Some(id) = next {
            let object = &self.environments[id];
            present_ns = object.present_ns.max(present_ns);
            if Some(id) == self.first_environment {
                break;
            }
            if self.lottery.active_amount(object.currency) != self.lottery.amount(ticket) {
                return None;
            }
            (ticket, next) = (object.ticket?, self.next_payer(id));
        }
        self.lottery.target(ticket)?;
        let all = self.lottery.active_amount(self.lottery.issuer(ticket).ok()?);
        Some((self.lottery.amount(ticket), all, present_ns))
    }

    /// A processor that just woke is due a draw for what others paid in the draws that it missed; false: it missed
    /// none.
    pub(crate) fn note_missed(&mut self, processor: ProcessorId) -> bool {
        let Some((_, _, present_ns)) = self.lone_part(processor) else { return false };
        let environment = self.processors[processor].environment_id();
        let object = &mut self.environments[environment];
        object.missed_ns = object.missed_ns.min(KEPT_SLICES_MAX * self.slice_ns) + (self.paid_ns - present_ns);
        self.note_presence(environment);
        self.processors[processor].funding.is_woken = true;
        true
    }

    /// The next of those that woke and are due a draw; none either when the budget is used up.
    pub(crate) fn next_woken(&mut self) -> Option<ProcessorId> {
        let from = (!self.ready.is_empty()).then_some(self.ready.last_woken + 1)?;
        let is_woken = |index: &usize| {
            ProcessorId::from_index(*index).is_some_and(|processor| {
                let funding = &self.processors[processor].funding;
                funding.is_ready() && funding.is_woken
            })
        };
        let next = (from..PROCESSOR_COUNT_MAX).chain(0..from).find(is_woken).filter(|_| self.work_left != 0)?;
        self.spend(PROCESSOR_COUNT_MAX / 4);
        self.ready.last_woken = next;
        ProcessorId::from_index(next)
    }

    /// Whether a processor that woke wins for the draws that it missed: with a chance of its part of what others paid
    /// in them, by what it owes; what is left of one that was sure is for the next time.
    pub(crate) fn wins_missed(&mut self, processor: ProcessorId) -> bool {
        self.processors[processor].funding.is_woken = false;
        let Some((own, all, _)) = self.lone_part(processor) else { return false };
        let unpaid_ns = self.unpaid(self.processors[processor].funding.unpaid_ns).used_ns;
        let needed_ns = u128::from(all.saturating_sub(own)) * u128::from(unpaid_ns) / u128::from(own.max(1));
        let needed_ns = u64::try_from(needed_ns).unwrap_or(u64::MAX).max(1);
        let environment = self.processors[processor].environment_id();
        let missed_ns = &mut self.environments[environment].missed_ns;
        let wins = self.random.below(needed_ns) < *missed_ns;
        *missed_ns = missed_ns.saturating_sub(needed_ns).min(KEPT_SLICES_MAX * self.slice_ns);
        wins
    }

    /// Takes the winner of the next slice out of the ready set. `gave_way` wins only if there is nobody else.
    pub(crate) fn choose(&mut self, gave_way: Option<ProcessorId>) -> Option<ProcessorId> {
        let gave_way = gave_way.filter(|processor| self.is_in_ready(*processor));
        let winner = match (self.ready.count(), gave_way) {
            (0, _) => return None,
            (1, _) => self.ready.only(),
            (2, Some(processor)) => self.ready.other(processor),
            _ => self.draw(gave_way),
        };
        winner.filter(|processor| self.take_from_ready(*processor))
    }

    fn draw(&mut self, gave_way: Option<ProcessorId>) -> Option<ProcessorId> {
        self.settle_funding(true);
        if let Some(processor) = gave_way {
            let _ = self.lottery.set_client(self.processors[processor].funding.client, false, COMPENSATION_ONE);
            self.touch(processor);
        }
        let mut winner = None;
        for _ in 0..PREPAID_COUNT_MAX {
            let draw = self.lottery.draw(&mut self.random);
            winner = draw.and_then(|draw| ProcessorId::from_index(self.lottery.tag(draw.client) as usize));
            if winner.and_then(|winner| self.prepay(winner)).is_none() {
                break;
            }
        }
        winner.filter(|processor| self.is_in_ready(*processor)).or_else(|| self.next_unfunded(gave_way)).or(gave_way)
    }

    /// No ready processor has any funding: all in turn.
    fn next_unfunded(&mut self, gave_way: Option<ProcessorId>) -> Option<ProcessorId> {
        let first = self.ready.last_unfunded;
        let next = (1..=PROCESSOR_COUNT_MAX)
            .filter_map(|offset| ProcessorId::from_index((first + offset) % PROCESSOR_COUNT_MAX))
            .find(|processor| self.is_in_ready(*processor) && Some(*processor) != gave_way)?;
        self.ready.last_unfunded = next.index();
        Some(next)
    }

    /// Whose call a callee that runs now serves next: a draw among those that wait, by what each is worth.
    pub(crate) fn pick_caller(&mut self, callers: Queue) -> Option<ProcessorId> {
        let first = callers.first()?;
        if self.links.after(first).is_none() {
            return Some(first);
        }
        self.settle_funding(true);
        let (links, processors) = (&self.links, &self.processors);
        let clients = || callers.members(links).map(|caller| processors[caller].funding.client);
        let index = self.lottery.draw_among(&mut self.random, clients);
        callers.members(links).nth(index.unwrap_or(0))
    }

    /// A currency for a new environment, funded by its creator's, or the base.
    pub(crate) fn new_currency(&mut self, parent: Option<EnvironmentId>) -> (CurrencyId, Option<TicketId>) {
        let from = parent.map_or(CurrencyId::BASE, |parent| self.environments[parent].currency);
        // The tables have room for every environment and processor there can be.
        let currency = self.lottery.create_currency(0).unwrap_or(CurrencyId::BASE);
        (currency, self.lottery.transfer(from, currency, AMOUNT).ok())
    }

    /// Funding for a new processor, by its environment's currency.
    pub(crate) fn new_funding(&mut self, environment: EnvironmentId, processor: ProcessorId) -> Funding {
        let from = self.environments[environment].currency;
        let client = self.lottery.create_client(AMOUNT, processor.index() as u32).unwrap_or(CurrencyId::BASE);
        let ticket = self.lottery.transfer(from, client, AMOUNT).ok();
        Funding::new(client, ticket, self.slice_ns)
    }

    /// A processor ends, which is stopped and in no call. What it owes the environment's next one pays.
    pub(crate) fn unfund_processor(&mut self, processor: ProcessorId) {
        // Nobody transfers to it any more either, and it leaves the list of those that are touched.
        self.settle_funding(false);
        let debt_ns = self.processors[processor].funding.unpaid_ns.saturating_sub(self.slice_ns);
        let environment = self.processors[processor].environment_id();
        self.environments[environment].debt_ns += debt_ns;
        let funding = core::mem::replace(&mut self.processors[processor].funding, Funding::EMPTY);
        self.end_currency(funding.client, funding.ticket);
    }

    /// Lets another environment pay for one.
    pub(crate) fn issue_ticket(&mut self, environment: EnvironmentId, payer: EnvironmentId) -> Result<(), Error> {
        let object = &self.environments[environment];
        let ticket = object.ticket.ok_or(Error::UnknownTicket)?;
        let ticket = self.lottery.reissue(ticket, self.environments[payer].currency)?;
        let object = &mut self.environments[environment];
        (object.ticket, object.payer) = (Some(ticket), Some(payer));
        Ok(())
    }

    /// An environment ends, which has no processors and made no environments. The tickets by which it paid for others
    /// are their makers' now and fund nothing; the watchers of those are told.
    pub(crate) fn unfund_environment(&mut self, environment: EnvironmentId) {
        for id in self.environments.ids() {
            let object = &self.environments[id];
            let maker = object.parent.filter(|_| object.payer == Some(environment));
            if let (Some(maker), Some(ticket)) = (maker, object.ticket) {
                let _ = self.lottery.unfund(ticket);
                let _ = self.issue_ticket(id, maker);
                self.tell_watcher(id);
            }
        }
        let object = &self.environments[environment];
        let (currency, ticket, debt_ns) = (object.currency, object.ticket, object.debt_ns);
        if let Some(parent) = object.parent {
            self.environments[parent].debt_ns += debt_ns;
        }
        self.end_currency(currency, ticket);
    }

    /// Recomputes what is kept, for tests.
    #[cfg(test)]
    pub(crate) fn funding_holds(&self) -> bool {
        let ready: std::vec::Vec<_> = self.processors.ids().filter(|id| self.is_in_ready(*id)).collect();
        let touched = core::iter::successors(self.touched, |id| self.processors[*id].funding.next_touched);
        let touched_count = touched.filter(|id| self.processors[*id].funding.is_touched).count();
        let one_holds = |id: ProcessorId| {
            let (object, funding) = (&self.processors[id], &self.processors[id].funding);
            let is_free = object.serial == 0;
            let transfers_to = funding.transfer.and_then(|(_, ticket)| self.lottery.target(ticket));
            let callee = object.transfer.calling.map(|call| self.processors[call.callee].funding.client);
            is_free == (funding.client == CurrencyId::BASE)
                && (is_free || self.lottery.tag(funding.client) as usize == id.index())
                && is_free != funding.ticket.is_some()
                && (!object.is_running() || funding.is_touched)
                && (funding.is_touched
                    || is_free
                    || transfers_to == callee
                        && self.lottery.is_active(funding.client)
                            == (funding.is_ready() || callee.is_some_and(|c| self.lottery.is_active(c))))
        };
        self.lottery.check()
            && self.ready.holds(&ready)
            && touched_count == self.processors.ids().filter(|id| self.processors[*id].funding.is_touched).count()
            && self.processors.ids().all(one_holds)
            && self.environments.iter().all(|(_, object)| {
                (object.serial == 0) == (object.currency == CurrencyId::BASE)
                    && object.ticket.is_some() == (object.serial != 0)
                    && object.ticket.is_none_or(|ticket| {
                        let payer = object.payer.map(|payer| self.environments[payer].currency);
                        self.lottery.issuer(ticket) == Ok(payer.unwrap_or(CurrencyId::BASE))
                    })
            })
    }

    fn end_currency(&mut self, currency: CurrencyId, ticket: Option<TicketId>) {
        if let Some(ticket) = ticket {
            let _ = self.lottery.destroy_ticket(ticket);
        }
        let _ = self.lottery.destroy_currency(currency);
    }
}
