//! Figure 7: three clients with tickets 8:3:1 and a server that has none, so that it runs on theirs.
//!
//! The program is `bench/native/src/clients.rs` on the kernel contract, because the transfer is the kernel's: a
//! protected call carries the caller's funding to its server, here through one server and through two. What the clients
//! ask is how often a word stands in 4.6 MB of text; the text is made here, and so the answer is known.

use std::time::Duration;

use super::super::failure::{Failure, last_line};
use super::super::filter::RowFilter;
use super::super::guest::{Guest, Limits};
use super::super::native::Program;
use super::super::progress;
use super::super::result::{Cell, Figure, Series};
use super::super::system::Shape;
use super::contest::{Arena, ICOUNT_SHIFT};
use super::outcome::{Found, Outcome, is_off};

/// As much as Shakespeare's plays, which the paper searched.
const TEXT_BYTES: usize = 4_600_000;
/// Runs of each way.
const RUN_COUNT: u32 = 3;
/// What is looked for.
const NEEDLE: &str = "lottery";
/// The configuration's words have a page of their own.
const WORDS_BYTES: usize = 4096;
const LIMITS: Limits = Limits { silence: Duration::from_secs(1800), total: Duration::from_secs(1800) };
const TICKETS: [f64; 3] = [8.0, 3.0, 1.0];
/// Queries of the first client, after which it ends, and of the second one at the end; with `--quick` too, as the third
/// one answers few.
const QUERIES: [u32; 2] = [20, 38];
/// A mean response that is further off than this is no accident: some hundred slices are drawn for the least funded.
const OFF_MAX: f64 = 0.25;
/// The row's part of a name; what the tickets say; what was published.
const RESPONSES: [(&str, f64, f64); 3] =
    [("2_to_1", 8.0 / 3.0, 43.19 / 17.19), ("3_to_1", 8.0, 132.20 / 17.19), ("3_to_2_afterwards", 3.0, 44.17 / 15.18)];
/// Servers that a request goes through.
const WAYS: [(u32, &str, &str); 2] = [
    (
        1,
        "fig07",
        "Figure 7: queries that were answered, of three clients with tickets 8:3:1, by a server without tickets",
    ),
    (2, "fig07_two_servers", "The same where each query goes through two servers without tickets"),
];
/// Common words of English; the text is made of them.
const WORDS: [&str; 40] = [
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "he",
    "this", "are", "or", "his", "from", "at", "which", "but", "have", "an", "had", "they", "you", "were", "their",
    "one", "all", "we", "can", "her", "has", "Lottery",
];

/// The same text every time: sentences of common words, by Marsaglia's xorshift.
fn text() -> String {
    let mut state: u32 = 2_463_534_242;
    let mut text = String::with_capacity(TEXT_BYTES + 16);
    while text.len() < TEXT_BYTES {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        text += WORDS[state as usize % WORDS.len()];
        text += if state.is_multiple_of(11) { ".\n" } else { " " };
    }
    text
}

/// An answer: whose, when in nanoseconds after the beginning, what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    client: usize,
    at_ns: u64,
    found: u64,
}

/// Runs it through one server and through two.
pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    for (server_count, name, title) in WAYS {
        let rows = RESPONSES.map(|(row, due, published)| (format!("{name}_response_{row}"), due, published));
        if !arena.has_aegis() || !rows.iter().any(|(row, ..)| filter.finds(row)) {
            continue;
        }
        progress::say(&format!("lottery: {title}"));
        let runs = (1..=arena.scaled(RUN_COUNT)).map(|seed| ask(arena, server_count, seed));
        let runs: Vec<Vec<Answer>> = runs.collect::<Result<_, _>>()?;
        for (place, (row, due, published)) in rows.into_iter().enumerate() {
            let values = runs.iter().map(|answers| responses(answers)[place]).collect::<Option<Vec<f64>>>();
            let values = values.ok_or_else(|| Failure::Broken("Aegis", format!("{row}: a client had no answer")))?;
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            if is_off(mean, due, OFF_MAX) {
                found.doubts.push(format!("{row}: {mean:.2} instead of {due:.2}"));
            }
            let published = (server_count == 1).then_some(published);
            let outcome = Outcome { due, aegis: Cell::Values(values), linux: Cell::NotAsked, published };
            found.rows.push(outcome.row(row));
        }
        found.figures.push(Figure {
            name: name.into(),
            title: title.into(),
            axes: ["s of guest time".into(), "queries".into()],
            is_doubling: false,
            series: (0..TICKETS.len()).map(|client| series(client, &runs[0])).collect(),
        });
    }
    Ok(found)
}

fn series(client: usize, answers: &[Answer]) -> Series {
    let own = answers.iter().filter(|answer| answer.client == client);
    let point = |(number, answer): (usize, &Answer)| (answer.at_ns as f64 / 1e9, (number + 1) as f64);
    Series {
        title: format!("{} tickets", TICKETS[client]),
        is_line: true,
        points: [(0.0, 0.0)].into_iter().chain(own.enumerate().map(point)).collect(),
    }
}

