//! Scripts: what a peer does and what it must see, a step on a line.
//!
//! | line | meaning |
//! |---|---|
//! | `= NAME: TITLE` | a script begins; with `= NAME (slow): TITLE` it is left out by default |
//! | `> LAYERS` | the peer sends a frame ([`super::build`]) |
//! | `< PATTERN` | the next frame of the guest's is so ([`super::read`]); with `+A..B` A to B ms after the last one |
//! | `- MS` | no frame comes for so long |
//! | `. MS` | time passes; what comes is kept |
//! | `! ORDER => RESULT` | the program in the guest obeys; `*` stands for any result |
//! | `~ PATTERN` | such frames are overlooked from here on |
//! | `@ open [win N] [OPTIONS]` | the peer connects to the guest: `l` listens, `c` is the connection |
//! | `@ connect [win N] [OPTIONS]` | the guest connects to the peer: `c` |
//! | `@ watch TOPICS` | other topics are looked at than TCP, UDP, ICMP and fragments |
//! | `@ mute TOPIC` | the peer does not answer `arp` or `nd` by itself |
//! | `@ peer ADDRESS` | the peer is at another of its addresses |
//! | `@ renew N` | flow N is a new connection from here on |
//! | `@ repeat N` and a line | the line, N times, flow by flow where it names `tcp:#` |
//! | ... with `src 10.0.2.$` | 500 flows at each address from 10.0.2.100 on |
//! | `# TEXT` | a comment |

use super::words::number;

/// A script.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) is_slow: bool,
    pub(super) steps: Vec<Step>,
}

/// A line of it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Its number in the file.
    pub(super) line_number: usize,
    pub(super) action: Action,
}

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Send(String),
    Expect { after_ms: Option<(u64, u64)>, pattern: String },
    Silence(u64),
    Wait(u64),
    Order { order: String, result: String },
    Overlook(String),
    Watch(Vec<String>),
    Mute(String),
    Peer(String),
    Renew(u16),
    Repeat(u16, String),
}

/// Flows of a repeated line at one address, where it names several.
const TURNS_OF_ADDRESS: u16 = 500;
/// What the first of these addresses ends in.
const FIRST_ADDRESS: u16 = 100;

/// A repeated line as it is sent in one of its turns.
pub(super) fn turn(text: &str, number: u16) -> String {
    if !text.contains('$') {
        return text.replace('#', &number.to_string());
    }
    let address = FIRST_ADDRESS + number / TURNS_OF_ADDRESS;
    text.replace('#', &(number % TURNS_OF_ADDRESS).to_string()).replace('$', &address.to_string())
}

/// Reads a file of scripts.
///
/// # Errors
/// The line and what is wrong with it.
pub(super) fn read(text: &str) -> Result<Vec<Script>, String> {
    let mut scripts: Vec<Script> = Vec::new();
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    while let Some((line_number, line)) = lines.next() {
        let wrong = |why: &str| format!("line {line_number}: {why}: {line}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("= ") {
            let (name, title) = title.split_once(": ").ok_or_else(|| wrong("NAME: TITLE"))?;
            let (name, is_slow) = name.strip_suffix(" (slow)").map_or((name, false), |name| (name, true));
            scripts.push(Script { name: name.into(), title: title.into(), is_slow, steps: Vec::new() });
            continue;
        }
        let script = scripts.last_mut().ok_or_else(|| wrong("no script has begun"))?;
        let actions = match line.strip_prefix("@ repeat ") {
            Some(count) => {
                let count = number(count).map_err(|why| wrong(&why))? as u16;
                let (_, repeated) = lines.next().ok_or_else(|| wrong("nothing to repeat"))?;
                vec![Action::Repeat(count, repeated.trim_start_matches("> ").into())]
            }
            None => actions(line).map_err(|why| wrong(&why))?,
        };
        script.steps.extend(actions.into_iter().map(|action| Step { line_number, action }));
    }
    Ok(scripts)
}

