//! How much memory a machine gets: what its programs may have, what describes it, and what the system takes.
//!
//! Pure.

use aegis_link::memory::described_mib as described_mib_of;
use aegis_link::pods::POOL_PAGE_COUNT;

/// Memory of the machine that is neither the program's nor the bundle's: the kernel, its tables, exos.
const OVERHEAD_MIB: u64 = 16;
/// The part of it that is exos's.
const POD_OVERHEAD_MIB: u64 = 14;
/// What the kernel and the manager take besides, and what the manager takes for each pod.
const SEVERAL_OVERHEAD_MIB: u64 = 8;
const SEVERAL_OVERHEAD_EACH_MIB: u64 = 2;
/// What the manager takes for a network card that it guards.
const SEVERAL_OVERHEAD_CARD_MIB: u64 = 1;

/// What the domain that drives a pool takes.
const POOL_OVERHEAD_MIB: u64 = 8;
/// Frames in a mebibyte.
const FRAMES_PER_MIB: u64 = 256;

/// A program's memory with what describes it.
fn described_mib(program_bytes: u64) -> u64 {
    described_mib_of(program_bytes.div_ceil(1 << 20))
}

/// The memory of a machine with one program: what the user asked for, the bundle, and what the system itself needs.
pub(crate) fn memory_mib(program_bytes: u64, bundle_bytes: u64) -> u64 {
    described_mib(program_bytes) + bundle_bytes.div_ceil(1 << 20) + OVERHEAD_MIB
}

/// What a pod may own, in frames: its programs' memory, what its exos needs, and its sessions with the pool.
pub(crate) fn pod_quota_frames(program_bytes: u64, extent_count: usize) -> u64 {
    (described_mib(program_bytes) + POD_OVERHEAD_MIB) * FRAMES_PER_MIB + extent_count as u64 * POOL_PAGE_COUNT
}

/// The memory of a machine with several pods that may own so many frames, some of which have a network card, and
/// perhaps with a pool.
pub(crate) fn memory_of_pods_mib(quotas: &[u64], card_count: usize, has_pool: bool, bundle_bytes: u64) -> u64 {
    let pods_mib: u64 = quotas.iter().map(|quota| quota.div_ceil(FRAMES_PER_MIB) + SEVERAL_OVERHEAD_EACH_MIB).sum();
    let pods_mib = pods_mib + card_count as u64 * SEVERAL_OVERHEAD_CARD_MIB;
    let pods_mib = pods_mib + if has_pool { POOL_OVERHEAD_MIB } else { 0 };
    let used_mib = pods_mib + bundle_bytes.div_ceil(1 << 20) + SEVERAL_OVERHEAD_MIB;
    // The kernel's table of frames is a part of all memory.
    used_mib + used_mib.div_ceil(128)
}

#[cfg(test)]
mod tests {
    use super::{memory_mib, memory_of_pods_mib, pod_quota_frames};

    #[test]
    fn the_bundle_comes_on_top_of_the_programs_memory() {
        assert_eq!(memory_mib(256 << 20, 0), 280);
        assert_eq!(memory_mib(256 << 20, 1), 281);
        assert_eq!(memory_mib((16 << 20) + 1, 40 << 20), 74);
    }

    #[test]
    fn a_machine_holds_its_pods() {
        let quotas = [pod_quota_frames(64 << 20, 0), pod_quota_frames(256 << 20, 0)];
        assert_eq!(quotas, [80 * 256, 278 * 256]);
        assert_eq!(memory_of_pods_mib(&quotas, 0, false, 3 << 20), 80 + 278 + 4 + 3 + 8 + 3);
        assert_eq!(memory_of_pods_mib(&quotas, 2, false, 3 << 20), 80 + 278 + 4 + 2 + 3 + 8 + 3);
        let quotas = [pod_quota_frames(64 << 20, 2), quotas[1]];
        assert_eq!(quotas[0], 80 * 256 + 2 * 592);
        assert_eq!(memory_of_pods_mib(&quotas, 0, true, 3 << 20), 85 + 278 + 4 + 8 + 3 + 8 + 4);
    }
}
