//! The currencies of `aegis up`'s file: which one pays for which.
//!
//! Pure. The file names currencies in any order; what comes out is in an order in which payers come first, so that a
//! cycle is whatever cannot be put into it. Sums need no check: no ticket is more than 2^31, and all that a file can
//! have come to less than the 2^40 of a currency.

use aegis_abi::call::TICKET_AMOUNT_MAX;
use aegis_link::pods::{CURRENCY_COUNT_MAX, POD_COUNT_MAX};

/// The machine's own currency, in which tickets are that say nothing.
pub(crate) const BASE: &str = "base";

const _: () = assert!(((POD_COUNT_MAX + CURRENCY_COUNT_MAX) as u64 + 1) * TICKET_AMOUNT_MAX < 1 << 40);

/// A currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CurrencyEntry {
    pub(crate) name: String,
    /// Amount of the ticket that funds it.
    pub(crate) tickets: u64,
    /// The currency that this ticket is in, by its place among all; `None`: the base.
    pub(crate) payer: Option<usize>,
}

/// A currency's name where one is used, and where in the file that is.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) name: String,
    /// Where it stands, in bytes.
    pub(crate) at: usize,
}

/// A currency as the file has it.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Its name and where its table is.
    pub(crate) own: Use,
    /// Amount of its ticket.
    pub(crate) tickets: u64,
    pub(crate) payer: Option<Use>,
}

/// What is wrong, and where.
pub(crate) type Wrong = (usize, String);

/// The place of a name among the currencies; `None` for the base.
pub(crate) fn find(entries: &[CurrencyEntry], used: Option<&Use>) -> Result<Option<usize>, Wrong> {
    let Some(used) = used.filter(|used| used.name != BASE) else { return Ok(None) };
    let found = entries.iter().position(|entry| entry.name == used.name);
    found.map(Some).ok_or_else(|| (used.at, format!("{0}: no such currency; write [currency.{0}]", used.name)))
}

/// Puts each payer before what it pays for, and otherwise leaves the file's order.
pub(crate) fn in_order(written: &[Written]) -> Result<Vec<CurrencyEntry>, Wrong> {
    if let Some(extra) = written.get(CURRENCY_COUNT_MAX) {
        let text = format!("{} currencies; a machine has at most {CURRENCY_COUNT_MAX}", written.len());
        return Err((extra.own.at, text));
    }
    let mut entries: Vec<CurrencyEntry> = Vec::new();
    let mut left: Vec<&Written> = written.iter().collect();
    while !left.is_empty() {
        let next = left.iter().position(|it| find(&entries, it.payer.as_ref()).is_ok());
        let Some(next) = next else { return Err(why_none(written, &left)) };
        let it = left.remove(next);
        let payer = find(&entries, it.payer.as_ref())?;
        entries.push(CurrencyEntry { name: it.own.name.clone(), tickets: it.tickets, payer });
    }
    Ok(entries)
}

/// Each of those that are left is paid for by another of them, or by nothing that there is.
fn why_none(written: &[Written], left: &[&Written]) -> Wrong {
    let unknown = left.iter().filter_map(|it| it.payer.as_ref());
    if let Some(used) = unknown.clone().find(|used| !written.iter().any(|it| it.own.name == used.name)) {
        return (used.at, format!("funds: {0}: no such currency; write [currency.{0}]", used.name));
    }
    let payer_of = |name: &str| left.iter().find(|it| it.own.name == name).and_then(|it| it.payer.as_ref());
    let way_up = |from: &str| {
        let ways = std::iter::successors(payer_of(from), |used| payer_of(&used.name)).take(left.len());
        ways.map(|used| used.name.as_str()).collect::<Vec<_>>()
    };
    let cycle = left.iter().find_map(|it| {
        let ways = way_up(&it.own.name);
        let back = ways.iter().position(|name| *name == it.own.name)?;
        Some((it, ways[..=back].iter().rev().copied().chain([it.own.name.as_str()]).collect::<Vec<_>>()))
    });
    let (at, names) = cycle.map_or((0, Vec::new()), |(it, names)| (it.payer.as_ref().map_or(0, |used| used.at), names));
    (at, format!("funds: a cycle, {}", names.join(" funds ")))
}

#[cfg(test)]
mod tests {
    use super::{CurrencyEntry, Use, Written, find, in_order};

    fn written(pairs: &[(&str, &str)]) -> Vec<Written> {
        let used = |name: &str, at| Use { name: name.into(), at };
        let one = |(at, (name, payer)): (usize, &(&str, &str))| Written {
            own: used(name, 10 * at),
            tickets: 5,
            payer: (!payer.is_empty()).then(|| used(payer, 10 * at + 1)),
        };
        pairs.iter().enumerate().map(one).collect()
    }

    fn names(entries: &[CurrencyEntry]) -> Vec<(&str, Option<usize>)> {
        entries.iter().map(|entry| (entry.name.as_str(), entry.payer)).collect()
    }

    #[test]
    fn whoever_pays_comes_first() {
        let entries = in_order(&written(&[("c", "b"), ("x", ""), ("b", "a"), ("a", "base")])).expect("no cycle");
        assert_eq!(names(&entries), [("x", None), ("a", None), ("b", Some(1)), ("c", Some(2))]);
        let used = |name: &str| Use { name: name.into(), at: 7 };
        assert_eq!(find(&entries, Some(&used("c"))), Ok(Some(3)));
        assert_eq!(find(&entries, Some(&used("base"))), Ok(None));
        assert_eq!(find(&entries, None), Ok(None));
        assert_eq!(find(&entries, Some(&used("d"))).map_err(|wrong| wrong.0), Err(7));
        assert_eq!(in_order(&[]), Ok(Vec::new()));
    }

    #[test]
    fn cycles_and_unknown_names_are_found() {
        for (pairs, at, text) in [
            (&[("a", "a")][..], 1, "a cycle, a funds a"),
            (&[("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")], 11, "a cycle, a funds c funds b funds a"),
            (&[("a", "b"), ("b", "a"), ("c", "d")], 21, "d: no such currency"),
        ] {
            let (found, why) = in_order(&written(pairs)).expect_err("wrong");
            assert!(why.contains(text), "{why}");
            assert_eq!(found, at, "{why}");
        }
        let many: Vec<String> = (0..17).map(|number| format!("c{number}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
        assert_eq!(in_order(&written(&many)).map_err(|wrong| wrong.0), Err(160));
        assert!(in_order(&written(&many[..16])).is_ok());
    }
}