/// The machine's answers.
fn ask(arena: &Arena<'_>, server_count: u32, seed: u32) -> Result<Vec<Answer>, Failure> {
    let text = text();
    let [first, second] = QUERIES;
    let mut configuration = format!("clients {server_count} {first} {second}");
    configuration += &" ".repeat(WORDS_BYTES - configuration.len());
    configuration += &text;
    let (qemu, cache) = arena.places();
    let program = Program::find(qemu, cache)?;
    let bundle = program.bundle_with(configuration.as_bytes())?;
    let shape = Shape { icount_shift: Some(ICOUNT_SHIFT), cpu_count: 1 };
    let mut line = program.line(shape);
    line.arguments.extend(["-append".into(), format!("lottery={seed:032x}").into()]);
    let (lines, errors) = Guest::start(&line, LIMITS)?.lines();
    drop(bundle);
    let answers = read(&lines).ok_or_else(|| {
        let last = lines.last().map_or_else(|| last_line(&errors), |line| last_line(line));
        Failure::Broken("Aegis", last)
    })?;
    let truth = text.to_ascii_lowercase().matches(NEEDLE).count() as u64;
    match answers.iter().find(|answer| answer.found != truth) {
        Some(answer) => Err(Failure::Broken("Aegis", format!("a server found {} words of {truth}", answer.found))),
        None => Ok(answers),
    }
}

/// What the program prints; `None` if it did not get that far.
fn read(lines: &[String]) -> Option<Vec<Answer>> {
    let mut began_ns = None;
    let mut answers = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let kind = words.next();
        let mut number = || words.next()?.parse::<u64>().ok();
        match kind {
            Some("began") => began_ns = number(),
            Some("query") => {
                let (client, at_ns, found) = (number()? as usize, number()?, number()?);
                (client < TICKETS.len()).then_some(())?;
                answers.push(Answer { client, at_ns: at_ns.checked_sub(began_ns?)?, found });
            }
            _ => {}
        }
    }
    began_ns.map(|_| answers)
}

/// Mean responses of the second and the third client by the first one's while that one asks, and of the third by the
/// second's afterwards. Only whole queries count: in the one that was in hand at the end the rate changed.
fn responses(answers: &[Answer]) -> [Option<f64>; 3] {
    let of = |client: usize| answers.iter().filter(move |answer| answer.client == client).map(|answer| answer.at_ns);
    let Some(end_ns) = of(0).max() else { return [None; 3] };
    let mean_ns = |first_ns: u64, last_ns: Option<u64>, count: usize| {
        let last_ns = last_ns.filter(|_| count > 0)?;
        Some((last_ns - first_ns) as f64 / count as f64)
    };
    let before = |client| of(client).filter(|at_ns| *at_ns <= end_ns);
    let during = |client| mean_ns(0, before(client).max(), before(client).count());
    let behind = |client| of(client).filter(|at_ns| *at_ns > end_ns);
    let after = |client| mean_ns(behind(client).min()?, behind(client).max(), behind(client).count() - 1);
    let by = |of: Option<f64>, by: Option<f64>| of.zip(by).map(|(of, by)| of / by);
    [by(during(1), during(0)), by(during(2), during(0)), by(after(2), after(1))]
}

#[cfg(test)]
mod tests {
    use super::{Answer, NEEDLE, TEXT_BYTES, read, responses, text};

    #[test]
    fn the_text_is_as_long_as_the_papers_and_has_the_word() {
        let text = text();
        assert!((TEXT_BYTES..TEXT_BYTES + 16).contains(&text.len()) && text.is_ascii());
        assert!(text.to_ascii_lowercase().matches(NEEDLE).count() > 1000);
    }

    #[test]
    fn answers_count_from_the_beginning() {
        let lines = ["began 100", "query 0 150 7", "x", "query 2 300 7"].map(String::from);
        let answer = |client, at_ns| Answer { client, at_ns, found: 7 };
        assert_eq!(read(&lines), Some(vec![answer(0, 50), answer(2, 200)]));
        assert_eq!(read(&["query 0 1 1".into()]), None);
        assert_eq!(read(&["began 5".into(), "query 3 9 1".into()]), None);
    }

    #[test]
    fn rates_and_not_only_whole_queries() {
        let answers = |client, step_ns: u64, count: u64| {
            (1..=count).map(move |number| Answer { client, at_ns: number * step_ns, found: 0 })
        };
        // The first one answers every 10 and ends at 200; the others every 20 and 80, before and after.
        let all: Vec<Answer> = answers(0, 10, 20).chain(answers(1, 20, 40)).chain(answers(2, 80, 10)).collect();
        let [second, third, after] = responses(&all).map(Option::unwrap);
        assert!((second - 2.0).abs() < 0.01 && (third - 8.0).abs() < 0.01 && (after - 4.0).abs() < 0.01);
        assert_eq!(responses(&[]), [None; 3]);
    }
}
