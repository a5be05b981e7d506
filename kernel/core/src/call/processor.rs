//! Calls 16 to 22: virtual processors, yielding and sleeping.

use aegis_abi::call::{
    BellAwait, ProcessorCreate, ProcessorDestroy, ProcessorField, ProcessorRead, ProcessorStart, ProcessorState,
    ProcessorStop, Sleep, Yield,
};
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, PAGE_SHIFT, PAGE_SIZE};
use aegis_abi::share::Table;
use aegis_abi::sleep::{PREDICATE_TERM_COUNT_MAX, TermOperator, TermSource};
use aegis_abi::types::{CapSlot, CapType, FrameNumber, Rights, SLOT_NONE, Status};

use aegis_abi::upcall::UpcallKind;

use super::{Answer, Caller, Outcome, Refusal, answer, bad_argument, refuse_if};
use crate::capability::{CapRef, Capability};
use crate::frame::FrameKind;
use crate::id::{EnvironmentId, Named, ProcessorId};
use crate::machine::Machine;
use crate::predicate::{CheckedTerm, Source};
use crate::processor::{Pages, Processor, SAVE_AREA_FRAME_COUNT_MAX, SLEEP_ENDING_KINDS, start_registers};
use crate::space::{UserReader, UserSlice, is_user_code_address};
use crate::state::State;

/// Rights of the capability for a new processor.
pub(crate) const PROCESSOR_RIGHTS: Rights = Rights::READ.union(Rights::CONTROL).union(Rights::GRANT);
const TERM_WORDS: usize = 4;

pub(super) fn create<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorCreate) -> Answer {
    let target = state.lookup_environment(caller.environment, call.environment, Rights::CONTROL)?;
    let rights = Rights::READ | Rights::WRITE;
    let (paid_with, frames) = state.lookup(caller.environment, call.frames, CapType::Frames, rights)?;
    if call.save_area_frame_count == 0 || call.save_area_frame_count > SAVE_AREA_FRAME_COUNT_MAX {
        return Err(bad_argument(3));
    }
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
    let capability = Capability::object(CapType::Processor, PROCESSOR_RIGHTS, named);
    state.store_capability(slot, &capability);
    Ok(0)
}

/// Whether whole pages lie in the library OS window.
fn in_window(address: u64, page_count: u64) -> bool {
    address.is_multiple_of(PAGE_SIZE)
        && address >= LIBOS_BASE
        && address.checked_add(page_count << PAGE_SHIFT).is_some_and(|end| end <= LIBOS_END)
}

impl<M: Machine> State<'_, M> {
    /// Makes a processor: pins its pages, takes a donated frame for its vector state.
    pub(crate) fn make_processor(
        &mut self,
        environment: EnvironmentId,
        pages: Pages,
        paid_with: CapRef,
    ) -> Result<Named<ProcessorId>, Status> {
        self.environments[environment].check_share(Table::Processors)?;
        let id = self.processors.find(|p| p.serial == 0).ok_or(Status::TableFull)?;
        if !self.frames.pin_range(pages.first_frame, pages.frame_count()) {
            return Err(Status::TableFull);
        }
        let Some(vector_state) = self.take_donated(environment, FrameKind::VectorState) else {
            self.frames.unpin_range(pages.first_frame, pages.frame_count());
            return Err(Status::NoTables);
        };
        self.machine.vector_init(vector_state);
        let funding = self.new_funding(environment, id);
        let serial = self.new_serial();
        self.prepare_control_page(&pages);
        self.machine.context_made(id, &pages, vector_state);
        self.processors[id] = Processor {
            serial,
            environment: Some(environment),
            paid_with: Some(paid_with),
            pages,
            vector_state,
            funding,
            ..Processor::EMPTY
        };
        self.environments[environment].count_entry(Table::Processors, true);
        Ok(Named { id, serial })
    }

    /// Starts a stopped processor of a running environment.
    pub(crate) fn start_processor(
        &mut self,
        processor: ProcessorId,
        rip: u64,
        rsp: u64,
        argument: u64,
    ) -> Result<(), Status> {
        let environment = self.processors[processor].environment_id();
        let root = self.environments[environment].root;
        let object = &mut self.processors[processor];
        if object.state != ProcessorState::Stopped
            || object.is_ending
            || self.environments[environment].is_stopped()
            || self.environments[environment].is_ending
        {
            return Err(Status::WrongState);
        }
        if object.cpu.is_some() {
            return Err(Status::Again);
        }
        object.registers = start_registers(rip, rsp, argument);
        (object.fs_base, object.gs_base) = (0, object.pages.control_address);
        object.root = root;
        (object.has_run, object.due) = (false, 0);
        object.funding.unpaid_ns = object.funding.unpaid_ns.max(self.slice_ns);
        self.make_ready(processor);
        Ok(())
    }
}

pub(super) fn start<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorStart) -> Answer {
    let named = state.lookup_processor(caller.environment, call.slot, Rights::CONTROL)?;
    refuse_if(!is_user_code_address(call.rip), bad_argument(1))?;
    state.start_processor(named.id, call.rip, call.rsp, call.argument)?;
    Ok(0)
}

