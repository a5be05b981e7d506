//! A machine that asks for its address: a DHCP server at the other end of QEMU's stream backend.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use aegis_tests::programs::aegis;

const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 10];
const SERVER: [u8; 4] = [10, 77, 0, 1];
const GIVEN: [u8; 4] = [10, 77, 0, 42];
/// Bytes of the headers before a DHCP message, and of the message before its options.
const HEADERS_BYTES: usize = 14 + 20 + 8;
const MESSAGE_BYTES: usize = 240;
/// `DHCPDISCOVER`, `DHCPREQUEST`.
const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;

fn sum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| (*low).into())).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// The answer to a frame, if it is a question for a lease; its kind goes to `kinds`.
fn answer(frame: &[u8], kinds: &mut Vec<u8>) -> Option<Vec<u8>> {
    let message = frame.get(HEADERS_BYTES..).filter(|message| message.len() > MESSAGE_BYTES)?;
    let is_question = frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [0, 67];
    let at = message[MESSAGE_BYTES..].windows(2).position(|option| option == [53, 1]).filter(|_| is_question)?;
    let kind = message[MESSAGE_BYTES + at + 2];
    kinds.push(kind);
    let mut reply = vec![0; MESSAGE_BYTES];
    reply[..3].copy_from_slice(&[2, 1, 6]);
    reply[4..8].copy_from_slice(&message[4..8]);
    reply[16..20].copy_from_slice(&GIVEN);
    reply[28..34].copy_from_slice(&message[28..34]);
    reply[236..].copy_from_slice(&[99, 130, 83, 99]);
    reply.extend([53, 1, if kind == DISCOVER { 2 } else { 5 }, 54, 4]);
    reply.extend(SERVER);
    reply.extend([
        51, 4, 0, 0, 0x0e, 0x10, 1, 4, 255, 255, 255, 0, 3, 4, 10, 77, 0, 99, 6, 4, 10, 77, 0, 53, 26, 2, 5, 0x78,
    ]);
    // All by the server, and 172.31.0.0/16 by another; so the router is passed over.
    reply.extend([121, 12, 0, 10, 77, 0, 1, 16, 172, 31, 10, 77, 0, 9, 255]);
    let udp_bytes = (8 + reply.len()) as u16;
    let mut ip =
        [&[0x45, 0][..], &(20 + udp_bytes).to_be_bytes(), &[0, 0, 0, 0, 64, 17, 0, 0], &SERVER, &[255; 4]].concat();
    let checksum = sum(&ip);
    ip[10..12].copy_from_slice(&checksum);
    let udp = [&[0, 67, 0, 68][..], &udp_bytes.to_be_bytes(), &[0, 0]].concat();
    Some([&frame[6..12], &SERVER_MAC, &[8, 0], &ip, &udp, &reply].concat())
}

/// Serves until the machine ends; the kinds of questions that came.
fn serve(mut stream: UnixStream) -> Vec<u8> {
    let mut kinds = Vec::new();
    let mut length = [0; 4];
    while stream.read_exact(&mut length).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        if stream.read_exact(&mut frame).is_err() {
            break;
        }
        if let Some(reply) = answer(&frame, &mut kinds) {
            let reply = [&(reply.len() as u32).to_be_bytes()[..], &reply].concat();
            if stream.write_all(&reply).is_err() {
                break;
            }
        }
    }
    kinds
}

#[test]
fn a_program_starts_with_what_a_server_gives() {
    for model in ["virtio", "e1000", "e1000e"] {
        starts_with_what_a_server_gives(model);
    }
}

fn starts_with_what_a_server_gives(model: &str) {
    let path = PathBuf::from(format!("/tmp/aegis-dhcp-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let server = std::thread::spawn(move || serve(listener.accept().expect("the machine").0));
    let network = format!("lan={}", path.display());
    let script = "ip -4 -o addr show dev eth0; ip -4 route; cat /etc/resolv.conf";
    let driver = format!("net=library:{model}");
    let ended = aegis(&["--network", &network, "--driver", &driver], &["/bin/busybox", "sh", "-c", script], b"");
    let _ = std::fs::remove_file(&path);
    let text = String::from_utf8_lossy(&ended.output);
    for part in [
        "inet 10.77.0.42/24",
        "default via 10.77.0.1 dev eth0",
        "172.31.0.0/16 via 10.77.0.9 dev eth0",
        "nameserver 10.77.0.53\n",
    ] {
        assert!(text.contains(part), "{part}:\n{text}\n{}", ended.errors);
    }
    assert!(!text.contains("10.77.0.99"), "{text}");
    let kinds = server.join().expect("the server");
    assert_eq!(kinds.first(), Some(&DISCOVER));
    assert!(kinds.contains(&REQUEST), "{kinds:?}");
}
