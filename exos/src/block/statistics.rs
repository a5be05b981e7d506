//! What a disk has done, as `/proc/diskstats` counts it.

use super::disk::DiskOperation;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// Requests that have ended.
    pub request_count: u64,
    /// Sectors of those.
    pub sector_count: u64,
    /// Time that they were at the disk, each by itself.
    pub busy_ns: u64,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads.
    pub read: KindStatistics,
    /// Writes, and zeros written by the disk itself.
    pub write: KindStatistics,
    /// Discards.
    pub discard: KindStatistics,
    /// Flushes.
    pub flush: KindStatistics,
    /// Requests at the disk now.
    pub under_way_count: u64,
    /// Time in which there was one.
    pub busy_ns: u64,
    /// The same, each request by itself.
    pub weighted_ns: u64,
    /// Requests that ended in an error.
    pub error_count: u64,
    /// Times that the disk was reset because it did not answer.
    pub restart_count: u64,
    counted_ns: u64,
}

impl Statistics {
    /// Counts the time up to now.
    pub(super) fn count_time(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.counted_ns);
        self.counted_ns = now_ns;
        if self.under_way_count > 0 {
            self.busy_ns += passed_ns;
            self.weighted_ns = self.weighted_ns.saturating_add(passed_ns.saturating_mul(self.under_way_count));
        }
    }

    pub(super) fn begin(&mut self, now_ns: u64) {
        self.count_time(now_ns);
        self.under_way_count += 1;
    }

    /// One that was begun goes back to those that wait.
    pub(super) fn withdraw(&mut self) {
        self.under_way_count = self.under_way_count.saturating_sub(1);
    }

    pub(super) fn end(&mut self, operation: DiskOperation, sector_count: u32, begun_ns: u64, now_ns: u64) {
        self.count_time(now_ns);
        self.under_way_count = self.under_way_count.saturating_sub(1);
        let kind = match operation {
            DiskOperation::Read => &mut self.read,
            DiskOperation::Write | DiskOperation::WriteZeroes => &mut self.write,
            DiskOperation::Discard => &mut self.discard,
            DiskOperation::Flush => &mut self.flush,
        };
        kind.request_count += 1;
        kind.sector_count += u64::from(sector_count);
        kind.busy_ns += now_ns.saturating_sub(begun_ns);
    }
}
