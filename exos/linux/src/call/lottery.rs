//! The commands of the lottery's paper: `mktkt rmtkt mkcur rmcur fund unfund lstkt lscur fundx`.
//!
//! One native call gets a command as its words and answers with a text and an exit status. The programs of these names
//! (`crate::file::lottery_programs`) do nothing but make that call and print the text. What the words mean is here;
//! permissions and refusals are `exos::task::schedule`'s (`ledger.rs`).
//!
//! Words: a currency is `base` (the pod's), the path of a control group to which `cpu` is handed (`/batch`), or a name
//! that `mkcur` made. What is funded is a currency or the number of a process: that, its threads, and what it starts
//! from then on. Every refusal is one line that says why.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use aegis_link::config::Tickets;
use exos::error::{Errno, Result};
use exos::task::capability::Capability;
use exos::task::schedule::{AMOUNT_SUM_MAX, Error, GroupId, Holder, Purse, Refusal, WEIGHT_DEFAULT};

use super::exec::execute_at;
use crate::abi::user_memory::write_all;
use crate::call::context::{Arguments, Context};
use crate::file::lottery_programs::REPLY_BYTES_MAX;
use crate::task::exec::search_path;
use crate::task::process::Process;
use crate::task::system::System;

/// Words of a command line that are read.
const WORDS_BYTES_MAX: usize = 6 << 20;
/// Exit statuses: refused, and not understood.
const REFUSED: u64 = 1;
const USAGE: u64 = 2;
/// As a shell's: not to be executed, not found.
const NOT_EXECUTABLE: u64 = 126;
const NOT_FOUND: u64 = 127;

/// A command: its name, its arguments, what it does.
struct Command {
    name: &'static str,
    usage: &'static str,
    act: fn(&mut Context<'_>, &[&str]) -> Answer,
}

/// What is printed, or what went wrong.
type Answer = core::result::Result<String, Failure>;

struct Failure {
    status: u64,
    text: String,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { status: REFUSED, text: refusal.to_string() }
    }
}

fn refused(text: String) -> Failure {
    Failure { status: REFUSED, text }
}

/// All but `fundx`, which executes a program.
const COMMANDS: [Command; 8] = [
    Command { name: "mktkt", usage: "AMOUNT CURRENCY", act: mktkt },
    Command { name: "rmtkt", usage: "TICKET", act: rmtkt },
    Command { name: "mkcur", usage: "NAME", act: mkcur },
    Command { name: "rmcur", usage: "NAME", act: rmcur },
    Command { name: "fund", usage: "TICKET CURRENCY|PROCESS", act: fund },
    Command { name: "unfund", usage: "TICKET", act: unfund },
    Command { name: "lstkt", usage: "", act: lstkt },
    Command { name: "lscur", usage: "", act: lscur },
];
const FUNDX: &str = "fundx";
const FUNDX_USAGE: &str = "AMOUNT CURRENCY COMMAND [ARGUMENT]...";

/// The names of the programs.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name).chain([FUNDX])
}

/// The native call: words, environment, where the text goes and how long it may be. Answers the exit status in the high
/// half and the text's length in the low one.
pub fn command(context: &mut Context<'_>, [words, environment, reply, reply_bytes, ..]: Arguments) -> Result<u64> {
    let mut room = WORDS_BYTES_MAX;
    let lines = super::exec::read_strings(context.memory, words, &mut room)?;
    let path = lines.first().ok_or(Errno::EINVAL)?;
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let name = core::str::from_utf8(name).map_err(|_| Errno::EINVAL)?;
    let arguments: Option<Vec<&str>> = lines[1..].iter().map(|word| core::str::from_utf8(word).ok()).collect();
    let answer = if name == FUNDX {
        let answer = fundx(context, &lines[1..], [words, environment, reply, reply_bytes]);
        if answer.is_ok() {
            return Ok(0);
        }
        answer
    } else {
        let command = COMMANDS.iter().find(|command| command.name == name).ok_or(Errno::EINVAL)?;
        let wanted_count = command.usage.split_ascii_whitespace().count();
        match arguments.filter(|arguments| arguments.len() == wanted_count) {
            Some(arguments) => (command.act)(context, &arguments),
            None => Err(usage(command.name, command.usage)),
        }
    };
    let (status, text) = match answer {
        Ok(text) => (0, text),
        Err(failure) => (failure.status, format!("{name}: {}\n", failure.text)),
    };
    let length = text.len().min(usize::try_from(reply_bytes).unwrap_or(usize::MAX)).min(REPLY_BYTES_MAX as usize);
    write_all(context.memory, reply, &text.as_bytes()[..length])?;
    Ok(status << 32 | length as u64)
}

