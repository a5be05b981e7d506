//! Executions by function and by domain, and how they are printed.

use std::collections::HashMap;

use aegis_abi::layout::{KERNEL_BASE, LIBOS_BASE};
use aegis_launch::domain::{DOMAINS, Domain, is_of_driver};
use aegis_launch::symbols::{Symbol, Symbols};

use super::plugin::Counts;

/// Functions with less than this part of all instructions are printed as one line.
const SHARE_MIN: f64 = 0.001;

/// The functions of one system.
#[derive(Debug, Default)]
pub(super) struct Functions {
    pub(super) kernel: Symbols,
    /// What is in Aegis's window, and whose it is: exos with its drivers, or a program that does without.
    pub(super) window: Option<(Domain, Symbols)>,
    pub(super) program: Symbols,
}

impl Functions {
    /// Where an address lies: its domain, and its function if it is one's.
    pub(super) fn place(&self, address: u64) -> (Domain, Option<&Symbol>) {
        if let (Some((domain, functions)), LIBOS_BASE..KERNEL_BASE) = (&self.window, address) {
            let symbol = functions.find(address);
            let is_driver = symbol.is_some_and(|symbol| is_of_driver(&symbol.name) == Some(true));
            return (if is_driver { Domain::Driver } else { *domain }, symbol);
        }
        if address >= LIBOS_BASE {
            return (Domain::Kernel, self.kernel.find(address));
        }
        (Domain::Program, self.program.find(address))
    }

    /// What is printed for an address.
    pub(super) fn name(&self, address: u64) -> (Domain, &str) {
        let (domain, symbol) = self.place(address);
        // The program is static: what is outside of it is the vDSO, or a trampoline of exos's to a rewritten call.
        let unknown = if domain == Domain::Program { "[vdso or trampoline]" } else { "[not known]" };
        (domain, symbol.map_or(unknown, |symbol| &symbol.name))
    }
}

/// One line of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    instructions: u64,
    /// Executions of the function's first instruction.
    entries: u64,
}

