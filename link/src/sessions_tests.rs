//! Messages of sessions: all that can be said arrives, and nothing else does harm.

use std::vec::Vec;

use proptest::prelude::*;

use crate::frame::{FRAME_HEADER_BYTES, Frame, Kind};

use super::{
    DATA_BYTES_MAX, FromPod, MESSAGE_BYTES_MAX, Malformed, Receiver, Stream, ToPod, WINDOW_BYTES, Window, opening,
};

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![proptest::collection::vec(any::<u8>(), 1..50), Just([7; DATA_BYTES_MAX].to_vec())]
}

/// A message to the pod, as its bytes.
fn to_pod() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![Just(Stream::Output), Just(Stream::Errors)];
    (0..9, data(), 1..=64_u8, any::<(u16, u16)>(), stream, 1..=WINDOW_BYTES).prop_map(
        |(kind, data, number, (rows, columns), stream, count)| {
            let message = match kind {
                0 => ToPod::Describe(&data),
                1 => ToPod::Start,
                2 => ToPod::Input(&data),
                3 => ToPod::InputEnd,
                4 => ToPod::Signal(number),
                5 => ToPod::Window { rows, columns },
                6 => ToPod::Credit(stream, count),
                7 => ToPod::Closed(stream),
                _ => ToPod::HangUp,
            };
            let mut bytes = Vec::new();
            message.append(&mut bytes);
            assert_eq!(ToPod::parse(&bytes), Ok(message));
            bytes
        },
    )
}

/// A message from the pod, as its bytes.
fn from_pod() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![Just(Stream::Output), Just(Stream::Errors)];
    (0..7, data(), 1..=64_u8, stream, 1..=WINDOW_BYTES).prop_map(|(kind, data, number, stream, count)| {
        let text = &data[..data.len().min(super::TEXT_BYTES_MAX)];
        let message = match kind {
            0 => FromPod::Accepted,
            1 => FromPod::Output(stream, &data),
            2 => FromPod::Taken(count),
            3 => FromPod::Exited(number),
            4 => FromPod::Killed(number, text),
            5 => FromPod::LineEnd,
            _ => FromPod::Failed(number, text),
        };
        let mut bytes = Vec::new();
        message.append(&mut bytes);
        assert_eq!(FromPod::parse(&bytes), Ok(message));
        bytes
    })
}

/// Everything that a receiver makes of a stream in pieces.
fn received(receiver: &mut Receiver, stream: &[u8], step: usize) -> Result<Vec<(u32, Vec<u8>)>, Malformed> {
    let mut found = Vec::new();
    for piece in stream.chunks(step.max(1)) {
        receiver.push(piece);
        while let Some((session, message)) = receiver.next()? {
            found.push((session, message.to_vec()));
        }
        // Whatever comes: less than a frame is left.
        assert!(receiver.frames.len() < FRAME_HEADER_BYTES + MESSAGE_BYTES_MAX);
    }
    Ok(found)
}

proptest! {
    #[test]
    fn messages_arrive_however_the_stream_is_cut(
        messages in proptest::collection::vec((any::<u32>(), prop_oneof![to_pod(), from_pod()]), 0..8),
        rubbish in proptest::collection::vec(any::<u8>(), 0..40),
        token: u64,
        step in 1..6000_usize,
    ) {
        let mut stream = rubbish;
        // An old line, and the beginning of a new one that was never finished.
        stream.extend(opening(token.wrapping_add(1)));
        stream.extend(&opening(token)[..9]);
        stream.extend(opening(token));
        for (session, message) in &messages {
            Frame { kind: Kind::Session, channel: *session, contents: message }.append(&mut stream);
        }
        prop_assert_eq!(received(&mut Receiver::new(token), &stream, step), Ok(messages));
    }

    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), step in 1..300_usize) {
        let mut receiver = Receiver::new(5);
        receiver.push(&opening(5));
        if let Ok(messages) = received(&mut receiver, &bytes, step) {
            for (_, message) in messages {
                let _ = (ToPod::parse(&message), FromPod::parse(&message));
            }
        }
        let _ = (ToPod::parse(&bytes), FromPod::parse(&bytes));
    }

    #[test]
    fn what_is_parsed_is_what_was_sent(kind in 0..50_u8, rest in proptest::collection::vec(0..70_u8, 0..7)) {
        let message = [&[kind][..], &rest].concat();
        let mut again = Vec::new();
        if let Ok(parsed) = ToPod::parse(&message) {
            parsed.append(&mut again);
            prop_assert!(FromPod::parse(&message).is_err(), "a message has one direction");
        } else if let Ok(parsed) = FromPod::parse(&message) {
            parsed.append(&mut again);
        } else {
            return Ok(());
        }
        prop_assert_eq!(again, message);
    }

    #[test]
    fn a_window_is_never_more_than_whole(
        steps in proptest::collection::vec((any::<bool>(), 0..2 * WINDOW_BYTES), 0..50),
    ) {
        let (mut window, mut sent) = (Window::default(), 0_u32);
        for (takes, count) in steps {
            if takes {
                let fits = sent + count <= WINDOW_BYTES;
                prop_assert_eq!(window.take(count as usize).is_ok(), fits);
                sent += if fits { count } else { 0 };
            } else {
                prop_assert_eq!(window.give(count).is_ok(), count <= sent);
                sent -= if count <= sent { count } else { 0 };
            }
            prop_assert_eq!((window.left(), window.on_the_way()), (WINDOW_BYTES - sent, sent));
        }
    }
}

#[test]
fn lengths_and_marks_are_checked_before_anything_is_kept() {
    for header in
        [[0; 16], Kind::Session.header(0, MESSAGE_BYTES_MAX + 1), Kind::Output.header(0, 0), Kind::Opening.header(0, 0)]
    {
        let mut receiver = Receiver::new(1);
        receiver.push(&opening(1));
        receiver.push(&header[..]);
        assert_eq!(receiver.next(), Err(Malformed), "{header:?}");
    }
}

#[test]
fn what_could_never_have_been_sent_is_refused() {
    for message in [
        &[][..],
        &[1],
        &[2, 0],
        &[3],
        &[5, 0],
        &[5, 65],
        &[6, 1, 2, 3],
        &[7, 0, 0, 0, 0, 0],
        &[7, 2, 1, 0, 0, 0],
        &[8, 2],
    ] {
        assert_eq!(ToPod::parse(message), Err(Malformed), "{message:?}");
    }
    for message in
        [&[33, 0][..], &[34, 0], &[34, 2, 1], &[35, 0, 0, 0, 0], &[35, 1, 0, 1, 0], &[36], &[37, 0], &[38], &[99]]
    {
        assert_eq!(FromPod::parse(message), Err(Malformed), "{message:?}");
    }
    assert_eq!(ToPod::parse(&[3; DATA_BYTES_MAX + 2]), Err(Malformed));
}
