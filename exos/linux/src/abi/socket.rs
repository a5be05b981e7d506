//! Sockets as programs see them: `sockaddr_un`, `msghdr`, control messages, option numbers (socket(7), unix(7),
//! cmsg(3)).

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::net::unix::address::{Address, NAME_BYTES_MAX};

use super::bytes::{Encoder, get};
use crate::abi::linux::{AF_UNIX, AF_UNSPEC};

/// `SOCK_NONBLOCK`.
pub const SOCK_NONBLOCK: u64 = 0o4000;
/// `SOCK_CLOEXEC`.
pub const SOCK_CLOEXEC: u64 = 0o2_000_000;
/// Longest address that a call takes (`sizeof(struct sockaddr_storage)`).
pub const ADDRESS_BYTES_MAX: usize = 128;
/// Bytes of `sun_family`.
const FAMILY_BYTES: usize = 2;

/// `MSG_*`.
pub mod flag {
    /// `MSG_WAITFORONE`.
    pub const MSG_WAITFORONE: u64 = 0x1_0000;
}

/// Bytes of a `struct cmsghdr`.
pub const CONTROL_HEADER_BYTES: usize = 16;
/// Most bytes of control messages in a send (`net.core.optmem_max`).
pub const CONTROL_BYTES_MAX: u64 = 20_480;

/// Rounds up to where the next control message begins.
#[must_use]
pub const fn control_aligned(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// A name as `bind`, `connect` and `sendto` are given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// `AF_UNSPEC`.
    None,
    /// Only the family: any abstract name will do.
    Automatic,
    /// A name.
    Unix(Address),
}

/// Reads a `sockaddr_un`. `EINVAL`: too short, too long, or of another family.
pub fn read_name(bytes: &[u8]) -> Result<Name> {
    if bytes.len() < FAMILY_BYTES {
        return Err(Errno::EINVAL);
    }
    match get::u16(bytes, 0) {
        AF_UNSPEC => return Ok(Name::None),
        AF_UNIX => {}
        _ => return Err(Errno::EINVAL),
    }
    let name = &bytes[FAMILY_BYTES..];
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    Ok(match name.first() {
        None => Name::Automatic,
        Some(0) => Name::Unix(Address::Abstract(name[1..].to_vec())),
        Some(_) => {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            Name::Unix(Address::Path(name[..end].to_vec()))
        }
    })
}

/// A `sockaddr_un`, as long as it has to be.
#[must_use]
pub fn name_bytes(address: Option<&Address>) -> Vec<u8> {
    let family = Encoder::new().u16(AF_UNIX);
    match address {
        None => family.finish(),
        Some(Address::Path(path)) => family.raw(path).u8(0).finish(),
        Some(Address::Abstract(name)) => family.u8(0).raw(name).finish(),
    }
}

/// Bytes of a `struct msghdr`.
pub const HEADER_BYTES: usize = 56;
/// Bytes of a `struct mmsghdr`.
pub const HEADERS_BYTES: u64 = 64;

/// A `struct msghdr`.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Address of the name, or 0.
    pub name: u64,
    /// Length of the name in bytes.
    pub name_bytes: u32,
    /// Address of the `iovec` array.
    pub extents: u64,
    /// Entries of that array.
    pub extent_count: u64,
    /// Address of the control messages, or 0.
    pub control: u64,
    /// Their length.
    pub control_bytes: u64,
}

impl Header {
    /// Where the flags are that `recvmsg` writes.
    pub const FLAGS_OFFSET: u64 = 48;
    /// Where the length of the name is.
    pub const NAME_BYTES_OFFSET: u64 = 8;
    /// Where the length of the control messages is.
    pub const CONTROL_BYTES_OFFSET: u64 = 40;

    /// Decodes one.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        Self {
            name: get::u64(bytes, 0),
            name_bytes: get::u32(bytes, 8),
            extents: get::u64(bytes, 16),
            extent_count: get::u64(bytes, 24),
            control: get::u64(bytes, 32),
            control_bytes: get::u64(bytes, 40),
        }
    }
}

/// One control message of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control<'a> {
    /// `cmsg_level`.
    pub level: u32,
    /// `cmsg_type`.
    pub kind: u32,
    /// Payload of the control message.
    pub data: &'a [u8],
}

/// Cuts what a program sent into control messages. `EINVAL`: a length that does not fit.
pub fn read_controls(bytes: &[u8]) -> Result<Vec<Control<'_>>> {
    let mut controls = Vec::new();
    let mut rest = bytes;
    while rest.len() >= CONTROL_HEADER_BYTES {
        let length = usize::try_from(get::u64(rest, 0)).map_err(|_| Errno::EINVAL)?;
        if !(CONTROL_HEADER_BYTES..=rest.len()).contains(&length) {
            return Err(Errno::EINVAL);
        }
        controls.push(Control {
            level: get::u32(rest, 8),
            kind: get::u32(rest, 12),
            data: &rest[CONTROL_HEADER_BYTES..length],
        });
        rest = rest.get(control_aligned(length)..).unwrap_or_default();
    }
    Ok(controls)
}

/// `SO_*` of [`SOL_SOCKET`].
pub mod option {
    /// `SO_TIMESTAMP`, `SO_TIMESTAMPNS`, of old and of new.
    pub const TIMES: [u64; 4] = [29, 35, 63, 64];
    /// `SO_RCVTIMEO`, of old and of new.
    pub const RECEIVE_TIMEOUT: [u64; 2] = [20, 66];
    /// `SO_SNDTIMEO`, of old and of new.
    pub const SEND_TIMEOUT: [u64; 2] = [21, 67];
}

#[cfg(test)]
mod tests {
    use super::{Name, name_bytes, read_controls, read_name};
    use exos::error::Errno;
    use exos::net::unix::address::Address;

    #[test]
    fn names_are_read_and_written() {
        assert_eq!(read_name(b"\x01"), Err(Errno::EINVAL));
        assert_eq!(read_name(b"\x02\0abc"), Err(Errno::EINVAL));
        assert_eq!(read_name(b"\x01\0"), Ok(Name::Automatic));
        assert_eq!(read_name(&[[1, 0].as_slice(), &[b'x'; 109]].concat()), Err(Errno::EINVAL));
        let path = Address::Path(b"/a".to_vec());
        assert_eq!(read_name(b"\x01\0/a\0rest"), Ok(Name::Unix(path.clone())));
        assert_eq!(name_bytes(Some(&path)), b"\x01\0/a\0");
        let hidden = Address::Abstract(b"a\0b".to_vec());
        assert_eq!(read_name(b"\x01\0\0a\0b"), Ok(Name::Unix(hidden.clone())));
        assert_eq!(name_bytes(Some(&hidden)), b"\x01\0\0a\0b");
        assert_eq!(name_bytes(None), b"\x01\0");
    }

    #[test]
    fn control_messages_are_cut_at_their_borders() {
        let mut bytes = [0_u8; 44];
        bytes[0] = 20;
        bytes[8] = 1;
        bytes[12] = 1;
        bytes[16] = 9;
        bytes[24] = 16;
        let controls = read_controls(&bytes).unwrap();
        assert_eq!((controls.len(), controls[0].data, controls[1].data), (2, &[9, 0, 0, 0][..], &[][..]));
        bytes[24] = 21;
        assert_eq!(read_controls(&bytes), Err(Errno::EINVAL));
        bytes[24] = 15;
        assert_eq!(read_controls(&bytes), Err(Errno::EINVAL));
    }
}
