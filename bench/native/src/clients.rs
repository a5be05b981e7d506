//! Clients with tickets and a server without any (Waldspurger and Weihl, OSDI 1994, section 5.4, figure 7).
//!
//! Three clients, each an environment, hold tickets 8:3:1 and ask a server again and again how often a word stands in a
//! text, in letters of either case. The server is one environment with a processor for each client and no funding of
//! its own, so it runs on what its callers transfer by their calls. With two servers the first one passes each request
//! on to a second one, which has no funding either. The first client ends after so many queries; the others go on until
//! the second has made so many.
//!
//! The configuration's first page is `clients SERVERS FIRST SECOND` and what is behind it is the text. What is printed:
//! `began NS`, then `query CLIENT NS FOUND` for each that was answered, by client.

use core::sync::atomic::Ordering;

use aegis_abi::call::TICKET_AMOUNT_DEFAULT;
use aegis_abi::layout::{LIBOS_BASE, PAGE_SHIFT, PAGE_SIZE};
use aegis_abi::memory::{BIND_PAGE_COUNT_MAX, BindEntry, BindFlags};
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_BUNDLE, SLOT_NONE};
use aegis_abi::{CapSlot, Rights};
use aegis_rt::gate::{MESSAGE_WORD_COUNT, Message, gate_call};
use aegis_rt::{call, control};

use crate::harness::{now_ns, say};
use crate::memory::{behind_configuration, named};
use crate::peer::{self, Home, Peer, shared};

/// How the configuration begins.
pub(crate) const WORD: &str = "clients ";
/// Tickets of the clients.
const TICKETS: [u64; 3] = [8, 3, 1];
/// What is looked for, in small letters.
const NEEDLE: &[u8] = b"lottery";
/// Where a server sees the text.
const TEXT_BASE: u64 = LIBOS_BASE + (3 << 30);
/// The gate in a client, and in a server that passes requests on (one for each processor).
const SERVICE: CapSlot = CapSlot(40);
/// How often is looked whether it is over.
const LOOK_NS: u64 = 20_000_000;
/// Words of the pages that are shared with a client: it may begin; how many queries it makes, 0 for as many as it can;
/// how many were answered; when the first one was, and what it said, the others following.
const WORD_GO: usize = 2;
const WORD_LIMIT: usize = 3;
const WORD_COUNT: usize = 4;
const WORD_ANSWERS: usize = 8;
/// Most queries of a client.
const QUERY_COUNT_MAX: u64 = 200;

extern "C" fn search(_: u64, message: &mut Message) {
    // SAFETY: the text is mapped in every server before it is started, and never written.
    let text = unsafe { core::slice::from_raw_parts(TEXT_BASE as *const u8, message[1] as usize) };
    message[0] = text.windows(NEEDLE.len()).filter(|window| window.eq_ignore_ascii_case(NEEDLE)).count() as u64;
}

/// Passes a request on to the second server, by the gate of the worker that the badge numbers.
extern "C" fn pass_on(badge: u64, message: &mut Message) {
    if gate_call(CapSlot(SERVICE.0 + badge as u32), message).is_err() {
        message[0] = u64::MAX;
    }
}

extern "C" fn searcher(index: u64) -> ! {
    peer::serve_with_as(index as usize, search)
}

extern "C" fn passer(index: u64) -> ! {
    peer::serve_with_as(index as usize, pass_on)
}

extern "C" fn client(text_bytes: u64) -> ! {
    peer::say_ready();
    let words = shared();
    while words.word(WORD_GO).load(Ordering::SeqCst) == 0 {
        pause(LOOK_NS);
    }
    let limit = words.word(WORD_LIMIT).load(Ordering::SeqCst);
    for number in 0..if limit == 0 { QUERY_COUNT_MAX } else { limit } {
        let mut message = [0; MESSAGE_WORD_COUNT];
        message[1] = text_bytes;
        let found = gate_call(SERVICE, &mut message).map_or(u64::MAX, |()| message[0]);
        let answer = WORD_ANSWERS + 2 * number as usize;
        words.word(answer).store(now_ns(), Ordering::SeqCst);
        words.word(answer + 1).store(found, Ordering::SeqCst);
        words.word(WORD_COUNT).store(number + 1, Ordering::SeqCst);
    }
    loop {
        pause(u64::MAX / 2);
    }
}

