//! One argument as text. What a call takes in is rendered before it, what it gives after it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::task::signal::{Signal, SignalSet};

use crate::abi::bytes::get;
use crate::abi::linux::{AT_FDCWD, O_CREAT};
use crate::abi::shape::{Format, Names};
use crate::abi::user_memory::{Extent, UserMemory, read_array, read_extents, read_string};
use crate::call::context::{Arguments, Context};
use crate::task::report::signal_name;

/// Bytes of a string that are shown.
const STRING_BYTES_SHOWN: usize = 64;
/// Bytes of a path that are shown: the end of a path says most, so paths are seldom cut.
const PATH_BYTES_SHOWN: usize = 256;
/// Bytes of a buffer that are shown.
const BUFFER_BYTES_SHOWN: usize = 32;
/// Elements of an array that are shown.
const ELEMENTS_SHOWN: usize = 16;
/// Strings that are counted at most.
const STRING_COUNT_MAX: u64 = 65_536;

/// The text of an argument that goes in: empty if it is not shown, `None` if it comes out.
pub(super) fn render_before(
    context: &Context<'_>,
    format: Format,
    arguments: &Arguments,
    index: usize,
) -> Option<String> {
    let value = arguments[index];
    let memory = context.memory;
    let other = |index: usize| arguments.get(index).copied().unwrap_or_default();
    Some(match format {
        Format::Int | Format::Descriptor => format!("{}", value as u32 as i32),
        Format::Long => format!("{}", value.cast_signed()),
        Format::Size => format!("{value}"),
        Format::Hex => format!("{value:#x}"),
        Format::Pointer => address(value),
        Format::At if value as i32 == AT_FDCWD => String::from("AT_FDCWD"),
        Format::At => format!("{}", value as u32 as i32),
        Format::Path => or_address(value, string(memory, value, PATH_BYTES_SHOWN)),
        Format::Mode => mode(value as u32),
        Format::OpenFlags => open_flags(value),
        Format::OpenMode(flags) => {
            const TEMPORARY: u64 = 0o20_200_000;
            let creates = other(flags) & O_CREAT != 0 || other(flags) & TEMPORARY == TEMPORARY;
            if creates { mode(value as u32) } else { String::new() }
        }
        Format::Word(names) => word(value, names),
        Format::Set(names) => set(value, names),
        Format::SignalNumber => match Signal::new(value) {
            Ok(signal) => signal_name(signal),
            Err(_) => format!("{value}"),
        },
        Format::Device => device(value),
        Format::BufferIn(length) => buffer(memory, value, other(length)),
        Format::VectorIn(count) => or_address(value, vector(memory, value, other(count), u64::MAX)),
        Format::TimeIn => or_address(value, time(memory, value)),
        Format::Limit => or_address(value, limit(memory, value)),
        Format::SignalSetIn => or_address(value, signal_set(memory, value)),
        Format::Action => or_address(value, action(memory, value)),
        Format::PollSet(count) => or_address(value, poll_set(memory, value, other(count))),
        Format::Strings => or_address(value, strings(memory, value)),
        Format::StringCount => match count_strings(memory, value) {
            Some(count) => format!("{value:#x} /* {count} vars */"),
            None => address(value),
        },
        _ => return None,
    })
}

/// The text of an argument that comes out; an address if the call failed.
pub(super) fn render_after(
    context: &Context<'_>,
    format: Format,
    arguments: &Arguments,
    index: usize,
    result: Result<u64>,
) -> String {
    let value = arguments[index];
    let memory = context.memory;
    let Ok(result) = result else {
        return address(value);
    };
    let other = |index: usize| arguments.get(index).copied().unwrap_or_default();
    match format {
        Format::BufferOut => buffer(memory, value, result),
        Format::TextOut => buffer(memory, value, result.saturating_sub(1)),
        Format::VectorOut(count) => or_address(value, vector(memory, value, other(count), result)),
        Format::StatOut => or_address(value, stat(memory, value)),
        Format::TimeOut => or_address(value, time(memory, value)),
        Format::LimitOut => or_address(value, limit(memory, value)),
        Format::SignalSetOut => or_address(value, signal_set(memory, value)),
        Format::ActionOut => or_address(value, action(memory, value)),
        Format::PairOut => or_address(value, pair(memory, value)),
        Format::Entries => entries(memory, value, result),
        Format::SystemName => or_address(value, system_name(memory, value)),
        _ => address(value),
    }
}

