//! Currencies and tickets with names: what is allowed, what is refused, what they are worth, and when they end.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_lottery::{AMOUNT_SUM_MAX, Error};
use proptest::prelude::*;

use super::share_tests::{Pod, is_fair, wins};
use super::{GroupId, Holder, Purse, Refusal, Scheduler, Task, WEIGHT_DEFAULT};

const ROOT: u32 = 0;
const ANN: u32 = 1000;
const BOB: u32 = 1001;

fn named(name: &str) -> Holder {
    Holder::Named(String::from(name))
}

fn refused<T>(error: Error) -> Result<T, Refusal> {
    Err(Refusal::Lottery(error))
}

/// Everything that can be seen, and that the tables hold what they should.
fn seen(scheduler: &Scheduler) -> impl PartialEq + core::fmt::Debug {
    assert!(scheduler.inner.lock().queues.lots.tables.check());
    (scheduler.ticket_lines(), scheduler.currency_names())
}

/// A ticket of an amount that funds something.
fn give(scheduler: &Scheduler, amount: u64, issuer: &Holder, target: &Holder) -> u32 {
    let number = scheduler.issue_ticket(ROOT, amount, issuer).expect("a ticket");
    scheduler.fund_ticket(ROOT, number, target, false).expect("funding");
    number
}

/// A purse with one task that computes.
fn purse(pod: &mut Pod, owner: u32) -> (GroupId, Arc<Task>) {
    let purse = pod.scheduler.open_purse(GroupId::ROOT, Purse { process: 7, owner }).expect("a purse");
    (purse, pod.add(purse, WEIGHT_DEFAULT))
}

#[test]
fn what_is_funded_runs_by_what_funds_it() {
    // 1000 of base for the shop, of which the first has two thirds, beside two ordinary tasks and two floors.
    let wins = wins(|pod| {
        pod.scheduler.make_currency(ROOT, "shop").expect("a currency");
        give(&pod.scheduler, 1000, &Holder::Base, &named("shop"));
        for amount in [200, 100] {
            let (purse, _) = purse(pod, ROOT);
            give(&pod.scheduler, amount, &named("shop"), &Holder::Group(purse));
        }
        pod.add(GroupId::ROOT, WEIGHT_DEFAULT);
        pod.add(GroupId::ROOT, WEIGHT_DEFAULT);
    });
    assert!(is_fair(&wins, (1000.0 * 2.0 / 3.0 + 1.0) / (1000.0 + 2.0 + 2048.0)), "{wins:?}");
}

#[test]
fn inflation_stays_within_its_currency() {
    // Figure 9 of the paper: what the second currency issues more is nothing to the first.
    let wins = wins(|pod| {
        for name in ["a", "b"] {
            pod.scheduler.make_currency(ROOT, name).expect("a currency");
            give(&pod.scheduler, 1 << 20, &Holder::Base, &named(name));
        }
        for (name, amount) in [("a", 100), ("b", 100), ("b", 300), ("b", 90_000)] {
            let (purse, _) = purse(pod, ROOT);
            give(&pod.scheduler, amount, &named(name), &Holder::Group(purse));
        }
    });
    assert!(is_fair(&wins, 0.5), "{wins:?}");
}

