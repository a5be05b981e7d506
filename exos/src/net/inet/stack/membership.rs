//! What routers are told of groups: IGMP (RFC 3376, and RFC 2236 where a router speaks no more) and MLD (RFC 3810, and
//! RFC 2710), as a listener that wants all senders of a group.
//!
//! A group that is joined or left is told twice, the second time within a second. A router's question is answered
//! within the time that it gives. Where a router of an older version has asked, that version is spoken for some time.
//! The groups of all machines and those that do not leave a machine are not told.
//!
//! It knows groups and times and makes messages; [`super::membership_work`] sends and hears. Bounds: each family has as
//! many groups as sockets may have joined, and what was left takes the room of what was left before it.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::local::FOR_EVER_NS;
use crate::reserve;

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// How often a change is told (the robustness variable).
const CHANGE_COUNT: u8 = 2;
/// Before the first time, so that what is joined together is told together.
const FIRST_NS: u64 = 8 * MILLISECOND_NS;
/// Between the two at most; in the older versions.
const AGAIN_NS_MAX: u64 = SECOND_NS;
const OLD_AGAIN_NS_MAX: u64 = 10 * SECOND_NS;
/// For how long an older version is spoken after a question in it (twice the query interval and an answer's time).
const OLD_NS: u64 = 260 * SECOND_NS;
/// Groups of both families; a report of all fits a packet.
const GROUP_COUNT_MAX: usize = 96;
/// Records of a report.
const RECORD_COUNT_MAX: usize = 64;

/// What a record says (RFC 3376, section 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RecordKind {
    /// It is listened to, whoever sends.
    Is = 2,
    /// Nobody is listened to any more.
    Left = 3,
    /// It is listened to from now on.
    Joined = 4,
}

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A report in the newest version, of one family.
    Report(Vec<(RecordKind, IpAddr)>),
    /// A report of a group in an older version.
    OldReport(IpAddr),
    /// A group is left, in an older version.
    OldLeave(IpAddr),
}

/// A router's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// The group; `None`: all of the family.
    pub(super) group: Option<IpAddr>,
    pub(super) is_v4: bool,
    /// In an older version than the newest.
    pub(super) is_old: bool,
    /// Within this time it is to be answered.
    pub(super) within_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    group: IpAddr,
    is_left: bool,
    /// How often the change is still to be told.
    change_count: u8,
    /// When it is told by itself, in answer to a question or in an older version.
    at_ns: u64,
    /// This machine was the last to report it, as far as it knows.
    is_reporter: bool,
}

/// Timers of a family.
#[derive(Clone, Copy, Debug)]
struct Timers {
    change_ns: u64,
    answer_ns: u64,
    old_until_ns: u64,
}

const IDLE: Timers = Timers { change_ns: FOR_EVER_NS, answer_ns: FOR_EVER_NS, old_until_ns: 0 };

/// Groups, and what of them is still to be said.
#[derive(Debug)]
pub(crate) struct Memberships {
    entries: Vec<Entry>,
    /// Of IPv4, and of IPv6.
    timers: [Timers; 2],
}

impl Default for Memberships {
    fn default() -> Self {
        Self { entries: Vec::new(), timers: [IDLE; 2] }
    }
}

/// Whether routers are told of a group.
fn is_told(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && group != Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(group) => {
            let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            group.is_multicast() && group.octets()[1] & 0xf > 1 && group != all
        }
    }
}

/// A part of a time by chance.
fn part_of(time_ns: u64, random: u32) -> u64 {
    ((u128::from(time_ns) * u128::from(random)) >> 32) as u64
}

impl Memberships {
    fn timers_of(&mut self, is_v4: bool) -> &mut Timers {
        &mut self.timers[usize::from(!is_v4)]
    }

