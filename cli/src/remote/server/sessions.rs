//! The server's part in `aegis exec`: finds the pod, makes the description of the process out of the pod's own and what
//! the caller wants, and passes messages between the caller and the pod's line.

use std::time::Instant;

use aegis_link::config::{Config, Flags};
use aegis_link::control::ToGuest;
use aegis_link::frame::{Frame, Kind};
use aegis_link::phase::PodPhase;

use super::channel::SessionEvent;
use super::state::{Client, ControlServer, Job};
use crate::relay::pod_link::PodLink;

/// A session as its caller describes it: words, one for each that is not the pod's own, then `--` and the program with
/// its arguments.
pub(crate) mod session_word {
    /// Standard input is the caller's.
    pub(crate) const INPUT: &str = "input";
    /// With `ROWS COLUMNS` behind it: a terminal.
    pub(crate) const TERMINAL: &str = "terminal ";
    /// With `UID GID`: the user and group to run as.
    pub(crate) const USER: &str = "user ";
    /// With a path: where.
    pub(crate) const DIRECTORY: &str = "directory ";
    /// With `NAME=VALUE`: a variable of the environment.
    pub(crate) const VARIABLE: &str = "variable ";
    /// The program follows.
    pub(crate) const PROGRAM: &str = "--";
}

impl ControlServer {
    /// `exec POD WORDS… -- PROGRAM ARGUMENTS…`.
    pub(super) fn begin_session(&mut self, number: u64, frame: &Frame, links: &mut [PodLink]) -> Result<(), String> {
        let mut words = frame.words().skip(1);
        let name = str::from_utf8(words.next().unwrap_or_default()).unwrap_or("\u{fffd}");
        let pod = self.pod(name)?;
        let refused = |why: &str| Err(format!("{name}: {why}"));
        if links[pod].phase() == PodPhase::Waiting {
            return refused("has ended, and will be started again");
        }
        if self.is_over(pod, links) {
            return refused("has ended");
        }
        if !links[pod].has_greeted {
            return refused("is still starting");
        }
        let Some(channel) = self.channels.get_mut(pod) else { return refused("has no line for this") };
        let config = description(&channel.config, words)?;
        let (session, token) = channel.begin(number, &config)?;
        if let Some(token) = token {
            links[pod].send(ToGuest::Sessions { token });
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Session { pod, session };
        }
        Ok(())
    }

    /// A message of a caller.
    pub(super) fn pass_on(&mut self, number: u64, frame: &Frame) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        // The session may be over already.
        let Job::Session { pod, session } = client.job else { return };
        if let Err(why) = self.channels[pod].pass_on(session, &frame.contents) {
            self.channels[pod].hang_up(session);
            client.refuse(why);
            client.is_over = true;
        }
    }

    /// Something has come on a pod's line.
    pub(super) fn read_sessions(&mut self, pod: usize) {
        let news = self.channels[pod].read(&self.pods[pod].name);
        self.tell_callers(news);
    }

    fn tell_callers(&mut self, news: Vec<SessionEvent>) {
        for news in news {
            match news {
                SessionEvent::Message(number, contents) => {
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.send(&Frame { kind: Kind::Session, contents });
                    }
                }
                SessionEvent::End(number, status, text) => {
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.end(status, &text);
                    }
                }
            }
        }
    }

    /// Ends the sessions of pods that have ended or do not answer, and of callers that are gone.
    pub(super) fn go_on_with_sessions(&mut self, links: &[PodLink], now: Instant) {
        for pod in 0..self.channels.len() {
            let is_over = self.is_over(pod, links);
            let (channel, name) = (&mut self.channels[pod], &self.pods[pod].name);
            let news = if is_over { channel.end(name) } else { channel.give_up(name, now) };
            self.tell_callers(news);
        }
        let is_gone = |client: &&mut Client| client.is_over && matches!(client.job, Job::Session { .. });
        for client in self.clients.values_mut().filter(is_gone) {
            if let Job::Session { pod, session } = std::mem::replace(&mut client.job, Job::Nothing) {
                self.channels[pod].hang_up(session);
            }
        }
    }
}

