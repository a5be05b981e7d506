//! Sets against a naive model: a list of values and a list of requests, gone through from the start after each change.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::account::Account;
use super::permission::Caller;
use super::semaphore::{Attempt, Limits, Look, Operation, Question, Semaphores, VALUE_MAX, Wait};
use crate::error::{Errno, Result};
use crate::fs::Count;
use crate::fs::readiness::Waiter;
use crate::task::capability::CapabilitySet;

fn caller(pid: u32) -> Caller<'static> {
    Caller { uid: 0, gid: 0, groups: &[], capabilities: CapabilitySet::ALL, pid, now_s: 7 }
}

fn nobody() -> Weak<dyn Waiter> {
    let waiter: Weak<Count> = Weak::new();
    waiter
}

fn small() -> (Arc<Account>, Semaphores) {
    let account = Account::new(1 << 20);
    (account.clone(), Semaphores::new(account))
}

fn operation(number: u16, change: i16) -> Operation {
    Operation { number, change, no_wait: false, undoes: false }
}

/// One that waits in the model.
struct Request {
    pid: u32,
    operations: Vec<Operation>,
    outcome: Option<Result<()>>,
}

#[derive(Default)]
struct Model {
    values: Vec<i32>,
    requests: Vec<Request>,
    undos: Vec<(u32, Vec<i32>)>,
}

impl Model {
    fn try_all(&mut self, pid: u32, operations: &[Operation]) -> Option<Result<()>> {
        let (mut values, mut undos) = (self.values.clone(), self.undos.clone());
        for operation in operations {
            let (number, change) = (usize::from(operation.number), i32::from(operation.change));
            let value = values[number] + change;
            if value < 0 || change == 0 && value != 0 {
                return if operation.no_wait { Some(Err(Errno::EAGAIN)) } else { None };
            }
            if value > VALUE_MAX {
                return Some(Err(Errno::ERANGE));
            }
            values[number] = value;
            if operation.undoes
                && let Some(undo) = undos.iter_mut().find(|undo| undo.0 == pid)
            {
                undo.1[number] -= change;
                if !(-32_768..=32_767).contains(&undo.1[number]) {
                    return Some(Err(Errno::ERANGE));
                }
            }
        }
        (self.values, self.undos) = (values, undos);
        Some(Ok(()))
    }

    fn process_ends(&mut self, pid: u32) {
        if let Some(place) = self.undos.iter().position(|undo| undo.0 == pid) {
            let undo = self.undos.remove(place).1;
            for (value, adjustment) in self.values.iter_mut().zip(undo) {
                *value = (*value + adjustment).clamp(0, VALUE_MAX);
            }
        }
        self.settle();
    }

    /// Goes through all requests until none can go on: those for zero first.
    fn settle(&mut self) {
        loop {
            let order = |changes: bool| {
                let is_meant = move |request: &Request| {
                    request.outcome.is_none()
                        && request.operations.iter().any(|operation| operation.change != 0) == changes
                };
                self.requests.iter().enumerate().filter(move |(_, request)| is_meant(request)).map(|(index, _)| index)
            };
            let all: Vec<usize> = order(false).chain(order(true)).collect();
            let settled = all.into_iter().find_map(|index| {
                let operations = self.requests[index].operations.clone();
                self.try_all(self.requests[index].pid, &operations).map(|outcome| (index, outcome))
            });
            match settled {
                Some((index, outcome)) => self.requests[index].outcome = Some(outcome),
                None => return,
            }
        }
    }
}