/// Executions by function.
#[derive(Debug)]
pub(super) struct Attribution<'a> {
    /// Most instructions first.
    rows: Vec<((Domain, &'a str), Tally)>,
    total: u64,
    unattributed: u64,
    lost: u64,
}

impl<'a> Attribution<'a> {
    /// Puts each execution into exactly one line.
    pub(super) fn new(functions: &'a Functions, counts: &Counts) -> Self {
        let mut tallies: HashMap<(Domain, &str), Tally> = HashMap::new();
        let mut unattributed = 0;
        for (address, executions) in &counts.executions {
            let symbol = functions.place(*address).1;
            let tally = tallies.entry(functions.name(*address)).or_default();
            tally.instructions += executions;
            match symbol {
                Some(symbol) if symbol.address == *address => tally.entries += executions,
                Some(_) => {}
                None => unattributed += executions,
            }
        }
        let mut rows: Vec<_> = tallies.into_iter().collect();
        rows.sort_by_key(|(key, tally)| (std::cmp::Reverse(tally.instructions), *key));
        let total = counts.executions.iter().map(|(_, executions)| executions).sum::<u64>() + counts.lost;
        Self { rows, total, unattributed, lost: counts.lost }
    }

    /// The table, for each of so many operations. `clock` is what the machine's clock counted for all of them.
    pub(super) fn render(&self, operations: f64, clock: f64) -> String {
        let each = |instructions: u64| instructions as f64 / operations;
        let mut text = format!("  {:.1} instructions an operation, {operations} operations\n", clock / operations);
        let domains = DOMAINS.map(|domain| {
            let of_domain = self.rows.iter().filter(|((it, _), _)| *it == domain);
            (domain, of_domain.map(|(_, tally)| tally.instructions).sum::<u64>())
        });
        let parts = domains.iter().filter(|(_, sum)| *sum > 0);
        let parts: Vec<String> = parts.map(|(domain, sum)| format!("{} {:.1}", domain.name(), each(*sum))).collect();
        text += &format!("  {}\n", parts.join(" + "));
        text += &format!("  {:>12} {:>6} {:>9}  {:<8} function\n", "instructions", "part", "entries", "where");
        let is_shown = |tally: &Tally| tally.instructions as f64 >= SHARE_MIN * self.total as f64;
        for ((domain, name), tally) in self.rows.iter().filter(|(_, tally)| is_shown(tally)) {
            let part = 100.0 * tally.instructions as f64 / self.total as f64;
            let (instructions, entries) = (each(tally.instructions), each(tally.entries));
            text += &format!("  {instructions:>12.1} {part:>5.1}% {entries:>9.1}  {:<8} {name}\n", domain.name());
        }
        let rest: Vec<_> = self.rows.iter().filter(|(_, tally)| !is_shown(tally)).collect();
        if !rest.is_empty() {
            let sum = each(rest.iter().map(|(_, tally)| tally.instructions).sum());
            text += &format!("  {sum:>12.1}                   {} functions with less than 0.1 % each\n", rest.len());
        }
        text + &self.render_sum(operations, clock)
    }

    /// The sum, and what it does not agree with.
    fn render_sum(&self, operations: f64, clock: f64) -> String {
        let each = |instructions: u64| instructions as f64 / operations;
        let mut text = format!("  {:>12.1} sum", each(self.total));
        if self.unattributed > 0 {
            text += &format!("; {:.1} outside of every known function", each(self.unattributed));
        }
        if self.lost > 0 {
            text += &format!("; {:.1} without a place in the table", each(self.lost));
        }
        let more = each(self.total) - clock / operations;
        // Less are the ends of the window: the clock is read a few instructions before each mark.
        if more.abs() >= 0.05 {
            let why = "it does not count an instruction that faults, which is begun here";
            text += &format!("; {more:+.2} to what the clock counted: {why}");
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::{Attribution, Counts, Domain, Functions, Symbols};

    fn functions() -> Functions {
        Functions {
            kernel: Symbols::of_kallsyms("ffffffff80000000 T entry\nffffffff80000010 T handle\n"),
            window: Some((Domain::LibraryOs, Symbols::of_kallsyms("ffff800001000000 T call\n"))),
            program: Symbols::of_kallsyms("400000 T main\n"),
        }
    }

    fn counts() -> Counts {
        Counts {
            executions: vec![
                (0x40_0000, 10),
                (0x40_0004, 20),
                (0xffff_8000_0100_0004, 5),
                (0xffff_ffff_8000_0000, 10),
                (0xffff_ffff_8000_0010, 10),
                (0xffff_c000_0000_0000, 5),
            ],
            path: Vec::new(),
            lost: 0,
            vain: 0,
        }
    }

    #[test]
    fn every_execution_is_in_one_line() {
        let functions = functions();
        let attribution = Attribution::new(&functions, &counts());
        assert_eq!(attribution.total, 60);
        assert_eq!(attribution.unattributed, 5);
        let sum: u64 = attribution.rows.iter().map(|(_, tally)| tally.instructions).sum();
        assert_eq!(sum, 60);
        let (key, tally) = attribution.rows[0];
        assert_eq!((key, tally.instructions, tally.entries), ((Domain::Program, "main"), 30, 10));
    }

    #[test]
    fn the_text_says_what_does_not_agree() {
        let functions = functions();
        let attribution = Attribution::new(&functions, &counts());
        let text = attribution.render(10.0, 60.0);
        assert!(text.contains("6.0 instructions an operation, 10 operations"), "{text}");
        assert!(text.contains("program 3.0 + exos 0.5 + kernel 2.5"), "{text}");
        assert!(text.ends_with("6.0 sum; 0.5 outside of every known function\n"), "{text}");
        let text = attribution.render(10.0, 50.0);
        assert!(text.contains("+1.00 to what the clock counted"), "{text}");
    }

    #[test]
    fn linux_has_no_library_os() {
        let functions = Functions { window: None, ..functions() };
        assert_eq!(functions.place(0xffff_8880_0000_0000).0, Domain::Kernel);
        assert_eq!(functions.name(0x7fff_0000_0000), (Domain::Program, "main"));
    }
}