pub(super) fn stop<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorStop) -> Outcome {
    match state.lookup_processor(caller.environment, call.slot, Rights::CONTROL) {
        Err(status) => Outcome::Done(status, 0),
        Ok(named) => {
            state.stop_processor(named.id);
            if named.id == caller.processor { Outcome::Left } else { Outcome::Done(Status::Ok, 0) }
        }
    }
}

pub(super) fn read<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorRead) -> Answer {
    let named = state.lookup_processor(caller.environment, call.slot, Rights::READ)?;
    let object = &state.processors[named.id];
    Ok(match ProcessorField::from_number(call.field).ok_or(bad_argument(1))? {
        ProcessorField::State => object.state as u64,
        ProcessorField::TimeUsedNs => state.time_used_ns(named.id),
        ProcessorField::Slices => object.slices,
        ProcessorField::OverrunNs => object.overrun_ns,
    })
}

pub(super) fn destroy<M: Machine>(state: &mut State<M>, caller: Caller, call: ProcessorDestroy) -> Answer {
    let named = state.lookup_processor(caller.environment, call.slot, Rights::CONTROL)?;
    refuse_if(state.processors[named.id].state != ProcessorState::Stopped, Status::WrongState)?;
    let progress = state.end_processor(named.id);
    if progress == crate::space::Progress::Done {
        let (at, capability) = state.lookup_any(caller.environment, call.slot)?;
        if capability.child.is_none() {
            state.delete(at, false)?;
        }
    }
    answer(progress)
}

pub(super) fn give_way<M: Machine>(state: &mut State<M>, caller: Caller, call: Yield) -> Outcome {
    if call.processor != SLOT_NONE {
        let target = match state.lookup_processor(caller.environment, call.processor, Rights::empty()) {
            Ok(named) => named.id,
            Err(status) => return Outcome::Done(status, 0),
        };
        if !state.take_from_ready(target) {
            return Outcome::Done(Status::WrongState, 0);
        }
        if state.processors[target].has_run {
            state.processors[target].due |= 1 << UpcallKind::SliceBegin as u32;
        }
        state.hand_off(caller.cpu, target);
    } else {
        state.give_up_slice(caller.cpu);
    }
    let registers = &mut state.processors[caller.processor].registers;
    (registers.rax, registers.rdx) = (Status::Ok as u64, 0);
    state.make_ready(caller.processor);
    Outcome::Left
}

pub(super) fn sleep<M: Machine>(state: &mut State<M>, caller: Caller, call: Sleep) -> Outcome {
    let terms = read_terms(state, caller, call);
    fall_asleep(state, caller, terms)
}

/// Call 58: sleeps until a bell has been rung.
pub(super) fn await_bell<M: Machine>(state: &mut State<M>, caller: Caller, call: BellAwait) -> Outcome {
    let bell = state.lookup_bell(caller.environment, call.slot, Rights::WAIT);
    let waits = bell.map(|named| state.processors[caller.processor].predicate.wait_for(named));
    fall_asleep(state, caller, waits.map_err(Refusal::from))
}

/// Sleeps by the predicate that was built, unless it holds already or something is pending.
fn fall_asleep<M: Machine>(state: &mut State<M>, caller: Caller, built: Result<(), Refusal>) -> Outcome {
    let now_ns = state.machine.now_ns();
    let (_, pending) = state.mask_word(caller.processor);
    let outcome = if let Err(refusal) = built {
        Outcome::Done(refusal.status, refusal.value)
    } else if let Some(value) = state.take_what_holds(caller.processor, now_ns) {
        Outcome::Done(Status::Ok, value)
    } else if (pending | state.processors[caller.processor].due) & SLEEP_ENDING_KINDS != 0 {
        Outcome::Done(Status::Interrupted, 0)
    } else if state.begin_sleep(caller.processor) {
        return Outcome::Left;
    } else {
        Outcome::Done(Status::TableFull, 0)
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

fn read_term<M: Machine>(
    state: &State<M>,
    caller: Caller,
    reader: &mut UserReader,
    index: u64,
) -> Result<CheckedTerm, Status> {
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

fn word_source<M: Machine>(
    state: &State<M>,
    caller: Caller,
    slot: CapSlot,
    address: u64,
    bytes: u64,
) -> Result<Source, Status> {
    if !address.is_multiple_of(bytes) {
        return Err(Status::BadAddress);
    }
    let (_, capability) = state.lookup(caller.environment, slot, CapType::Frames, Rights::READ)?;
    let frame = address >> PAGE_SHIFT;
    if !capability.covers(frame, 1, Rights::READ) {
        return Err(Status::BadAddress);
    }
    Ok(Source::Word {
        frame: FrameNumber(frame),
        word_index: (address % PAGE_SIZE / 8) as u16,
        shift: (address % 8 * 8) as u8,
        mask: u64::MAX >> (64 - 8 * bytes),
    })
}
