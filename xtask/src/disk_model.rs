//! `cargo xtask disk-model FILE SOCKET`: a file as a disk with a head that moves, behind a socket that QEMU's `nbd`
//! driver speaks to. It is a model, and figures that were measured on it say so.
//!
//! The protocol is NBD's fixed newstyle handshake with one export, and simple replies: QEMU's client asks for no more.
//! Requests are served one at a time, in the order in which they come, as by a disk without a queue of its own; a reply
//! goes out when the model (`head`) says that the disk is done. A peer that breaks the protocol loses its connection,
//! and the next may come.

mod head;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::errors::Error;
use head::Head;

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Fixed newstyle, and no zeros behind an export's answer.
const HANDSHAKE_FLAGS: u16 = 0b11;
const NO_ZEROES: u32 = 0b10;
/// The export has flags, and flushes.
const EXPORT_FLAGS: u16 = 0b101;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;
const REPLY_ACKNOWLEDGED: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 1 << 31 | 1;

const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const NO_ERROR: u32 = 0;
const ERROR_INPUT: u32 = 5;
const ERROR_ARGUMENT: u32 = 22;

/// Bytes of an option, and of a request: more is no client of ours.
const OPTION_BYTES_MAX: u32 = 4096;
const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Serves one connection after another until it is ended.
///
/// # Errors
/// The file or the socket cannot be had.
pub(crate) fn run(file: &str, socket: &str) -> Result<(), Error> {
    let (file, socket) = (Path::new(file), Path::new(socket));
    let disk = OpenOptions::new().read(true).write(true).open(file).map_err(Error::io(file))?;
    let listener = UnixListener::bind(socket).map_err(Error::io(socket))?;
    println!("a model of a disk with seek times: nbd:unix:{}", socket.display());
    for connection in listener.incoming() {
        let stream = connection.map_err(Error::io(socket))?;
        if let Err(error) = serve(&disk, stream) {
            eprintln!("xtask: disk-model: a connection ended: {error}");
        }
    }
    Ok(())
}

fn serve(disk: &File, mut stream: UnixStream) -> io::Result<()> {
    let byte_count = disk.metadata()?.len();
    if !shake_hands(&mut stream, byte_count)? {
        return Ok(());
    }
    let start = Instant::now();
    let mut head = Head::new(byte_count);
    let mut data = Vec::new();
    loop {
        let mut request = [0; 28];
        stream.read_exact(&mut request)?;
        let [a, b, c, d, _, _, kind, kind_low, handle @ ..] = request;
        if u32::from_be_bytes([a, b, c, d]) != REQUEST {
            return Err(io::Error::other("no request"));
        }
        let kind = u16::from_be_bytes([kind, kind_low]);
        let (handle, rest) = handle.split_at(8);
        let (offset, length) = (number(&rest[..8]), number(&rest[8..]) as u32);
        if kind == DISCONNECT {
            return Ok(());
        }
        if length > REQUEST_BYTES_MAX {
            return Err(io::Error::other("a request that is too long"));
        }
        data.clear();
        if kind != FLUSH {
            data.resize(length as usize, 0);
        }
        if kind == WRITE {
            stream.read_exact(&mut data)?;
        }
        let is_within = offset.checked_add(u64::from(length)).is_some_and(|end| end <= byte_count);
        let done = match kind {
            READ | WRITE if !is_within => Err(ERROR_ARGUMENT),
            READ => disk.read_exact_at(&mut data, offset).map_err(|_| ERROR_INPUT),
            WRITE => disk.write_all_at(&data, offset).map_err(|_| ERROR_INPUT),
            FLUSH => disk.sync_data().map_err(|_| ERROR_INPUT),
            _ => Err(ERROR_ARGUMENT),
        };
        if done.is_ok() && kind != FLUSH {
            let now = start.elapsed();
            let end = Duration::from_nanos(head.serve(now.as_nanos() as u64, offset, u64::from(length)));
            std::thread::sleep(end.saturating_sub(now));
        }
        let mut reply = REPLY.to_be_bytes().to_vec();
        reply.extend(done.err().unwrap_or(NO_ERROR).to_be_bytes());
        reply.extend(handle);
        if kind == READ && done.is_ok() {
            reply.extend(&data);
        }
        stream.write_all(&reply)?;
    }
}