fn address(value: u64) -> String {
    if value == 0 { String::from("NULL") } else { format!("{value:#x}") }
}

/// What was read from `value`, or the address where it could not be read.
fn or_address(value: u64, text: Option<String>) -> String {
    match text {
        Some(text) if value != 0 => text,
        _ => address(value),
    }
}

/// Bytes in quotes, with C's escapes.
fn quoted(bytes: &[u8], is_cut: bool) -> String {
    let mut text = String::from("\"");
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\r' => text.push_str("\\r"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            b' '..=b'~' => text.push(char::from(*byte)),
            // Digits that follow would be read as part of a shorter escape.
            other if bytes.get(index + 1).is_some_and(u8::is_ascii_digit) => text.push_str(&format!("\\{other:03o}")),
            other => text.push_str(&format!("\\{other:o}")),
        }
    }
    text.push_str(if is_cut { "\"..." } else { "\"" });
    text
}

fn string(memory: &dyn UserMemory, at: u64, shown: usize) -> Option<String> {
    let bytes = read_string(memory, at, crate::abi::user_memory::STRING_BYTES_MAX, Errno::E2BIG).ok()?;
    Some(quoted(&bytes[..bytes.len().min(shown)], bytes.len() > shown))
}

fn buffer(memory: &dyn UserMemory, at: u64, length: u64) -> String {
    let mut bytes = [0; BUFFER_BYTES_SHOWN];
    let count = length.min(BUFFER_BYTES_SHOWN as u64) as usize;
    if at == 0 {
        return address(at);
    }
    match if count == 0 { Ok(0) } else { memory.copy_in(at, &mut bytes[..count]) } {
        Ok(got) if got == count => quoted(&bytes[..count], length > count as u64),
        _ => address(at),
    }
}

/// `[{iov_base="abc", iov_len=3}, …]`, of which only the first `filled` bytes mean something.
fn vector(memory: &dyn UserMemory, at: u64, count: u64, filled: u64) -> Option<String> {
    let extents: Vec<Extent> = read_extents(memory, at, count).ok()?;
    let mut left = filled;
    let elements = extents.iter().map(|extent| {
        let length = extent.length.min(left);
        left -= length;
        format!("{{iov_base={}, iov_len={}}}", buffer(memory, extent.address, length), extent.length)
    });
    Some(list(elements, extents.len()))
}

fn list(elements: impl Iterator<Item = String>, count: usize) -> String {
    let shown: Vec<String> = elements.take(ELEMENTS_SHOWN).collect();
    let rest = if count > shown.len() { ", ..." } else { "" };
    format!("[{}{rest}]", shown.join(", "))
}

/// The name of a value, else the number.
fn word(value: u64, names: Names) -> String {
    match names.iter().find(|row| row.0 == u64::from(value as u32)) {
        Some((_, name)) => String::from(*name),
        None if value < 10 => format!("{value}"),
        None => format!("{value:#x}"),
    }
}

/// The names of all bits; what has none as a number.
fn set(value: u64, names: Names) -> String {
    if let Some((_, name)) = names.iter().find(|row| row.0 == value) {
        return String::from(*name);
    }
    let mut left = value;
    let mut parts: Vec<String> = Vec::new();
    for (bits, name) in names {
        if *bits != 0 && left & bits == *bits {
            left &= !bits;
            parts.push(String::from(*name));
        }
    }
    if left != 0 || parts.is_empty() {
        parts.push(if left == 0 { String::from("0") } else { format!("{left:#x}") });
    }
    parts.join("|")
}