/// What the pod's program was started with, changed as the words say.
fn description<'a>(pod: &Config, mut words: impl Iterator<Item = &'a [u8]>) -> Result<Config, String> {
    let mut config = Config { flags: Flags::empty(), mounts: Vec::new(), random_seed: [0; 32], ..pod.clone() };
    for word in words.by_ref() {
        let after = |prefix: &str| word.strip_prefix(prefix.as_bytes());
        let pair = |text: &[u8]| {
            let mut numbers = str::from_utf8(text).unwrap_or_default().split(' ').map(|word| word.parse::<u32>().ok());
            Some((numbers.next()??, numbers.next()??))
        };
        if word == session_word::PROGRAM.as_bytes() {
            break;
        } else if word == session_word::INPUT.as_bytes() {
            config.flags |= Flags::INPUT;
        } else if let Some((rows, columns)) = after(session_word::TERMINAL).and_then(pair) {
            config.flags |= Flags::TERMINAL;
            (config.terminal_rows, config.terminal_columns) = (rows as u16, columns as u16);
        } else if let Some((uid, gid)) = after(session_word::USER).and_then(pair) {
            (config.uid, config.gid) = (uid, gid);
        } else if let Some(path) = after(session_word::DIRECTORY) {
            config.working_directory = path.to_vec();
        } else if let Some(variable) = after(session_word::VARIABLE) {
            let name = |text: &[u8]| text.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
            config.environment.retain(|old| name(old) != name(variable));
            config.environment.push(variable.to_vec());
        } else {
            return Err("this version of the tool does not know that".to_owned());
        }
    }
    config.arguments = words.map(<[u8]>::to_vec).collect();
    config.program = config.arguments.first().cloned().unwrap_or_default();
    if config.program.is_empty() { Err("PROGRAM is empty".to_owned()) } else { Ok(config) }
}

#[cfg(test)]
mod tests {
    use aegis_link::config::{Config, Flags};

    use super::description;

    fn described(words: &[&str]) -> Result<Config, String> {
        let pod = Config {
            program: b"/bin/server".to_vec(),
            arguments: vec![b"server".to_vec()],
            environment: vec![b"PATH=/bin".to_vec(), b"A=1".to_vec()],
            working_directory: b"/srv".to_vec(),
            uid: 7,
            random_seed: [9; 32],
            ..Config::default()
        };
        description(&pod, words.iter().map(|word| word.as_bytes()))
    }

    #[test]
    fn a_session_is_as_its_pod_but_for_what_is_said() {
        let config = described(&["--", "ls", "--", ""]).expect("it is one");
        assert_eq!(config.arguments, [&b"ls"[..], b"--", b""]);
        assert_eq!((config.program.as_slice(), config.working_directory.as_slice()), (&b"ls"[..], &b"/srv"[..]));
        assert_eq!((config.uid, config.flags, config.random_seed), (7, Flags::empty(), [0; 32]), "no secret travels");
        assert_eq!(config.environment, [&b"PATH=/bin"[..], b"A=1"]);
        let words = ["input", "terminal 3 4", "user 1 2", "directory /x y", "variable A=2=3", "variable B=", "--", "p"];
        let config = described(&words).expect("it is one");
        assert_eq!((config.terminal_rows, config.terminal_columns, config.uid, config.gid), (3, 4, 1, 2));
        assert_eq!(config.flags, Flags::INPUT | Flags::TERMINAL);
        assert_eq!(config.working_directory, b"/x y");
        assert_eq!(config.environment, [&b"PATH=/bin"[..], b"A=2=3", b"B="]);
        for words in [&["--"][..], &["--", ""], &["input"], &[], &["user x", "--", "p"], &["else", "--", "p"]] {
            assert!(described(words).is_err(), "{words:?}");
        }
    }
}
