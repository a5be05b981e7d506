//! The part of GDB's remote protocol that a profile needs, as QEMU speaks it: stop, registers, memory, continue.
//!
//! One request at a time, one answer each, over a socket whose other end QEMU inherited. A request that is not
//! answered in [`ANSWER_LIMIT`] ends the profile, not the run. Source: GDB's manual, appendix "Remote Serial
//! Protocol"; the order of the registers is that of QEMU's `gdb-xml/i386-64bit.xml`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest time for an answer; a machine that is suspended or about to end gives none.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of memory for one request: an answer has two digits for each, and QEMU's buffer 4,096.
pub(crate) const READ_BYTES_MAX: usize = 2048;
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 8192;

/// Bytes of the registers that are looked at, and where some are.
const REGISTER_BYTES: usize = 212;
const RIP_AT: usize = 128;
const CS_AT: usize = 140;
const GS_BASE_AT: usize = 172;
const CR3_AT: usize = 204;
/// Bits of CR3 that are the address of the top page table.
const CR3_ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// General registers in the order of DWARF (System V ABI for x86-64, figure 3.36), as they come: RAX, RBX, RCX,
/// RDX, RSI, RDI, RBP, RSP, R8 to R15.
const DWARF_ORDER: [usize; 16] = [0, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// What is looked at of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    /// General registers by DWARF's numbers: 6 is RBP, 7 is RSP.
    pub(crate) general: [u64; 16],
    /// The next instruction.
    pub(crate) rip: u64,
    /// In ring 3, where exos's control page is.
    pub(crate) gs_base: u64,
    /// Ring 0 to 3.
    pub(crate) ring: u8,
    /// The address space: the physical address of its top page table.
    pub(crate) space: u64,
}

/// A stopped or running machine.
#[derive(Debug)]
pub(crate) struct Gdb {
    socket: UnixStream,
    buffer: Vec<u8>,
}

impl Gdb {
    /// Takes over the socket.
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        socket.set_write_timeout(Some(ANSWER_LIMIT))?;
        Ok(Self { socket, buffer: Vec::new() })
    }

    /// Stops a machine that may or may not run yet, and finds the place in the conversation.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.socket.write_all(&[3])?;
        self.send(b"Hg1")?;
        while self.answer()? != b"OK" {}
        Ok(())
    }

    /// Lets the machine run. There is no answer but the next stop's.
    pub(crate) fn go_on(&mut self) -> io::Result<()> {
        self.send(b"c")
    }

    /// Stops the machine and waits until it stands.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.socket.write_all(&[3])?;
        let answer = self.answer()?;
        match answer.first() {
            Some(b'T' | b'S') => Ok(()),
            _ => Err(odd("a stop was not answered by one")),
        }
    }

    /// Chooses the processor of the next requests; the first one is 0.
    pub(crate) fn choose(&mut self, processor: u8) -> io::Result<()> {
        let request = format!("Hg{:x}", u32::from(processor) + 1);
        match self.ask(request.as_bytes())?.as_slice() {
            b"OK" => Ok(()),
            _ => Err(odd("there is no such processor")),
        }
    }

    /// The chosen processor's registers.
    pub(crate) fn registers(&mut self) -> io::Result<Registers> {
        let bytes = unhex(&self.ask(b"g")?).filter(|bytes| bytes.len() >= REGISTER_BYTES);
        registers_in(&bytes.ok_or_else(|| odd("registers are missing"))?).ok_or_else(|| odd("registers are missing"))
    }

    /// Reads memory as the chosen processor sees it; less than `length` if not all of it is there.
    pub(crate) fn read(&mut self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        let request = format!("m{address:x},{:x}", length.min(READ_BYTES_MAX));
        // An error (`E14`) has an odd number of digits.
        Ok(unhex(&self.ask(request.as_bytes())?).unwrap_or_default())
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.send(request)?;
        self.answer()
    }

    /// Sends a packet, with the acknowledgement of the last answer in front.
    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let sum = payload.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        let mut packet = b"+$".to_vec();
        packet.extend_from_slice(payload);
        packet.extend_from_slice(format!("#{sum:02x}").as_bytes());
        self.socket.write_all(&packet)
    }

    /// The payload of the next packet. Acknowledgements are passed over; the socket loses and changes nothing,
    /// so sums are not checked.
    fn answer(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some((payload, length)) = packet_in(&self.buffer) {
                self.buffer.drain(..length);
                return Ok(payload);
            }
            if self.buffer.len() > ANSWER_BYTES_MAX {
                return Err(odd("an answer without an end"));
            }
            let mut part = [0; 4096];
            match self.socket.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.buffer.extend_from_slice(&part[..length]),
            }
        }
    }
}

