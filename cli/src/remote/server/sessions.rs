//! The server's part in `aegis exec`: finds the pod, makes the description of the process out of the pod's own and what
//! the caller wants, and passes messages between the caller and the pod's line.

use std::time::Instant;

use aegis_launch::images::accounts::Accounts;
use aegis_link::config::{Config, Flags};
use aegis_link::control::ToGuest;
use aegis_link::frame::Kind;
use aegis_link::phase::PodPhase;

use super::channel::SessionEvent;
use super::health::checked_pod;
use super::state::{Client, ControlServer, Job};
use crate::relay::pod_link::PodLink;
use crate::remote::request::{Bytes, Exec};

/// The last of Linux's signals.
const SIGNAL_MAX: u8 = 64;

impl ControlServer {
    pub(super) fn begin_session(&mut self, number: u64, exec: Exec, links: &mut [PodLink]) -> Result<(), String> {
        let name = exec.pod.clone();
        let pod = self.pod(&name)?;
        let refused = |why: &str| Err(format!("{name}: {why}"));
        if links[pod].is_unbegun() {
            return refused("waits for other pods");
        }
        if links[pod].phase() == PodPhase::Waiting {
            return refused("has ended, and will be started again");
        }
        if self.is_over(pod, links) {
            return refused("has ended");
        }
        if !links[pod].has_greeted() {
            return refused("is still starting");
        }
        let Some(channel) = self.channels.get_mut(pod) else { return refused("has no line for this") };
        let exec = with_user(exec, self.pods[pod].accounts.as_ref())?;
        let config = description(&channel.config, exec)?;
        let (session, token) = channel.begin(number, &config)?;
        if let Some(token) = token {
            links[pod].send(ToGuest::Sessions { token });
        }
        self.begin(number, Job::Session { pod, session })
    }

    /// Sends a pod's program a signal.
    pub(super) fn signal(&mut self, number: u64, name: &str, signal: u8, links: &mut [PodLink]) -> Result<(), String> {
        let pod = self.pod(name)?;
        if signal > SIGNAL_MAX {
            return Err(format!("{signal}: signals are 1 to {SIGNAL_MAX}, and 0 to ask whether it hears them"));
        }
        if self.is_over(pod, links) {
            return Err(format!("{name}: has ended"));
        }
        if !links[pod].has_greeted() {
            return Err(format!("{name}: is still starting"));
        }
        if signal > 0 {
            links[pod].send(ToGuest::Signal(signal));
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.end(0, "");
        }
        Ok(())
    }

