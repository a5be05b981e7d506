//! What packets' sockets are told when nobody takes a datagram within the machine.

use alloc::format;

use super::*;

#[test]
fn packet_sockets_are_told_that_nobody_is_there() {
    let machine = machine(15);
    for (family, protocol, own, kind, head) in
        [(Family::V4, 1, "127.0.0.1", [3, 3], [0x45, 0]), (Family::V6, 58, "[::1]", [1, 4], [0x60, 0])]
    {
        let raw = Socket::new(&machine.inet, family, Protocol::Raw(protocol), 1, 0);
        assert_eq!(machine.inet.note_raw(&raw), Ok(()));
        let client = machine.udp(family, &format!("{own}:700"));
        assert_eq!(send_to(&client, at(&format!("{own}:33435")), &[7; 2000]), Ok(2000));
        let (told, from) = receive(&raw).expect("a message");
        let message = if family == Family::V4 { &told[20..] } else { &told[..] };
        let quoted = if family == Family::V4 { &message[28..] } else { &message[48..] };
        assert_eq!((&message[..2], &message[8..10], message.len()), (&kind[..], &head[..], 556));
        assert_eq!(quoted[..6], [2, 188, 0x82, 0x9b, 7, 216]);
        assert_eq!((from.ip(), quoted[8]), (at(&format!("{own}:0")).ip(), 7));
        raw.close();
    }
}
