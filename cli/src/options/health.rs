//! Health checks: what an image, a file or the command line says of a program that looks whether another is well.
//!
//! The words and times are docker's: a check every 30 s, each for at most 30 s; three failures in a row make a pod
//! unhealthy; failures within a first while do not count.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::options::values::parse_seconds;

/// From one check to the next, and the longest time of one, unless something else is said.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(30);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
const RETRIES_DEFAULT: u32 = 3;
/// Shorter intervals would keep a machine busy with looking.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// No time of a check is longer: a year.
const TIME_MAX: Duration = Duration::from_secs(365 * 86_400);
const SHELL: &str = "/bin/sh";

/// A check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthCheck {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    /// From the program's start: failures do not count.
    pub(crate) start_period: Duration,
    /// Failures in a row that make a pod unhealthy.
    pub(crate) retries: u32,
}

// What the command line says of it. (No documentation comment: clap would make it the text of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HealthOptions {
    /// Look by this command of the root's shell whether the program is well, in runs with a name [default: the image's]
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_healthcheck")]
    pub(crate) health_cmd: Option<String>,
    /// From one look to the next [default: 30, or the image's]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) health_interval: Option<Duration>,
    /// Longest time of a look [default: 30, or the image's]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) health_timeout: Option<Duration>,
    /// Time from the start in which a failure does not count [default: 0, or the image's]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) health_start_period: Option<Duration>,
    /// Failures in a row that make it unhealthy [default: 3, or the image's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) health_retries: Option<u32>,
    /// Do not look, whatever the image says
    #[arg(long)]
    pub(crate) no_healthcheck: bool,
}

impl HealthCheck {
    /// A command for the shell, with the times that are usual.
    pub(crate) fn shell(command: &str) -> Self {
        Self::of([SHELL, "-c", command].map(str::to_owned).to_vec())
    }

    fn of(words: Vec<String>) -> Self {
        let (interval, timeout) = (INTERVAL_DEFAULT, TIMEOUT_DEFAULT);
        Self { words, interval, timeout, start_period: Duration::ZERO, retries: RETRIES_DEFAULT }
    }

    /// What `Test` of an image or `test` of a compose file says: `NONE`, `CMD` and words, `CMD-SHELL` and a line.
    pub(crate) fn of_test(test: &[String]) -> Result<Option<Self>, String> {
        match test {
            [] => Ok(None),
            [none] if none == "NONE" => Ok(None),
            [kind, words @ ..] if kind == "CMD" && !words.is_empty() => Ok(Some(Self::of(words.to_vec()))),
            [kind, line] if kind == "CMD-SHELL" => Ok(Some(Self::shell(line))),
            _ => Err("CMD with words, CMD-SHELL with a line, or NONE is wanted".into()),
        }
    }

    /// An image's `Healthcheck`.
    pub(crate) fn of_image(value: &Value) -> Result<Option<Self>, String> {
        let test = match &value["Test"] {
            Value::Null => Vec::new(),
            Value::Array(words) => words
                .iter()
                .map(|word| word.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or("Test is no list of words")?,
            _ => return Err("Test is no list of words".into()),
        };
        let Some(mut check) = Self::of_test(&test)? else { return Ok(None) };
        let time = |name: &str| value[name].as_u64().filter(|time| *time > 0).map(Duration::from_nanos);
        check.interval = time("Interval").unwrap_or(check.interval);
        check.timeout = time("Timeout").unwrap_or(check.timeout);
        check.start_period = time("StartPeriod").unwrap_or(check.start_period);
        let retries = value["Retries"].as_u64().filter(|retries| *retries > 0);
        check.retries = retries.map_or(check.retries, |retries| u32::try_from(retries).unwrap_or(u32::MAX));
        Ok(Some(check.within_limits()))
    }

    /// With times that a clock can be moved by, and that leave a machine alone between two checks.
    fn within_limits(self) -> Self {
        Self {
            interval: self.interval.clamp(INTERVAL_MIN, TIME_MAX),
            timeout: self.timeout.clamp(INTERVAL_MIN, TIME_MAX),
            start_period: self.start_period.min(TIME_MAX),
            ..self
        }
    }
}

impl HealthOptions {
    /// What the command line makes of the image's check.
    pub(crate) fn settle(&self, own: Option<HealthCheck>) -> Option<HealthCheck> {
        let check = self.health_cmd.as_deref().map(HealthCheck::shell).or(own).filter(|_| !self.no_healthcheck)?;
        // As engines have it, no time is the usual one.
        let said = |time: Option<Duration>| time.filter(|time| !time.is_zero());
        let check = HealthCheck {
            interval: said(self.health_interval).unwrap_or(check.interval),
            timeout: said(self.health_timeout).unwrap_or(check.timeout),
            start_period: self.health_start_period.unwrap_or(check.start_period),
            retries: self.health_retries.unwrap_or(check.retries),
            words: check.words,
        };
        Some(check.within_limits())
    }
}

#[cfg(test)]
mod tests {
    use super::{HealthCheck, HealthOptions};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn no_time_moves_a_clock_too_far() {
        let long = Some(Duration::from_secs(10_000_000_000_000_000_000));
        let options = HealthOptions {
            health_cmd: Some("true".into()),
            health_interval: long,
            health_timeout: Some(Duration::ZERO),
            health_start_period: long,
            ..HealthOptions::default()
        };
        let check = options.settle(None).expect("one");
        assert_eq!((check.interval, check.start_period), (super::TIME_MAX, super::TIME_MAX));
        assert_eq!(check.timeout, Duration::from_secs(30), "the usual one");
    }

    #[test]
    fn an_images_check_is_read() {
        let value = json!({ "Test": ["CMD-SHELL", "curl x || exit 1"], "Interval": 5_000_000_000_u64, "Retries": 2 });
        let check = HealthCheck::of_image(&value).expect("sound").expect("one");
        assert_eq!(check.words, ["/bin/sh", "-c", "curl x || exit 1"]);
        assert_eq!((check.interval, check.timeout), (Duration::from_secs(5), Duration::from_secs(30)));
        assert_eq!((check.start_period, check.retries), (Duration::ZERO, 2));
        let words =
            HealthCheck::of_image(&json!({ "Test": ["CMD", "a", "b"], "Interval": 1 })).expect("sound").expect("one");
        assert_eq!((words.words.len(), words.interval), (2, Duration::from_millis(100)), "no busy looking");
        for none in [json!({}), json!({ "Test": [] }), json!({ "Test": ["NONE"] }), json!(null)] {
            assert_eq!(HealthCheck::of_image(&none), Ok(None), "{none}");
        }
        for wrong in
            [json!({ "Test": "x" }), json!({ "Test": ["CMD"] }), json!({ "Test": ["x", "y"] }), json!({ "Test": [1] })]
        {
            assert!(HealthCheck::of_image(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_line_wins() {
        let own = HealthCheck::of_test(&["CMD".into(), "a".into()]).expect("sound");
        let options = HealthOptions { health_retries: Some(7), ..HealthOptions::default() };
        assert_eq!(options.settle(own.clone()).map(|check| (check.words, check.retries)), Some((vec!["a".into()], 7)));
        let options = HealthOptions { health_cmd: Some("b".into()), ..HealthOptions::default() };
        assert_eq!(options.settle(own.clone()).expect("one").words[2], "b");
        let options = HealthOptions { no_healthcheck: true, ..HealthOptions::default() };
        assert_eq!((options.settle(own), HealthOptions::default().settle(None)), (None, None));
    }
}
