//! Calls 16 to 22: virtual processors, yielding and sleeping.

use aegis_abi::call::{
    BellAwait, ProcessorCreate, ProcessorDestroy, ProcessorField, ProcessorRead, ProcessorStart, ProcessorState,
    ProcessorStop, Sleep, Yield,
};
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, PAGE_SHIFT, PAGE_SIZE};
use aegis_abi::sleep::{PREDICATE_TERM_COUNT_MAX, TermOperator, TermSource};
use aegis_abi::types::{CapSlot, CapType, FrameNumber, Rights, SLOT_NONE, Status};
use aegis_abi::upcall::UpcallKind;

use crate::object::{
    Capability, CheckedTerm, Live, PROCESSOR_RIGHTS, Pages, SAVE_AREA_FRAME_COUNT_MAX, SLEEP_ENDING_KINDS, Source,
};
use crate::outcome::{Answer, Caller, Outcome, Refusal, SwitchAnswer, bad_argument, refuse_if};
use crate::space::{UserReader, UserSlice, is_user_code_address};
use crate::{Machine, State};

const TERM_WORDS: usize = 4;

pub(super) fn create<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorCreate) -> Answer {
    let target = state.lookup_environment(caller.environment, call.environment, Rights::CONTROL)?;
    let rights = Rights::READ | Rights::WRITE;
    let (paid_with, frames) = state.lookup(caller.environment, call.frames, CapType::Frames, rights)?;
    refuse_if(!(1..=SAVE_AREA_FRAME_COUNT_MAX).contains(&call.save_area_frame_count), bad_argument(3))?;
    let pages = Pages {
        first_frame: frames.object,
        save_area_frame_count: u64::from(call.save_area_frame_count),
        control_address: call.control_address,
        save_area_base: call.save_area_base,
    };
    refuse_if(pages.frame_count() > frames.count, bad_argument(2))?;
    refuse_if(!in_window(call.control_address, 1), bad_argument(4))?;
    refuse_if(!in_window(call.save_area_base, pages.save_area_frame_count), bad_argument(5))?;
    let slot = state.empty_slot(caller.environment, call.slot)?;
    let named = state.make_processor(target, pages, paid_with)?;
    state.store_capability(slot, &Capability::object(CapType::Processor, PROCESSOR_RIGHTS, named));
    Ok(0)
}

/// Whether whole pages lie in the library OS window.
fn in_window(address: u64, page_count: u64) -> bool {
    address.is_multiple_of(PAGE_SIZE)
        && address >= LIBOS_BASE
        && address.checked_add(page_count << PAGE_SHIFT).is_some_and(|end| end <= LIBOS_END)
}

pub(super) fn start<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorStart) -> Answer {
    let named = state.lookup_processor(caller.environment, call.slot, Rights::CONTROL)?;
    refuse_if(!is_user_code_address(call.rip), bad_argument(1))?;
    state.start_processor(named.id, call.rip, call.rsp, call.argument)?;
    Ok(0)
}

pub(super) fn stop<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorStop) -> SwitchAnswer {
    let named = state.lookup_processor(caller.environment, call.slot, Rights::CONTROL)?;
    state.stop_processor(named.id);
    Ok(if named.id == caller.processor { Outcome::Left } else { 0.into() })
}

pub(super) fn read<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorRead) -> Answer {
    let named = state.lookup_processor(caller.environment, call.slot, Rights::READ)?;
    let object = &state.processors[named.id];
    Ok(match ProcessorField::from_number(call.field).ok_or(bad_argument(1))? {
        ProcessorField::State => object.state() as u64,
        ProcessorField::TimeUsedNs => state.time_used_ns(named.id),
        ProcessorField::Slices => object.slices,
        ProcessorField::OverrunNs => object.overrun_ns,
    })
}

pub(super) fn destroy<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorDestroy) -> Answer {
    let named = state.lookup_processor(caller.environment, call.slot, Rights::CONTROL)?;
    refuse_if(state.processors[named.id].state() != ProcessorState::Stopped, Status::WrongState)?;
    let progress = state.end_processor(named.id);
    super::capability::drop_ended(state, caller, call.slot, progress)
}

pub(super) fn give_way<M: Machine>(state: &mut State<M>, caller: Caller, call: Yield) -> SwitchAnswer {
    if call.processor != SLOT_NONE {
        let target = state.lookup_processor(caller.environment, call.processor, Rights::empty())?.id;
        refuse_if(!state.take_from_ready(target), Status::WrongState)?;
        if state.processors[target].has_run {
            state.processors[target].due |= 1 << UpcallKind::SliceBegin as u32;
        }
        state.hand_off(caller.cpu, target);
    } else {
        state.give_up_slice(caller.cpu);
    }
    state.processors[caller.processor].set_result(Status::Ok, 0);
    state.make_ready(caller.processor);
    Ok(Outcome::Left)
}

