//! Answers of `NETLINK_ROUTE`, byte by byte as a Linux gives them, and for any request.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::message::{Answers, Request, Requests, Writer, flag};
use super::{Answer, Question, answer, kind};
use crate::error::Errno;
use crate::net::view::tests::pod;

fn bytes_of(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Writer::new();
    let begin = out.begin(kind, flags, 7, 0);
    out.raw(body);
    out.end(begin);
    out.finish().expect("memory")
}

fn ask(kind: u16, flags: u16, body: &[u8], is_strict: bool) -> Result<(Vec<u8>, u16, Option<&'static str>), Errno> {
    let bytes = bytes_of(kind, flags, body);
    let request: Request<'_> = Requests::new(&bytes).next().expect("one");
    let answers = Answers { is_capped: false, is_extended: true, is_strict, number: |_| 1 };
    let view = pod();
    let question = Question { request, view: &view, port: 77, answers: &answers, can_administer: true };
    match answer(&question) {
        Ok(Answer::Messages(bytes)) => Ok((bytes, 0, None)),
        Ok(Answer::Change(_)) => Ok((Vec::new(), 0, None)),
        Ok(Answer::Dump(dump)) => Ok((dump.bytes, dump.flags, dump.refusal.and_then(|refusal| refusal.text))),
        Err(refusal) => Err(refusal.error),
    }
}

fn told(kind: u16, flags: u16, body: &[u8]) -> Vec<Vec<u8>> {
    let (bytes, ..) = ask(kind, flags, body, false).expect("an answer");
    Requests::new(&bytes).map(|message| message.body().to_vec()).collect()
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).expect("digits")).collect()
}

#[test]
fn addresses_are_linuxs_bytes() {
    let all = told(kind::GET_ADDRESS, 0x301, &[0]);
    assert_eq!(all.len(), 4);
    let lo = "020880fe01000000080001007f000001080002007f000001070003006c6f0000080008008000000014000600ffffffffffffffff";
    assert_eq!(all[0], hex(&format!("{lo}0000000000000000")));
    let six = "0a8080fe01000000140001000000000000000000000000000000000114000600ffffffffffffffff";
    assert_eq!(all[2], hex(&format!("{six}0000000000000000080008008000000005000b0001000000")));
    assert_eq!(told(kind::GET_ADDRESS, 0x301, &[10]).len(), 2);
}

#[test]
fn routes_are_linuxs_bytes() {
    let all = told(kind::GET_ROUTE, 0x301, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(all.len(), 7);
    assert_eq!(all[0], hex("02000000fe0300010000000008000f00fe000000080005000a0002020800040002000000"));
    assert_eq!(all[4], hex("02080000ff02fe020000000008000f00ff000000080001007f000000080007007f0000010800040001000000"));
    let one = told(kind::GET_ROUTE, 1, &[2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0, 127, 0, 0, 1]);
    let local = concat!(
        "02200000fe0000020002008008000f00",
        "fe000000080001007f0000010800040001000000080007007f000001080019000000000024000c00"
    );
    assert_eq!(one, [hex(local).into_iter().chain([0; 32]).collect::<Vec<u8>>()]);
}

#[test]
fn links_are_found_by_number_and_name() {
    assert_eq!(told(kind::GET_LINK, 0x301, &[0]).len(), 2);
    let by_index = told(kind::GET_LINK, 1, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let start = "0000040301000000490001000000000007".to_owned() + "0003006c6f0000";
    assert_eq!(by_index[0][..24], hex(&start)[..24]);
    let mut body = vec![0; 16];
    body.extend([9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0]);
    assert_eq!(told(kind::GET_LINK, 1, &body)[0][4], 2);
    assert_eq!(ask(kind::GET_LINK, 1, &[0; 16], false), Err(Errno::EINVAL));
    body[4] = 9;
    assert_eq!(ask(kind::GET_LINK, 1, &body, false), Err(Errno::ENODEV));
}

#[test]
fn a_strict_socket_is_told_what_is_wrong() {
    let wrong = |kind, body: &[u8]| ask(kind, 0x301, body, true).expect("an end").2;
    assert_eq!(wrong(kind::GET_ADDRESS, &[0]), Some("ipv4: Invalid header for address dump request"));
    let values = Some("ipv4: Invalid values in header for address dump request");
    assert_eq!(wrong(kind::GET_ADDRESS, &[0, 1, 0, 0, 0, 0, 0, 0]), values);
    assert_eq!(
        wrong(kind::GET_ADDRESS, &[0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 77, 0, 1, 0, 0, 0]),
        Some("Unknown attribute type")
    );
    let (bytes, flags, _) = ask(kind::GET_ADDRESS, 0x301, &[0, 0, 0, 0, 1, 0, 0, 0], true).expect("an end");
    assert_eq!((Requests::new(&bytes).count(), flags), (2, flag::FILTERED));
    let body = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 15, 0, 254, 0, 0, 0];
    let (bytes, flags, _) = ask(kind::GET_ROUTE, 0x301, &body, true).expect("an end");
    assert_eq!((Requests::new(&bytes).count(), flags), (2, flag::FILTERED));
}

#[test]
fn nothing_changes_but_what_is_so_is_fine() {
    let up = [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];
    assert!(ask(kind::NEW_LINK, 5, &up, false).is_ok());
    let down = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(ask(kind::NEW_LINK, 5, &down, false), Err(Errno::EOPNOTSUPP));
    let own = [2, 8, 0, 0, 1, 0, 0, 0, 8, 0, 2, 0, 127, 0, 0, 1];
    assert_eq!(ask(kind::NEW_ADDRESS, 5, &own, false), Err(Errno::EEXIST));
    assert_eq!(ask(kind::NEW_ROUTE, 5, &[2; 12], false), Err(Errno::EOPNOTSUPP));
    assert_eq!(ask(200, 1, &[0; 4], false), Err(Errno::EOPNOTSUPP));
    assert!(ask(kind::GET_LINK, 5, &[], false).is_ok(), "a request without a family is passed over");
}

proptest! {
    #[test]
    fn any_request_is_answered(
        kind in 0u16..140,
        flags in any::<u16>(),
        body in proptest::collection::vec(any::<u8>(), 0..80),
        is_strict in any::<bool>(),
    ) {
        if let Ok((bytes, ..)) = ask(kind, flags, &body, is_strict) {
            let read: usize = Requests::new(&bytes).map(|message| message.whole.len().next_multiple_of(4)).sum();
            prop_assert_eq!(read, bytes.len());
        }
    }
}
