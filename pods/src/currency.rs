//! A currency: an environment that has no processor and never will, whose part of the machine goes to what it issues
//! tickets to.

use aegis_abi::CapSlot;
use aegis_abi::call::ENVIRONMENT_FRAME_COUNT_MIN;
use aegis_abi::share::TABLE_COUNT;
use aegis_link::pods::{CURRENCY_COUNT_MAX, CurrencyPlan, Plan};
use aegis_rt::call::{self, Refusal};

use crate::memory::repeat;
use crate::pod::SLOT_CURRENCY_FIRST;

/// Slots of ours that a currency uses, behind those of pods.
const SLOT_STRIDE: u32 = 2;

/// A currency that was made. It stays as long as the machine.
#[derive(Clone, Copy)]
pub(crate) struct Currency {
    environment: CapSlot,
    /// Amount of the ticket that funds it.
    pub(crate) ticket_amount: u64,
}

impl Currency {
    fn make(number: u32, plan: &CurrencyPlan, payer: Option<CapSlot>) -> Result<Self, Refusal> {
        let [environment, tables] = [0, 1].map(|index| CapSlot(SLOT_CURRENCY_FIRST + number * SLOT_STRIDE + index));
        repeat(|| call::frame_allocate(tables, ENVIRONMENT_FRAME_COUNT_MIN, None, 0))?;
        call::environment_create(environment, tables, 0)?;
        // It makes nothing.
        crate::pod::pass_share(environment, &[0; TABLE_COUNT])?;
        call::ticket_amount(environment, plan.ticket_amount)?;
        if let Some(payer) = payer {
            call::ticket_issue(environment, payer)?;
        }
        Ok(Self { environment, ticket_amount: plan.ticket_amount })
    }

    /// Changes the amount of its ticket.
    pub(crate) fn set_tickets(&mut self, amount: u64) -> Result<(), Refusal> {
        call::ticket_amount(self.environment, amount)?;
        self.ticket_amount = amount;
        Ok(())
    }
}

/// The machine's currencies, by their numbers.
pub(crate) struct Currencies([Option<Currency>; CURRENCY_COUNT_MAX]);

impl Currencies {
    /// Makes those of a plan.
    pub(crate) fn make(plan: &Plan) -> Result<Self, Refusal> {
        let mut made = Self([None; CURRENCY_COUNT_MAX]);
        for (number, plan) in (0..).zip(plan.currencies()) {
            let currency = Currency::make(number, plan, made.slot(plan.payer))?;
            made.0[number as usize] = Some(currency);
        }
        Ok(made)
    }

    /// Our slot of one; `None` for the base, which is our own.
    pub(crate) fn slot(&self, number: Option<u32>) -> Option<CapSlot> {
        self.0.get(number? as usize)?.map(|currency| currency.environment)
    }

    /// The one with this number.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Currency> {
        self.0.get_mut(number as usize)?.as_mut()
    }
}
