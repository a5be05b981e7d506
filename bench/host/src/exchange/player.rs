//! Plays scripts to one machine.

use std::collections::VecDeque;
use std::io::Write;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use super::build;
use super::flow::Flows;
use super::link::{Link, MUTE_ARP, MUTE_ND, peer_addresses};
use super::nasty::{self, Chance};
use super::read::{Seen, seen};
use super::script::{Action, Script, matches, turn};
use super::words::{address, address_name};
use crate::failure::Failure;
use crate::guest::{Event, Guest};

/// How long an answer that has no time of its own may take; generous, because machines share a busy host.
const ANSWER_MAX: Duration = Duration::from_millis(2500);
/// How long nothing has to come before a script begins.
const CALM: Duration = Duration::from_millis(3);
/// How long an answer is waited for that does not matter.
const NASTY_WAIT: Duration = Duration::from_millis(15);
/// Topics that are looked at without being asked for.
const WATCHED: [&str; 6] = ["tcp", "udp", "icmp", "icmp6", "frag", "other"];

/// Where a system does not do what a script expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) line_number: usize,
    pub(super) expected: String,
    pub(super) found: String,
}

/// A machine with the program that obeys, and the wire to it.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) link: Link,
    guest: Guest,
    orders: ChildStdin,
    order_number: u32,
    run: u16,
    /// What scripts should have said, if their expectations are to be written anew.
    pub(super) corrections: Option<Vec<(usize, String)>>,
}

/// What a script has changed.
struct Stage {
    flows: Flows,
    watched: Vec<String>,
    overlooked: Vec<String>,
    /// When the last thing happened.
    last: Instant,
    /// Frames that came while time passed.
    kept: VecDeque<(Instant, Seen)>,
}

impl Player {
    pub(super) fn new(link: Link, mut guest: Guest) -> Result<Self, Failure> {
        let orders = guest.take_input().ok_or(Failure::Usage("no line to the guest"))?;
        Ok(Self { link, guest, orders, order_number: 0, run: 0, corrections: None })
    }

    /// Waits until the program in the guest obeys.
    pub(super) fn wait_until_ready(&mut self) -> Result<(), String> {
        loop {
            match self.guest.next() {
                Event::Line(line, _) if line == "ready" => return Ok(()),
                Event::Line(line, _) if line.starts_with("network: ") => return Err(line),
                Event::Line(..) => {}
                Event::End => return Err("the machine ended".into()),
                Event::Limit(why) => return Err(why.into()),
            }
        }
    }

    /// Plays a script; `Ok(Some)` says where the guest differs.
    ///
    /// # Errors
    /// The machine does not answer any more.
    pub(super) fn play(&mut self, script: &Script) -> Result<Option<Difference>, String> {
        self.run += 1;
        self.link.mute(0);
        let flows = Flows::new(self.run, peer_addresses());
        let mut stage = Stage {
            flows,
            watched: WATCHED.map(Into::into).to_vec(),
            overlooked: Vec::new(),
            last: Instant::now(),
            kept: VecDeque::new(),
        };
        while self.link.next(CALM).is_some() {}
        let mut difference = None;
        for step in &script.steps {
            difference = self.step(&step.action, step.line_number, &mut stage)?;
            if difference.is_some() {
                break;
            }
        }
        self.order("reset")?;
        Ok(difference)
    }

    /// Plays a script when what is in the way has gone, with the guest's ordinary limits.
    pub(super) fn play_patiently(&mut self, script: &Script) -> Result<Option<Difference>, String> {
        let mut difference = None;
        self.order("limit 3000")?;
        for _ in 0..3 {
            difference = self.play(script)?;
            if difference.is_none() {
                break;
            }
        }
        self.order("limit 30")?;
        Ok(difference)
    }

