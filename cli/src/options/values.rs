//! Words of the command line and of `aegis up`'s file that stand for a value: sizes, times, variables.
//!
//! Each reader answers what is wrong in a few words, which its caller puts behind the option's or the key's name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use aegis_link::config::Temporary;
use aegis_link::pods::{POD_NAME_BYTES_MAX, is_name};

/// Least memory of a machine in bytes: the kernel, exos and a small program.
pub(crate) const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// Most memory of a machine in bytes.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 << 30;

/// The name of a machine or of a pod.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!("1 to {POD_NAME_BYTES_MAX} letters, digits, - and _, not beginning with -"))
}

/// Signals by name, without SIG.
const SIGNALS: [(&str, i32); 31] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];
/// The first and the last of the real-time signals, as glibc's programs number them.
const REAL_TIME: (i32, i32) = (34, 64);

/// A signal by number or name: `15`, `TERM`, `sigterm`, `RTMIN+3`.
pub(crate) fn parse_signal(text: &str) -> Result<u8, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let offset = |rest: &str| if rest.is_empty() { Some(0) } else { rest.trim_start_matches(['+', '-']).parse().ok() };
    let (first, last) = REAL_TIME;
    let real_time = || {
        let up = name.strip_prefix("RTMIN").filter(|rest| !rest.starts_with('-')).and_then(offset);
        let down = name.strip_prefix("RTMAX").filter(|rest| !rest.starts_with('+')).and_then(offset);
        let number = up.map(|up: i32| first.saturating_add(up)).or(down.map(|down| last.saturating_sub(down)));
        number.filter(|number| (first..=last).contains(number))
    };
    let known = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number = known.or_else(real_time).or_else(|| text.parse().ok());
    let number = number.and_then(|number| u8::try_from(number).ok()).filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| format!("{text}: no signal; a name such as TERM, or a number from 1 to 64"))
}

/// `DIR[:OPTIONS]` of `--tmpfs`; some options may say what is so in any case.
pub(crate) fn parse_temporary(text: &str) -> Result<Temporary, String> {
    let (path, options) = text.split_once(':').unwrap_or((text, "rw"));
    let is_plain = path.starts_with('/') && path.bytes().any(|byte| byte != b'/' && byte != b'.');
    if !is_plain || path.split('/').any(|name| name == "..") || path.contains('\0') {
        return Err("DIR is a path below /, without ..".into());
    }
    let mut temporary = Temporary::new(path.as_bytes());
    for option in options.split(',') {
        let wrong =
            || format!("{option}: there are size=SIZE, mode=OCTAL, exec and noexec; it is rw, nosuid and nodev");
        match option.split_once('=') {
            None if ["rw", "nosuid", "nodev"].contains(&option) => {}
            None if ["exec", "noexec"].contains(&option) => temporary.is_executable = option == "exec",
            Some(("size" | "tmpfs-size", size)) => temporary.size_max_bytes = parse_bytes(size)?,
            Some(("mode" | "tmpfs-mode", mode)) => {
                let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777);
                temporary.permissions = mode.ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
    Ok(temporary)
}

/// As [`parse_bytes`], within the limits of `-m`.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < MEMORY_BYTES_MIN {
        return Err(format!("at least {}M", MEMORY_BYTES_MIN >> 20));
    }
    if bytes > MEMORY_BYTES_MAX {
        return Err(format!("at most {}G", MEMORY_BYTES_MAX >> 30));
    }
    Ok(bytes)
}

/// What is guaranteed, and the most: a size as [`parse_memory`] takes it for both, or two of them with a slash between.
pub(crate) fn parse_memory_range(text: &str) -> Result<(u64, u64), String> {
    let Some((guaranteed, limit)) = text.split_once('/') else { return parse_memory(text).map(|bytes| (bytes, bytes)) };
    let (guaranteed, limit) = (parse_memory(guaranteed)?, parse_memory(limit)?);
    if limit < guaranteed {
        return Err(format!("{text}: the limit is below what is guaranteed"));
    }
    Ok((guaranteed, limit))
}

