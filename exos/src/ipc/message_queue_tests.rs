//! Queues against a naive model: one list of messages, one of receivers.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::account::Account;
use super::message_queue::{Look, MessageQueues, ReceiveRequest, ReceiveWait, Receiving, Selection, SendWait, Sending};
use super::permission::Caller;
use crate::error::{Errno, Result};
use crate::fs::Count;
use crate::fs::readiness::Waiter;
use crate::task::capability::CapabilitySet;

fn caller() -> Caller<'static> {
    Caller { uid: 0, gid: 0, groups: &[], capabilities: CapabilitySet::ALL, pid: 3, now_s: 7 }
}

fn nobody() -> Weak<dyn Waiter> {
    let waiter: Weak<Count> = Weak::new();
    waiter
}

fn empty() -> (Arc<Account>, MessageQueues) {
    let account = Account::new(1 << 20);
    (account.clone(), MessageQueues::new(account))
}

fn send(queues: &MessageQueues, id: i32, kind: i64, text: &[u8]) -> Result<bool> {
    let message = queues.message(kind, text.len(), |bytes| {
        bytes.copy_from_slice(text);
        Ok(())
    })?;
    match queues.send(&caller(), id, message, true, nobody())? {
        Sending::Done => Ok(true),
        Sending::Waits(..) => Ok(false),
    }
}

fn request(selection: Selection, room_bytes: usize) -> ReceiveRequest {
    ReceiveRequest { selection, room_bytes, cuts: false, copies: false, no_wait: true }
}

fn receive(queues: &MessageQueues, id: i32, request: ReceiveRequest) -> Result<(i64, Vec<u8>)> {
    match queues.receive(&caller(), id, request, nobody())? {
        Receiving::Done(message) => Ok((message.kind, message.bytes)),
        Receiving::Waits(_) => Err(Errno::EAGAIN),
    }
}

/// Where the message is that a selection means.
fn find(messages: &VecDeque<(i64, Vec<u8>)>, selection: Selection) -> Option<usize> {
    match selection {
        Selection::Any => (!messages.is_empty()).then_some(0),
        Selection::Equal(kind) => messages.iter().position(|message| message.0 == kind),
        Selection::NotEqual(kind) => messages.iter().position(|message| message.0 != kind),
        Selection::Place(place) => usize::try_from(place).ok().filter(|place| *place < messages.len()),
        Selection::UpTo(most) => {
            let fitting = messages.iter().enumerate().filter(|(_, message)| message.0 <= most);
            fitting.min_by_key(|(index, message)| (message.0, *index)).map(|(index, _)| index)
        }
    }
}

#[test]
fn random_messages_come_out_as_in_the_model() {
    let mut state = 11_u64;
    let mut below = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let (account, queues) = empty();
    let id = queues.get(&caller(), 0, (true, false), 0o600).unwrap();
    queues.set(&caller(), id, (0, 0, 0o600), 40).unwrap();
    let mut model: VecDeque<(i64, Vec<u8>)> = VecDeque::new();
    for round in 0..20_000_u64 {
        if below(2) == 0 {
            let text = alloc::vec![round as u8; below(12) as usize];
            let kind = 1 + below(5) as i64;
            let fits = model.iter().map(|message| message.1.len()).sum::<usize>() + text.len() <= 40;
            let expected = if fits && model.len() < 40 { Ok(true) } else { Err(Errno::EAGAIN) };
            assert_eq!(send(&queues, id, kind, &text), expected);
            if expected.is_ok() {
                model.push_back((kind, text));
            }
            continue;
        }
        let kind = 1 + below(5) as i64;
        let selection = match below(5) {
            0 => Selection::Any,
            1 => Selection::Equal(kind),
            2 => Selection::NotEqual(kind),
            3 => Selection::UpTo(kind),
            _ => Selection::Place(below(6) as i64),
        };
        let copies = matches!(selection, Selection::Place(_));
        let asked = ReceiveRequest { cuts: below(2) == 0, copies, ..request(selection, below(12) as usize) };
        let expected = match find(&model, selection) {
            None => Err(Errno::ENOMSG),
            Some(place) if model[place].1.len() > asked.room_bytes && !asked.cuts => Err(Errno::E2BIG),
            Some(place) if copies && model[place].1.len() > asked.room_bytes => {
                let _ = place;
                Err(Errno::EINVAL)
            }
            Some(place) if copies => Ok(model[place].clone()),
            Some(place) => Ok(model.remove(place).unwrap()),
        };
        assert_eq!(receive(&queues, id, asked), expected);
        let status = queues.status(&caller(), id, Look::Number).unwrap();
        let bytes: usize = model.iter().map(|message| message.1.len()).sum();
        assert_eq!((status.message_count, status.bytes), (model.len() as u64, bytes as u64));
    }
    queues.remove(&caller(), id).unwrap();
    assert_eq!(account.used_bytes(), 0);
}