#[test]
fn bad_input_changes_nothing() {
    let mut pod = Pod::new(1);
    let (purse, _task) = purse(&mut pod, ANN);
    let scheduler = pod.scheduler.clone();
    for (who, name) in [(ROOT, "above"), (ANN, "ann"), (ANN, "below")] {
        scheduler.make_currency(who, name).expect("a currency");
    }
    let loose = scheduler.issue_ticket(ANN, 5, &named("ann")).expect("a ticket");
    let used = give(&scheduler, 10, &named("above"), &named("ann"));
    let down = give(&scheduler, 10, &named("ann"), &named("below"));
    let before = seen(&scheduler);
    let make = |name: &str| scheduler.make_currency(ANN, name);
    for name in ["", "base", "1a", "/a", "a b", "a\n", &"a".repeat(33)] {
        assert_eq!(make(name), Err(Refusal::BadName), "{name:?}");
    }
    assert_eq!(make("ann"), Err(Refusal::Exists));
    let issue = |who, amount, issuer: &Holder| scheduler.issue_ticket(who, amount, issuer);
    assert_eq!(issue(ANN, 0, &named("ann")), refused(Error::ZeroAmount));
    assert_eq!(issue(ANN, AMOUNT_SUM_MAX, &named("ann")), refused(Error::SumTooLarge), "with what it issued");
    assert_eq!(issue(ANN, u64::MAX, &named("ann")), refused(Error::SumTooLarge));
    assert_eq!(issue(ANN, 1, &named("none")), refused(Error::UnknownCurrency));
    assert_eq!(issue(ANN, 1, &Holder::Group(purse)), refused(Error::UnknownCurrency), "a purse issues nothing");
    for (who, issuer) in [(BOB, named("ann")), (ANN, named("above")), (ANN, Holder::Base)] {
        assert_eq!(issue(who, 1, &issuer), Err(Refusal::NotAllowed), "{issuer:?}");
    }
    let fund = |who, number, target: &Holder| scheduler.fund_ticket(who, number, target, false);
    assert_eq!(fund(ANN, loose, &named("ann")), refused(Error::Cycle), "itself");
    assert_eq!(fund(ROOT, loose, &named("above")), refused(Error::Cycle));
    assert_eq!(fund(ROOT, loose, &Holder::Base), refused(Error::IsBase));
    assert_eq!(fund(ANN, loose, &named("none")), refused(Error::UnknownCurrency));
    assert_eq!(fund(ANN, 99, &named("below")), refused(Error::UnknownTicket));
    assert_eq!(fund(ROOT, used, &named("below")), refused(Error::InUse));
    for (who, number, target) in [(BOB, loose, named("below")), (ANN, loose, named("above")), (ANN, used, named("ann"))]
    {
        assert_eq!(fund(who, number, &target), Err(Refusal::NotAllowed), "{who} {number} {target:?}");
    }
    assert_eq!(fund(BOB, loose, &Holder::Group(purse)), Err(Refusal::NotAllowed), "another's process");
    assert_eq!(scheduler.remove_currency(ANN, "ann"), refused(Error::InUse));
    assert_eq!(scheduler.remove_currency(BOB, "ann"), Err(Refusal::NotAllowed));
    assert_eq!(scheduler.remove_currency(ROOT, "base"), refused(Error::UnknownCurrency));
    assert_eq!(scheduler.remove_ticket(BOB, loose), Err(Refusal::NotAllowed));
    assert_eq!(scheduler.remove_ticket(ANN, 99), refused(Error::UnknownTicket));
    assert_eq!(scheduler.unfund_ticket(BOB, down), Err(Refusal::NotAllowed));
    assert_eq!(scheduler.unfund_ticket(ANN, 99), refused(Error::UnknownTicket));
    assert_eq!(seen(&scheduler), before);
    // What is funded may be given back by its owner, and a ticket be ended by the owner of its currency.
    assert_eq!(scheduler.unfund_ticket(ANN, used), Ok(()));
    assert_eq!(scheduler.remove_ticket(ANN, down), Ok(()), "made by user 0, of ann's");
    assert_eq!(scheduler.remove_ticket(ANN, loose), Ok(()));
    assert_eq!(scheduler.remove_currency(ANN, "ann"), Ok(()));
}

#[test]
fn tables_have_a_limit() {
    let scheduler = Pod::new(1).scheduler;
    for index in 0..super::ledger::CURRENCY_COUNT_MAX {
        assert_eq!(scheduler.make_currency(ANN, &format!("c{index}")), Ok(()));
    }
    assert_eq!(scheduler.make_currency(ROOT, "more"), Err(Refusal::Full));
    for _ in 0..super::ledger::TICKET_COUNT_MAX {
        assert!(scheduler.issue_ticket(ANN, 1, &named("c0")).is_ok());
    }
    assert_eq!(scheduler.issue_ticket(ROOT, 1, &Holder::Base), Err(Refusal::Full));
    assert_eq!(scheduler.remove_ticket(ANN, 17), Ok(()));
    let next = super::ledger::TICKET_COUNT_MAX as u32 + 1;
    assert_eq!(scheduler.issue_ticket(ANN, 1, &named("c0")), Ok(next), "a number is not used again");
    while scheduler.open_purse(GroupId::ROOT, Purse { process: 1, owner: ANN }).is_ok() {}
    assert!(scheduler.inner.lock().queues.lots.tables.check());
}

