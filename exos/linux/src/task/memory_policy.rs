//! Where a thread's memory is to come from. There is one node, so nothing follows from it.

/// A thread's policy: mode with its flags, and the nodes that `get_mempolicy` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// The mode with its flags.
    pub mode: u32,
    /// The nodes, one bit each.
    pub nodes: u64,
}
