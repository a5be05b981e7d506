//! Senders that are faster than the card.

use alloc::vec;
use alloc::vec::Vec;

use super::{at, introduced, send_to};
use crate::error::Errno;
use crate::fs::readiness::Readiness;
use crate::net::inet::Family;
use crate::net::inet::stack::counters::Counter;
use crate::platform::Kernel;

#[test]
fn senders_wait_until_the_card_has_room() {
    let machine = introduced();
    let client = machine.udp(Family::V4, "10.0.2.15:700");
    let (near, far) = (machine.udp(Family::V4, "127.0.0.1:701"), at("10.0.2.2:9"));
    let told = client.wait_queue().told_count();
    let mut sent = Vec::new();
    for number in 0..1000u16 {
        match send_to(&client, far, &number.to_be_bytes()) {
            Ok(2) => sent.push(number),
            outcome => {
                assert_eq!((outcome, client.readiness().contains(Readiness::WRITE)), (Err(Errno::EAGAIN), false));
                // To this machine itself there is always room.
                assert_eq!(send_to(&near, at("127.0.0.1:701"), b"x"), Ok(1));
                assert!(machine.wake_ns() <= machine.kernel.now_ns() + 1_000_000);
                machine.poll();
                assert!(!client.readiness().contains(Readiness::WRITE), "there is none yet");
                let frames = machine.take_sent();
                let numbers = sent.drain(..).map(u16::to_be_bytes);
                assert!(frames.iter().map(|frame| &frame[42..44]).eq(numbers), "all of it");
                machine.poll();
                assert!(client.readiness().contains(Readiness::WRITE) && client.wait_queue().told_count() > told);
            }
        }
    }
    // A datagram in pieces goes whole or waits.
    machine.take_sent();
    (0..30).for_each(|_| assert_eq!(send_to(&client, far, b"x"), Ok(1)));
    let long = vec![1; 65_000];
    assert_eq!(send_to(&client, far, &long), Err(Errno::EAGAIN));
    assert_eq!((machine.take_sent().len(), machine.count(Counter::SendFull)), (30, 0));
    assert_eq!(send_to(&client, far, &long), Ok(65_000));
    // One that ends while it waits is not waited for.
    assert_eq!(send_to(&client, far, &long), Err(Errno::EAGAIN));
    client.close();
    drop(client);
    assert_eq!(machine.poll().filter(|due_ns| *due_ns <= machine.kernel.now_ns() + 1_000_000), None);
}