/// Numbers without a pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn random_operations_come_out_as_in_the_model() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let (_, semaphores) = small();
        let id = semaphores.get(&caller(1), 0, 4, (true, false), 0o600).unwrap();
        let mut model = Model { values: alloc::vec![0; 4], ..Model::default() };
        let mut waits: Vec<Option<Wait<'_>>> = Vec::new();
        for _ in 0..300 {
            let pid = 1 + random.below(4) as u32;
            match random.below(12) {
                0 => {
                    let (number, value) = (random.below(4) as usize, random.below(5) as i32);
                    semaphores.set_value(&caller(pid), id, number as i32, value).unwrap();
                    model.values[number] = value;
                    model.undos.iter_mut().for_each(|undo| undo.1[number] = 0);
                    model.settle();
                }
                1 => {
                    semaphores.process_ends(pid, 9);
                    model.process_ends(pid);
                }
                2 if !waits.is_empty() => {
                    let index = random.below(waits.len() as u64) as usize;
                    if let Some(wait) = waits[index].take() {
                        assert_eq!(wait.give_up(), model.requests[index].outcome);
                        model.requests[index].outcome.get_or_insert(Err(Errno::EINTR));
                    }
                }
                _ => {
                    let operations: Vec<_> = (0..1 + random.below(3))
                        .map(|_| Operation {
                            number: random.below(4) as u16,
                            change: random.below(7) as i16 - 3,
                            no_wait: random.below(6) == 0,
                            undoes: random.below(3) == 0,
                        })
                        .collect();
                    if operations.iter().any(|operation| operation.undoes)
                        && !model.undos.iter().any(|undo| undo.0 == pid)
                    {
                        model.undos.push((pid, alloc::vec![0; 4]));
                    }
                    let expected = model.try_all(pid, &operations);
                    match semaphores.operate(&caller(pid), id, operations.clone(), nobody()) {
                        Ok(Attempt::Done) => assert_eq!(expected, Some(Ok(()))),
                        Err(error) => assert_eq!(expected, Some(Err(error))),
                        Ok(Attempt::Waits(wait)) => {
                            assert_eq!(expected, None);
                            waits.push(Some(wait));
                            model.requests.push(Request { pid, operations, outcome: None });
                        }
                    }
                    model.settle();
                }
            }
            let values: Vec<i32> = semaphores.values(&caller(1), id).unwrap().into_iter().map(i32::from).collect();
            assert_eq!(values, model.values, "seed {seed}");
            for (wait, request) in waits.iter_mut().zip(&model.requests) {
                if request.outcome.is_some()
                    && let Some(wait) = wait.take()
                {
                    assert_eq!(wait.outcome(), request.outcome, "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn who_waits_is_counted_by_what_blocks_and_told_of_the_removal() {
    let (account, semaphores) = small();
    let id = semaphores.get(&caller(1), 5, 3, (true, true), 0o600).unwrap();
    let wait = |operations: Vec<Operation>| match semaphores.operate(&caller(2), id, operations, nobody()) {
        Ok(Attempt::Waits(wait)) => wait,
        _ => panic!("it does not wait"),
    };
    let count = |number, question| semaphores.ask(&caller(1), id, number, question).unwrap();
    let first = wait(alloc::vec![operation(0, 1), operation(1, -1)]);
    semaphores.set_value(&caller(1), id, 2, 1).unwrap();
    let second = wait(alloc::vec![operation(2, 0)]);
    assert_eq!((count(0, Question::WaitersForMore), count(1, Question::WaitersForMore)), (0, 1));
    assert_eq!((count(2, Question::WaitersForZero), count(2, Question::WaitersForMore)), (1, 0));
    assert_eq!(semaphores.values(&caller(1), id).unwrap(), [0, 0, 1]);
    assert_eq!(semaphores.remove(&caller(1), id), Ok(()));
    assert_eq!((first.outcome(), second.give_up()), (Some(Err(Errno::EIDRM)), Some(Err(Errno::EIDRM))));
    drop((first, second));
    assert_eq!(account.used_bytes(), 0);
}

#[test]
fn limits_and_the_account_say_no() {
    let (account, semaphores) = small();
    let get = |key, length| semaphores.get(&caller(1), key, length, (true, false), 0o600);
    assert_eq!(get(1, 32_001), Err(Errno::EINVAL));
    assert_eq!(get(1, -1), Err(Errno::EINVAL));
    assert_eq!(get(1, 0), Err(Errno::EINVAL));
    let mut made = 0;
    let error = loop {
        match get(0, 32_000) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((made, error), (4, Errno::ENOMEM), "256,000 bytes each, of a mebibyte");
    let limits = Limits { semaphore_count_max: 128_001, set_count_max: 5, ..Limits::default() };
    semaphores.set_limits(limits);
    assert_eq!(get(0, 2), Err(Errno::ENOSPC));
    assert_eq!(get(0, 1).map(drop), Ok(()));
    assert_eq!(get(0, 1), Err(Errno::ENOSPC));
    let used = account.used_bytes();
    // What is to be undone costs as well, by process.
    let id = semaphores.list()[0].id;
    let undone = Operation { undoes: true, ..operation(0, 1) };
    let error = semaphores.operate(&caller(9), id, alloc::vec![undone], nobody()).err();
    assert_eq!(error, Some(Errno::ENOMEM));
    assert_eq!(account.used_bytes(), used);
    semaphores.process_ends(9, 0);
    assert_eq!(semaphores.status(&caller(1), id, Look::Number).unwrap().length, 32_000);
}