fn wait_for<'a>(queues: &'a MessageQueues, id: i32, selection: Selection, room_bytes: usize) -> ReceiveWait<'a> {
    let asked = ReceiveRequest { no_wait: false, ..request(selection, room_bytes) };
    match queues.receive(&caller(), id, asked, nobody()) {
        Ok(Receiving::Waits(wait)) => wait,
        _ => panic!("there is something"),
    }
}

fn wait_for_room<'a>(queues: &'a MessageQueues, id: i32, length: usize) -> SendWait<'a> {
    let message = queues.message(1, length, |_| Ok(())).unwrap();
    match queues.send(&caller(), id, message, false, nobody()) {
        Ok(Sending::Waits(wait, _)) => wait,
        _ => panic!("there is room"),
    }
}

#[test]
fn a_message_goes_to_the_first_who_takes_it() {
    let (_, queues) = empty();
    let id = queues.get(&caller(), 0, (true, false), 0o600).unwrap();
    let (other, small, fitting) = (
        wait_for(&queues, id, Selection::Equal(9), 100),
        wait_for(&queues, id, Selection::Any, 2),
        wait_for(&queues, id, Selection::UpTo(5), 100),
    );
    assert_eq!(send(&queues, id, 4, b"abc"), Ok(true));
    assert_eq!(small.outcome().map(|outcome| outcome.map(|message| message.bytes)), Some(Err(Errno::E2BIG)));
    assert_eq!(fitting.outcome().map(|outcome| outcome.map(|message| message.bytes)), Some(Ok(b"abc".to_vec())));
    assert!(other.outcome().is_none());
    assert_eq!(queues.status(&caller(), id, Look::Number).unwrap().message_count, 0);
    drop(other);
    assert_eq!(send(&queues, id, 9, b"stays"), Ok(true));
    assert_eq!(receive(&queues, id, request(Selection::Any, 100)), Ok((9, b"stays".to_vec())));
}

#[test]
fn senders_are_called_in_order_for_the_room_there_is() {
    let (_, queues) = empty();
    let id = queues.get(&caller(), 0, (true, false), 0o600).unwrap();
    queues.set(&caller(), id, (0, 0, 0o600), 10).unwrap();
    send(&queues, id, 1, b"12345678").unwrap();
    let (large, small) = (wait_for_room(&queues, id, 9), wait_for_room(&queues, id, 3));
    assert!(large.outcome().is_none() && small.outcome().is_none());
    receive(&queues, id, request(Selection::Any, 10)).unwrap();
    assert_eq!((large.outcome(), small.outcome()), (Some(Ok(())), Some(Ok(()))));
    send(&queues, id, 1, b"12345678").unwrap();
    let (again, receiver) = (wait_for_room(&queues, id, 9), wait_for(&queues, id, Selection::Equal(3), 1));
    queues.remove(&caller(), id).unwrap();
    assert_eq!(again.outcome(), Some(Err(Errno::EIDRM)));
    assert!(matches!(receiver.give_up(), Some(Err(Errno::EIDRM))));
}

#[test]
fn messages_are_bounded_by_their_limit_and_by_the_account() {
    let (account, queues) = empty();
    assert!(matches!(queues.message(1, 8193, |_| Ok(())), Err(Errno::EINVAL)));
    assert!(matches!(queues.message(0, 1, |_| Ok(())), Err(Errno::EINVAL)));
    assert!(matches!(queues.message(1, 1, |_| Err(Errno::EFAULT)), Err(Errno::EFAULT)));
    assert_eq!(account.used_bytes(), 0);
    let mut kept = Vec::new();
    let error = loop {
        match queues.message(1, 8192, |_| Ok(())) {
            Ok(message) => kept.push(message),
            Err(error) => break error,
        }
    };
    assert_eq!((kept.len(), error), (127, Errno::ENOMEM));
}