/// Sleeps for a time.
fn pause(duration_ns: u64) {
    let deadline_ns = now_ns().saturating_add(duration_ns);
    let (source, operator) = (TermSource::Clock as u32, TermOperator::AtLeast as u32);
    let term = Term { product: 0, source, operator, slot: 0, address: 0, value: deadline_ns };
    while now_ns() < deadline_ns {
        let _ = call::sleep(&[term]);
        // Nobody asked for what may be pending.
        let _ = control::take_pending();
    }
}

/// A server: an environment without funding, and its workers.
fn serve(text_frame: u64, page_count: u64, main: peer::PeerMain, gates: &[Peer]) -> Result<[Peer; 3], &'static str> {
    let home = Home::make()?;
    for first in (0..page_count).step_by(BIND_PAGE_COUNT_MAX as usize) {
        let count = (page_count - first).min(u64::from(BIND_PAGE_COUNT_MAX)) as u32;
        let address = TEXT_BASE + (first << PAGE_SHIFT);
        home.map(BindEntry::map(address, text_frame + first, count, SLOT_BUNDLE, BindFlags::empty()))?;
    }
    for (index, behind) in (0..).zip(gates) {
        home.grant(behind.gate, CapSlot(SERVICE.0 + index), Rights::CALL)?;
    }
    let workers = [home.add(0, main, 0)?, home.add(1, main, 1)?, home.add(2, main, 2)?];
    named(call::ticket_fund(workers[0].environment, SLOT_NONE), "TicketFund")?;
    Ok(workers)
}

pub(crate) fn run(text: &str) -> Result<(), &'static str> {
    let mut numbers = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let mut number = || numbers.next().and_then(Result::ok).ok_or("clients SERVERS FIRST SECOND");
    let (server_count, first, second) = (number()?, number()?, number()?);
    if first > QUERY_COUNT_MAX || second > QUERY_COUNT_MAX {
        return Err("too many queries");
    }
    let (frame, text_bytes) = behind_configuration().ok_or("there is no text")?;
    let page_count = text_bytes.div_ceil(PAGE_SIZE);
    let mut workers = serve(frame, page_count, searcher, &[])?;
    for _ in 1..server_count {
        workers = serve(frame, page_count, passer, &workers)?;
    }
    let mut clients = [workers[0]; 3];
    for ((place, worker), tickets) in clients.iter_mut().zip(&workers).zip(TICKETS) {
        let home = Home::make()?;
        home.grant(worker.gate, SERVICE, Rights::CALL)?;
        *place = home.add(0, client, text_bytes)?;
        named(call::ticket_amount(place.environment, tickets * TICKET_AMOUNT_DEFAULT), "TicketAmount")?;
    }
    clients[0].shared.word(WORD_LIMIT).store(first, Ordering::SeqCst);
    let began_ns = now_ns();
    for client in &clients {
        client.shared.word(WORD_GO).store(1, Ordering::SeqCst);
    }
    let count = |client: &Peer| client.shared.word(WORD_COUNT).load(Ordering::SeqCst);
    while count(&clients[0]) < first || count(&clients[1]) < second {
        pause(LOOK_NS);
    }
    say(format_args!("began {began_ns}\n"));
    for (number, client) in clients.iter().enumerate() {
        for query in 0..count(client) as usize {
            let word = |offset| client.shared.word(WORD_ANSWERS + 2 * query + offset).load(Ordering::SeqCst);
            say(format_args!("query {number} {} {}\n", word(0), word(1)));
        }
    }
    Ok(())
}
