//! Numbers, dates and words as the page shows them.

use super::super::result::Table;

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// Text as it may stand between tags and in attributes with double quotation marks.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in a page in any form.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The digits that mean something, in groups of three.
pub(super) fn grouped(value: f64) -> String {
    let text = super::super::report::number(value);
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    match rest {
        Some(rest) => out + "." + rest,
        None => out,
    }
}

/// `2026-11-21 08:10 UTC`
pub(super) fn date_and_time(unix_s: u64) -> String {
    let (hours, minutes) = (unix_s % DAY_S / 3600, unix_s % 3600 / 60);
    format!("{} {hours:02}:{minutes:02} UTC", date(unix_s))
}

/// Days to the Gregorian calendar, in years that begin in March so that the leap day is the last one.
pub(super) fn date(unix_s: u64) -> String {
    /// From 0000-03-01 to 1970-01-01.
    const EPOCH_DAYS: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = unix_s / DAY_S + EPOCH_DAYS;
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

pub(super) fn title(table: &Table) -> String {
    format!("{}, {}", table.suite, table.unit)
}
