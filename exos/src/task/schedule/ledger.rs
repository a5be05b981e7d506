//! Tickets and currencies that have names: what the commands of the lottery's paper act on.
//!
//! A named currency lies in the pod's tables (`lots.rs`) beside those of groups. A ticket is issued in one of them with
//! an amount and funds one thing at a time: a currency with a name, a funded group, or a *purse*. A purse is a group
//! without a directory, below the control group of its members: a process that is funded by tickets and all that it
//! starts from then on. A member competes by what funds the purse and no more by what its control group has, but for
//! [`FLOOR`], so that a worthless member does not hold a lock for ever. A purse ends with its last member, and with it
//! the tickets that were made for it alone.
//!
//! Permissions: what a currency issues is its owner's business, since more of it makes all that it issued before worth
//! less (inflation). A ticket is moved by its owner, to what is the owner's too. User 0 may do all, and owns the pod's
//! currency and those of control groups. All may read.
//!
//! Invariants: whatever is refused changes nothing. A group that issued or is funded by a ticket from here is not
//! removed and keeps its currency. The numbers of tickets are not used again.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use aegis_lottery::{CurrencyId, Error, TicketId};

use super::group::{GroupId, Groups};
use super::lots::{Tables, with_room};

/// What a purse has in its control group's currency besides what funds it.
pub(super) const FLOOR: u64 = 1;
/// Most named currencies of a pod.
pub(super) const CURRENCY_COUNT_MAX: usize = 256;
/// Most numbered tickets of a pod.
pub(super) const TICKET_COUNT_MAX: usize = 4096;
/// Longest name.
pub(super) const NAME_BYTES_MAX: usize = 32;

/// Something that has a currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The pod.
    Base,
    /// A named currency.
    Named(String),
    /// A control group or a purse.
    Group(GroupId),
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Refused by the lottery's tables.
    Lottery(Error),
    /// Not this user's business.
    NotAllowed,
    /// There is one of this name.
    Exists,
    /// Not a name.
    BadName,
    /// There are as many as there can be.
    Full,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        if error == Error::TableFull { Self::Full } else { Self::Lottery(error) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lottery(error) => error.fmt(formatter),
            Self::NotAllowed => formatter.write_str("not allowed: it belongs to another user"),
            Self::Exists => formatter.write_str("there is a currency of this name"),
            Self::BadName => formatter.write_str("a name has 1 to 32 letters, digits, '_' and '-', a letter first"),
            Self::Full => formatter.write_str("there are as many as there can be"),
        }
    }
}

/// A ticket, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketLine {
    /// Number, never used again.
    pub number: u32,
    /// Amount in its currency, below 2^40.
    pub amount: u64,
    /// Currency that it is issued in.
    pub issuer: Holder,
    /// What it funds; `None`: nothing.
    pub target: Option<Holder>,
    /// The user that made it.
    pub owner: u32,
}

struct Issued {
    ticket: TicketId,
    line: TicketLine,
    /// It ends with the purse that it funds.
    is_bound: bool,
}

struct Named {
    id: CurrencyId,
    owner: u32,
}

/// The named currencies and numbered tickets of a pod.
#[derive(Default)]
pub(super) struct Ledger {
    currencies: BTreeMap<String, Named>,
    tickets: BTreeMap<u32, Issued>,
    last: u32,
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_good = name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| is_letter(&byte));
    is_good && name.starts_with(|first: char| first.is_ascii_alphabetic()) && name != "base"
}

fn may(who: u32, owner: u32) -> bool {
    who == 0 || who == owner
}

impl Ledger {
    /// A holder's currency and its owner.
    fn find(&self, groups: &Groups, holder: &Holder) -> Result<(CurrencyId, u32), Refusal> {
        let found = match holder {
            Holder::Base => Some((CurrencyId::BASE, 0)),
            Holder::Named(name) => self.currencies.get(name).map(|named| (named.id, named.owner)),
            Holder::Group(id) => {
                let owner = groups.purse(*id).map_or(0, |purse| purse.owner);
                groups.own_currency(*id).map(|currency| (currency, owner))
            }
        };
        found.ok_or(Refusal::Lottery(Error::UnknownCurrency))
    }

    fn ticket(&mut self, number: u32) -> Result<&mut Issued, Refusal> {
        self.tickets.get_mut(&number).ok_or(Refusal::Lottery(Error::UnknownTicket))
    }

    /// Whether a ticket of a group is there, or one that funds it.
    pub(super) fn names(&self, group: GroupId) -> bool {
        let group = Holder::Group(group);
        let names = |issued: &Issued| issued.line.issuer == group || issued.line.target.as_ref() == Some(&group);
        !self.tickets.is_empty() && self.tickets.values().any(names)
    }

