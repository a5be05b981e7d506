//! Protected control transfer: calls from one virtual processor into another, with the registers as
//! the message.
//!
//! A callee takes calls while it is `Accepting`. A caller hands its slice to the callee at once and
//! is `Calling` until the reply hands it back; callers that find the callee busy queue up.
//! While it waits, a caller's funding is the callee's (`funding.rs`).
//! Invariants: `calling` of a caller and `serving` or `callers` of its callee name each other; a
//! chain of calls has no cycle, because a call that would close one is refused.

use aegis_abi::Status;
use aegis_abi::call::ProcessorState;
use aegis_abi::counter::Counter;
use aegis_abi::share::Table;
use aegis_abi::types::{CapSlot, Rights};
use aegis_abi::upcall::UpcallFrame;

use crate::id::{EnvironmentId, GateId, Named, PROCESSOR_COUNT_MAX, ProcessorId};
use crate::object::{Call, Called, Gate, SLEEP_ENDING_KINDS, USER_FLAGS, copy_message, save_call, start_registers};
use crate::outcome::{Caller, Outcome, Refusal, refuse_if};
use crate::{Machine, State};

impl<M: Machine> State<'_, M> {
    pub(crate) fn live_gate(&self, named: Named<GateId>) -> Option<GateId> {
        (self.gates[named.id].serial == named.serial).then_some(named.id)
    }

    /// Makes a gate, if the table and the owner's share of it have room.
    pub(crate) fn new_gate(&mut self, owner: EnvironmentId, to: Called, rip: u64, badge: u64) -> Option<Named<GateId>> {
        self.environments[owner].check_share(Table::Gates).ok()?;
        let id = self.gates.find(|gate| gate.serial == 0)?;
        let serial = self.new_serial();
        self.gates[id] = Gate { serial, owner: Some(owner), processor: to, rip, badge };
        self.environments[owner].count_entry(Table::Gates, true);
        Some(Named { id, serial })
    }

    /// Ends a gate; calls through it that are under way go on.
    pub(crate) fn release_gate(&mut self, gate: GateId) {
        if let Some(owner) = self.gates[gate].owner {
            self.environments[owner].count_entry(Table::Gates, false);
        }
        self.gates[gate] = Gate::EMPTY;
    }

    /// The call that a gate makes, if its processor is there and can take calls some day.
    fn gate_target(&self, gate: GateId) -> Result<Call, Status> {
        let gate = &self.gates[gate];
        let callee = gate
            .processor
            .and_then(|(named, _)| self.live_processor(named))
            .filter(|callee| self.processors[*callee].state() != ProcessorState::Stopped)
            .ok_or(Status::PeerGone)?;
        Ok(Call { callee, rip: gate.rip, badge: gate.badge })
    }

    /// Puts the callee where the gate enters, with the message in its registers.
    fn enter_callee(&mut self, call: Call, message: &UpcallFrame) {
        let top = self.processors[call.callee].pages.save_area_top();
        let mut registers = start_registers(call.rip, top, call.badge);
        copy_message(message, &mut registers);
        self.processors[call.callee].registers = registers;
    }

    /// Whether `callee` waits, directly or through others, for `caller`.
    fn closes_cycle(&self, caller: ProcessorId, callee: ProcessorId) -> bool {
        let mut at = callee;
        for _ in 0..PROCESSOR_COUNT_MAX {
            if at == caller {
                return true;
            }
            match self.processors[at].transfer.calling {
                Some(call) => at = call.callee,
                None => return false,
            }
        }
        true
    }

    #[inline(always)]
    pub(crate) fn call_at_once(&mut self, caller: Caller, frame: &mut UpcallFrame) -> Option<ProcessorId> {
        let slot = CapSlot(u32::try_from(frame.rdi).ok()?);
        let gate = self.lookup_gate(caller.environment, slot, Rights::CALL).ok()?;
        let &Gate { processor, rip, badge, .. } = &self.gates[gate];
        let (Named { id: callee, serial }, _) = processor?;
        let object = &mut self.processors[callee];
        if object.serial != serial || object.state() != ProcessorState::Accepting || object.due != 0 {
            return None;
        }
        object.transfer.serving = Some(caller.processor);
        let top = object.pages.save_area_top();
        let object = &mut self.processors[caller.processor];
        save_call(frame, &mut object.registers);
        object.begin_call(Call { callee, rip, badge });
        self.count(caller.environment, Counter::GateCalls, 1);
        (frame.rip, frame.rsp, frame.rdi, frame.rflags) = (rip, top, badge, USER_FLAGS);
        Some(callee)
    }

    #[inline(always)]
    pub(crate) fn reply_at_once(&mut self, callee: ProcessorId, frame: &mut UpcallFrame) -> Option<ProcessorId> {
        let object = &self.processors[callee];
        let client = object.transfer.serving?;
        let (_, pending) = self.mask_word(callee);
        let is_wanted = (pending | object.due) & SLEEP_ENDING_KINDS != 0 || !object.transfer.callers.is_empty();
        if is_wanted || self.processors[client].due != 0 {
            return None;
        }
        let object = &mut self.processors[callee];
        object.transfer.serving = None;
        save_call(frame, &mut object.registers);
        object.accept();
        let object = &mut self.processors[client];
        object.transfer.calling = None;
        let registers = &object.registers;
        (frame.rip, frame.rsp) = (registers.rip, registers.rsp);
        (frame.rdi, frame.rflags) = (registers.rdi, registers.rflags);
        Some(client)
    }

    /// Calls synchronously: the slice goes to the callee.
    pub(crate) fn gate_call(&mut self, caller: Caller, gate: GateId) -> Result<(), Refusal> {
        let processor = caller.processor;
        let call = self.gate_target(gate)?;
        refuse_if(call.callee == processor, Status::WrongState)?;
        refuse_if(self.closes_cycle(processor, call.callee), Status::PeerBusy)?;
        self.count(caller.environment, Counter::GateCalls, 1);
        self.processors[processor].begin_call(call);
        if self.processors[call.callee].state() == ProcessorState::Accepting {
            self.begin_serving(processor, call);
            self.hand_off(caller.cpu, call.callee);
        } else {
            self.processors[call.callee].transfer.callers.push(&mut self.links, processor);
        }
        Ok(())
    }

    fn begin_serving(&mut self, caller: ProcessorId, call: Call) {
        let message = self.processors[caller].registers;
        self.enter_callee(call, &message);
        self.processors[call.callee].transfer.serving = Some(caller);
    }

    /// Sends asynchronously: the callee gets the rest of the slice, the caller goes on later. With `?` it takes ten
    /// instructions more.
    pub(crate) fn gate_send(&mut self, caller: Caller, gate: GateId) -> Outcome {
        let call = match self.gate_target(gate) {
            Ok(call) => call,
            Err(status) => return Outcome::Done(status, 0),
        };
        if self.processors[call.callee].state() != ProcessorState::Accepting {
            return Outcome::Done(Status::PeerBusy, 0);
        }
        let message = self.processors[caller.processor].registers;
        self.enter_callee(call, &message);
        self.processors[caller.processor].set_result(Status::Ok, 0);
        self.count(caller.environment, Counter::GateCalls, 1);
        self.hand_off(caller.cpu, call.callee);
        self.make_ready(caller.processor);
        Outcome::Left
    }

    /// Replies to the call in hand and waits for the next one.
    pub(crate) fn gate_reply(&mut self, caller: Caller) {
        let callee = caller.processor;
        if let Some(client) = self.processors[callee].transfer.serving.take() {
            let reply = self.processors[callee].registers;
            let registers = &mut self.processors[client].registers;
            copy_message(&reply, registers);
            registers.rax = Status::Ok as u64;
            self.processors[client].transfer.calling = None;
            self.hand_off(caller.cpu, client);
        }
        self.processors[callee].accept();
        let (_, pending) = self.mask_word(callee);
        if (pending | self.processors[callee].due) & SLEEP_ENDING_KINDS != 0 {
            self.make_ready(callee);
        } else if !self.processors[callee].transfer.callers.is_empty() {
            // The next caller is drawn when it runs: the one that got a reply just now may have called again by then.
            self.processors[callee].transfer.picks = true;
            self.make_ready(callee);
        }
    }

    /// Gives a callee that runs now, and picks, the call of one of those that wait: the first, or of several one
    /// that a draw by their funding picks. Is there nobody any more, its wait was interrupted.
    pub(crate) fn serve_next(&mut self, callee: ProcessorId) {
        self.processors[callee].transfer.picks = false;
        if let Some(client) = self.pick_caller(self.processors[callee].transfer.callers)
            && let Some(call) = self.processors[client].transfer.calling
        {
            self.processors[callee].transfer.callers.remove(&mut self.links, client);
            self.begin_serving(client, call);
        }
    }

    /// A processor stops: the processors that wait for it learn that it is gone; its own call is forgotten.
    pub(crate) fn abandon_transfers(&mut self, processor: ProcessorId) {
        self.processors[processor].transfer.picks = false;
        if let Some(call) = self.processors[processor].transfer.calling.take() {
            let callee = &mut self.processors[call.callee].transfer;
            if callee.serving == Some(processor) {
                callee.serving = None;
            } else {
                callee.callers.remove(&mut self.links, processor);
            }
        }
        if let Some(client) = self.processors[processor].transfer.serving.take() {
            self.peer_gone(client);
        }
        while let Some(client) = self.processors[processor].transfer.callers.pop(&self.links) {
            self.peer_gone(client);
        }
    }

    fn peer_gone(&mut self, client: ProcessorId) {
        self.processors[client].transfer.calling = None;
        self.processors[client].set_result(Status::PeerGone, 0);
        self.make_ready(client);
    }
}
