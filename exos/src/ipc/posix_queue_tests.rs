//! Queues with priorities against a sorted list, and what bounds them.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::account::Account;
use super::posix_queue::{
    Capacity, Limits, Maker, Notification, PosixQueue, PosixQueues, Receiving, Sending, check_name,
};
use crate::error::{Errno, Result};
use crate::fs::Count;
use crate::fs::readiness::{Readiness, Waiter};

fn nobody() -> Weak<dyn Waiter> {
    let waiter: Weak<Count> = Weak::new();
    waiter
}

fn maker(uid: u32) -> Maker {
    Maker { uid, gid: 0, permissions: 0o600, bytes_max: 819_200, may_exceed: false }
}

fn capacity(message_count: u64, message_bytes: u64) -> Option<Capacity> {
    Some(Capacity { message_count, message_bytes })
}

fn send(queue: &PosixQueue, priority: u32, text: &[u8]) -> Result<Option<Notification>> {
    let message = queue.message(priority, text.len() as u64, |bytes| {
        bytes.copy_from_slice(text);
        Ok(())
    })?;
    match queue.send(message, true, nobody())? {
        Sending::Done(told) => Ok(told),
        Sending::Waits(_) => Err(Errno::EINTR),
    }
}

fn receive(queue: &PosixQueue) -> Result<(u32, Vec<u8>)> {
    match queue.receive(true, nobody())? {
        Receiving::Done(message) => Ok((message.priority, message.bytes)),
        Receiving::Waits(_) => Err(Errno::EINTR),
    }
}

fn one() -> (Arc<Account>, Arc<PosixQueue>) {
    let account = Account::new(1 << 20);
    let queues = PosixQueues::new(account.clone());
    (account, queues.find_or_make(b"q", maker(1), capacity(5, 16)).unwrap().0)
}

#[test]
fn messages_go_by_priority_then_by_age() {
    let mut state = 5_u64;
    let mut below = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let (account, queue) = one();
    let mut model: Vec<(u32, Vec<u8>)> = Vec::new();
    for round in 0..5000_u64 {
        if below(2) == 0 {
            let (priority, text) = (below(4) as u32, round.to_le_bytes()[..below(9) as usize].to_vec());
            let expected = if model.len() < 5 { Ok(None) } else { Err(Errno::EAGAIN) };
            assert_eq!(send(&queue, priority, &text), expected);
            if expected.is_ok() {
                let place = model.iter().position(|message| message.0 < priority).unwrap_or(model.len());
                model.insert(place, (priority, text));
            }
        } else {
            let expected = if model.is_empty() { Err(Errno::EAGAIN) } else { Ok(model.remove(0)) };
            assert_eq!(receive(&queue), expected);
        }
        let (bytes, _) = queue.summary();
        assert_eq!(bytes, model.iter().map(|message| message.1.len() as u64).sum::<u64>());
        assert_eq!(queue.readiness().contains(Readiness::READ), !model.is_empty());
        assert_eq!(queue.readiness().contains(Readiness::WRITE), model.len() < 5);
    }
    drop(queue);
    assert_eq!(account.used_bytes(), 0);
}

#[test]
fn who_waited_longest_is_served_and_one_who_gave_up_is_not() {
    let (_, queue) = one();
    let wait = || match queue.receive(false, nobody()) {
        Ok(Receiving::Waits(wait)) => wait,
        _ => panic!("there is a message"),
    };
    let (first, second, third) = (wait(), wait(), wait());
    drop(first);
    assert_eq!(send(&queue, 1, b"a"), Ok(None));
    assert_eq!(second.outcome().map(|message| message.bytes), Some(b"a".to_vec()));
    assert!(third.give_up().is_none());
    for _ in 0..5 {
        send(&queue, 1, b"b").unwrap();
    }
    let pending = |text: &[u8]| {
        let message = queue.message(2, 1, |bytes| {
            bytes.copy_from_slice(text);
            Ok(())
        });
        match queue.send(message.unwrap(), false, nobody()) {
            Ok(Sending::Waits(wait)) => wait,
            _ => panic!("there is room"),
        }
    };
    let (early, late) = (pending(b"c"), pending(b"d"));
    drop(early);
    assert_eq!(receive(&queue), Ok((1, b"b".to_vec())));
    assert!(late.is_sent());
    assert_eq!(receive(&queue), Ok((2, b"d".to_vec())));
}

#[test]
fn one_is_told_of_the_first_message_once() {
    let (_, queue) = one();
    let request = Notification { pid: 8, signal: Some(10), value: 5 };
    queue.notify(request).unwrap();
    assert_eq!(queue.notify(request), Err(Errno::EBUSY));
    assert_eq!(send(&queue, 0, b""), Ok(Some(request)));
    assert_eq!(send(&queue, 0, b""), Ok(None));
    queue.notify(request).unwrap();
    assert_eq!(send(&queue, 0, b""), Ok(None), "it was not empty");
    queue.forget_notification(9);
    assert_eq!(queue.notify(request), Err(Errno::EBUSY));
    queue.forget_notification(8);
    assert_eq!(queue.notify(request), Ok(()));
}

#[test]
fn a_user_and_the_pod_have_bounds_that_end_with_the_queues() {
    let queues = PosixQueues::new(Account::new(1 << 20));
    let make = |name: &[u8], maker, request| queues.find_or_make(name, maker, request).map(|made| made.0);
    assert_eq!(make(b"a", maker(1), capacity(11, 1)).err(), Some(Errno::EINVAL));
    assert_eq!(make(b"a", maker(1), capacity(1, 8193)).err(), Some(Errno::EINVAL));
    assert_eq!(make(b"a", maker(1), capacity(0, 1)).err(), Some(Errno::EINVAL));
    let root = Maker { may_exceed: true, bytes_max: u64::MAX, ..maker(0) };
    assert_eq!(make(b"a", root, capacity(65_537, 1)).err(), Some(Errno::EINVAL));
    // 82,880 bytes each.
    for index in 0..9 {
        make(&[index], maker(1), None).unwrap();
    }
    assert_eq!(make(b"ten", maker(1), None).err(), Some(Errno::EMFILE));
    make(b"ten", maker(2), None).unwrap();
    let open = queues.find(&[3]).unwrap();
    queues.unlink(&[3], |_| Ok(())).unwrap();
    assert_eq!(make(b"eleven", maker(1), None).err(), Some(Errno::EMFILE));
    drop(open);
    make(b"eleven", maker(1), None).unwrap();
    queues.set_limits(Limits { queue_count_max: 10, ..Limits::default() });
    assert_eq!(make(b"twelve", maker(3), None).err(), Some(Errno::ENOSPC));
    assert_eq!(queues.unlink(b"ten", |_| Err(Errno::EPERM)), Err(Errno::EPERM));
    assert_eq!(queues.unlink(b"nothing", |_| Ok(())), Err(Errno::ENOENT));
}

#[test]
fn names_are_checked_as_files_are() {
    let long = alloc::vec![b'x'; 256];
    for (name, error) in [
        (&b""[..], Errno::ENOENT),
        (b".", Errno::EACCES),
        (b"..", Errno::EACCES),
        (b"a/b", Errno::EACCES),
        (&long, Errno::ENAMETOOLONG),
    ] {
        assert_eq!(check_name(name), Err(error));
    }
    assert_eq!(check_name(&long[1..]), Ok(()));
}
