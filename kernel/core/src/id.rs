//! Names of kernel objects: small non-zero indices into fixed tables.
//!
//! Invariant: an id is made only by `from_index`, which checks it against the table's size, so indexing an [`Arena`]
//! with its own id type cannot fail. `None` is all zero bits, so that the whole kernel state starts as zeroed memory
//! and costs no image bytes. Ids are reused; code that keeps one across calls keeps a [`Named`], whose serial tells the
//! object from a later one.

use core::marker::PhantomData;
use core::num::NonZeroU16;
use core::ops::{Index, IndexMut};

/// An index type of one table.
pub trait Id: Copy + PartialEq {
    /// Entries in the table.
    const COUNT: usize;
    /// The id of entry `index`, if the table has it.
    fn from_index(index: usize) -> Option<Self>;
    /// The entry.
    fn index(self) -> usize;
}

macro_rules! ids {
    ($( $(#[$doc:meta])* $name:ident $count:expr; )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(NonZeroU16);

        impl Id for $name {
            const COUNT: usize = $count;
            fn from_index(index: usize) -> Option<Self> {
                if index >= $count { None } else { u16::try_from(index + 1).ok().and_then(NonZeroU16::new).map(Self) }
            }
            fn index(self) -> usize {
                // What `from_index` checked is said again so that it needs no check where the table is indexed.
                let index = usize::from(self.0.get() - 1);
                if const { $count.is_power_of_two() } { index & ($count - 1) } else { index.min($count - 1) }
            }
        }
    )* };
}

/// Most environments.
pub const ENVIRONMENT_COUNT_MAX: usize = 64;
/// Most address spaces, home spaces aside: 4,096 and some for what begins while the others go on.
pub const SPACE_COUNT_MAX: usize = 4096 + 256;
/// Most virtual processors.
pub const PROCESSOR_COUNT_MAX: usize = 256;
/// Most bells.
pub const BELL_COUNT_MAX: usize = 1024;
/// Most gates.
pub const GATE_COUNT_MAX: usize = 256;
/// Most device functions.
pub const DEVICE_COUNT_MAX: usize = 64;
/// Most ranges that devices may reach at a time.
pub const DMA_BINDING_COUNT_MAX: usize = 512;
/// Most physical processors.
pub const CPU_COUNT_MAX: usize = 16;

ids! {
    /// An environment.
    EnvironmentId ENVIRONMENT_COUNT_MAX;
    /// An address space that is not a home space.
    SpaceId SPACE_COUNT_MAX;
    /// A virtual processor.
    ProcessorId PROCESSOR_COUNT_MAX;
    /// A bell.
    BellId BELL_COUNT_MAX;
    /// A gate.
    GateId GATE_COUNT_MAX;
    /// A device function.
    DeviceId DEVICE_COUNT_MAX;
    /// A physical processor.
    CpuId CPU_COUNT_MAX;
}

/// An object that is told from later users of its table entry by a serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<I> {
    /// The table entry.
    pub id: I,
    /// The serial that the object was made with; never 0.
    pub serial: u64,
}

/// A fixed table, indexed by its id type.
pub struct Arena<I: Id, T, const N: usize> {
    entries: [T; N],
    index: PhantomData<I>,
}

impl<I: Id, T, const N: usize> Arena<I, T, N> {
    pub(crate) const fn new(entries: [T; N]) -> Self {
        assert!(N == I::COUNT, "a table has exactly the entries that its ids name");
        Self { entries, index: PhantomData }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| Some((I::from_index(index)?, entry)))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, T, N> {
        (0..N).filter_map(I::from_index)
    }

    pub(crate) fn find(&self, predicate: impl Fn(&T) -> bool) -> Option<I> {
        self.entries.iter().position(predicate).and_then(I::from_index)
    }
}

impl<I: Id, T, const N: usize> Index<I> for Arena<I, T, N> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.entries[id.index()]
    }
}

impl<I: Id, T, const N: usize> IndexMut<I> for Arena<I, T, N> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.entries[id.index()]
    }
}
