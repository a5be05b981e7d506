//! How a machine and its pods are: what the tool of a machine answers, as the command that asked reads and prints it.
//!
//! It travels as the JSON that `aegis ps --json` prints. Members that are not known are passed over and those of pods
//! that are missing have their defaults, so that another version of the tool can say more or less.

use aegis_link::control::GuestTraffic;
use aegis_link::orders::PodState;
use aegis_link::phase::PodPhase;
use serde::{Deserialize, Serialize};

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MachineReport {
    pub(crate) machine: String,
    pub(crate) pods: Vec<PodReport>,
    /// What pays for pods.
    pub(crate) currencies: Vec<CurrencyReport>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PodReport {
    #[serde(rename = "pod")]
    pub(crate) name: String,
    /// Where in its life it is; in JSON its name, or `silent` if the manager does not say.
    #[serde(with = "phase_name")]
    pub(crate) state: Option<PodPhase>,
    /// The status that it ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u8>,
    /// It is over, its library OS did not say how, and nobody took it apart.
    #[serde(rename = "crashed", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_crashed: bool,
    /// `starting`, `healthy` or `unhealthy`, of a pod that runs and is looked after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health: Option<String>,
    /// Times that it was started again.
    pub(crate) restarts: u32,
    /// The currency that its ticket is in.
    pub(crate) currency: String,
    /// What the manager says, if it does.
    #[serde(flatten)]
    pub(crate) usage: Option<Usage>,
    /// Ports of the host that lead to it: `127.0.0.1:8080 -> 80/tcp`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<String>,
    /// What went through its network card, where processes were asked for and it was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic: Option<TrafficReport>,
    /// Its processes, where they were asked for.
    pub(crate) processes: Vec<ProcessReport>,
    /// These are all: the pod has said so, or is over.
    #[serde(skip)]
    pub(crate) has_all_processes: bool,
}

impl PodReport {
    /// Whether it competes.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, Some(PodPhase::Running | PodPhase::Ending))
    }

    /// The word for its state.
    pub(crate) fn state_name(&self) -> &'static str {
        self.state.map_or(SILENT, PodPhase::name)
    }

    /// What the manager says, zeros if it says nothing.
    pub(crate) fn usage(&self) -> Usage {
        self.usage.clone().unwrap_or_default()
    }
}

/// The state of a pod of which the manager says nothing.
const SILENT: &str = "silent";

mod phase_name {
    use aegis_link::phase::PodPhase;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(phase: &Option<PodPhase>, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(phase.map_or(super::SILENT, PodPhase::name))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(input: D) -> Result<Option<PodPhase>, D::Error> {
        String::deserialize(input).map(|name| PodPhase::from_name(&name))
    }
}

/// What a pod has of the machine, and what it has used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Amount of its ticket.
    pub(crate) tickets: u64,
    /// Processor time in nanoseconds.
    pub(crate) time_ns: u64,
    /// The machine's clock in nanoseconds.
    pub(crate) now_ns: u64,
    /// Frames that it owns.
    pub(crate) frames: u64,
    /// Frames that it may own.
    pub(crate) frame_quota: u64,
    /// Frames that others cannot take from it.
    pub(crate) guaranteed: u64,
    /// Frames that it may own at most.
    pub(crate) limit: u64,
    pub(crate) kernel_calls: u64,
    /// System calls of programs that trapped.
    pub(crate) traps: u64,
    pub(crate) exceptions: u64,
    /// Interrupts, bells and slices.
    pub(crate) interrupts: u64,
    /// Slices begun.
    pub(crate) slices: u64,
}

impl Usage {
    /// Times that the kernel was entered.
    pub(crate) fn entries(&self) -> u64 {
        self.kernel_calls + self.traps + self.exceptions + self.interrupts
    }
}

impl From<PodState> for Usage {
    fn from(state: PodState) -> Self {
        Self {
            tickets: state.tickets,
            time_ns: state.time_used_ns,
            now_ns: state.now_ns,
            frames: state.frames_owned,
            frame_quota: state.frame_quota,
            guaranteed: state.frames_guaranteed,
            limit: state.frames_limit,
            kernel_calls: state.kernel_calls,
            traps: state.system_call_traps,
            exceptions: state.exceptions,
            interrupts: state.interrupts,
            slices: state.slices,
        }
    }
}

/// What went through a pod's network card since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TrafficReport {
    pub(crate) received_packets: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
    /// TCP segments that were sent again.
    pub(crate) repeated_segments: u64,
    /// Packets that were lost in the pod.
    pub(crate) drops: u64,
}