fn actions(line: &str) -> Result<Vec<Action>, String> {
    let (mark, rest) = line.split_once(' ').ok_or("a mark and a blank")?;
    let rest = rest.trim();
    let action = match mark {
        ">" => Action::Send(rest.into()),
        "<" => match rest.strip_prefix('+').and_then(|it| it.split_once(' ')) {
            Some((range, pattern)) => {
                let (from, to) = range.split_once("..").ok_or("+A..B")?;
                let after_ms = Some((number(from)? as u64, number(to)? as u64));
                Action::Expect { after_ms, pattern: pattern.into() }
            }
            None => Action::Expect { after_ms: None, pattern: rest.into() },
        },
        "-" => Action::Silence(number(rest)? as u64),
        "." => Action::Wait(number(rest)? as u64),
        "!" => {
            let (order, result) = rest.split_once(" => ").unwrap_or((rest, "0"));
            Action::Order { order: order.into(), result: result.trim().into() }
        }
        "~" => Action::Overlook(rest.into()),
        "@" => return macros(rest),
        _ => return Err("no such mark".into()),
    };
    Ok(vec![action])
}

fn macros(text: &str) -> Result<Vec<Action>, String> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    let six = if name.ends_with('6') { "6" } else { "" };
    let (window, offered) = match rest.strip_prefix("win ").map(|it| it.split_once(' ').unwrap_or((it, ""))) {
        Some((window, offered)) => (format!(" win {window}"), offered),
        None => (String::new(), rest),
    };
    let offered = if offered.is_empty() { "<mss:1460>" } else { offered };
    // Timestamps go on in the third segment, or it would be thrown away.
    let timestamp = offered.split_once("ts:").and_then(|(_, it)| it.split(':').next()).map(number).transpose()?;
    let going_on = timestamp.map_or(String::new(), |it| format!(" <ts:{}>", it + 1));
    let lines = match name {
        "open" | "open6" => vec![
            format!("! socket l tcp{six}"),
            "! set l reuse 1".into(),
            format!("! bind l G {}", if six.is_empty() { "0.0.0.0" } else { "::" }),
            "! listen l 5".into(),
            format!("> tcp{six} S seq 0 {offered}"),
            format!("< tcp{six} SA seq 0 ack 1"),
            format!("> tcp{six} A seq 1 ack 1{window}{going_on}"),
            "! accept c l".into(),
        ],
        "connect" | "connect6" => vec![
            format!("! socket c tcp{six}"),
            format!("! connect c PEER{six} P => -EINPROGRESS"),
            format!("< tcp{six} S seq 0"),
            format!("> tcp{six} SA seq 0 ack 1{window} {offered}"),
            format!("< tcp{six} A seq 1 ack 1"),
        ],
        "watch" => return Ok(vec![Action::Watch(rest.split(' ').map(Into::into).collect())]),
        "mute" => return Ok(vec![Action::Mute(rest.into())]),
        "peer" => return Ok(vec![Action::Peer(rest.into())]),
        "renew" => return Ok(vec![Action::Renew(number(rest)? as u16)]),
        _ => return Err("no such macro".into()),
    };
    let nested: Result<Vec<_>, _> = lines.iter().map(|line| actions(line)).collect();
    Ok(nested?.concat())
}