    /// Plays a script without regard to answers, with variants of each frame in front of it; how many frames went.
    ///
    /// # Errors
    /// The machine does not answer any more.
    pub(super) fn play_nastily(&mut self, script: &Script, chance: &mut Chance) -> Result<usize, String> {
        self.run += 1;
        self.link.mute(0);
        let mut stage = Stage {
            flows: Flows::new(self.run, peer_addresses()),
            watched: WATCHED.map(Into::into).to_vec(),
            overlooked: Vec::new(),
            last: Instant::now(),
            kept: VecDeque::new(),
        };
        let mut frame_count = 0;
        for step in &script.steps {
            let (count, text) = match &step.action {
                Action::Send(text) => (1, text),
                Action::Repeat(count, text) => (*count, text),
                Action::Order { order, .. } => {
                    self.order(&translated(order, &stage.flows)?)?;
                    continue;
                }
                Action::Expect { .. } | Action::Wait(_) => {
                    let _ = self.next_new(Instant::now() + NASTY_WAIT, &mut stage);
                    continue;
                }
                Action::Peer(_) | Action::Renew(_) | Action::Mute(_) => {
                    self.step(&step.action, step.line_number, &mut stage)?;
                    continue;
                }
                Action::Silence(_) | Action::Overlook(_) | Action::Watch(_) => continue,
            };
            for number in 0..count {
                let text = turn(text, number);
                let words: Vec<&str> = text.split_whitespace().collect();
                let frame = build::frame(&words, &mut stage.flows).map_err(|why| format!("{text}: {why}"))?;
                for variant in nasty::variants(&frame, chance) {
                    frame_count += 1;
                    self.link.send(&variant);
                }
                self.link.send(&frame);
            }
        }
        self.order("reset")?;
        while self.link.next(Duration::ZERO).is_some() {}
        Ok(frame_count)
    }

    fn step(&mut self, action: &Action, line_number: usize, stage: &mut Stage) -> Result<Option<Difference>, String> {
        let differs =
            |expected: &str, found: String| Ok(Some(Difference { line_number, expected: expected.into(), found }));
        match action {
            Action::Send(text) => self.send(text, stage)?,
            Action::Repeat(count, text) => {
                for number in 0..*count {
                    self.send(&turn(text, number), stage)?;
                }
            }
            Action::Expect { after_ms, pattern } => return self.expect(*after_ms, pattern, line_number, stage),
            Action::Silence(limit_ms) => {
                let end = Instant::now() + Duration::from_millis(*limit_ms);
                if let Some((_, frame)) = self.next(end, stage) {
                    if let Some(corrections) = &mut self.corrections {
                        corrections.push((line_number, format!("< {}", frame.shown())));
                        return Ok(None);
                    }
                    return differs(&format!("nothing for {limit_ms} ms"), frame.shown());
                }
            }
            Action::Wait(limit_ms) => {
                let end = Instant::now() + Duration::from_millis(*limit_ms);
                while let Some(frame) = self.next_new(end, stage) {
                    stage.kept.push_back(frame);
                }
            }
            Action::Order { order, result } => {
                let found = self.order(&translated(order, &stage.flows)?)?;
                let found = shown_result(&found, &stage.flows);
                stage.last = Instant::now();
                if result != "*" && !result.split('|').any(|it| it == found) {
                    if let Some(corrections) = &mut self.corrections {
                        corrections.push((line_number, format!("! {order} => {found}")));
                        return Ok(None);
                    }
                    return differs(&format!("{order} => {result}"), found);
                }
            }
            Action::Overlook(pattern) => stage.overlooked.push(pattern.clone()),
            Action::Watch(topics) => stage.watched.extend(topics.iter().cloned()),
            Action::Mute(topic) => self.link.mute_also(if topic == "arp" { MUTE_ARP } else { MUTE_ND }),
            Action::Peer(name) => {
                let address = address(name)?;
                stage.flows.peer[usize::from(address.is_ipv6())] = address;
            }
            Action::Renew(number) => stage.flows.renew(*number),
        }
        Ok(None)
    }

