//! Calls 44 to 47: the tickets that fund environments and processors.
//!
//! An environment's ticket is of its creator's currency until it is issued in another's, a processor's of its
//! environment's. The payer, or an environment above it, changes it if it holds CONTROL: so an environment divides what
//! it has, and cannot change what it is given.

use aegis_abi::call::{TICKET_AMOUNT_MAX, TicketAmount, TicketField, TicketFund, TicketIssue, TicketRead};
use aegis_abi::types::{CapSlot, CapType, Rights, SLOT_NONE, Status};
use aegis_lottery::{CurrencyId, Error, TicketId};

use crate::id::EnvironmentId;
use crate::outcome::{Answer, Caller, Refusal, bad_argument, refuse_if};
use crate::{Machine, State};

/// What a slot's object is funded by.
struct Funded {
    currency: CurrencyId,
    ticket: TicketId,
    /// Whose currency the ticket is of; the first environment's is of the base.
    payer: Option<EnvironmentId>,
}

fn funded<M: Machine>(state: &State<M>, caller: Caller, slot: CapSlot, rights: Rights) -> Result<Funded, Refusal> {
    let (ticket, currency, payer) = match state.kind_in(caller.environment, slot) {
        CapType::Null => return Err(Status::BadSlot.into()),
        CapType::Processor => {
            let named = state.lookup_processor(caller.environment, slot, rights)?;
            let object = &state.processors[named.id];
            (object.funding.ticket, object.funding.client, object.environment)
        }
        _ => {
            let environment = state.lookup_environment(caller.environment, slot, rights)?;
            let object = &state.environments[environment];
            (object.ticket, object.currency, object.payer)
        }
    };
    Ok(Funded { currency, ticket: ticket.ok_or(Status::WrongState)?, payer })
}

fn changeable<M: Machine>(state: &State<M>, caller: Caller, slot: CapSlot) -> Result<Funded, Refusal> {
    let funded = funded(state, caller, slot, Rights::CONTROL)?;
    let is_above = funded.payer.is_some_and(|payer| state.is_within(payer, caller.environment));
    refuse_if(!is_above, Status::MissingRight)?;
    Ok(funded)
}

pub(super) fn amount<M: Machine>(state: &mut State<M>, caller: Caller, call: TicketAmount) -> Answer {
    let funded = changeable(state, caller, call.slot)?;
    refuse_if(call.amount == 0 || call.amount > TICKET_AMOUNT_MAX, bad_argument(1))?;
    state.lottery.set_amount(funded.ticket, call.amount).map_err(|_| bad_argument(1))?;
    Ok(0)
}

pub(super) fn fund<M: Machine>(state: &mut State<M>, caller: Caller, call: TicketFund) -> Answer {
    let ticket_of = changeable(state, caller, call.slot)?;
    let outcome = if call.target == SLOT_NONE {
        state.lottery.unfund(ticket_of.ticket)
    } else {
        let target = funded(state, caller, call.target, Rights::empty())?;
        refuse_if(target.currency != ticket_of.currency, bad_argument(1))?;
        state.lottery.fund(ticket_of.ticket, target.currency)
    };
    match outcome {
        // It funds that already.
        Ok(()) | Err(Error::InUse) => Ok(0),
        Err(_) => Err(Status::WrongState.into()),
    }
}

pub(super) fn issue<M: Machine>(state: &mut State<M>, caller: Caller, call: TicketIssue) -> Answer {
    let environment = state.lookup_environment(caller.environment, call.slot, Rights::CONTROL)?;
    changeable(state, caller, call.slot)?;
    let payer = state.lookup_environment(caller.environment, call.payer, Rights::CONTROL)?;
    refuse_if(!state.is_within(payer, caller.environment), Status::MissingRight)?;
    state.issue_ticket(environment, payer).map(|()| 0).map_err(|_| bad_argument(1))
}

pub(super) fn read<M: Machine>(state: &mut State<M>, caller: Caller, call: TicketRead) -> Answer {
    let funded = funded(state, caller, call.slot, Rights::READ)?;
    state.settle_funding(true);
    Ok(match TicketField::from_number(call.field).ok_or(bad_argument(1))? {
        TicketField::Amount => state.lottery.amount(funded.ticket),
        TicketField::IsFunding => u64::from(state.lottery.target(funded.ticket).is_some()),
        TicketField::IssuedAmount => state.lottery.issued_amount(funded.currency),
        TicketField::ActiveAmount => state.lottery.active_amount(funded.currency),
        TicketField::Value => state.lottery.value(funded.currency).map_err(|_| Status::WrongState)?,
    })
}
