//! Environments: what they own, what was donated for their tables, how they stop and how they end.
//!
//! Invariants: `frames_owned` counts the frames whose owner is the environment's serial, donated
//! ones included; quota only moves between environments, so the sum of all quotas never changes; an
//! environment that is ending runs nowhere, and nothing can be put into it. It ends in bounded
//! steps, descendants first, and each step leaves a consistent state.

use aegis_abi::share::{TABLES, Table};
use aegis_abi::types::{CapSlot, CapType, FrameNumber, Status};

use crate::id::{EnvironmentId, Id, Named, ProcessorId};
use crate::machine::StopReport;
use crate::object::{CapRef, Environment, FREE_COST, FrameKind, Reclaim, TABLE_FRAME_COUNT_MAX, WHOLE};
use crate::outcome::{More, Progress};
use crate::{Machine, State};

impl<M: Machine> State<'_, M> {
    pub(crate) fn live_environment(&self, named: Named<EnvironmentId>) -> Option<EnvironmentId> {
        let serial = self.environments[named.id].serial;
        (serial != 0 && u64::from(serial) == named.serial).then_some(named.id)
    }

    pub(crate) fn named_environment(&self, id: EnvironmentId) -> Named<EnvironmentId> {
        Named { id, serial: u64::from(self.environments[id].serial) }
    }

    /// Adds a frame that belongs to the environment already to what its tables may use.
    pub(crate) fn donate_frame(&mut self, environment: EnvironmentId, frame: FrameNumber) {
        self.environments[environment].donate(frame, &mut self.frames);
    }

    /// Takes a donated frame, zeroed.
    pub(crate) fn take_donated(&mut self, environment: EnvironmentId, kind: FrameKind) -> Option<FrameNumber> {
        let frame = self.environments[environment].pop_donated(&self.frames)?;
        self.frames.set(frame, kind, self.environments[environment].serial);
        self.machine.zero_frame(frame);
        self.spend(24);
        Some(frame)
    }

    /// Gives frames back that are neither mapped nor pinned. `was_table`: their contents concern
    /// nobody, not even the next owner if it is the same.
    pub(crate) fn free_frames(&mut self, environment: EnvironmentId, first: u64, count: u64, was_table: bool) {
        let owner = if was_table { 0 } else { self.environments[environment].serial };
        self.frames.set_range(first, count, FrameKind::Free, owner);
        let owned = &mut self.environments[environment].frames_owned;
        debug_assert!(*owned >= count, "every frame was counted");
        *owned -= count;
    }

    /// Moves quota from one environment, which has it, to another or itself.
    pub(crate) fn move_quota(&mut self, from: EnvironmentId, to: EnvironmentId, frame_count: u64) {
        let quota = &mut self.environments[from].frame_quota;
        debug_assert!(*quota >= frame_count, "quota only moves");
        *quota -= frame_count;
        self.environments[to].frame_quota += frame_count;
    }

    /// Whether `environment` is `ancestor` or was made by it, directly or not.
    pub(crate) fn is_within(&self, environment: EnvironmentId, ancestor: EnvironmentId) -> bool {
        let mut at = Some(environment);
        for _ in 0..EnvironmentId::COUNT {
            match at {
                Some(id) if id == ancestor => return true,
                Some(id) => at = self.environments[id].parent,
                None => return false,
            }
        }
        false
    }

    /// Stops an environment for a reason: its processors stop, its watcher is told. The first one's
    /// end is the machine's.
    pub(crate) fn stop_environment(&mut self, environment: EnvironmentId, report: StopReport) {
        if self.environments[environment].is_stopped() {
            return;
        }
        self.environments[environment].stop = report;
        self.stop_processors(environment);
        self.tell_watcher(environment);
        if self.first_environment == Some(environment) {
            self.machine.first_environment_stopped(report);
        }
    }

    /// Something of an environment changed that its maker may want to know.
    pub(crate) fn tell_watcher(&mut self, environment: EnvironmentId) {
        if let Some(bell) = self.environments[environment].watch.and_then(|(named, _)| self.live_bell(named)) {
            self.ring(bell);
        }
    }

    fn stop_processors(&mut self, environment: EnvironmentId) {
        for processor in self.processors.ids() {
            if self.processors[processor].environment == Some(environment) {
                self.stop_processor(processor);
            }
        }
    }

    /// Begins to end an environment and all that it made: from now on nothing of them runs or takes
    /// anything.
    fn begin_end(&mut self, ancestor: EnvironmentId) {
        for environment in self.environments.ids() {
            if self.environments[environment].serial != 0 && self.is_within(environment, ancestor) {
                self.environments[environment].is_ending = true;
            }
        }
        for processor in self.processors.ids() {
            if self.processors[processor].environment.is_some_and(|id| self.environments[id].is_ending) {
                self.stop_processor(processor);
            }
        }
    }

    /// Does a bounded part of ending an environment and all that it made.
    pub(crate) fn end_environment(&mut self, ancestor: EnvironmentId) -> Progress {
        self.begin_end(ancestor);
        loop {
            let mut last = ancestor;
            while let Some(child) = self.environments.find(|e| e.serial != 0 && e.parent == Some(last)) {
                last = child;
                self.spend(EnvironmentId::COUNT / 2);
            }
            self.check_budget()?;
            self.end_step(last)?;
            if last == ancestor {
                return Ok(());
            }
        }
    }

    fn end_step(&mut self, environment: EnvironmentId) -> Progress {
        // Looks through the fixed tables.
        self.spend(2048);
        self.end_processors(environment)?;
        if !self.environments[environment].has_no_space {
            self.release_devices_of(environment)?;
            self.end_spaces(environment)?;
            self.environments[environment].has_no_space = true;
        }
        self.end_capabilities(environment)?;
        self.end_bells_and_gates(environment);
        self.end_frames(environment)?;
        let object = &self.environments[environment];
        let (quota, share) = (object.frame_quota, object.share);
        if let Some(parent) = object.parent {
            self.move_quota(environment, parent, quota);
            for table in TABLES {
                self.move_share(environment, parent, table, share[table as usize]);
            }
            self.environments[parent].count_entry(Table::Environments, false);
        }
        self.unfund_environment(environment);
        self.environments[environment] = Environment::EMPTY;
        Ok(())
    }

    /// Releases its processors, and those of others whose pages it paid for; those on a physical
    /// processor have to leave it first.
    fn end_processors(&mut self, environment: EnvironmentId) -> Progress {
        let mut progress = Ok(());
        for processor in self.processors.ids() {
            let object = &self.processors[processor];
            let is_paid = object.paid_with.is_some_and(|at| at.environment == environment);
            if object.environment != Some(environment) && !is_paid {
                continue;
            }
            let ended = self.check_budget().and_then(|()| self.end_processor(processor));
            progress = progress.and(ended);
        }
        progress
    }

    pub(crate) fn end_processor(&mut self, processor: ProcessorId) -> Progress {
        self.spend(512);
        self.stop_processor(processor);
        self.processors[processor].is_ending = true;
        match self.processors[processor].cpu() {
            Some(cpu) => {
                self.machine.kick(cpu);
                Err(More)
            }
            None => {
                self.release_processor(processor);
                Ok(())
            }
        }
    }

    /// Deletes its capabilities and all that come from them.
    fn end_capabilities(&mut self, environment: EnvironmentId) -> Progress {
        for index in 0..TABLE_FRAME_COUNT_MAX {
            let Some(frame) = self.environments[environment].table[index] else { continue };
            for offset in 0..crate::object::SLOTS_PER_FRAME {
                let at = CapRef { environment, slot: index as u32 * crate::object::SLOTS_PER_FRAME + offset };
                self.check_budget()?;
                self.spend(1);
                if self.kind_in(environment, CapSlot(at.slot)) == CapType::Null {
                    continue;
                }
                self.revoke(at)?;
                self.delete(at, true).map_err(|_| More)?;
            }
            self.environments[environment].table[index] = None;
            self.donate_frame(environment, FrameNumber(u64::from(frame.get())));
        }
        Ok(())
    }

    fn end_bells_and_gates(&mut self, environment: EnvironmentId) {
        for bell in self.bells.ids() {
            if self.bells[bell].owner == Some(environment) {
                self.release_bell(bell);
            }
        }
        for gate in self.gates.ids() {
            if self.gates[gate].owner == Some(environment) {
                self.release_gate(gate);
            }
        }
    }

    fn end_frames(&mut self, environment: EnvironmentId) -> Progress {
        let (first, count) = core::mem::replace(&mut self.environments[environment].reclaim, Reclaim::EMPTY).in_hand;
        self.free_frames(environment, first, count, false);
        while let Some(frame) = self.environments[environment].pop_donated(&self.frames) {
            self.free_frames(environment, frame.0, 1, true);
            self.spend(FREE_COST);
            self.check_budget()?;
        }
        let root = core::mem::replace(&mut self.environments[environment].root, FrameNumber(0));
        if root.0 != 0 {
            self.free_frames(environment, root.0, 1, true);
        }
        Ok(())
    }

    /// Makes an environment out of frames that are its own already and in no use: root table, first
    /// capability table, the system page's mapping. Undoes nothing on failure; the caller checked
    /// that there are enough frames.
    pub(crate) fn build_environment(&mut self, environment: EnvironmentId) -> Result<(), Status> {
        let root = self.take_donated(environment, FrameKind::PageTable).ok_or(Status::NoTables)?;
        self.prepare_root(root);
        self.environments[environment].root = root;
        self.map_system_page(environment)
    }

    /// A free table entry, with its serial set.
    pub(crate) fn new_environment(&mut self, parent: Option<EnvironmentId>) -> Result<EnvironmentId, Status> {
        if let Some(parent) = parent {
            self.environments[parent].check_share(Table::Environments)?;
        }
        let id = self.environments.find(|e| e.serial == 0).ok_or(Status::TableFull)?;
        // Owner serials are never used twice; 2^32 environments are a stated limit.
        let serial = self.last_environment_serial.checked_add(1).ok_or(Status::TableFull)?;
        self.last_environment_serial = serial;
        let (currency, ticket) = self.new_currency(parent);
        // A free entry is empty.
        let object = &mut self.environments[id];
        (object.serial, object.parent, object.payer) = (serial, parent, parent);
        (object.currency, object.ticket) = (currency, ticket);
        match parent {
            Some(parent) => {
                self.environments[parent].count_entry(Table::Environments, true);
                self.pass_default_share(parent, id);
            }
            None => self.environments[id].share = WHOLE,
        }
        Ok(id)
    }
}
