//! Commands by their words: what they print, with which status, and that what is refused says why.

use alloc::string::String;
use alloc::vec::Vec;

use aegis_abi::upcall::UpcallFrame;
use aegis_link::config::{Config, Tickets};
use exos::error::{Errno, Result};
use exos::task::schedule::GroupId;

use super::command;
use crate::call::context::Context;
use crate::testing::calls::World;

const REPLY_BYTES: usize = 4096;

/// A pod whose first thread runs.
fn running() -> World {
    let world = World::new();
    world.pod.system.scheduler.adopt(0, &world.pod.thread.task);
    world
}

/// What the program of a command gets from exos: the status and the text.
fn call(world: &World, line: &str) -> Result<(u64, String)> {
    let words: Vec<u64> = line.split(' ').map(|word| world.path(word)).chain([0]).collect();
    let words = world.put(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
    let environment = world.put(&[0; 8]);
    let reply = world.room(REPLY_BYTES);
    let mut frame = UpcallFrame::default();
    let caller = world.caller();
    let mut context = Context::new(&caller, &mut frame);
    let answer = command(&mut context, [words, environment, reply, REPLY_BYTES as u64, 0, 0])?;
    let text = world.get(reply, answer as u32 as usize);
    Ok((answer >> 32, String::from_utf8(text).expect("text")))
}

fn run(world: &World, line: &str) -> (u64, String) {
    call(world, line).expect("a command")
}

fn good(world: &World, line: &str) -> String {
    let (status, text) = run(world, line);
    assert_eq!(status, 0, "{line}: {text}");
    text
}

fn lines(world: &World, command: &str) -> Vec<String> {
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    good(world, command).lines().skip(1).map(squeeze).collect()
}

#[test]
fn a_shop_is_made_funded_and_closed() {
    let world = running();
    assert_eq!(good(&world, "/sys/fs/lottery/mkcur shop"), "");
    assert_eq!(good(&world, "mktkt 1000 base"), "1\n");
    assert_eq!(good(&world, "mktkt 200 shop"), "2\n");
    good(&world, "fund 1 shop");
    good(&world, "fund 2 1");
    let group = world.pod.thread.task.group();
    assert!(world.pod.system.scheduler.purse(group).is_some(), "process 1 runs by its tickets");
    assert_eq!(lines(&world, "lstkt"), ["1 1000 base shop 0", "2 200 shop 1 0"]);
    assert_eq!(lines(&world, "lscur"), ["base 0 1000", "shop 0 200 1000.base", "1 0 0 200.shop"]);
    good(&world, "unfund 2");
    good(&world, "rmtkt 2");
    assert_eq!(run(&world, "rmcur shop"), (1, "rmcur: shop: still in use\n".into()));
    good(&world, "rmtkt 1");
    good(&world, "rmcur shop");
    assert_eq!(lines(&world, "lscur"), ["base 0 0"]);
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let world = running();
    good(&world, "mkcur shop");
    good(&world, "mktkt 10 shop");
    let most = "an amount is a whole number from 1 to 1099511627775";
    for (line, status, text) in [
        ("mktkt", 2, "usage: mktkt AMOUNT CURRENCY"),
        ("mktkt 1 shop 3", 2, "usage: mktkt AMOUNT CURRENCY"),
        ("lstkt x", 2, "usage: lstkt"),
        ("mktkt 0 shop", 1, &alloc::format!("0: {most}")),
        ("mktkt -1 shop", 1, &alloc::format!("-1: {most}")),
        ("mktkt +1 shop", 1, &alloc::format!("+1: {most}")),
        ("mktkt 1099511627776 shop", 1, &alloc::format!("1099511627776: {most}")),
        ("mktkt 1099511627775 shop", 1, "shop: the currency's amounts come to more than its limit"),
        ("mktkt 1 none", 1, "none: no such currency"),
        ("mktkt 1 /none", 1, "/none: no such control group"),
        ("mkcur shop", 1, "shop: there is a currency of this name"),
        ("mkcur base", 1, "base: a name has 1 to 32 letters, digits, '_' and '-', a letter first"),
        ("rmcur none", 1, "none: no such currency"),
        ("rmcur shop", 1, "shop: still in use"),
        ("fund 1 shop", 1, "shop: the currency would fund itself"),
        ("fund 1 base", 1, "base: the base currency cannot be funded or destroyed"),
        ("fund 1 77", 1, "77: no such process"),
        ("fund 7 shop", 1, "7: no such ticket"),
        ("fund x shop", 1, "x: no such ticket"),
        ("rmtkt 7", 1, "7: no such ticket"),
        ("fundx 1 base", 2, "usage: fundx AMOUNT CURRENCY COMMAND [ARGUMENT]..."),
        ("fundx 0 base true", 1, &alloc::format!("0: {most}")),
        ("fundx 1 none true", 1, "none: no such currency"),
        ("fundx 1 base none", 127, "none: not found"),
    ] {
        let command = line.split(' ').next().expect("a word");
        assert_eq!(run(&world, line), (status, alloc::format!("{command}: {text}\n")), "{line}");
    }
    assert_eq!(lines(&world, "lstkt"), ["1 10 shop - 0"]);
    assert_eq!(world.pod.thread.task.group(), GroupId::ROOT);
    assert_eq!(call(&world, "walk"), Err(Errno::EINVAL));
}

#[test]
fn a_user_has_his_own_currencies_alone() {
    let world = running();
    good(&world, "mktkt 5 base");
    {
        let changed = world.pod.thread.change_identities(&world.pod.system, &world.pod.process, |identities| {
            identities.uid = [1000; 4];
            identities.capabilities = exos::task::capability::Capabilities::of_user(1000);
            Ok(())
        });
        assert_eq!(changed, Ok(()));
    }
    let refused = |line: &str, what: &str| {
        let command = line.split(' ').next().expect("a word");
        let text = alloc::format!("{command}: {what}: not allowed: it belongs to another user\n");
        assert_eq!(run(&world, line), (1, text));
    };
    refused("mktkt 1 base", "base");
    refused("fundx 1 base true", "base");
    refused("fund 1 1", "1");
    refused("rmtkt 1", "1");
    good(&world, "mkcur own");
    assert_eq!(good(&world, "mktkt 7 own"), "2\n");
    good(&world, "fund 2 1");
    assert_eq!(lines(&world, "lstkt"), ["1 5 base - 0", "2 7 own 1 1000"]);
}

#[test]
fn the_first_program_is_funded_as_it_was_asked_for() {
    let world = |amount, currency: &str| {
        let tickets = Some(Tickets { amount, currency: currency.into() });
        World::with_config(Config { tickets, ..Config::default() })
    };
    assert_eq!(lines(&world(300, ""), "lstkt"), ["1 300 base 1 0"]);
    let shop = world(300, "shop");
    assert_eq!(lines(&shop, "lstkt"), ["1 1024 base shop 0", "2 300 shop 1 0"]);
    assert_eq!(lines(&shop, "lscur"), ["base 0 1024", "shop 0 300 1024.base", "1 0 0 300.shop"]);
}
