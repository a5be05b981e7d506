//! One operation in the order of its execution.
//!
//! The last instructions of the window hold several operations. Where one ends and the next begins is seen by an
//! instruction of the program that is executed exactly once in each; what lies between its last two executions
//! is one operation, begun at an arbitrary place of the row's loop.

use aegis_launch::domain::Domain;

use super::attribution::Functions;
use super::plugin::Counts;

/// Most lines; a longer path is cut in the middle of nothing: it ends with a line that says how many are missing.
const LINE_COUNT_MAX: usize = 20_000;

/// The last whole operation, as runs of instructions in one function.
pub(super) fn render(functions: &Functions, counts: &Counts, operations: f64) -> String {
    let Some(steps) = last_operation(functions, counts, operations) else {
        return "  no path: no whole operation in the last 524,288 instructions, or no instruction that each has once\n"
            .into();
    };
    let mut runs: Vec<((Domain, &str), usize)> = Vec::new();
    for address in steps {
        let name = functions.name(*address);
        match runs.last_mut() {
            Some((last, length)) if *last == name => *length += 1,
            _ => runs.push((name, 1)),
        }
    }
    let mut text = format!("  one operation in its order, {} instructions\n", steps.len());
    for ((domain, name), length) in runs.iter().take(LINE_COUNT_MAX) {
        text += &format!("  {length:>12}  {:<8} {name}\n", domain.name());
    }
    if runs.len() > LINE_COUNT_MAX {
        text += &format!("  and {} runs more\n", runs.len() - LINE_COUNT_MAX);
    }
    text
}

fn last_operation<'a>(functions: &Functions, counts: &'a Counts, operations: f64) -> Option<&'a [u64]> {
    let is_loop = |address: &u64, executions: u64| {
        executions as f64 == operations && functions.place(*address).0 == Domain::Program
    };
    let candidates = counts.executions.iter().filter(|(address, executions)| is_loop(address, *executions));
    let marker = candidates.map(|(address, _)| *address).min()?;
    let end = counts.path.iter().rposition(|address| *address == marker)?;
    let start = counts.path[..end].iter().rposition(|address| *address == marker)?;
    Some(&counts.path[start..end])
}

#[cfg(test)]
mod tests {
    use super::{Counts, Functions, render};
    use aegis_launch::symbols::Symbols;

    #[test]
    fn what_lies_between_two_turns_of_the_loop() {
        let functions = Functions {
            kernel: Symbols::of_kallsyms("ffffffff80000000 T entry\n"),
            window: None,
            program: Symbols::of_kallsyms("400000 T row\n"),
        };
        let one = [0x40_0008, 0x40_000c, 0xffff_ffff_8000_0000, 0xffff_ffff_8000_0004, 0x40_0010];
        let counts = Counts {
            executions: one.iter().map(|address| (*address, 3)).chain([(0x40_0000, 1)]).collect(),
            path: [0x40_0000].into_iter().chain(one).chain(one).chain(one).collect(),
            lost: 0,
            vain: 0,
        };
        let text = render(&functions, &counts, 3.0);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            ["one operation in its order, 5 instructions", "2  program  row", "2  kernel   entry", "1  program  row"]
        );
        assert!(render(&functions, &counts, 4.0).contains("no path"));
    }
}