fn open_flags(value: u64) -> String {
    const ACCESS: [&str; 4] = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"];
    const BITS: Names = &[
        (0o100, "O_CREAT"),
        (0o200, "O_EXCL"),
        (0o400, "O_NOCTTY"),
        (0o1000, "O_TRUNC"),
        (0o2000, "O_APPEND"),
        (0o4000, "O_NONBLOCK"),
        (0o4_010_000, "O_SYNC"),
        (0o10_000, "O_DSYNC"),
        (0o20_000, "O_ASYNC"),
        (0o40_000, "O_DIRECT"),
        (0o100_000, "O_LARGEFILE"),
        (0o20_200_000, "O_TMPFILE"),
        (0o200_000, "O_DIRECTORY"),
        (0o400_000, "O_NOFOLLOW"),
        (0o1_000_000, "O_NOATIME"),
        (0o2_000_000, "O_CLOEXEC"),
        (0o10_000_000, "O_PATH"),
    ];
    let access = ACCESS[(value & 3) as usize];
    match u64::from(value as u32) & !3 {
        0 => String::from(access),
        rest => format!("{access}|{}", set(rest, BITS)),
    }
}

fn mode(value: u32) -> String {
    let kind = match value & 0o170_000 {
        0o100_000 => "S_IFREG|",
        0o040_000 => "S_IFDIR|",
        0o120_000 => "S_IFLNK|",
        0o020_000 => "S_IFCHR|",
        0o060_000 => "S_IFBLK|",
        0o010_000 => "S_IFIFO|",
        0o140_000 => "S_IFSOCK|",
        _ => "",
    };
    let bits = if kind.is_empty() { value } else { value & 0o7777 };
    if bits == 0 && kind.is_empty() { String::from("000") } else { format!("{kind}0{bits:03o}") }
}

fn device(value: u64) -> String {
    let number = exos::fs::metadata::DeviceNumber::decoded(value as u32);
    format!("makedev({:#x}, {:#x})", number.major, number.minor)
}

fn time(memory: &dyn UserMemory, at: u64) -> Option<String> {
    let bytes: [u8; 16] = read_array(memory, at).ok()?;
    Some(format!("{{tv_sec={}, tv_nsec={}}}", get::i64(&bytes, 0), get::i64(&bytes, 8)))
}

fn limit(memory: &dyn UserMemory, at: u64) -> Option<String> {
    let bytes: [u8; 16] = read_array(memory, at).ok()?;
    let text = |value: u64| match value {
        u64::MAX => String::from("RLIM64_INFINITY"),
        value if value > 1024 && value.is_multiple_of(1024) => format!("{}*1024", value / 1024),
        value => format!("{value}"),
    };
    Some(format!("{{rlim_cur={}, rlim_max={}}}", text(get::u64(&bytes, 0)), text(get::u64(&bytes, 8))))
}

fn signal_set(memory: &dyn UserMemory, at: u64) -> Option<String> {
    let bytes: [u8; 8] = read_array(memory, at).ok()?;
    Some(signals(u64::from_le_bytes(bytes)))
}

/// `[INT CHLD]`; `~[…]` for what is missing, where more than half is there.
fn signals(bits: u64) -> String {
    let is_complement = bits.count_ones() > 32;
    let mut rest = SignalSet(if is_complement { !bits } else { bits });
    let mut names = Vec::new();
    for number in 1..=64 {
        if let Ok(signal) = Signal::new(number)
            && rest.contains(signal)
        {
            rest = rest.without(signal.bit());
            names.push(String::from(&signal_name(signal)[3..]));
        }
    }
    format!("{}[{}]", if is_complement { "~" } else { "" }, names.join(" "))
}

fn action(memory: &dyn UserMemory, at: u64) -> Option<String> {
    const FLAGS: Names = &[
        (1, "SA_NOCLDSTOP"),
        (2, "SA_NOCLDWAIT"),
        (4, "SA_SIGINFO"),
        (0x0400_0000, "SA_RESTORER"),
        (0x0800_0000, "SA_ONSTACK"),
        (0x1000_0000, "SA_RESTART"),
        (0x4000_0000, "SA_NODEFER"),
        (0x8000_0000, "SA_RESETHAND"),
    ];
    let bytes: [u8; 32] = read_array(memory, at).ok()?;
    let field = |index: usize| get::u64(&bytes, index * 8);
    let handler = match field(0) {
        0 => String::from("SIG_DFL"),
        1 => String::from("SIG_IGN"),
        handler => format!("{handler:#x}"),
    };
    let (flags, mask) = (set(field(1), FLAGS), signals(field(3)));
    Some(format!("{{sa_handler={handler}, sa_mask={mask}, sa_flags={flags}}}"))
}