    /// Groups that are listened to and told.
    #[cfg(test)]
    fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.entries.iter().filter(|entry| !entry.is_left).map(|entry| entry.group)
    }

    fn changed(&mut self, group: IpAddr, is_left: bool, now_ns: u64) {
        if !is_told(group) {
            return;
        }
        let is_v4 = group.is_ipv4();
        let old = self.timers_of(is_v4).old_until_ns > now_ns;
        let at_ns = if old { now_ns.saturating_add(FIRST_NS) } else { FOR_EVER_NS };
        let known = self.entries.iter().position(|entry| entry.group == group);
        let was_reporter = known.is_some_and(|at| self.entries[at].is_reporter);
        let entry = Entry { group, is_left, change_count: CHANGE_COUNT, at_ns, is_reporter: was_reporter };
        match known {
            Some(at) => self.entries[at] = entry,
            None if is_left => return,
            None => {
                if self.entries.len() >= GROUP_COUNT_MAX {
                    self.entries.retain(|entry| !entry.is_left);
                }
                if self.entries.len() >= GROUP_COUNT_MAX || reserve::reserve(&mut self.entries, 1).is_err() {
                    return;
                }
                self.entries.push(entry);
            }
        }
        if !old {
            let timers = self.timers_of(is_v4);
            timers.change_ns = now_ns.saturating_add(FIRST_NS);
        }
    }

    /// A group is listened to from now on.
    pub(super) fn join(&mut self, group: IpAddr, now_ns: u64) {
        self.changed(group, false, now_ns);
    }

    /// It is no more.
    pub(super) fn leave(&mut self, group: IpAddr, now_ns: u64) {
        self.changed(group, true, now_ns);
    }

    /// A router asks.
    pub(super) fn hear(&mut self, query: Query, now_ns: u64, random: &mut dyn FnMut() -> u32) {
        let timers = self.timers_of(query.is_v4);
        if query.is_old {
            // What was to be told in the newest version is not.
            (timers.old_until_ns, timers.change_ns, timers.answer_ns) =
                (now_ns.saturating_add(OLD_NS), FOR_EVER_NS, FOR_EVER_NS);
            self.entries.retain(|entry| !(entry.is_left && entry.group.is_ipv4() == query.is_v4));
        }
        let is_old = self.timers_of(query.is_v4).old_until_ns > now_ns;
        if query.group.is_none() && !is_old {
            let at_ns = now_ns.saturating_add(part_of(query.within_ns, random()));
            let timers = self.timers_of(query.is_v4);
            timers.answer_ns = timers.answer_ns.min(at_ns);
            return;
        }
        let is_asked = |entry: &&mut Entry| {
            !entry.is_left
                && entry.group.is_ipv4() == query.is_v4
                && query.group.is_none_or(|group| group == entry.group)
        };
        for entry in self.entries.iter_mut().filter(is_asked) {
            let at_ns = now_ns.saturating_add(part_of(query.within_ns, random()));
            entry.at_ns = entry.at_ns.min(at_ns);
        }
    }

    /// Another machine reports a group in an older version: that is enough for its router.
    pub(super) fn hear_report(&mut self, group: IpAddr) {
        for entry in self.entries.iter_mut().filter(|entry| entry.group == group && !entry.is_left) {
            (entry.at_ns, entry.change_count, entry.is_reporter) = (FOR_EVER_NS, 0, false);
        }
    }

    /// When something is to be sent.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let timers = self.timers.iter().flat_map(|timers| [timers.change_ns, timers.answer_ns]);
        let due = timers.chain(self.entries.iter().map(|entry| entry.at_ns)).min();
        due.filter(|due_ns| *due_ns != FOR_EVER_NS)
    }

    /// What is to be sent now.
    pub(super) fn take_due(&mut self, now_ns: u64, random: &mut dyn FnMut() -> u32) -> Vec<Message> {
        let mut messages = Vec::new();
        // Two reports of a family, and each group by itself: if there is no memory for that, it is not told.
        if self.due_ns().is_none_or(|due_ns| due_ns > now_ns) || reserve::reserve(&mut messages, 4).is_err() {
            return messages;
        }
        for is_v4 in [true, false] {
            if self.timers_of(is_v4).change_ns <= now_ns {
                messages.extend(self.changes(is_v4).map(Message::Report));
                let goes_on = self.entries.iter().any(|entry| entry.group.is_ipv4() == is_v4 && entry.change_count > 0);
                let next_ns = now_ns.saturating_add(part_of(AGAIN_NS_MAX, random()).max(MILLISECOND_NS));
                self.timers_of(is_v4).change_ns = if goes_on { next_ns } else { FOR_EVER_NS };
            }
            if self.timers_of(is_v4).answer_ns <= now_ns {
                self.timers_of(is_v4).answer_ns = FOR_EVER_NS;
                messages.extend(self.answer(is_v4).map(Message::Report));
            }
        }
        for at in 0..self.entries.len() {
            if self.entries[at].at_ns <= now_ns && reserve::reserve(&mut messages, 1).is_ok() {
                messages.extend(self.take_one(at, now_ns, random));
            }
        }
        self.entries.retain(|entry| !entry.is_left || entry.change_count > 0);
        messages
    }

    /// A group is told by itself.
    fn take_one(&mut self, at: usize, now_ns: u64, random: &mut dyn FnMut() -> u32) -> Option<Message> {
        let group = self.entries[at].group;
        let is_old = self.timers_of(group.is_ipv4()).old_until_ns > now_ns;
        let entry = &mut self.entries[at];
        entry.at_ns = FOR_EVER_NS;
        if !is_old {
            let mut records = reserve::vector(1).ok()?;
            records.push((RecordKind::Is, group));
            return Some(Message::Report(records));
        }
        if entry.is_left {
            entry.change_count = 0;
            return entry.is_reporter.then_some(Message::OldLeave(group));
        }
        entry.is_reporter = true;
        entry.change_count = entry.change_count.saturating_sub(1);
        if entry.change_count > 0 {
            entry.at_ns = now_ns.saturating_add(part_of(OLD_AGAIN_NS_MAX, random()).max(MILLISECOND_NS));
        }
        Some(Message::OldReport(group))
    }

    fn changes(&mut self, is_v4: bool) -> Option<Vec<(RecordKind, IpAddr)>> {
        let mut records = reserve::vector(RECORD_COUNT_MAX).ok()?;
        let changed = self.entries.iter_mut().filter(|it| it.group.is_ipv4() == is_v4 && it.change_count > 0);
        for entry in changed.take(RECORD_COUNT_MAX) {
            entry.change_count -= 1;
            records.push((if entry.is_left { RecordKind::Left } else { RecordKind::Joined }, entry.group));
        }
        (!records.is_empty()).then_some(records)
    }

    fn answer(&self, is_v4: bool) -> Option<Vec<(RecordKind, IpAddr)>> {
        let mut records = reserve::vector(RECORD_COUNT_MAX).ok()?;
        // As on Linux, what was joined last comes first.
        let listened = self.entries.iter().rev().filter(|it| it.group.is_ipv4() == is_v4 && !it.is_left);
        records.extend(listened.take(RECORD_COUNT_MAX).map(|entry| (RecordKind::Is, entry.group)));
        (!records.is_empty()).then_some(records)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::net::IpAddr;

    use proptest::prelude::*;

    use super::{GROUP_COUNT_MAX, Memberships, Message, Query, RecordKind, SECOND_NS};

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn query(group: Option<&str>, is_v4: bool, is_old: bool) -> Query {
        Query { group: group.map(at), is_v4, is_old, within_ns: 10 * SECOND_NS }
    }

    /// Everything that is sent until nothing is due any more.
    fn all(groups: &mut Memberships) -> (alloc::vec::Vec<Message>, u64) {
        let (mut sent, mut now_ns) = (vec![], 0);
        while let Some(due_ns) = groups.due_ns() {
            assert!(due_ns >= now_ns, "time goes on");
            now_ns = due_ns;
            sent.extend(groups.take_due(now_ns, &mut || u32::MAX / 2));
        }
        (sent, now_ns)
    }

    #[test]
    fn a_change_is_told_twice() {
        let mut groups = Memberships::default();
        groups.join(at("239.1.2.3"), 0);
        groups.join(at("ff02::9"), 0);
        groups.join(at("224.0.0.1"), 0);
        groups.join(at("ff02::1"), 0);
        groups.join(at("ff01::7"), 0);
        let joined = |group| Message::Report(vec![(RecordKind::Joined, at(group))]);
        let (sent, now_ns) = all(&mut groups);
        assert_eq!(sent, [joined("239.1.2.3"), joined("ff02::9"), joined("239.1.2.3"), joined("ff02::9")]);
        assert!(now_ns < SECOND_NS);
        groups.leave(at("239.1.2.3"), now_ns);
        groups.leave(at("239.9.9.9"), now_ns);
        let left = Message::Report(vec![(RecordKind::Left, at("239.1.2.3"))]);
        assert_eq!(all(&mut groups).0, [left.clone(), left]);
        assert_eq!(groups.groups().collect::<vec::Vec<_>>(), [at("ff02::9")]);
    }

    #[test]
    fn a_question_is_answered_in_its_time() {
        let mut groups = Memberships::default();
        for group in ["239.1.2.3", "239.1.2.4", "ff02::9"] {
            groups.join(at(group), 0);
        }
        all(&mut groups);
        groups.hear(query(None, true, false), 0, &mut || u32::MAX / 2);
        let both = vec![(RecordKind::Is, at("239.1.2.4")), (RecordKind::Is, at("239.1.2.3"))];
        assert_eq!(groups.due_ns().map(|due_ns| due_ns / SECOND_NS), Some(4));
        assert_eq!(all(&mut groups).0, [Message::Report(both)]);
        groups.hear(query(Some("ff02::9"), false, false), 0, &mut || 0);
        assert_eq!(all(&mut groups).0, [Message::Report(vec![(RecordKind::Is, at("ff02::9"))])]);
        groups.hear(query(Some("239.7.7.7"), true, false), 0, &mut || 0);
        assert_eq!(all(&mut groups).0, []);
    }

    #[test]
    fn an_older_router_is_told_in_its_version() {
        let mut groups = Memberships::default();
        groups.join(at("239.1.2.3"), 0);
        all(&mut groups);
        groups.hear(query(None, true, true), 0, &mut || 0);
        assert_eq!(all(&mut groups).0, [Message::OldReport(at("239.1.2.3"))]);
        groups.join(at("239.1.2.4"), 0);
        assert_eq!(all(&mut groups).0, [Message::OldReport(at("239.1.2.4")), Message::OldReport(at("239.1.2.4"))]);
        // Another machine has said so meanwhile: it says that it leaves, too.
        groups.hear_report(at("239.1.2.4"));
        groups.leave(at("239.1.2.4"), 0);
        groups.leave(at("239.1.2.3"), 0);
        assert_eq!(all(&mut groups).0, [Message::OldLeave(at("239.1.2.3"))]);
        let later_ns = 300 * SECOND_NS;
        groups.join(at("239.1.2.5"), later_ns);
        let due_ns = groups.due_ns().expect("it is to be told");
        let joined = Message::Report(vec![(RecordKind::Joined, at("239.1.2.5"))]);
        assert_eq!(groups.take_due(due_ns, &mut || 0), [joined]);
    }

    proptest! {
        #[test]
        fn whatever_is_joined_asked_and_left_ends(
            steps in proptest::collection::vec((0u8..5, 0u8..200, any::<bool>(), any::<bool>()), 0..300),
        ) {
            let mut groups = Memberships::default();
            let mut now_ns = 0;
            for (kind, number, is_v4, is_old) in steps {
                let v6 = at(&std::format!("ff05::{number:x}"));
                let group = if is_v4 { IpAddr::from([239, 0, 0, number]) } else { v6 };
                match kind {
                    0 => groups.join(group, now_ns),
                    1 => groups.leave(group, now_ns),
                    2 => groups.hear_report(group),
                    3 => groups.hear(Query { group: None, is_v4, is_old, within_ns: SECOND_NS }, now_ns, &mut || 7),
                    _ => groups.hear(Query { group: Some(group), is_v4, is_old, within_ns: 0 }, now_ns, &mut || 7),
                }
                now_ns += u64::from(number) * 20_000_000;
                let _ = groups.take_due(now_ns, &mut || u32::from(number) << 24);
                prop_assert!(groups.entries.len() <= GROUP_COUNT_MAX);
                prop_assert!(groups.due_ns().is_none_or(|due_ns| due_ns > now_ns));
            }
            let mut turns = 0;
            while let Some(due_ns) = groups.due_ns() {
                let _ = groups.take_due(due_ns, &mut || u32::MAX);
                turns += 1;
                prop_assert!(turns < 1000);
            }
            prop_assert!(groups.entries.iter().all(|entry| !entry.is_left));
        }
    }
}
