//! What `TCP_INFO` tells of a connection.
//!
//! Over loopback nothing is ever lost, late or sent twice, and a segment takes no time: what is counted there is bytes.
//! To other machines it is what the engine reports; a field that an engine does not know stays as Linux has it of a
//! connection on which nothing happened.

use super::engine::Report;

/// What Linux shows of a slow start that never ended (`TCP_INFINITE_SSTHRESH`).
const SLOW_START_MAX: u32 = 0x7fff_ffff;
/// Segments that a connection begins with (`TCP_INIT_CWND`).
const WINDOW_SEGMENTS: u32 = 10;
/// Shortest wait for an acknowledgement (`TCP_RTO_MIN`).
const TIMEOUT_US: u32 = 200_000;
/// `tcpi_min_rtt` before there is one.
const ROUND_TRIP_NONE_US: u32 = u32::MAX;
/// How far windows are shifted where nothing says otherwise: this end's and the other's.
const WINDOW_SHIFTS: (u8, u8) = (7, 7);

/// What `TCP_INFO` tells of a connection, in the order of `struct tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// Both ends tell times.
    pub has_times: bool,
    /// Both understand selective acknowledgements.
    pub has_sack: bool,
    /// How far the other end's windows are shifted, and this one's.
    pub window_shifts: Option<(u8, u8)>,
    /// Microseconds until something is sent again.
    pub retransmit_timeout_us: u32,
    /// Longest payload of a segment that is sent, and of one that came; `None`: as the way has it.
    pub segment_bytes: Option<(u32, u32)>,
    /// Times that the timeout was doubled.
    pub backoff_count: u32,
    /// Segments that are under way; of these, those that are there behind a gap, lost, and sent again.
    pub segments: [u32; 4],
    /// Milliseconds since bytes were sent.
    pub sent_ago_ms: u32,
    /// Smoothed round trip, and how much it varies.
    pub round_trip_us: (u32, u32),
    /// Where slow start ends.
    pub slow_start_segments: u32,
    /// Segments that may be under way.
    pub congestion_window_segments: u32,
    /// Segments that were sent again.
    pub retransmit_count: u32,
    /// Bytes that the other side has room for and got.
    pub acknowledged_bytes: u64,
    /// Bytes that came in.
    pub received_bytes: u64,
    /// Segments that were sent, and that came in.
    pub segment_counts: (u32, u32),
    /// Bytes that were given and not sent yet: over loopback, those that do not fit into the other side's window.
    pub unsent_bytes: u32,
    /// The shortest round trip.
    pub round_trip_min_us: u32,
    /// Bytes that were sent, those again apart.
    pub sent_bytes: u64,
    /// Bytes that may be sent, and that may come.
    pub window_bytes: (u32, u32),
}

impl Default for Information {
    fn default() -> Self {
        Self {
            has_times: true,
            has_sack: true,
            window_shifts: Some(WINDOW_SHIFTS),
            retransmit_timeout_us: TIMEOUT_US,
            segment_bytes: None,
            backoff_count: 0,
            segments: [0; 4],
            sent_ago_ms: 0,
            round_trip_us: (0, 0),
            slow_start_segments: SLOW_START_MAX,
            congestion_window_segments: WINDOW_SEGMENTS,
            retransmit_count: 0,
            acknowledged_bytes: 0,
            received_bytes: 0,
            segment_counts: (0, 0),
            unsent_bytes: 0,
            round_trip_min_us: ROUND_TRIP_NONE_US,
            sent_bytes: 0,
            window_bytes: (0, 0),
        }
    }
}

impl Information {
    /// What an engine reports.
    pub(super) fn of(report: &Report, now_ns: u64) -> Self {
        const MILLISECOND_NS: u64 = 1_000_000;
        let under_way_bytes = report.unacknowledged_bytes.saturating_sub(report.unsent_bytes);
        let or = |value: u32, none: u32| if value == 0 { none } else { value };
        Self {
            has_times: report.has_times,
            has_sack: report.has_sack,
            window_shifts: report.window_shifts,
            backoff_count: report.backoff_count,
            retransmit_timeout_us: report.retransmit_timeout_us,
            segment_bytes: Some((report.send_segment_bytes, report.receive_segment_bytes)),
            segments: [report.under_way_count, report.sacked_count, report.lost_count, report.resent_count],
            sent_ago_ms: (now_ns.saturating_sub(report.last_sent_ns) / MILLISECOND_NS) as u32,
            round_trip_us: (report.round_trip_us, report.round_trip_variance_us),
            slow_start_segments: or(report.slow_start_threshold_count, SLOW_START_MAX),
            congestion_window_segments: or(report.congestion_window_count, WINDOW_SEGMENTS),
            retransmit_count: report.retransmit_count,
            acknowledged_bytes: report.acknowledged_bytes,
            received_bytes: report.received_bytes,
            segment_counts: (report.sent_segment_count, report.received_segment_count),
            unsent_bytes: report.unsent_bytes,
            round_trip_min_us: or(report.round_trip_min_us, ROUND_TRIP_NONE_US),
            sent_bytes: report.acknowledged_bytes + u64::from(under_way_bytes),
            window_bytes: (report.send_window_bytes, report.receive_window_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Information, ROUND_TRIP_NONE_US, Report, SLOW_START_MAX};

    #[test]
    fn what_is_not_known_is_told_as_linux_does() {
        let told = Information::of(&Report::default(), 5_000_000);
        assert_eq!((told.slow_start_segments, told.round_trip_min_us), (SLOW_START_MAX, ROUND_TRIP_NONE_US));
        let report =
            Report { unacknowledged_bytes: 5000, unsent_bytes: 1000, acknowledged_bytes: 70, ..Report::default() };
        assert_eq!(Information::of(&report, 0).sent_bytes, 4070, "what was never sent is not counted");
    }
}