    /// A message of a caller.
    pub(super) fn pass_on(&mut self, number: u64, message: &[u8]) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        // The session may be over already.
        let Job::Session { pod, session } = client.job else { return };
        if let Err(why) = self.channels[pod].pass_on(session, message) {
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
                    if let Some(pod) = checked_pod(number) {
                        self.on_check_message(pod, &contents);
                    } else if let Some(client) = self.clients.get_mut(&number) {
                        client.send(Kind::Session, &contents);
                    }
                }
                SessionEvent::End(number, status, text) => {
                    if let Some(pod) = checked_pod(number) {
                        self.on_checked(pod, status == 0, Instant::now());
                    } else if let Some(client) = self.clients.get_mut(&number) {
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

/// What is asked for with its user in numbers: by the pod's accounts, or as numbers that were said.
fn with_user(mut exec: Exec, accounts: Option<&Accounts>) -> Result<Exec, String> {
    let Some(text) = exec.user_text.take() else { return Ok(exec) };
    match accounts {
        Some(accounts) => {
            let found = accounts.identity(&text).map_err(|error| error.to_string())?;
            (exec.user, exec.groups) = (Some((found.uid, found.gid)), found.groups);
            if let Some(home) = found.home {
                exec.variables.insert(0, Bytes([b"HOME=", home.as_slice()].concat()));
            }
        }
        None if exec.user.is_none() => {
            return Err(format!("user {text}: this pod is of no image; numbers of a user and a group are wanted"));
        }
        None => {}
    }
    Ok(exec)
}

/// What the pod's program was started with, changed as the caller wants.
pub(super) fn description(pod: &Config, exec: Exec) -> Result<Config, String> {
    let mut config = Config { flags: Flags::empty(), mounts: Vec::new(), random_seed: [0; 32], ..pod.clone() };
    config.flags.set(Flags::INPUT, exec.input);
    config.flags.set(Flags::TERMINAL, exec.terminal.is_some());
    if let Some((rows, columns)) = exec.terminal {
        (config.terminal_rows, config.terminal_columns) = (rows, columns);
    }
    if exec.user.is_some() {
        config.groups = exec.groups;
    }
    (config.uid, config.gid) = exec.user.unwrap_or((config.uid, config.gid));
    config.working_directory = exec.directory.map_or(config.working_directory, |directory| directory.0);
    for Bytes(variable) in exec.variables {
        let name = |text: &[u8]| text.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
        config.environment.retain(|old| name(old) != name(&variable));
        config.environment.push(variable);
    }
    config.arguments = exec.words.into_iter().map(|word| word.0).collect();
    config.program = config.arguments.first().cloned().unwrap_or_default();
    if config.program.is_empty() { Err("PROGRAM is empty".to_owned()) } else { Ok(config) }
}

#[cfg(test)]
mod tests {
    use aegis_link::config::{Config, Flags};

    use aegis_launch::images::accounts::Accounts;

    use super::{Bytes, Exec, description, with_user};

    fn described(exec: Exec) -> Result<Config, String> {
        let pod = Config {
            program: b"/bin/server".to_vec(),
            arguments: vec![b"server".to_vec()],
            environment: vec![b"PATH=/bin".to_vec(), b"A=1".to_vec()],
            working_directory: b"/srv".to_vec(),
            uid: 7,
            groups: vec![70, 71],
            random_seed: [9; 32],
            ..Config::default()
        };
        description(&pod, exec)
    }

    fn list(words: &[&str]) -> Vec<Bytes> {
        words.iter().map(|word| Bytes(word.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_session_is_as_its_pod_but_for_what_is_said() {
        let config = described(Exec { words: list(&["ls", "--", ""]), ..Exec::default() }).expect("it is one");
        assert_eq!(config.arguments, [&b"ls"[..], b"--", b""]);
        assert_eq!((config.program.as_slice(), config.working_directory.as_slice()), (&b"ls"[..], &b"/srv"[..]));
        assert_eq!((config.uid, config.flags, config.random_seed), (7, Flags::empty(), [0; 32]), "no secret travels");
        assert_eq!(config.environment, [&b"PATH=/bin"[..], b"A=1"]);
        assert_eq!(config.groups, [70, 71]);
        let all = Exec {
            pod: "a".into(),
            input: true,
            terminal: Some((3, 4)),
            user: Some((1, 2)),
            user_text: None,
            groups: vec![3, 4],
            directory: Some(Bytes(b"/x y".to_vec())),
            variables: list(&["A=2=3", "B="]),
            words: list(&["p"]),
        };
        let config = described(all).expect("it is one");
        assert_eq!((config.terminal_rows, config.terminal_columns, config.uid, config.gid), (3, 4, 1, 2));
        assert_eq!(config.groups, [3, 4]);
        assert_eq!(config.flags, Flags::INPUT | Flags::TERMINAL);
        assert_eq!(config.working_directory, b"/x y");
        assert_eq!(config.environment, [&b"PATH=/bin"[..], b"A=2=3", b"B="]);
        for words in [&[][..], &[""]] {
            assert!(described(Exec { words: list(words), ..Exec::default() }).is_err(), "{words:?}");
        }
    }

    #[test]
    fn users_have_names_where_accounts_are_known() {
        let accounts = Accounts {
            passwd: b"root:x:0:0::/root:/x\nweb:x:33:44::/srv:/x\n".to_vec(),
            group: b"log:x:4:web\n".to_vec(),
        };
        let asked = |text: &str, user| Exec { user, user_text: Some(text.into()), ..Exec::default() };
        let found = with_user(asked("web", None), Some(&accounts)).expect("it is there");
        assert_eq!((found.user, found.groups), (Some((33, 44)), vec![4, 44]));
        assert_eq!(found.variables, list(&["HOME=/srv"]));
        let found = with_user(asked("33", Some((33, 33))), Some(&accounts)).expect("it is there");
        assert_eq!(found.user, Some((33, 44)), "the accounts say the group");
        let found = with_user(asked("33", Some((33, 33))), None).expect("numbers");
        assert_eq!((found.user, found.groups), (Some((33, 33)), Vec::new()));
        for (text, accounts) in [("nobody", Some(&accounts)), ("web", None)] {
            assert!(with_user(asked(text, None), accounts).is_err(), "{text}");
        }
    }
}