    fn send(&mut self, text: &str, stage: &mut Stage) -> Result<(), String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let frame = build::frame(&words, &mut stage.flows).map_err(|why| format!("{text}: {why}"))?;
        stage.last = Instant::now();
        self.link.send(&frame);
        Ok(())
    }

    fn expect(
        &mut self,
        after_ms: Option<(u64, u64)>,
        pattern: &str,
        line_number: usize,
        stage: &mut Stage,
    ) -> Result<Option<Difference>, String> {
        let begin = stage.last;
        let limit = after_ms.map_or(ANSWER_MAX, |(_, to)| Duration::from_millis(to));
        let arrived = self.next(begin.max(Instant::now()) + limit, stage);
        let range = after_ms.map_or(String::new(), |(from, to)| format!("+{from}..{to} "));
        let expected = format!("{range}{pattern}");
        let Some((at, frame)) = arrived else {
            let found = format!("nothing within {} ms", limit.as_millis());
            return Ok(Some(Difference { line_number, expected, found }));
        };
        let waited_ms = at.saturating_duration_since(begin).as_millis() as u64;
        stage.last = at;
        let is_like = matches(pattern, &frame.head, |key| frame.get(key).map(Into::into))?;
        let is_timely = after_ms.is_none_or(|(from, to)| (from..=to).contains(&waited_ms));
        if is_like && is_timely {
            return Ok(None);
        }
        if let Some(corrections) = &mut self.corrections {
            corrections.push((line_number, format!("< {range}{}", frame.shown())));
            return Ok(None);
        }
        let when = if is_timely { String::new() } else { format!(" after {waited_ms} ms") };
        let mut found = frame.shown();
        // What the pattern names and a line does not show by itself.
        for key in pattern.split_whitespace() {
            let more = frame.get(key).map(|value| format!(" {key} {value}")).unwrap_or_default();
            if !found.contains(&more) {
                found += &more;
            }
        }
        Ok(Some(Difference { line_number, expected, found: found + &when }))
    }

    /// The next frame that the script looks at.
    fn next(&mut self, end: Instant, stage: &mut Stage) -> Option<(Instant, Seen)> {
        let kept = stage.kept.pop_front();
        kept.or_else(|| self.next_new(end, stage))
    }

    /// The next one that has not come yet.
    fn next_new(&mut self, end: Instant, stage: &mut Stage) -> Option<(Instant, Seen)> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let (at, frame) = self.link.next(left)?;
            let Some(frame) = seen(&frame, &mut stage.flows) else { continue };
            let get = |key: &str| frame.get(key).map(Into::into);
            let is_overlooked =
                stage.overlooked.iter().any(|pattern| matches(pattern, &frame.head, get).unwrap_or(false));
            if !is_overlooked && stage.watched.iter().any(|topic| topic == frame.topic) {
                return Some((at, frame));
            }
        }
    }

    /// Gives an order and waits for its result.
    pub(super) fn order(&mut self, text: &str) -> Result<String, String> {
        self.order_number += 1;
        let number = self.order_number;
        let line = format!("{number} {text}\n");
        self.orders.write_all(line.as_bytes()).and_then(|()| self.orders.flush()).map_err(|it| it.to_string())?;
        let begin = format!("re {number}");
        loop {
            match self.guest.next() {
                Event::Line(line, _) => {
                    if let Some(result) = line.strip_prefix(&begin) {
                        return Ok(result.trim().into());
                    }
                }
                Event::End => return Err(format!("the machine ended at: {text}")),
                Event::Limit(why) => return Err(format!("{why} at: {text}")),
            }
        }
    }

    /// Ends the machine; what it wrote to standard error.
    pub(super) fn end(self) -> String {
        self.guest.finish()
    }
}

/// An order with the script's ports and addresses: `G`, `P`, `P1`, names of addresses in capital letters.
fn translated(order: &str, flows: &Flows) -> Result<String, String> {
    let words = order.split_whitespace().map(|word| {
        let of_flow = word.strip_prefix('P').and_then(|it| it.parse::<u16>().ok());
        Ok(match (word, of_flow) {
            ("G", _) => flows.guest_port.to_string(),
            ("P", _) => flows.peer_port.to_string(),
            (_, Some(number)) => (flows.peer_port + number).to_string(),
            ("PEER", _) => flows.peer[0].to_string(),
            ("PEER6", _) => flows.peer[1].to_string(),
            _ if word.len() > 1 && word.starts_with(|it: char| it.is_ascii_uppercase()) => {
                address(&word.to_lowercase()).map_or(word.to_string(), |it| it.to_string())
            }
            _ => word.to_string(),
        })
    });
    Ok(words.collect::<Result<Vec<_>, String>>()?.join(" "))
}

/// A result with names for what differs from run to run.
fn shown_result(result: &str, flows: &Flows) -> String {
    let words = result.split(' ').map(|word| {
        if word == flows.peer_port.to_string() {
            return "P".to_string();
        }
        match word.parse() {
            Ok(address) => address_name(address).to_uppercase(),
            Err(_) => word.to_string(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
