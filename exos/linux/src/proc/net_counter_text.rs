//! `/proc/net/snmp`, `snmp6`, `netstat` and `protocols`: what is counted of each protocol, under Linux 6.1's names in its
//! order. What is not counted here is 0.

use exos::net::inet::{Inet, Protocol};
use exos::net::view::NetworkView;

use super::text::{Text, put};

const IP: &[&str] = &[
    "Forwarding",
    "DefaultTTL",
    "InReceives",
    "InHdrErrors",
    "InAddrErrors",
    "ForwDatagrams",
    "InUnknownProtos",
    "InDiscards",
    "InDelivers",
    "OutRequests",
    "OutDiscards",
    "OutNoRoutes",
    "ReasmTimeout",
    "ReasmReqds",
    "ReasmOKs",
    "ReasmFails",
    "FragOKs",
    "FragFails",
    "FragCreates",
];
const ICMP: &[&str] = &[
    "InMsgs",
    "InErrors",
    "InCsumErrors",
    "InDestUnreachs",
    "InTimeExcds",
    "InParmProbs",
    "InSrcQuenchs",
    "InRedirects",
    "InEchos",
    "InEchoReps",
    "InTimestamps",
    "InTimestampReps",
    "InAddrMasks",
    "InAddrMaskReps",
    "OutMsgs",
    "OutErrors",
    "OutDestUnreachs",
    "OutTimeExcds",
    "OutParmProbs",
    "OutSrcQuenchs",
    "OutRedirects",
    "OutEchos",
    "OutEchoReps",
    "OutTimestamps",
    "OutTimestampReps",
    "OutAddrMasks",
    "OutAddrMaskReps",
];
const TCP: &[&str] = &[
    "RtoAlgorithm",
    "RtoMin",
    "RtoMax",
    "MaxConn",
    "ActiveOpens",
    "PassiveOpens",
    "AttemptFails",
    "EstabResets",
    "CurrEstab",
    "InSegs",
    "OutSegs",
    "RetransSegs",
    "InErrs",
    "OutRsts",
    "InCsumErrors",
];
const UDP: &[&str] = &[
    "InDatagrams",
    "NoPorts",
    "InErrors",
    "OutDatagrams",
    "RcvbufErrors",
    "SndbufErrors",
    "InCsumErrors",
    "IgnoredMulti",
    "MemErrors",
];
const TCP_MORE: &[&str] = &[
    "SyncookiesSent",
    "SyncookiesRecv",
    "SyncookiesFailed",
    "EmbryonicRsts",
    "PruneCalled",
    "RcvPruned",
    "OfoPruned",
    "OutOfWindowIcmps",
    "LockDroppedIcmps",
    "ArpFilter",
    "TW",
    "TWRecycled",
    "TWKilled",
    "PAWSActive",
    "PAWSEstab",
    "DelayedACKs",
    "DelayedACKLocked",
    "DelayedACKLost",
    "ListenOverflows",
    "ListenDrops",
    "TCPHPHits",
    "TCPPureAcks",
    "TCPHPAcks",
    "TCPRenoRecovery",
    "TCPSackRecovery",
    "TCPSACKReneging",
    "TCPSACKReorder",
    "TCPRenoReorder",
    "TCPTSReorder",
    "TCPFullUndo",
    "TCPPartialUndo",
    "TCPDSACKUndo",
    "TCPLossUndo",
    "TCPLostRetransmit",
    "TCPRenoFailures",
    "TCPSackFailures",
    "TCPLossFailures",
    "TCPFastRetrans",
    "TCPSlowStartRetrans",
    "TCPTimeouts",
    "TCPLossProbes",
    "TCPLossProbeRecovery",
    "TCPRenoRecoveryFail",
    "TCPSackRecoveryFail",
    "TCPRcvCollapsed",
    "TCPBacklogCoalesce",
    "TCPDSACKOldSent",
    "TCPDSACKOfoSent",
    "TCPDSACKRecv",
    "TCPDSACKOfoRecv",
    "TCPAbortOnData",
    "TCPAbortOnClose",
    "TCPAbortOnMemory",
    "TCPAbortOnTimeout",
    "TCPAbortOnLinger",
    "TCPAbortFailed",
    "TCPMemoryPressures",
    "TCPMemoryPressuresChrono",
    "TCPSACKDiscard",
    "TCPDSACKIgnoredOld",
    "TCPDSACKIgnoredNoUndo",
    "TCPSpuriousRTOs",
    "TCPMD5NotFound",
    "TCPMD5Unexpected",
    "TCPMD5Failure",
    "TCPSackShifted",
    "TCPSackMerged",
    "TCPSackShiftFallback",
    "TCPBacklogDrop",
    "PFMemallocDrop",
    "TCPMinTTLDrop",
    "TCPDeferAcceptDrop",
    "IPReversePathFilter",
    "TCPTimeWaitOverflow",
    "TCPReqQFullDoCookies",
    "TCPReqQFullDrop",
    "TCPRetransFail",
    "TCPRcvCoalesce",
    "TCPOFOQueue",
    "TCPOFODrop",
    "TCPOFOMerge",
    "TCPChallengeACK",
    "TCPSYNChallenge",
    "TCPFastOpenActive",
    "TCPFastOpenActiveFail",
    "TCPFastOpenPassive",
    "TCPFastOpenPassiveFail",
    "TCPFastOpenListenOverflow",
    "TCPFastOpenCookieReqd",
    "TCPFastOpenBlackhole",
    "TCPSpuriousRtxHostQueues",
    "BusyPollRxPackets",
    "TCPAutoCorking",
    "TCPFromZeroWindowAdv",
    "TCPToZeroWindowAdv",
    "TCPWantZeroWindowAdv",
    "TCPSynRetrans",
    "TCPOrigDataSent",
    "TCPHystartTrainDetect",
    "TCPHystartTrainCwnd",
    "TCPHystartDelayDetect",
    "TCPHystartDelayCwnd",
    "TCPACKSkippedSynRecv",
    "TCPACKSkippedPAWS",
    "TCPACKSkippedSeq",
    "TCPACKSkippedFinWait2",
    "TCPACKSkippedTimeWait",
    "TCPACKSkippedChallenge",
    "TCPWinProbe",
    "TCPKeepAlive",
    "TCPMTUPFail",
    "TCPMTUPSuccess",
    "TCPDelivered",
    "TCPDeliveredCE",
    "TCPAckCompressed",
    "TCPZeroWindowDrop",
    "TCPRcvQDrop",
    "TCPWqueueTooBig",
    "TCPFastOpenPassiveAltKey",
    "TcpTimeoutRehash",
    "TcpDuplicateDataRehash",
    "TCPDSACKRecvSegs",
    "TCPDSACKIgnoredDubious",
    "TCPMigrateReqSuccess",
    "TCPMigrateReqFailure",
];
const IP_MORE: &[&str] = &[
    "InNoRoutes",
    "InTruncatedPkts",
    "InMcastPkts",
    "OutMcastPkts",
    "InBcastPkts",
    "OutBcastPkts",
    "InOctets",
    "OutOctets",
    "InMcastOctets",
    "OutMcastOctets",
    "InBcastOctets",
    "OutBcastOctets",
    "InCsumErrors",
    "InNoECTPkts",
    "InECT1Pkts",
    "InECT0Pkts",
    "InCEPkts",
    "ReasmOverlaps",
];
const SIMPLE_6: &[&str] = &[
    "Ip6InReceives",
    "Ip6InHdrErrors",
    "Ip6InTooBigErrors",
    "Ip6InNoRoutes",
    "Ip6InAddrErrors",
    "Ip6InUnknownProtos",
    "Ip6InTruncatedPkts",
    "Ip6InDiscards",
    "Ip6InDelivers",
    "Ip6OutForwDatagrams",
    "Ip6OutRequests",
    "Ip6OutDiscards",
    "Ip6OutNoRoutes",
    "Ip6ReasmTimeout",
    "Ip6ReasmReqds",
    "Ip6ReasmOKs",
    "Ip6ReasmFails",
    "Ip6FragOKs",
    "Ip6FragFails",
    "Ip6FragCreates",
    "Ip6InMcastPkts",
    "Ip6OutMcastPkts",
    "Ip6InOctets",
    "Ip6OutOctets",
    "Ip6InMcastOctets",
    "Ip6OutMcastOctets",
    "Ip6InBcastOctets",
    "Ip6OutBcastOctets",
    "Ip6InNoECTPkts",
    "Ip6InECT1Pkts",
    "Ip6InECT0Pkts",
    "Ip6InCEPkts",
    "Icmp6InMsgs",
    "Icmp6InErrors",
    "Icmp6OutMsgs",
    "Icmp6OutErrors",
    "Icmp6InCsumErrors",
    "Icmp6InDestUnreachs",
    "Icmp6InPktTooBigs",
    "Icmp6InTimeExcds",
    "Icmp6InParmProblems",
    "Icmp6InEchos",
    "Icmp6InEchoReplies",
    "Icmp6InGroupMembQueries",
    "Icmp6InGroupMembResponses",
    "Icmp6InGroupMembReductions",
    "Icmp6InRouterSolicits",
    "Icmp6InRouterAdvertisements",
    "Icmp6InNeighborSolicits",
    "Icmp6InNeighborAdvertisements",
    "Icmp6InRedirects",
    "Icmp6InMLDv2Reports",
    "Icmp6OutDestUnreachs",
    "Icmp6OutPktTooBigs",
    "Icmp6OutTimeExcds",
    "Icmp6OutParmProblems",
    "Icmp6OutEchos",
    "Icmp6OutEchoReplies",
    "Icmp6OutGroupMembQueries",
    "Icmp6OutGroupMembResponses",
    "Icmp6OutGroupMembReductions",
    "Icmp6OutRouterSolicits",
    "Icmp6OutRouterAdvertisements",
    "Icmp6OutNeighborSolicits",
    "Icmp6OutNeighborAdvertisements",
    "Icmp6OutRedirects",
    "Icmp6OutMLDv2Reports",
    "Udp6InDatagrams",
    "Udp6NoPorts",
    "Udp6InErrors",
    "Udp6OutDatagrams",
    "Udp6RcvbufErrors",
    "Udp6SndbufErrors",
    "Udp6InCsumErrors",
    "Udp6IgnoredMulti",
    "Udp6MemErrors",
    "UdpLite6InDatagrams",
    "UdpLite6NoPorts",
    "UdpLite6InErrors",
    "UdpLite6OutDatagrams",
    "UdpLite6RcvbufErrors",
    "UdpLite6SndbufErrors",
    "UdpLite6InCsumErrors",
    "UdpLite6MemErrors",
];

