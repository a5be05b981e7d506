//! Extended attributes of a node: its own, or those of what it lies over for as long as none was changed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::extended_attribute::{AttributeChange, ExtendedAttributes};
use super::super::metadata::Timestamp;
use super::super::vnode::InodeRef;
use super::node::MemoryNode;
use crate::error::{Errno, Result};

impl MemoryNode {
    /// What it lies over, if that has some.
    fn base_with_attributes(&self) -> Option<&InodeRef> {
        self.base.as_ref().filter(|base| base.has_extended_attributes())
    }

    pub(super) fn attribute(&self, name: &[u8]) -> Result<Vec<u8>> {
        match (&self.state.lock().extended, self.base_with_attributes()) {
            (Some(own), _) => own.get(name),
            (None, Some(base)) => base.extended_attribute(name),
            (None, None) => Err(Errno::ENODATA),
        }
    }

    pub(super) fn attribute_names(&self) -> Result<Vec<u8>> {
        match (&self.state.lock().extended, self.base_with_attributes()) {
            (Some(own), _) => own.names(),
            (None, Some(base)) => base.extended_attribute_names(),
            (None, None) => Ok(Vec::new()),
        }
    }

    pub(super) fn set_attribute(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        change: AttributeChange,
        now: Timestamp,
    ) -> Result<()> {
        // The base never changes, so what it has may be read before the lock is taken.
        let below = match self.base_with_attributes() {
            Some(base) => ExtendedAttributes::of_base(&**base)?,
            None => ExtendedAttributes::default(),
        };
        self.change(|state| {
            let extended = state.extended.get_or_insert_with(|| Box::new(below));
            match value {
                Some(value) => extended.set(name, value, change)?,
                None => extended.remove(name)?,
            }
            state.changed = now;
            Ok(())
        })
    }
}