    pub(super) fn make_currency(&mut self, tables: &mut Tables, who: u32, name: &str) -> Result<(), Refusal> {
        if !is_name(name) {
            return Err(Refusal::BadName);
        }
        if self.currencies.contains_key(name) {
            return Err(Refusal::Exists);
        }
        if self.currencies.len() >= CURRENCY_COUNT_MAX {
            return Err(Refusal::Full);
        }
        let id = with_room(tables, |tables| tables.create_currency(0))?;
        self.currencies.insert(String::from(name), Named { id, owner: who });
        Ok(())
    }

    pub(super) fn remove_currency(&mut self, tables: &mut Tables, who: u32, name: &str) -> Result<(), Refusal> {
        let named = self.currencies.get(name).ok_or(Refusal::Lottery(Error::UnknownCurrency))?;
        if !may(who, named.owner) {
            return Err(Refusal::NotAllowed);
        }
        tables.destroy_currency(named.id)?;
        self.currencies.remove(name);
        Ok(())
    }

    pub(super) fn issue(
        &mut self,
        tables: &mut Tables,
        groups: &Groups,
        who: u32,
        (amount, issuer): (u64, &Holder),
    ) -> Result<u32, Refusal> {
        let (currency, owner) = self.find(groups, issuer)?;
        if matches!(issuer, Holder::Group(id) if groups.purse(*id).is_some()) {
            return Err(Refusal::Lottery(Error::UnknownCurrency));
        }
        if !may(who, owner) {
            return Err(Refusal::NotAllowed);
        }
        let number = self.last.checked_add(1).filter(|_| self.tickets.len() < TICKET_COUNT_MAX).ok_or(Refusal::Full)?;
        let ticket = with_room(tables, |tables| tables.issue(currency, amount))?;
        self.last = number;
        let line = TicketLine { number, amount, issuer: issuer.clone(), target: None, owner: who };
        self.tickets.insert(number, Issued { ticket, line, is_bound: false });
        Ok(number)
    }

    /// Ends a ticket: for its owner, and for that of its currency.
    pub(super) fn remove_ticket(
        &mut self,
        tables: &mut Tables,
        groups: &Groups,
        who: u32,
        number: u32,
    ) -> Result<(), Refusal> {
        let issued = self.tickets.get(&number).ok_or(Refusal::Lottery(Error::UnknownTicket))?;
        let issuer_owner = self.find(groups, &issued.line.issuer).map_or(0, |(_, owner)| owner);
        if !may(who, issued.line.owner) && !may(who, issuer_owner) {
            return Err(Refusal::NotAllowed);
        }
        tables.destroy_ticket(issued.ticket)?;
        self.tickets.remove(&number);
        Ok(())
    }

    pub(super) fn fund(
        &mut self,
        tables: &mut Tables,
        groups: &Groups,
        who: u32,
        (number, target): (u32, &Holder),
    ) -> Result<(), Refusal> {
        let (currency, owner) = self.find(groups, target)?;
        let issued = self.ticket(number)?;
        if !may(who, owner) || !may(who, issued.line.owner) {
            return Err(Refusal::NotAllowed);
        }
        tables.fund(issued.ticket, currency)?;
        issued.line.target = Some(target.clone());
        Ok(())
    }

    /// The ticket of a purse that ends with it.
    pub(super) fn bind(&mut self, number: u32) {
        if let Ok(issued) = self.ticket(number) {
            issued.is_bound = true;
        }
    }

    pub(super) fn unfund(
        &mut self,
        tables: &mut Tables,
        groups: &Groups,
        who: u32,
        number: u32,
    ) -> Result<(), Refusal> {
        let line = self.ticket(number)?.line.clone();
        let target_owner = line.target.as_ref().and_then(|target| self.find(groups, target).ok());
        if !may(who, line.owner) && !target_owner.is_some_and(|(_, owner)| may(who, owner)) {
            return Err(Refusal::NotAllowed);
        }
        let issued = self.ticket(number)?;
        tables.unfund(issued.ticket)?;
        issued.line.target = None;
        issued.is_bound = false;
        Ok(())
    }

    /// A purse ends: what funds it funds nothing any more, or ends with it.
    pub(super) fn release(&mut self, tables: &mut Tables, purse: GroupId) {
        let purse = Holder::Group(purse);
        let is_bound = |issued: &Issued| issued.is_bound && issued.line.target.as_ref() == Some(&purse);
        for issued in self.tickets.values_mut().filter(|issued| issued.line.target.as_ref() == Some(&purse)) {
            let ended =
                if issued.is_bound { tables.destroy_ticket(issued.ticket) } else { tables.unfund(issued.ticket) };
            debug_assert!(ended.is_ok(), "INV-ledger: a ticket of the ledger is in the tables");
            if !issued.is_bound {
                issued.line.target = None;
            }
        }
        self.tickets.retain(|_, issued| !is_bound(issued));
    }

    pub(super) fn tickets(&self) -> Vec<TicketLine> {
        self.tickets.values().map(|issued| issued.line.clone()).collect()
    }

    /// Names and owners.
    pub(super) fn currencies(&self) -> Vec<(String, u32)> {
        self.currencies.iter().map(|(name, named)| (name.clone(), named.owner)).collect()
    }
}