/// A protocol's line of names and line of values; those that are not 0 are in `values`.
fn lines(protocol: &str, names: &[&str], values: &[(&str, i64)], out: &mut Text<'_>) {
    put!(out, "{protocol}:");
    names.iter().for_each(|name| put!(out, " {name}"));
    put!(out, "\n{protocol}:");
    names.iter().for_each(|name| put!(out, " {}", value_of(name, values)));
    out.raw(b"\n");
}

fn value_of(name: &str, values: &[(&str, i64)]) -> i64 {
    values.iter().find(|value| value.0 == name).map_or(0, |value| value.1)
}

/// Packets in and out, over all cards.
fn packets(view: &NetworkView) -> [i64; 4] {
    view.interfaces.iter().fold([0; 4], |sum, interface| {
        let of = &interface.traffic;
        let more = [of.received_packets, of.sent_packets, of.received_bytes, of.sent_bytes];
        core::array::from_fn(|place| sum[place].saturating_add_unsigned(more[place]))
    })
}

/// `net/snmp`.
pub(super) fn simple(inet: &Inet, view: &NetworkView, out: &mut Text<'_>) {
    let [received, sent, ..] = packets(view);
    let (open, _) = inet.connection_counts();
    let ip = [
        ("Forwarding", 2),
        ("DefaultTTL", 64),
        ("InReceives", received),
        ("InDelivers", received),
        ("OutRequests", sent),
    ];
    lines("Ip", IP, &ip, out);
    lines("Icmp", ICMP, &[], out);
    let tcp = [("RtoAlgorithm", 1), ("RtoMin", 200), ("RtoMax", 120_000), ("MaxConn", -1), ("CurrEstab", open as i64)];
    lines("Tcp", TCP, &tcp, out);
    lines("Udp", UDP, &[], out);
    lines("UdpLite", UDP, &[], out);
}