#[test]
fn a_purse_ends_with_the_last_who_is_in_it() {
    let mut pod = Pod::new(3);
    let (purse, first) = purse(&mut pod, ANN);
    let scheduler = pod.scheduler.clone();
    let kept = give(&scheduler, 10, &Holder::Base, &Holder::Group(purse));
    let bound = scheduler.issue_ticket(ROOT, 20, &Holder::Base).expect("a ticket");
    scheduler.fund_ticket(ROOT, bound, &Holder::Group(purse), true).expect("funding");
    let child = scheduler.new_task(Some(&first));
    scheduler.start(&child);
    assert_eq!(child.group(), purse, "what it starts is in it too");
    first.set_group(GroupId::ROOT, 0).expect("the pod is there");
    assert!(scheduler.purse(purse).is_some());
    assert!(scheduler.pick(0, 0).is_some());
    while !child.is_running() {
        pod.pass(super::SLICE_NS);
    }
    let _ = scheduler.end(0, pod.now_ns);
    assert_eq!(scheduler.purse(purse), None);
    let lines = scheduler.ticket_lines();
    assert_eq!((lines.len(), lines[0].number, lines[0].target.clone()), (1, kept, None));
    assert!(scheduler.inner.lock().queues.lots.tables.check());
}

#[test]
fn a_group_with_tickets_keeps_its_currency() {
    let pod = Pod::new(4);
    let group = pod.group(100);
    let scheduler = &pod.scheduler;
    let funding = give(scheduler, 10, &Holder::Base, &Holder::Group(group));
    assert_eq!(scheduler.set_group_funded(group, false), Err(crate::error::Errno::EBUSY));
    scheduler.remove_ticket(ROOT, funding).expect("a ticket");
    let issued = scheduler.issue_ticket(ROOT, 10, &Holder::Group(group)).expect("a ticket");
    assert_eq!(scheduler.set_group_funded(group, false), Err(crate::error::Errno::EBUSY));
    scheduler.remove_ticket(ROOT, issued).expect("a ticket");
    assert_eq!(scheduler.set_group_funded(group, false), Ok(()));
}

/// What a test knows of tickets: amount, issuer, target, owner.
type Known = (u64, usize, Option<usize>, u32);

/// Whether `from` leads to `to` by tickets that fund something.
fn leads(tickets: &BTreeMap<u32, Known>, from: usize, to: usize) -> bool {
    let next = tickets.values().filter(|ticket| ticket.1 == from).filter_map(|ticket| ticket.2);
    from == to || next.into_iter().any(|next| leads(tickets, next, to))
}

/// Whether what can be seen is what is known.
fn agree(scheduler: &Scheduler, known: &BTreeMap<u32, Known>, holders: &[Holder]) -> Result<(), TestCaseError> {
    let lines = scheduler.ticket_lines();
    prop_assert_eq!(lines.len(), known.len());
    for (line, (number, ticket)) in lines.iter().zip(known) {
        prop_assert_eq!((line.number, line.amount, line.owner), (*number, ticket.0, ticket.3));
        prop_assert_eq!(&line.issuer, &holders[ticket.1]);
        prop_assert_eq!(line.target.as_ref(), ticket.2.map(|target| &holders[target]));
    }
    prop_assert!(scheduler.inner.lock().queues.lots.tables.check());
    Ok(())
}