/// As [`parse_bytes`]; QEMU and the kernel judge what is too little.
pub(crate) fn parse_machine_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes > MEMORY_BYTES_MAX => Err(format!("at most {}G", MEMORY_BYTES_MAX >> 30)),
        bytes => Ok(bytes),
    }
}

/// A number and an optional K, M, G or T (powers of 1024, also KiB, KB and in small letters); the result is
/// in bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("a number with K, M or G, such as 256M".into()),
    };
    let number: u64 = number.parse().map_err(|_| "a number with K, M or G, such as 256M".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_string())
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 1.5".to_string())?;
    if seconds <= 0.0 {
        return Err("more than 0 seconds".into());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| "too large".to_string())
}

/// `NAME=VALUE` as it is; `NAME` with the value of this process, or alone where it has none: then it is left out.
pub(crate) fn parse_variable(text: OsString) -> Result<OsString, String> {
    let name_bytes = text.as_bytes().iter().position(|byte| *byte == b'=');
    match name_bytes {
        Some(0) => Err("NAME is empty".into()),
        Some(_) => Ok(text),
        None if text.is_empty() => Err("NAME is empty".into()),
        None => match std::env::var_os(&text) {
            Some(value) => {
                let mut both = text;
                both.push("=");
                both.push(value);
                Ok(both)
            }
            None => Ok(text),
        },
    }
}

/// What is left of variables that [`parse_variable`] took: `NAME*` stands for those of this process that begin so, and
/// one without a value for nothing.
pub(crate) fn with_values(variables: Vec<OsString>, own: impl Iterator<Item = (OsString, OsString)>) -> Vec<OsString> {
    let own: Vec<(OsString, OsString)> = own.collect();
    let values = |text: OsString| -> Vec<OsString> {
        if text.as_bytes().contains(&b'=') {
            return vec![text];
        }
        let Some(prefix) = text.as_bytes().strip_suffix(b"*") else { return Vec::new() };
        let found = own.iter().filter(|(name, _)| name.as_bytes().starts_with(prefix));
        found.map(|(name, value)| [name.as_os_str(), value].join(OsStr::new("="))).collect()
    };
    variables.into_iter().flat_map(values).collect()
}

#[cfg(test)]
mod tests {
    use super::{Temporary, parse_signal, parse_temporary, parse_variable, with_values};

    #[test]
    fn variables_without_a_value_are_left_out_and_stars_stand_for_many() {
        let own = [("A", "1"), ("AB", "2=3"), ("B", "4")].map(|(name, value)| (name.into(), value.into()));
        let given = ["C=", "NO_SUCH_VARIABLE_AT_ALL", "A*", "NO_SUCH*"].map(|text| parse_variable(text.into()));
        let given = given.into_iter().collect::<Result<Vec<_>, _>>().expect("variables");
        assert_eq!(with_values(given, own.into_iter()), ["C=", "A=1", "AB=2=3"]);
        assert!(parse_variable("=x".into()).is_err() && parse_variable("".into()).is_err());
    }

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in [
            ("TERM", 15),
            ("sigkill", 9),
            ("SIGUSR1", 10),
            ("3", 3),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
        ] {
            assert_eq!(parse_signal(text), Ok(number), "{text}");
        }
        for text in ["", "0", "65", "-1", "NONE", "RTMIN+99", "RTMIN-1", "RTMAX+1", "RTMIN+99999999999", "SIGSIGTERM"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn directories_in_memory_are_below_the_root() {
        let run = Temporary::new(b"/run");
        assert_eq!(parse_temporary("/run"), Ok(run.clone()));
        assert_eq!(parse_temporary("/run:rw,nodev,exec"), Ok(run.clone()));
        let small = Temporary { size_max_bytes: 1 << 20, permissions: 0o750, is_executable: false, ..run };
        assert_eq!(parse_temporary("/run:rw,noexec,nosuid,size=1m,mode=0750"), Ok(small));
        for text in ["", "/", "//", "/.", "run", "/a/../b", "/run:size=x", "/run:mode=8", "/run:mode=17777", "/run:ro"]
        {
            assert!(parse_temporary(text).is_err(), "{text}");
        }
    }
}