/// `net/snmp6`.
pub(super) fn simple_v6(out: &mut Text<'_>) {
    for name in SIMPLE_6 {
        put!(out, "{name:<32}\t0\n");
    }
}

/// `net/netstat`.
pub(super) fn more(view: &NetworkView, out: &mut Text<'_>) {
    let [received, _, received_bytes, sent_bytes] = packets(view);
    lines("TcpExt", TCP_MORE, &[], out);
    let ip = [("InOctets", received_bytes), ("OutOctets", sent_bytes), ("InNoECTPkts", received)];
    lines("IpExt", IP_MORE, &ip, out);
}

/// `net/protocols`: those of which there are sockets.
pub(super) fn protocols(inet: &Inet, unix_count: usize, out: &mut Text<'_>) {
    let count = |protocol, is_v6: bool| {
        let mut count = 0;
        inet.for_each_socket(protocol, |socket| {
            count += usize::from((socket.family() == exos::net::inet::Family::V6) == is_v6)
        });
        count
    };
    out.raw(b"protocol  size sockets  memory press maxhdr  slab module     cl co di ac io in de sh ss gs se re bi br ha uh gp em\n");
    let rows = [
        (
            "UDPv6",
            1344,
            count(Protocol::Udp, true),
            0,
            "NI",
            0,
            "yes",
            "y  y  y  n  y  y  y  n  y  y  y  y  n  n  y  y  y  n",
        ),
        (
            "TCPv6",
            2408,
            count(Protocol::Tcp, true),
            0,
            "no",
            320,
            "yes",
            "y  y  y  y  y  y  y  y  y  y  y  y  n  y  y  y  y  y",
        ),
        ("UNIX", 1088, unix_count, -1, "NI", 0, "yes", "y  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n"),
        (
            "UDP",
            1152,
            count(Protocol::Udp, false),
            0,
            "NI",
            0,
            "yes",
            "y  y  y  n  y  y  y  n  y  y  y  y  n  n  y  y  y  n",
        ),
        (
            "TCP",
            2248,
            count(Protocol::Tcp, false),
            0,
            "no",
            320,
            "yes",
            "y  y  y  y  y  y  y  y  y  y  y  y  n  y  y  y  y  y",
        ),
        ("NETLINK", 1080, 0, -1, "NI", 0, "no", "n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n"),
    ];
    for (name, bytes, count, memory, pressure, header, slab, calls) in rows {
        put!(
            out,
            "{name:<9} {bytes:4} {count:6}  {memory:6}   {pressure:<3} {header:6}   {slab:<3}  {:<10}  {calls}\n",
            "kernel"
        );
    }
}
