//! Streams and messages against queues: what goes in comes out, in order, within the sender's buffer, also when
//! readers fault or only look.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::tests::{ME, receive, send};
use super::{MESSAGE_OVERHEAD_BYTES, Socket, SocketKind, Wants};
use crate::error::Errno;
use crate::fs::Faulty;
use crate::fs::readiness::Readiness;
use crate::fs::transfer::{Buffer, SliceDestination};

fn outcome(result: Result<usize, Errno>) -> usize {
    match result {
        Ok(count) => count,
        Err(error) => {
            assert_eq!(error, Errno::EAGAIN);
            0
        }
    }
}

proptest! {
    #[test]
    fn a_stream_is_a_queue_of_bytes(
        steps in proptest::collection::vec((0_u8..6, 0_usize..9000, 0_usize..9000), 1..60),
        seed in any::<u8>(),
        buffer in 2304_usize..20_000,
    ) {
        let [left, right] = Socket::pair(&Arc::default(), SocketKind::Stream, [1, 2], ME);
        left.set_send_buffer_bytes(buffer);
        let limit = left.send_buffer_bytes();
        let mut model: VecDeque<u8> = VecDeque::new();
        let mut next = seed;
        for (kind, first, second) in steps {
            match kind {
                0 => {
                    let bytes: Vec<u8> = (0..first).map(|_| { next = next.wrapping_add(1); next }).collect();
                    let done = outcome(send(&left, &bytes));
                    prop_assert_eq!(done, first.min(limit - model.len()));
                    model.extend(&bytes[..done]);
                }
                1 => {
                    let expected: Vec<u8> = model.drain(..first.min(model.len())).collect();
                    match receive(&right, first) {
                        Ok(bytes) => prop_assert_eq!(bytes, expected),
                        Err(error) => prop_assert!(error == Errno::EAGAIN && expected.is_empty()),
                    }
                }
                2 => {
                    let mut buffer = Buffer::with_limit(first);
                    let done = right.receive(&mut buffer, &mut Wants::new(true));
                    let expected: Vec<u8> = model.iter().copied().take(first).collect();
                    prop_assert_eq!(done.map_or(0, |received| received.byte_count), expected.len());
                    prop_assert_eq!(buffer.bytes, expected);
                }
                3 => {
                    let bytes: Vec<u8> = (0..first).map(|_| { next = next.wrapping_add(1); next }).collect();
                    let is_room = (1..=limit - model.len()).contains(&first);
                    if let Some(done) = left.send_nofault(&mut &bytes[..]) {
                        prop_assert!(is_room && done == first);
                        model.extend(&bytes);
                    }
                }
                4 => {
                    let mut bytes = alloc::vec![0; first];
                    match right.receive_nofault(&mut SliceDestination::new(&mut bytes)) {
                        None => prop_assert!(first == 0 || !model.is_empty()),
                        Some(outcome) => {
                            let expected: Vec<u8> = model.drain(..first.min(model.len())).collect();
                            let wanted = if expected.is_empty() { Err(Errno::EAGAIN) } else { Ok(expected.len()) };
                            prop_assert_eq!(outcome, wanted);
                            prop_assert_eq!(&bytes[..expected.len()], &expected);
                        }
                    }
                }
                _ => {
                    let mut faulty = Faulty { wanted: first.max(second), taken: Vec::new(), good: first.min(second) };
                    let received = right.receive(&mut faulty, &mut Wants::default());
                    let count = received.map_or(0, |received| received.byte_count);
                    let seen: Vec<u8> = model.iter().copied().take(faulty.taken.len()).collect();
                    // What was put before the fault has been received only if all of its piece was.
                    prop_assert!(count <= faulty.good);
                    prop_assert!(count == faulty.wanted.min(model.len()) || count % 4096 == 0);
                    prop_assert_eq!(faulty.taken, seen);
                    drop(model.drain(..count));
                }
            }
            prop_assert_eq!(left.unreceived_bytes(), model.len());
            prop_assert_eq!(right.readable_bytes(), Ok(model.len()));
            prop_assert_eq!(right.readiness().contains(Readiness::READ), !model.is_empty());
            prop_assert_eq!(left.readiness().contains(Readiness::WRITE), model.len() * 4 <= limit);
        }
    }

    #[test]
    fn records_are_a_queue_of_messages(
        steps in proptest::collection::vec((any::<bool>(), 0_usize..6000), 1..120),
        is_datagram in any::<bool>(),
    ) {
        let kind = if is_datagram { SocketKind::Datagram } else { SocketKind::SeqPacket };
        let [left, right] = Socket::pair(&Arc::default(), kind, [1, 2], ME);
        left.set_send_buffer_bytes(5000);
        let limit = left.send_buffer_bytes();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for (index, (is_send, length)) in steps.into_iter().enumerate() {
            let used: usize = model.iter().map(|message| message.len() + MESSAGE_OVERHEAD_BYTES).sum();
            prop_assert_eq!(left.unreceived_bytes(), used);
            if is_send {
                let bytes = alloc::vec![index as u8; length];
                let sent = send(&left, &bytes);
                if used < limit {
                    prop_assert_eq!(sent, Ok(length));
                    model.push_back(bytes);
                } else {
                    prop_assert_eq!(sent, Err(Errno::EAGAIN));
                }
            } else {
                let expected = model.pop_front().map(|mut message| { message.truncate(length); message });
                prop_assert_eq!(receive(&right, length), expected.ok_or(Errno::EAGAIN));
            }
        }
    }
}
