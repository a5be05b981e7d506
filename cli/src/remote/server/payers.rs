//! Which currency pays for which pod and currency of a running machine. Pure.

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

#[cfg(test)]
mod tests {
    use super::Payers;
    use crate::verb::up_currencies::CurrencyEntry;

    #[test]
    fn names_are_found_and_shown() {
        let entry = |name: &str, payer| CurrencyEntry { name: name.into(), tickets: 1, payer };
        let payers = Payers::new(&[entry("all", None), entry("7", Some(0))], vec![Some(1), None]);
        assert_eq!((payers.count(), payers.find("7"), payers.find("x")), (2, Some(1), None));
        assert_eq!([payers.of_pod(0), payers.of_pod(1), payers.of_currency(1)], ["7", "base", "all"]);
        assert_eq!(payers.names().collect::<Vec<_>>(), ["all", "7"]);
    }
}