fn poll_set(memory: &dyn UserMemory, at: u64, count: u64) -> Option<String> {
    const EVENTS: Names = &[
        (1, "POLLIN"),
        (2, "POLLPRI"),
        (4, "POLLOUT"),
        (8, "POLLERR"),
        (0x10, "POLLHUP"),
        (0x20, "POLLNVAL"),
        (0x40, "POLLRDNORM"),
        (0x100, "POLLWRNORM"),
        (0x2000, "POLLRDHUP"),
    ];
    let shown = count.min(ELEMENTS_SHOWN as u64);
    let mut elements = Vec::new();
    for index in 0..shown {
        let bytes: [u8; 8] = read_array(memory, at.checked_add(index * 8)?).ok()?;
        let events = set(u64::from(get::u16(&bytes, 4)), EVENTS);
        elements.push(format!("{{fd={}, events={events}}}", get::i32(&bytes, 0)));
    }
    Some(list(elements.into_iter(), usize::try_from(count).unwrap_or(usize::MAX)))
}

/// The string pointers of an array up to the null pointer, at most `limit`.
fn string_pointers(memory: &dyn UserMemory, at: u64, limit: u64) -> Option<Vec<u64>> {
    let mut pointers = Vec::new();
    for index in 0..limit {
        let bytes: [u8; 8] = read_array(memory, at.checked_add(index * 8)?).ok()?;
        match u64::from_le_bytes(bytes) {
            0 => break,
            pointer => pointers.push(pointer),
        }
    }
    Some(pointers)
}

fn strings(memory: &dyn UserMemory, at: u64) -> Option<String> {
    let pointers = string_pointers(memory, at, ELEMENTS_SHOWN as u64 + 1)?;
    let texts = pointers.iter().map(|pointer| or_address(*pointer, string(memory, *pointer, STRING_BYTES_SHOWN)));
    Some(list(texts, pointers.len()))
}

fn count_strings(memory: &dyn UserMemory, at: u64) -> Option<usize> {
    string_pointers(memory, at, STRING_COUNT_MAX).map(|pointers| pointers.len())
}

fn stat(memory: &dyn UserMemory, at: u64) -> Option<String> {
    let bytes: [u8; 144] = read_array(memory, at).ok()?;
    let (bits, size) = (get::u32(&bytes, 24), get::u64(&bytes, 48));
    match bits & 0o170_000 {
        0o020_000 | 0o060_000 => {
            Some(format!("{{st_mode={}, st_rdev={}, ...}}", mode(bits), device(get::u64(&bytes, 40))))
        }
        _ => Some(format!("{{st_mode={}, st_size={size}, ...}}", mode(bits))),
    }
}

fn pair(memory: &dyn UserMemory, at: u64) -> Option<String> {
    let bytes: [u8; 8] = read_array(memory, at).ok()?;
    Some(format!("[{}, {}]", get::i32(&bytes, 0), get::i32(&bytes, 4)))
}

fn entries(memory: &dyn UserMemory, at: u64, length: u64) -> String {
    let (mut offset, mut count) = (0, 0);
    while offset < length {
        let record = at.checked_add(offset + 16).and_then(|at| read_array::<2>(memory, at).ok());
        let record_bytes = record.map_or(0, u16::from_le_bytes);
        if record_bytes == 0 {
            break;
        }
        offset += u64::from(record_bytes);
        count += 1;
    }
    format!("{at:#x} /* {count} entries */")
}

fn system_name(memory: &dyn UserMemory, at: u64) -> Option<String> {
    const FIELD_BYTES: usize = 65;
    let bytes: [u8; 6 * FIELD_BYTES] = read_array(memory, at).ok()?;
    let field = |index: usize| {
        let field = &bytes[index * FIELD_BYTES..(index + 1) * FIELD_BYTES];
        quoted(field.split(|byte| *byte == 0).next().unwrap_or_default(), false)
    };
    Some(format!("{{sysname={}, nodename={}, release={}, ...}}", field(0), field(1), field(2)))
}