/// Whether a frame's words are those of a pattern. A head has to be the same; a field that the pattern does not name
/// may be anything, but TCP data (none) and checksums (right).
pub(super) fn matches(pattern: &str, head: &str, get: impl Fn(&str) -> Option<String>) -> Result<bool, String> {
    let words: Vec<&str> = pattern.split_whitespace().collect();
    let head_count = head.split(' ').count().min(words.len());
    let is_head = head.split(' ').zip(&words).all(|(found, wanted)| {
        *wanted == found || wanted.strip_suffix('*').is_some_and(|begin| found.starts_with(begin))
    });
    if !is_head || head.split(' ').count() != head_count {
        return Ok(false);
    }
    let mut named = Vec::new();
    let mut rest = words[head_count..].iter();
    while let Some(word) = rest.next() {
        if let Some(options) = word.strip_prefix('<').and_then(|it| it.strip_suffix('>')) {
            named.push("opts");
            if !list_matches(options, &get("opts").unwrap_or_default()) {
                return Ok(false);
            }
            continue;
        }
        let wanted = rest.next().ok_or_else(|| format!("{word}: its value is missing"))?;
        named.push(word);
        if !get(word).is_some_and(|value| value_matches(wanted, &value)) {
            return Ok(false);
        }
    }
    let has_data = head.starts_with("tcp") && get("len").is_some_and(|it| it != "0");
    let is_open = |key: &str| !named.contains(&key);
    Ok(!((has_data && is_open("len")) || (get("sum").is_some() && is_open("sum"))))
}

fn value_matches(wanted: &str, value: &str) -> bool {
    let value_number = || value.parse::<i64>().ok();
    if let Some(least) = wanted.strip_prefix('>').and_then(|it| it.parse::<i64>().ok()) {
        return value_number().is_some_and(|it| it > least);
    }
    if let Some((from, to)) = wanted.split_once("..")
        && let (Ok(from), Ok(to)) = (from.parse::<i64>(), to.parse::<i64>())
    {
        return value_number().is_some_and(|it| (from..=to).contains(&it));
    }
    wanted == "*" || wanted.split('|').any(|it| it == value)
}

/// Options are a set: their order is the sender's own affair.
fn list_matches(wanted: &str, found: &str) -> bool {
    let split = |text: &str| {
        let mut items: Vec<String> =
            text.split(',').filter(|it| !it.is_empty() && *it != "nop").map(Into::into).collect();
        items.sort_unstable();
        items
    };
    let (wanted, found) = (split(wanted), split(found));
    wanted.len() == found.len()
        && wanted.iter().zip(&found).all(|(wanted, found)| {
            wanted == found || wanted.strip_suffix('*').is_some_and(|begin| found.starts_with(begin))
        })
}

#[cfg(test)]
mod tests {
    use super::{Action, matches, read};

    #[test]
    fn a_script_is_its_lines() {
        let scripts =
            read("# x\n= a: A title\n> tcp S seq 0\n< +10..20 tcp RA seq 0 ack 1\n! close c\n- 30\n").unwrap();
        assert_eq!((scripts[0].name.as_str(), scripts[0].title.as_str()), ("a", "A title"));
        let actions: Vec<_> = scripts[0].steps.iter().map(|step| step.action.clone()).collect();
        assert_eq!(actions[1], Action::Expect { after_ms: Some((10, 20)), pattern: "tcp RA seq 0 ack 1".into() });
        assert_eq!(actions[2], Action::Order { order: "close c".into(), result: "0".into() });
        assert!(read("> tcp S\n").unwrap_err().contains("no script"));
        assert!(read("= a: b\n? x\n").is_err());
    }

    #[test]
    fn patterns() {
        let fields = [("seq", "1"), ("len", "0"), ("opts", "mss:1460,ws:7")];
        let get = |key: &str| fields.iter().find(|it| it.0 == key).map(|it| it.1.to_string());
        for pattern in ["tcp SA", "tcp SA seq 1", "tcp SA seq 0..2 <ws:*,mss:1460>", "tcp SA seq 1|2 len 0"] {
            assert_eq!(matches(pattern, "tcp SA", get), Ok(true), "{pattern}");
        }
        for pattern in ["tcp S", "tcp SA seq 2", "tcp SA <mss:1460>", "tcp SA ack 0", "udp"] {
            assert_eq!(matches(pattern, "tcp SA", get), Ok(false), "{pattern}");
        }
        assert!(matches("tcp SA seq", "tcp SA", get).is_err());
        let bad = |key: &str| (key == "sum").then(|| "bad".to_string());
        assert_eq!(matches("udp", "udp", bad), Ok(false), "a wrong checksum is never overlooked");
    }
}
