//! What tickets are worth: the part of the processors that each pod and currency of a report has.
//!
//! Pure. A share is a product along the way from the base: at each currency, the ticket's part of all tickets of the
//! same currency that lead to a pod that runs. So what nobody of a currency uses the others have, as in the kernel.

use std::collections::BTreeMap;

use super::report::{CurrencyReport, MachineReport, PodReport};
use crate::verb::up_currencies::BASE;

/// What the tickets of pods and currencies are worth, as parts of all that run.
pub(crate) struct Shares<'a> {
    currencies: BTreeMap<&'a str, Ticket<'a>>,
    /// Tickets that take part in draws, by the currency that they are in.
    sums: BTreeMap<&'a str, u64>,
}

/// An amount, and the currency that it is in.
#[derive(Clone, Copy)]
struct Ticket<'a> {
    amount: u64,
    payer: &'a str,
}

impl<'a> Ticket<'a> {
    fn new(amount: u64, currency: &'a str) -> Self {
        Self { amount, payer: if currency.is_empty() { BASE } else { currency } }
    }

    fn of_pod(pod: &'a PodReport) -> Self {
        Self::new(pod.usage().tickets, &pod.currency)
    }
}

impl<'a> Shares<'a> {
    /// Adds up the tickets of a report's pods and currencies.
    pub(crate) fn new(report: &'a MachineReport) -> Self {
        let currency = |it: &'a CurrencyReport| (it.name.as_str(), Ticket::new(it.tickets, &it.currency));
        let mut shares = Self { currencies: report.currencies.iter().map(currency).collect(), sums: BTreeMap::new() };
        for pod in report.pods.iter().filter(|pod| pod.is_running()) {
            let mut ticket = Ticket::of_pod(pod);
            // A currency adds its ticket when the first of its own becomes active.
            for _ in 0..=report.currencies.len() {
                let sum = shares.sums.entry(ticket.payer).or_insert(0);
                let was_active = *sum != 0;
                *sum += ticket.amount;
                match shares.currencies.get(ticket.payer) {
                    Some(next) if !was_active => ticket = *next,
                    _ => break,
                }
            }
        }
        shares
    }

    /// A pod's share, from 0 to 1; `None` if nobody runs.
    pub(crate) fn of_pod(&self, pod: &'a PodReport) -> Option<f64> {
        if pod.is_running() { self.of(Ticket::of_pod(pod)) } else { self.idle() }
    }

    /// A currency's share.
    pub(crate) fn of_currency(&self, currency: &'a CurrencyReport) -> Option<f64> {
        let is_active = self.sums.contains_key(currency.name.as_str());
        if is_active { self.of(Ticket::new(currency.tickets, &currency.currency)) } else { self.idle() }
    }

    fn idle(&self) -> Option<f64> {
        (!self.sums.is_empty()).then_some(0.0)
    }

    fn of(&self, ticket: Ticket<'a>) -> Option<f64> {
        let (mut ticket, mut share) = (ticket, 1.0);
        for _ in 0..=self.currencies.len() {
            let sum = self.sums.get(ticket.payer).copied().filter(|sum| *sum != 0)?;
            share *= ticket.amount as f64 / sum as f64;
            match self.currencies.get(ticket.payer) {
                Some(next) => ticket = *next,
                None => return Some(share),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use aegis_link::phase::PodPhase;

    use super::super::report::tests::pod;
    use super::super::report::{CurrencyReport, MachineReport};
    use super::Shares;

    fn report(currencies: &[(&str, &str, u64)], pods: &[(&str, &str, u64)]) -> MachineReport {
        let currency = |(name, currency, tickets): &(&str, &str, u64)| CurrencyReport {
            name: (*name).into(),
            tickets: *tickets,
            currency: (*currency).into(),
        };
        MachineReport {
            machine: "m".into(),
            pods: pods.iter().map(|(name, currency, tickets)| pod(name, "running", currency, *tickets)).collect(),
            currencies: currencies.iter().map(currency).collect(),
        }
    }

    fn shares(report: &MachineReport) -> Vec<Option<f64>> {
        let shares = Shares::new(report);
        let pods = report.pods.iter().map(|pod| shares.of_pod(pod));
        pods.chain(report.currencies.iter().map(|row| shares.of_currency(row))).collect()
    }

    #[test]
    fn shares_are_products_along_the_way() {
        let currencies = [("a", "base", 500), ("b", "base", 500), ("c", "b", 1)];
        let mut it = report(&currencies, &[("a1", "a", 100), ("a2", "a", 300), ("b1", "b", 3), ("c1", "c", 9)]);
        let parts = |wanted: [f64; 7]| wanted.map(Some).to_vec();
        assert_eq!(shares(&it), parts([0.125, 0.375, 0.375, 0.125, 0.5, 0.5, 0.125]));
        it.pods[2].state = Some(PodPhase::Ended);
        assert_eq!(shares(&it), parts([0.125, 0.375, 0.0, 0.5, 0.5, 0.5, 0.5]));
        it.pods[3].state = Some(PodPhase::Ended);
        assert_eq!(shares(&it), parts([0.25, 0.75, 0.0, 0.0, 1.0, 0.0, 0.0]));
        it.pods.iter_mut().for_each(|pod| pod.state = Some(PodPhase::Ended));
        assert_eq!(shares(&it), vec![None; 7]);
        // An older machine says nothing of currencies; one that says nonsense does no harm.
        assert_eq!(shares(&report(&[], &[("a", "", 3), ("b", "", 1)])), [Some(0.75), Some(0.25)]);
        assert_eq!(shares(&report(&[("x", "x", 1)], &[("a", "x", 3)]))[0], None);
        let mut starting = report(&[], &[("a", "base", 0)]);
        starting.pods[0].state = Some(PodPhase::Starting);
        assert_eq!(shares(&starting), [None]);
    }
}