/// Big-endian, of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Until the client has chosen the export; false: it went.
fn shake_hands(stream: &mut UnixStream, byte_count: u64) -> io::Result<bool> {
    let mut greeting = GREETING.to_be_bytes().to_vec();
    greeting.extend(OPTION.to_be_bytes());
    greeting.extend(HANDSHAKE_FLAGS.to_be_bytes());
    stream.write_all(&greeting)?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    let has_no_zeroes = u32::from_be_bytes(flags) & NO_ZEROES != 0;
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header)?;
        let (option, length) = (number(&header[8..12]) as u32, number(&header[12..]) as u32);
        if number(&header[..8]) != OPTION || length > OPTION_BYTES_MAX {
            return Err(io::Error::other("no option"));
        }
        let mut text = vec![0; length as usize];
        stream.read_exact(&mut text)?;
        let mut export = byte_count.to_be_bytes().to_vec();
        export.extend(EXPORT_FLAGS.to_be_bytes());
        match option {
            OPTION_EXPORT_NAME => {
                export.resize(export.len() + if has_no_zeroes { 0 } else { 124 }, 0);
                stream.write_all(&export)?;
                return Ok(true);
            }
            OPTION_GO | OPTION_INFO => {
                // Information 0: what an export is.
                let info: Vec<u8> = [0, 0].into_iter().chain(export).collect();
                answer(stream, option, REPLY_INFO, &info)?;
                answer(stream, option, REPLY_ACKNOWLEDGED, &[])?;
                if option == OPTION_GO {
                    return Ok(true);
                }
            }
            OPTION_ABORT => {
                answer(stream, option, REPLY_ACKNOWLEDGED, &[])?;
                return Ok(false);
            }
            _ => answer(stream, option, REPLY_UNSUPPORTED, &[])?,
        }
    }
}

fn answer(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut reply = OPTION_REPLY.to_be_bytes().to_vec();
    for word in [option, kind, data.len() as u32] {
        reply.extend(word.to_be_bytes());
    }
    reply.extend(data);
    stream.write_all(&reply)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::{EXPORT_FLAGS, OPTION, REQUEST, number, serve};

    fn asked(stream: &mut UnixStream, kind: u16, offset: u64, length: u32, data: &[u8]) -> u32 {
        let mut request = REQUEST.to_be_bytes().to_vec();
        request.extend(u32::from(kind).to_be_bytes());
        request.extend(77u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        stream.write_all(&request).unwrap();
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(number(&reply[8..]), 77);
        number(&reply[4..8]) as u32
    }

    #[test]
    fn a_client_reads_what_it_wrote() {
        let path = std::env::temp_dir().join(format!("xtask-disk-model-{}", std::process::id()));
        std::fs::write(&path, vec![5; 1 << 20]).unwrap();
        let disk = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (mut client, server) = UnixStream::pair().unwrap();
        let served = std::thread::spawn(move || serve(&disk, server));
        let mut greeting = [0; 18];
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..8], b"NBDMAGIC");
        // An option that it does not have, then the export.
        let mut options = vec![0, 0, 0, 3];
        for option in [9u32, 1] {
            options.extend(OPTION.to_be_bytes());
            options.extend(option.to_be_bytes());
            options.extend([0; 4]);
        }
        client.write_all(&options).unwrap();
        let mut refused = [0; 20];
        client.read_exact(&mut refused).unwrap();
        assert_eq!(number(&refused[12..16]), 1 << 31 | 1);
        let mut export = [0; 10];
        client.read_exact(&mut export).unwrap();
        assert_eq!((number(&export[..8]), number(&export[8..]) as u16), (1 << 20, EXPORT_FLAGS));
        assert_eq!(asked(&mut client, 1, 4096, 512, &[9; 512]), 0);
        assert_eq!(asked(&mut client, 3, 0, 0, &[]), 0);
        assert_eq!(asked(&mut client, 1, (1 << 20) - 100, 512, &[9; 512]), 22);
        assert_eq!(asked(&mut client, 0, 4000, 200, &[]), 0);
        let mut data = [0; 200];
        client.read_exact(&mut data).unwrap();
        assert!(data[..96] == [5; 96] && data[96..] == [9; 104]);
        drop(client);
        assert!(served.join().unwrap().is_err(), "it went without a word");
        std::fs::remove_file(&path).unwrap();
    }
}