fn usage(name: &str, usage: &str) -> Failure {
    Failure { status: USAGE, text: format!("usage: {name} {usage}").trim_end().into() }
}

/// The user that asks: 0 for a thread with `CAP_SYS_NICE`.
fn who(context: &Context<'_>) -> u32 {
    if context.can(Capability::SYS_NICE) { 0 } else { context.thread.identities.lock().uid[1] }
}

fn amount(word: &str) -> core::result::Result<u64, Failure> {
    let most = AMOUNT_SUM_MAX;
    let found = word.parse().ok().filter(|amount| (1..=most).contains(amount) && !word.starts_with('+'));
    found.ok_or_else(|| refused(format!("{word}: an amount is a whole number from 1 to {most}")))
}

fn number(word: &str) -> core::result::Result<u32, Failure> {
    word.parse().map_err(|_| refused(format!("{word}: no such ticket")))
}

/// Something that has a currency, by its word. A group may be gone when it is used; then there is no such currency.
fn holder(context: &Context<'_>, word: &str) -> core::result::Result<Holder, Failure> {
    if word == "base" || word == "/" {
        return Ok(Holder::Base);
    }
    if !word.starts_with('/') {
        return Ok(Holder::Named(word.into()));
    }
    let group = context.system.listing.group_of_path(word.as_bytes());
    group.map(Holder::Group).ok_or_else(|| refused(format!("{word}: no such control group")))
}

fn named(word: &str) -> impl Fn(Refusal) -> Failure + '_ {
    move |refusal| refused(format!("{word}: {refusal}"))
}

fn mktkt(context: &mut Context<'_>, words: &[&str]) -> Answer {
    let (amount, issuer) = (amount(words[0])?, holder(context, words[1])?);
    let made = context.system.scheduler.issue_ticket(who(context), amount, &issuer);
    made.map(|number| format!("{number}\n")).map_err(named(words[1]))
}

fn rmtkt(context: &mut Context<'_>, words: &[&str]) -> Answer {
    let removed = context.system.scheduler.remove_ticket(who(context), number(words[0])?);
    removed.map(|()| String::new()).map_err(named(words[0]))
}

fn mkcur(context: &mut Context<'_>, words: &[&str]) -> Answer {
    let made = context.system.scheduler.make_currency(who(context), words[0]);
    made.map(|()| String::new()).map_err(named(words[0]))
}

fn rmcur(context: &mut Context<'_>, words: &[&str]) -> Answer {
    let removed = context.system.scheduler.remove_currency(who(context), words[0]);
    removed.map(|()| String::new()).map_err(named(words[0]))
}

fn unfund(context: &mut Context<'_>, words: &[&str]) -> Answer {
    let done = context.system.scheduler.unfund_ticket(who(context), number(words[0])?);
    done.map(|()| String::new()).map_err(named(words[0]))
}

