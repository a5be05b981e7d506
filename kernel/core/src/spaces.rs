//! Address spaces as objects.
//!
//! Every environment has a *home space*, whose root is in the environment, and may make more: each is one [`Space`].
//! Programs that trust each other share an environment and have a space each (`docs/adr/0011`).
//!
//! Invariants: all roots of an environment hold the same words in the slots of the library OS window, so that the
//! tables below them, and every mapping there, are shared; what is below the other user slots belongs to one root. A
//! space and its capability never leave their environment. A space ends only while no processor is in it.

use aegis_abi::call::ProcessorState;
use aegis_abi::layout::PAGE_TABLE_SLOT;
use aegis_abi::share::Table;
use aegis_abi::types::{CapSlot, CapType, FrameNumber, Status};

use crate::id::{EnvironmentId, Id, Named, SPACE_COUNT_MAX, SpaceId};
use crate::object::{CapRef, Capability, DYING, FrameKind, Space, Tables, named};
use crate::outcome::{Caller, Progress};
use crate::space::WINDOW_SLOT;
use crate::{Machine, State};

impl<M: Machine> State<'_, M> {
    /// The tables of a space, if it is one of this environment's.
    pub(crate) fn space_tables(&self, space: SpaceId, environment: EnvironmentId) -> Option<Tables> {
        let root = FrameNumber(self.spaces[space].root.into());
        (self.spaces[space].environment == Some(environment)).then_some(Tables { environment, root })
    }

    /// The tables that a slot stands for: those of a space, or of an environment's home space.
    #[inline(always)]
    pub(crate) fn lookup_tables(&self, environment: EnvironmentId, slot: CapSlot) -> Result<Tables, Status> {
        let (is_space, object) = self.lookup_either(environment, slot, [CapType::Environment, CapType::Space])?;
        if is_space {
            return named(object).and_then(|named| self.live_space(named)).ok_or(Status::WrongState);
        }
        let target = named(object).and_then(|named| self.live_environment(named));
        let target = target.filter(|target| !self.environments[*target].is_ending).ok_or(Status::WrongState)?;
        Ok(self.home_tables(target))
    }

    /// A processor goes on in a space of its environment.
    #[inline(always)]
    pub(crate) fn enter_space(&mut self, caller: Caller, slot: CapSlot) -> Result<(), Status> {
        let tables = self.lookup_tables(caller.environment, slot)?;
        if tables.environment != caller.environment {
            return Err(Status::WrongState);
        }
        self.processors[caller.processor].root = tables.root;
        self.machine.enter_root(tables.root);
        Ok(())
    }

    /// The tables of a space, if the table entry still holds the one that was named.
    #[inline(always)]
    fn live_space(&self, named: Named<SpaceId>) -> Option<Tables> {
        let object = &self.spaces[named.id];
        let environment = object.environment.filter(|_| object.serial == named.serial)?;
        Some(Tables { environment, root: FrameNumber(object.root.into()) })
    }

    /// Makes a space with an empty program's half.
    pub(crate) fn make_space(&mut self, environment: EnvironmentId) -> Result<Named<SpaceId>, Status> {
        self.environments[environment].check_share(Table::Spaces)?;
        let id = SpaceId::from_index(self.free_space.into()).ok_or(Status::TableFull)?;
        let root = self.take_donated(environment, FrameKind::PageTable).ok_or(Status::NoTables)?;
        self.prepare_root(root);
        for slot in WINDOW_SLOT..PAGE_TABLE_SLOT {
            self.machine.store(root, slot, self.machine.load(self.environments[environment].root, slot));
        }
        let serial = self.new_serial();
        self.free_space = self.spaces[id].next_free.wrapping_add(self.free_space + 1);
        self.spaces[id] = Space { serial, environment: Some(environment), next_free: 0, root: root.0 as u32 };
        self.environments[environment].count_entry(Table::Spaces, true);
        Ok(Named { id, serial })
    }

    /// Puts a table into a slot of the library OS window, in every root of an environment.
    pub(crate) fn store_window_slot(&mut self, environment: EnvironmentId, slot: usize, word: u64) {
        self.machine.store(self.environments[environment].root, slot, word);
        self.spend(SPACE_COUNT_MAX + usize::from(self.environments[environment].used[Table::Spaces as usize]));
        for space in self.spaces.ids() {
            if let Some(tables) = self.space_tables(space, environment) {
                self.machine.store(tables.root, slot, word);
            }
        }
    }

    /// A space ends with its original capability; from the first step on the capability authorises nothing.
    pub(crate) fn delete_space(&mut self, at: CapRef, mut capability: Capability) -> Result<(), Status> {
        let named: Option<Named<SpaceId>> = named(capability.object).filter(|_| capability.parent.is_none());
        let Some((space, tables)) = named.and_then(|named| Some((named.id, self.live_space(named)?))) else {
            return Ok(());
        };
        let is_in_it = |root, state, is_on_cpu| root == tables.root && (state != ProcessorState::Stopped || is_on_cpu);
        if self.processors.iter().any(|(_, p)| is_in_it(p.root, p.state(), p.cpu().is_some())) {
            return Err(Status::Busy);
        }
        capability.flags |= DYING;
        self.store_capability(at, &capability);
        Ok(self.end_space(space, tables)?)
    }

    /// Does a bounded part of giving a space's tables back to the donation.
    fn end_space(&mut self, space: SpaceId, tables: Tables) -> Progress {
        self.tear_down(tables, WINDOW_SLOT)?;
        self.donate_frame(tables.environment, tables.root);
        let next_free = self.free_space.wrapping_sub(space.index() as u16 + 1);
        (self.spaces[space], self.free_space) = (Space { next_free, ..Space::EMPTY }, space.index() as u16);
        self.environments[tables.environment].count_entry(Table::Spaces, false);
        Ok(())
    }

    /// Does a bounded part of ending all spaces of an environment, which runs nowhere any more: the home space last.
    pub(crate) fn end_spaces(&mut self, environment: EnvironmentId) -> Progress {
        self.spend(SPACE_COUNT_MAX);
        for space in self.spaces.ids() {
            let Some(tables) = self.space_tables(space, environment) else { continue };
            self.end_space(space, tables).and_then(|()| self.check_budget())?;
        }
        self.tear_down(self.home_tables(environment), PAGE_TABLE_SLOT)
    }
}