pub(super) fn sleep<M: Machine>(state: &mut State<M>, caller: Caller, call: Sleep) -> SwitchAnswer {
    let terms = read_terms(state, caller, call);
    fall_asleep(state, caller, terms)
}

/// Call 58: sleeps until a bell has been rung.
pub(super) fn await_bell<M: Machine>(state: &mut State<M>, caller: Caller, call: BellAwait) -> SwitchAnswer {
    let bell = state.lookup_bell(caller.environment, call.slot, Rights::WAIT);
    let waits = bell.map(|named| state.processors[caller.processor].predicate.wait_for(named));
    fall_asleep(state, caller, waits.map_err(Refusal::from))
}

/// Sleeps by the predicate that was built, unless it holds already or something is pending.
fn fall_asleep<M: Machine>(state: &mut State<M>, caller: Caller, built: Result<(), Refusal>) -> SwitchAnswer {
    let now_ns = state.machine.now_ns();
    let (_, pending) = state.mask_word(caller.processor);
    let outcome = if let Err(refusal) = built {
        Err(refusal)
    } else if let Some(value) = state.take_what_holds(caller.processor, now_ns) {
        Ok(value.into())
    } else if (pending | state.processors[caller.processor].due) & SLEEP_ENDING_KINDS != 0 {
        Err(Status::Interrupted.into())
    } else if state.begin_sleep(caller.processor) {
        return Ok(Outcome::Left);
    } else {
        Err(Status::TableFull.into())
    };
    state.processors[caller.processor].predicate.clear();
    outcome
}

fn read_terms<M: Machine>(state: &mut State<M>, caller: Caller, call: Sleep) -> Result<(), Refusal> {
    refuse_if(call.term_count as usize > PREDICATE_TERM_COUNT_MAX, bad_argument(1))?;
    if call.term_count != 0 {
        let length_bytes = u64::from(call.term_count) * TERM_WORDS as u64 * 8;
        let slice = UserSlice::new(call.terms, length_bytes, 8)?;
        let mut reader = state.user_reader(caller.processor, slice);
        for index in 0..u64::from(call.term_count) {
            let term =
                read_term(state, caller, &mut reader, index).map_err(|status| Refusal { status, value: index })?;
            refuse_if(!state.processors[caller.processor].predicate.push(term), bad_argument(1))?;
        }
    }
    Ok(())
}

fn read_term<M: Machine>(state: &State<M>, caller: Caller, reader: &mut UserReader, index: u64) -> Live<CheckedTerm> {
    let words: [u64; TERM_WORDS] = state.read_user(reader, index)?;
    let slot = CapSlot((words[1] >> 32) as u32);
    let operator = TermOperator::from_number(words[1] as u32).ok_or(Status::BadArgument)?;
    let is_at_least = operator == TermOperator::AtLeast;
    let source = match TermSource::from_number((words[0] >> 32) as u32) {
        Some(TermSource::Word32) => word_source(state, caller, slot, words[2], 4)?,
        Some(TermSource::Word64) => word_source(state, caller, slot, words[2], 8)?,
        Some(TermSource::Bell) if is_at_least => {
            Source::Bell(state.lookup_bell(caller.environment, slot, Rights::WAIT)?)
        }
        Some(TermSource::Clock) if is_at_least => Source::Clock,
        _ => return Err(Status::BadArgument),
    };
    Ok(CheckedTerm { product: words[0] as u32, source, operator, value: words[3] })
}

fn word_source<M: Machine>(state: &State<M>, caller: Caller, slot: CapSlot, address: u64, bytes: u64) -> Live<Source> {
    refuse_if(!address.is_multiple_of(bytes), Status::BadAddress)?;
    let (_, capability) = state.lookup(caller.environment, slot, CapType::Frames, Rights::READ)?;
    let frame = address >> PAGE_SHIFT;
    refuse_if(!capability.covers(frame, 1, Rights::READ), Status::BadAddress)?;
    Ok(Source::Word {
        frame: FrameNumber(frame),
        word_index: (address % PAGE_SIZE / 8) as u16,
        shift: (address % 8 * 8) as u8,
        mask: u64::MAX >> (64 - 8 * bytes),
    })
}
