//! Who pays for whom in a running machine: what the desk knows of currencies, and which share of the processors the
//! tickets of a report are worth.
//!
//! Pure. A share is a product along the way from the base: at each currency, the ticket's part of all tickets of the
//! same currency that lead to a pod that runs. So what nobody of a currency uses the others have, as in the kernel.

use std::collections::BTreeMap;

use super::table::Row;
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
    currencies: BTreeMap<&'a str, &'a Row>,
    /// Tickets that take part in draws, by the currency that they are in.
    sums: BTreeMap<&'a str, u64>,
}

fn payer(row: &Row) -> &str {
    match row.text("currency") {
        "" => BASE,
        name => name,
    }
}

impl<'a> Shares<'a> {
    /// Adds up the tickets of a report's pods and currencies.
    pub(crate) fn new(pods: &'a [Row], currencies: &'a [Row]) -> Self {
        let mut shares =
            Self { currencies: currencies.iter().map(|row| (row.name.as_str(), row)).collect(), sums: BTreeMap::new() };
        for pod in pods.iter().filter(|pod| pod.is_running()) {
            let mut row = pod;
            // A currency adds its ticket when the first of its own becomes active.
            for _ in 0..=currencies.len() {
                let sum = shares.sums.entry(payer(row)).or_insert(0);
                let was_active = *sum != 0;
                *sum += row.number("tickets");
                match shares.currencies.get(payer(row)) {
                    Some(next) if !was_active => row = next,
                    _ => break,
                }
            }
        }
        shares
    }

    /// A pod's share, from 0 to 1; `None` if nobody runs.
    pub(crate) fn of_pod(&self, pod: &Row) -> Option<f64> {
        if pod.is_running() { self.of(pod) } else { self.idle() }
    }

    /// A currency's share.
    pub(crate) fn of_currency(&self, currency: &Row) -> Option<f64> {
        if self.sums.contains_key(currency.name.as_str()) { self.of(currency) } else { self.idle() }
    }

    fn idle(&self) -> Option<f64> {
        (!self.sums.is_empty()).then_some(0.0)
    }

    fn of(&self, row: &Row) -> Option<f64> {
        let (mut row, mut share) = (row, 1.0);
        for _ in 0..=self.currencies.len() {
            let sum = self.sums.get(payer(row)).copied().filter(|sum| *sum != 0)?;
            share *= row.number("tickets") as f64 / sum as f64;
            match self.currencies.get(payer(row)) {
                Some(next) => row = next,
                None => return Some(share),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Payers, Shares};
    use crate::remote::table::Report;
    use crate::verb::up_currencies::CurrencyEntry;

    #[test]
    fn names_are_found_and_shown() {
        let entry = |name: &str, payer| CurrencyEntry { name: name.into(), tickets: 1, payer };
        let payers = Payers::new(&[entry("all", None), entry("7", Some(0))], vec![Some(1), None]);
        assert_eq!((payers.count(), payers.find("7"), payers.find("x")), (2, Some(1), None));
        assert_eq!([payers.of_pod(0), payers.of_pod(1), payers.of_currency(1)], ["7", "base", "all"]);
        assert_eq!(payers.names().collect::<Vec<_>>(), ["all", "7"]);
    }

    fn shares(text: &str) -> Vec<Option<f64>> {
        let report = Report::parse(text);
        let shares = Shares::new(&report.pods, &report.currencies);
        let pods = report.pods.iter().map(|pod| shares.of_pod(pod));
        pods.chain(report.currencies.iter().map(|row| shares.of_currency(row))).collect()
    }

    #[test]
    fn shares_are_products_along_the_way() {
        let text = "currency a currency=base tickets=500\ncurrency b currency=base tickets=500\n\
            currency c currency=b tickets=1\n\
            pod a1 state=running currency=a tickets=100\npod a2 state=running currency=a tickets=300\n\
            pod b1 state=running currency=b tickets=3\npod c1 state=running currency=c tickets=9\n";
        let parts = |wanted: [f64; 7]| wanted.map(Some).to_vec();
        assert_eq!(shares(text), parts([0.125, 0.375, 0.375, 0.125, 0.5, 0.5, 0.125]));
        let ended = text.replace("b1 state=running", "b1 state=ended");
        assert_eq!(shares(&ended), parts([0.125, 0.375, 0.0, 0.5, 0.5, 0.5, 0.5]));
        let ended = ended.replace("c1 state=running", "c1 state=ended");
        assert_eq!(shares(&ended), parts([0.25, 0.75, 0.0, 0.0, 1.0, 0.0, 0.0]));
        assert_eq!(shares(&text.replace("running", "ended")), vec![None; 7]);
        // An older machine says nothing of currencies; one that says nonsense does no harm.
        assert_eq!(shares("pod a state=running tickets=3\npod b state=running tickets=1\n"), [Some(0.75), Some(0.25)]);
        assert_eq!(shares("pod a state=running currency=x tickets=3\ncurrency x currency=x tickets=1\n")[0], None);
        assert_eq!(shares("pod a state=starting\n"), [None]);
    }
}
