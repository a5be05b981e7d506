//! Who pays for whom in a running machine: what the desk knows of currencies, and which share of the processors the
//! tickets of a report are worth.
//!
//! Pure. A share is a product along the way from the base: at each currency, the ticket's part of all tickets of the
//! same currency that lead to a pod that runs. So what nobody of a currency uses the others have, as in the kernel.

use std::collections::BTreeMap;

use super::report::{CurrencyReport, MachineReport, PodReport};
use crate::verb::up_currencies::{BASE, CurrencyEntry};

/// The currencies of a machine and the pods that they pay for.
#[derive(Debug, Default)]
pub(crate) struct Payers {
    currencies: Vec<CurrencyEntry>,
    /// For each pod, the currency that its ticket is in.
    pods: Vec<Option<usize>>,
}

impl Payers {
    /// Those of a file.
    pub(crate) fn new(currencies: &[CurrencyEntry], pods: Vec<Option<usize>>) -> Self {
        Self { currencies: currencies.to_vec(), pods }
    }

    /// Currencies.
    pub(crate) fn count(&self) -> usize {
        self.currencies.len()
    }

    /// A currency by its name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.currencies.iter().position(|entry| entry.name == name)
    }

    /// A currency's name.
    pub(crate) fn name(&self, number: usize) -> &str {
        self.currencies.get(number).map_or("", |entry| entry.name.as_str())
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.currencies.iter().map(|entry| entry.name.as_str())
    }

    /// The currency of a pod's ticket.
    pub(crate) fn of_pod(&self, pod: usize) -> &str {
        self.shown(self.pods.get(pod).copied().flatten())
    }

    /// The currency of a currency's ticket.
    pub(crate) fn of_currency(&self, number: usize) -> &str {
        self.shown(self.currencies.get(number).and_then(|entry| entry.payer))
    }

    fn shown(&self, payer: Option<usize>) -> &str {
        payer.map_or(BASE, |number| self.name(number))
    }
}

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
    use super::super::report::tests::pod;
    use super::super::report::{CurrencyReport, MachineReport};
    use super::{Payers, Shares};
    use crate::verb::up_currencies::CurrencyEntry;

    #[test]
    fn names_are_found_and_shown() {
        let entry = |name: &str, payer| CurrencyEntry { name: name.into(), tickets: 1, payer };
        let payers = Payers::new(&[entry("all", None), entry("7", Some(0))], vec![Some(1), None]);
        assert_eq!((payers.count(), payers.find("7"), payers.find("x")), (2, Some(1), None));
        assert_eq!([payers.of_pod(0), payers.of_pod(1), payers.of_currency(1)], ["7", "base", "all"]);
        assert_eq!(payers.names().collect::<Vec<_>>(), ["all", "7"]);
    }

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
        it.pods[2].state = "ended".into();
        assert_eq!(shares(&it), parts([0.125, 0.375, 0.0, 0.5, 0.5, 0.5, 0.5]));
        it.pods[3].state = "ended".into();
        assert_eq!(shares(&it), parts([0.25, 0.75, 0.0, 0.0, 1.0, 0.0, 0.0]));
        it.pods.iter_mut().for_each(|pod| pod.state = "ended".into());
        assert_eq!(shares(&it), vec![None; 7]);
        // An older machine says nothing of currencies; one that says nonsense does no harm.
        assert_eq!(shares(&report(&[], &[("a", "", 3), ("b", "", 1)])), [Some(0.75), Some(0.25)]);
        assert_eq!(shares(&report(&[("x", "x", 1)], &[("a", "x", 3)]))[0], None);
        let mut starting = report(&[], &[("a", "base", 0)]);
        starting.pods[0].state = "starting".into();
        assert_eq!(shares(&starting), [None]);
    }
}