fn fund(context: &mut Context<'_>, words: &[&str]) -> Answer {
    let ticket = number(words[0])?;
    let scheduler = &context.system.scheduler;
    let failed = |refusal| match refusal {
        Refusal::Lottery(Error::UnknownTicket) => named(words[0])(refusal),
        Refusal::Lottery(Error::InUse) => refused(format!("{}: it funds something already", words[0])),
        _ => named(words[1])(refusal),
    };
    if !words[1].starts_with(|first: char| first.is_ascii_digit()) {
        let target = holder(context, words[1])?;
        let funded = scheduler.fund_ticket(who(context), ticket, &target, false);
        return funded.map(|()| String::new()).map_err(failed);
    }
    let process = words[1].parse().ok().and_then(|pid| context.system.processes.get(pid));
    let process = process.filter(|process| !process.is_zombie.load(Ordering::Acquire));
    let process = process.ok_or_else(|| refused(format!("{}: no such process", words[1])))?;
    let (purse, is_new) = purse_of(context, &process)?;
    let funded = scheduler.fund_ticket(who(context), ticket, &Holder::Group(purse), false);
    if is_new {
        if funded.is_ok() {
            enter(context, &process, purse);
        }
        scheduler.close_purse(purse);
    }
    funded.map(|()| String::new()).map_err(failed)
}

/// Funds the first process, before it runs. A currency that is named is made, and funded as a thread with nice 0 is.
///
/// # Errors
/// Those of issuing, funding and making a currency.
pub fn fund_first(system: &System, process: &Arc<Process>, tickets: &Tickets) -> core::result::Result<(), Refusal> {
    let scheduler = &system.scheduler;
    let issuer = match core::str::from_utf8(&tickets.currency).map_err(|_| Refusal::BadName)? {
        "" => Holder::Base,
        name => {
            let owner = process.identities.lock().uid[1];
            scheduler.make_currency(owner, name)?;
            let named = Holder::Named(name.into());
            let backing = scheduler.issue_ticket(0, WEIGHT_DEFAULT, &Holder::Base)?;
            scheduler.fund_ticket(0, backing, &named, false)?;
            named
        }
    };
    let ticket = scheduler.issue_ticket(0, tickets.amount, &issuer)?;
    let purse = scheduler.open_purse(GroupId::ROOT, purse(process))?;
    scheduler.fund_ticket(0, ticket, &Holder::Group(purse), true)?;
    for thread in process.threads.lock().iter() {
        // The purse was just made.
        let _ = thread.task.set_group(purse, 0);
    }
    Ok(())
}

/// What a process is funded by: what it is in, or a new one that it has not entered.
fn purse_of(context: &Context<'_>, process: &Arc<Process>) -> core::result::Result<(GroupId, bool), Failure> {
    let scheduler = &context.system.scheduler;
    let group = process.threads.lock().first().map_or(GroupId::ROOT, |thread| thread.task.group());
    if scheduler.purse(group).is_some() {
        return Ok((group, false));
    }
    Ok((scheduler.open_purse(group, purse(process))?, true))
}

fn purse(process: &Process) -> Purse {
    Purse { process: process.pid, owner: process.identities.lock().uid[0] }
}

fn enter(context: &Context<'_>, process: &Process, purse: GroupId) {
    let now_ns = context.now_ns();
    // Threads that are made meanwhile are in the list before they run, and with their maker's group.
    for thread in process.threads.lock().iter() {
        // The purse is there: its funder has not let go of it.
        let _ = thread.task.set_group(purse, now_ns);
    }
}

/// Funds what the caller becomes. Comes back only if that did not go well.
fn fundx(context: &mut Context<'_>, words: &[Vec<u8>], room: [u64; 4]) -> Answer {
    let [strings, environment, path, path_bytes] = room;
    let [tickets, currency, program, ..] = words else { return Err(usage(FUNDX, FUNDX_USAGE)) };
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let (tickets, currency) = (text(tickets), text(currency));
    let (tickets, issuer) = (amount(&tickets)?, holder(context, &currency)?);
    let user = who(context);
    let scheduler = context.system.scheduler.clone();
    let group = context.thread.task.group();
    let process = context.process.clone();
    let purse = scheduler.open_purse(group, purse(&process))?;
    let funded = scheduler.issue_ticket(user, tickets, &issuer).and_then(|number| {
        let funded = scheduler.fund_ticket(user, number, &Holder::Group(purse), true);
        funded.inspect_err(|_| {
            let _ = scheduler.remove_ticket(user, number);
        })
    });
    let executed = match funded {
        Ok(()) => execute(context, program, [strings + 3 * 8, environment], [path, path_bytes]),
        Err(refusal) => Err(named(&currency)(refusal)),
    };
    if executed.is_ok() {
        enter(context, &process, purse);
    }
    scheduler.close_purse(purse);
    executed.map(|()| String::new())
}