impl From<GuestTraffic> for TrafficReport {
    fn from(it: GuestTraffic) -> Self {
        Self {
            received_packets: it.received_packets,
            received_bytes: it.received_bytes,
            sent_packets: it.sent_packets,
            sent_bytes: it.sent_bytes,
            repeated_segments: it.repeated_segments,
            drops: it.drops,
        }
    }
}

/// A process of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessReport {
    pub(crate) pid: u64,
    pub(crate) ppid: u64,
    /// `R`, `S`, `T`, `Z`.
    pub(crate) state: char,
    /// Processor time in nanoseconds.
    pub(crate) time_ns: u64,
    /// Memory that is present.
    pub(crate) resident_bytes: u64,
    pub(crate) command: String,
}

/// Something that happened to a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EventReport {
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    pub(crate) machine: String,
    pub(crate) pod: String,
    /// `start`, `running`, `stop`, `exit`, `lost`, `healthy`, `unhealthy`.
    pub(crate) event: String,
    /// The status that it ended with, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u8>,
    /// Times that it was started again.
    pub(crate) restarts: u32,
}

/// A currency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CurrencyReport {
    pub(crate) name: String,
    /// Amount of its ticket.
    pub(crate) tickets: u64,
    /// The currency that this ticket is in.
    pub(crate) currency: String,
}

/// Reports as JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    // Neither does writing to memory fail, nor has a report maps whose keys are no strings.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{CurrencyReport, MachineReport, PodPhase, PodReport, ProcessReport, Usage, json};

    /// A pod that runs unless `usage` is none, with so many tickets of a currency.
    pub(crate) fn pod(name: &str, state: &str, currency: &str, tickets: u64) -> PodReport {
        let usage = Some(Usage { tickets, ..Usage::default() });
        PodReport {
            name: name.into(),
            state: PodPhase::from_name(state),
            currency: currency.into(),
            usage,
            ..PodReport::default()
        }
    }

    /// A machine with three pods, one of which has a process and one has ended.
    pub(crate) fn machine() -> MachineReport {
        let mut pods = [("web", "running", 3000), ("worker", "running", 1000), ("done", "ended", 1000)]
            .map(|(name, state, tickets)| pod(name, state, "base", tickets));
        let frames = Usage { frames: 512, frame_quota: 8192, guaranteed: 4096, limit: 16384, ..pods[0].usage() };
        pods[0].usage = Some(Usage { time_ns: 1_500_000_000, kernel_calls: 5, traps: 6, ..frames });
        pods[1].usage = Some(Usage { time_ns: 500_000_000, kernel_calls: 7, ..pods[1].usage() });
        pods[2].status = Some(3);
        pods[0].processes = vec![ProcessReport {
            pid: 1,
            ppid: 0,
            state: 'S',
            time_ns: 2_000_000,
            resident_bytes: 1_572_864,
            command: "sh -c a=\"b c\"".into(),
        }];
        MachineReport { machine: "shop".into(), pods: pods.into(), currencies: Vec::new() }
    }

    #[test]
    fn what_is_told_is_read() {
        let mut report = machine();
        report.pods[1].usage = None;
        report.currencies = vec![CurrencyReport { name: "7".into(), tickets: 1000, currency: "base".into() }];
        let text = json(&report);
        assert_eq!(serde_json::from_str::<MachineReport>(&text).expect("its own"), report, "{text}");
        assert!(text.starts_with("{\"machine\":\"shop\",\"pods\":[{\"pod\":\"web\","), "{text}");
        assert!(text.contains("\"tickets\":3000") && text.contains("\"command\":\"sh -c a=\\\"b c\\\"\""), "{text}");
        assert!(text.contains("\"status\":3") && text.matches("\"time_ns\"").count() == 3, "{text}");
        assert!(text.contains("\"currencies\":[{\"name\":\"7\",\"tickets\":1000,\"currency\":\"base\"}"), "{text}");
        let other = "{\"machine\":\"m\",\"new\":[1],\"pods\":[{\"pod\":\"a\",\"state\":\"starting\",\"x\":{}}]}";
        let read = serde_json::from_str::<MachineReport>(other).expect("of another version");
        assert_eq!((read.pods[0].name.as_str(), read.pods[0].usage.clone()), ("a", None));
        assert!(!read.pods[0].is_running());
    }
}