#[derive(Clone, Debug)]
enum Act {
    Issue { amount: u64, issuer: usize },
    Remove(usize),
    Fund { ticket: usize, target: usize },
    Unfund(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let amount = prop_oneof![Just(0), 1..1000_u64, Just(AMOUNT_SUM_MAX / 2), Just(u64::MAX)];
    prop_oneof![
        3 => (amount, 0..6_usize).prop_map(|(amount, issuer)| Act::Issue { amount, issuer }),
        1 => any::<usize>().prop_map(Act::Remove),
        4 => (any::<usize>(), 0..6_usize).prop_map(|(ticket, target)| Act::Fund { ticket, target }),
        2 => any::<usize>().prop_map(Act::Unfund),
    ]
}

proptest! {
    /// Against a model that knows currencies by number and follows tickets one by one. Odd currencies are ann's.
    #[test]
    fn rules_are_the_models(acts in proptest::collection::vec((any::<bool>(), act()), 0..120)) {
        let scheduler = Pod::new(2).scheduler;
        let owner = |currency: usize| if currency % 2 == 1 { ANN } else { ROOT };
        let holders: Vec<Holder> =
            (0..6).map(|index| if index == 0 { Holder::Base } else { named(&format!("c{index}")) }).collect();
        for index in 1..6 {
            scheduler.make_currency(owner(index), &format!("c{index}")).expect("a currency");
        }
        let mut known: BTreeMap<u32, Known> = BTreeMap::new();
        for (is_ann, act) in acts {
            let who = if is_ann { ANN } else { ROOT };
            let may = |owner: u32| who == ROOT || who == owner;
            let pick = |index: usize| known.keys().nth(index % known.len().max(1)).copied().unwrap_or(u32::MAX);
            match act {
                Act::Issue { amount, issuer } => {
                    let sum: u64 = known.values().filter(|ticket| ticket.1 == issuer).map(|ticket| ticket.0).sum();
                    let expected = match amount {
                        _ if !may(owner(issuer)) => Some(Refusal::NotAllowed),
                        0 => Some(Refusal::Lottery(Error::ZeroAmount)),
                        _ if amount > AMOUNT_SUM_MAX - sum => Some(Refusal::Lottery(Error::SumTooLarge)),
                        _ => None,
                    };
                    let made = scheduler.issue_ticket(who, amount, &holders[issuer]);
                    prop_assert_eq!(made.err(), expected);
                    if let Ok(number) = made {
                        known.insert(number, (amount, issuer, None, who));
                    }
                }
                Act::Remove(index) => {
                    let number = pick(index);
                    let expected = known.get(&number).map(|ticket| may(ticket.3) || may(owner(ticket.1)));
                    let done = scheduler.remove_ticket(who, number);
                    prop_assert_eq!(done.is_ok(), expected == Some(true));
                    if done.is_ok() {
                        known.remove(&number);
                    }
                }
                Act::Fund { ticket, target } => {
                    let number = pick(ticket);
                    let done = scheduler.fund_ticket(who, number, &holders[target], false);
                    let expected = known.get(&number).is_some_and(|ticket| {
                        may(ticket.3) && may(owner(target)) && target != 0 && ticket.2.is_none()
                            && !leads(&known, target, ticket.1)
                    });
                    prop_assert_eq!(done.is_ok(), expected);
                    if let (Ok(()), Some(ticket)) = (done, known.get_mut(&number)) {
                        ticket.2 = Some(target);
                    }
                }
                Act::Unfund(index) => {
                    let number = pick(index);
                    let expected = known
                        .get(&number)
                        .is_some_and(|ticket| may(ticket.3) || ticket.2.is_some_and(|target| may(owner(target))));
                    let done = scheduler.unfund_ticket(who, number);
                    prop_assert_eq!(done.is_ok(), expected);
                    if let (Ok(()), Some(ticket)) = (done, known.get_mut(&number)) {
                        ticket.2 = None;
                    }
                }
            }
            agree(&scheduler, &known, &holders)?;
        }
        for index in 1..6 {
            let is_used = known.values().any(|ticket| ticket.1 == index || ticket.2 == Some(index));
            prop_assert_eq!(scheduler.remove_currency(ROOT, &format!("c{index}")).is_ok(), !is_used);
        }
    }
}