/// `execvp`: the path that was found is put where the program gave room.
fn execute(
    context: &mut Context<'_>,
    program: &[u8],
    [arguments, environment]: [u64; 2],
    [path, path_bytes]: [u64; 2],
) -> core::result::Result<(), Failure> {
    let failed = |error: Errno| {
        let program = String::from_utf8_lossy(program);
        match error {
            Errno::ENOENT => Failure { status: NOT_FOUND, text: format!("{program}: not found") },
            _ => Failure { status: NOT_EXECUTABLE, text: format!("{program}: cannot be executed ({error:?})") },
        }
    };
    let mut room = WORDS_BYTES_MAX;
    let variables = super::exec::read_strings(context.memory, environment, &mut room).map_err(failed)?;
    let access = crate::file::paths::Access::new(context);
    let mut found = search_path(&access, &context.process.files.current(), program, &variables);
    found.push(0);
    if found.len() as u64 > path_bytes {
        return Err(failed(Errno::ENAMETOOLONG));
    }
    write_all(context.memory, path, &found).map_err(failed)?;
    execute_at(context, path, [arguments, environment]).map(|_| ()).map_err(failed)
}

fn name_of(context: &Context<'_>, holder: &Holder) -> String {
    match holder {
        Holder::Base => "base".into(),
        Holder::Named(name) => name.clone(),
        Holder::Group(group) => match context.system.scheduler.purse(*group) {
            Some(purse) => purse.process.to_string(),
            None => {
                let path = context.system.listing.path_of_group(*group);
                path.map_or_else(|| "-".into(), |path| String::from_utf8_lossy(&path).into_owned())
            }
        },
    }
}

fn lstkt(context: &mut Context<'_>, _: &[&str]) -> Answer {
    let mut text = format!("{:>6} {:>13} {:<20} {:<20} {:>6}\n", "TICKET", "AMOUNT", "CURRENCY", "FUNDS", "OWNER");
    for line in context.system.scheduler.ticket_lines() {
        let funds = line.target.as_ref().map_or_else(|| "-".into(), |target| name_of(context, target));
        let issuer = name_of(context, &line.issuer);
        text += &format!("{:>6} {:>13} {issuer:<20} {funds:<20} {:>6}\n", line.number, line.amount, line.owner);
    }
    Ok(text)
}

fn lscur(context: &mut Context<'_>, _: &[&str]) -> Answer {
    let lines = context.system.scheduler.ticket_lines();
    let mut holders = alloc::vec![(Holder::Base, 0)];
    let names = context.system.scheduler.currency_names().into_iter();
    holders.extend(names.map(|(name, owner)| (Holder::Named(name), owner)));
    let groups = lines.iter().flat_map(|line| [Some(&line.issuer), line.target.as_ref()]).flatten();
    for group in groups.filter(|holder| matches!(holder, Holder::Group(_))) {
        if !holders.iter().any(|(holder, _)| holder == group) {
            let Holder::Group(id) = group else { continue };
            let owner = context.system.scheduler.purse(*id).map_or(0, |purse| purse.owner);
            holders.push((group.clone(), owner));
        }
    }
    let mut text = format!("{:<20} {:>6} {:>13} {}\n", "CURRENCY", "OWNER", "ISSUED", "FUNDED BY");
    for (holder, owner) in holders {
        let issued: u64 = lines.iter().filter(|line| line.issuer == holder).map(|line| line.amount).sum();
        let backing = lines.iter().filter(|line| line.target.as_ref() == Some(&holder));
        let backing: Vec<_> =
            backing.map(|line| format!("{}.{}", line.amount, name_of(context, &line.issuer))).collect();
        let (name, backing) = (name_of(context, &holder), backing.join(" "));
        text += format!("{name:<20} {owner:>6} {issued:>13} {backing}").trim_end();
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
#[path = "lottery_tests.rs"]
mod tests;