fn odd(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The first whole packet, and the length of everything up to its end.
fn packet_in(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let start = bytes.iter().position(|byte| *byte == b'$')? + 1;
    let end = start + bytes[start..].iter().position(|byte| *byte == b'#')?;
    if bytes.len() < end + 3 {
        return None;
    }
    // `*` and a character: the byte before it comes so many times more.
    let mut payload: Vec<u8> = Vec::new();
    let mut rest = bytes[start..end].iter();
    while let Some(byte) = rest.next() {
        match (byte, payload.last().copied()) {
            (b'*', Some(last)) => {
                let count = rest.next().map_or(0, |count| usize::from(count.saturating_sub(29)));
                payload.resize(payload.len() + count, last);
            }
            _ => payload.push(*byte),
        }
    }
    Some((payload, end + 3))
}

/// Bytes of pairs of digits; `None` if it is something else. A register that is not known (`xx`) is 0.
fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'x' => Some(0),
        _ => char::from(byte).to_digit(16),
    };
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()).collect()
}

fn registers_in(bytes: &[u8]) -> Option<Registers> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let mut general = [0; 16];
    for (register, place) in general.iter_mut().zip(DWARF_ORDER) {
        *register = word(place * 8)?;
    }
    let (rip, gs_base, ring) = (word(RIP_AT)?, word(GS_BASE_AT)?, bytes.get(CS_AT)? & 3);
    Some(Registers { general, rip, gs_base, ring, space: word(CR3_AT)? & CR3_ADDRESS })
}

#[cfg(test)]
mod tests {
    use super::{Gdb, packet_in, registers_in, unhex};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn packets_between_acknowledgements() {
        assert_eq!(packet_in(b"+$OK#9a+$T"), Some((b"OK".to_vec(), 7)));
        assert_eq!(packet_in(b"+$0* #7a"), Some((b"0000".to_vec(), 8)));
        for partial in [&b""[..], b"+", b"$OK", b"$OK#", b"$OK#9"] {
            assert_eq!(packet_in(partial), None);
        }
    }

    #[test]
    fn digits() {
        assert_eq!(unhex(b"00ffxx"), Some(vec![0, 255, 0]));
        assert_eq!(unhex(b"E14"), None);
        assert_eq!(unhex(b"zz"), None);
    }

    #[test]
    fn registers_by_their_dwarf_numbers() {
        let mut bytes = vec![0; 212];
        for (index, value) in [(0, 1_u64), (8, 2), (16, 3), (24, 4), (56, 7), (128, 9), (204, 0x8000_0000_1234_5fff)] {
            bytes[index..index + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes[140] = 0x33;
        let registers = registers_in(&bytes).unwrap();
        assert_eq!(registers.general[..4], [1, 4, 3, 2]);
        assert_eq!((registers.general[7], registers.rip, registers.ring), (7, 9, 3));
        assert_eq!(registers.space, 0x1234_5000);
        assert_eq!(registers_in(&bytes[..211]), None);
    }

    #[test]
    fn a_conversation() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let script = std::thread::spawn(move || {
            let mut heard = vec![0; 1];
            other.read_exact(&mut heard).unwrap();
            other.write_all(b"$T02thread:01;#04").unwrap();
            let mut more = vec![0; b"+$m10,4#2e".len()];
            other.read_exact(&mut more).unwrap();
            other.write_all(b"+$0102").unwrap();
            other.write_all(b"0304#8a").unwrap();
            heard.extend(more);
            heard
        });
        let mut gdb = Gdb::new(own).unwrap();
        gdb.stop().unwrap();
        assert_eq!(gdb.read(0x10, 4).unwrap(), [1, 2, 3, 4]);
        assert_eq!(script.join().unwrap(), b"\x03+$m10,4#2e");
        assert!(gdb.registers().is_err(), "the other end is gone");
    }
}
