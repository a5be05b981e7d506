//! `/proc/net/snmp`, `snmp6`, `netstat` and `protocols`: what is counted of each protocol, under Linux 6.1's names in
//! its order. What is not counted here is 0.

use exos::net::inet::{Family, Inet, Protocol};
use exos::net::view::NetworkView;

use super::text::{Text, put};

const IP: &str = "\
    Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards \
    InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails \
    FragCreates";
const ICMP: &str = "\
    InMsgs InErrors InCsumErrors InDestUnreachs InTimeExcds InParmProbs InSrcQuenchs InRedirects InEchos \
    InEchoReps InTimestamps InTimestampReps InAddrMasks InAddrMaskReps OutMsgs OutErrors OutDestUnreachs \
    OutTimeExcds OutParmProbs OutSrcQuenchs OutRedirects OutEchos OutEchoReps OutTimestamps OutTimestampReps \
    OutAddrMasks OutAddrMaskReps";
const TCP: &str = "\
    RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs \
    OutSegs RetransSegs InErrs OutRsts InCsumErrors";
const UDP: &str = "\
    InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors";
const TCP_MORE: &str = "\
    SyncookiesSent SyncookiesRecv SyncookiesFailed EmbryonicRsts PruneCalled RcvPruned OfoPruned \
    OutOfWindowIcmps LockDroppedIcmps ArpFilter TW TWRecycled TWKilled PAWSActive PAWSEstab DelayedACKs \
    DelayedACKLocked DelayedACKLost ListenOverflows ListenDrops TCPHPHits TCPPureAcks TCPHPAcks TCPRenoRecovery \
    TCPSackRecovery TCPSACKReneging TCPSACKReorder TCPRenoReorder TCPTSReorder TCPFullUndo TCPPartialUndo \
    TCPDSACKUndo TCPLossUndo TCPLostRetransmit TCPRenoFailures TCPSackFailures TCPLossFailures TCPFastRetrans \
    TCPSlowStartRetrans TCPTimeouts TCPLossProbes TCPLossProbeRecovery TCPRenoRecoveryFail TCPSackRecoveryFail \
    TCPRcvCollapsed TCPBacklogCoalesce TCPDSACKOldSent TCPDSACKOfoSent TCPDSACKRecv TCPDSACKOfoRecv \
    TCPAbortOnData TCPAbortOnClose TCPAbortOnMemory TCPAbortOnTimeout TCPAbortOnLinger TCPAbortFailed \
    TCPMemoryPressures TCPMemoryPressuresChrono TCPSACKDiscard TCPDSACKIgnoredOld TCPDSACKIgnoredNoUndo \
    TCPSpuriousRTOs TCPMD5NotFound TCPMD5Unexpected TCPMD5Failure TCPSackShifted TCPSackMerged \
    TCPSackShiftFallback TCPBacklogDrop PFMemallocDrop TCPMinTTLDrop TCPDeferAcceptDrop IPReversePathFilter \
    TCPTimeWaitOverflow TCPReqQFullDoCookies TCPReqQFullDrop TCPRetransFail TCPRcvCoalesce TCPOFOQueue \
    TCPOFODrop TCPOFOMerge TCPChallengeACK TCPSYNChallenge TCPFastOpenActive TCPFastOpenActiveFail \
    TCPFastOpenPassive TCPFastOpenPassiveFail TCPFastOpenListenOverflow TCPFastOpenCookieReqd \
    TCPFastOpenBlackhole TCPSpuriousRtxHostQueues BusyPollRxPackets TCPAutoCorking TCPFromZeroWindowAdv \
    TCPToZeroWindowAdv TCPWantZeroWindowAdv TCPSynRetrans TCPOrigDataSent TCPHystartTrainDetect \
    TCPHystartTrainCwnd TCPHystartDelayDetect TCPHystartDelayCwnd TCPACKSkippedSynRecv TCPACKSkippedPAWS \
    TCPACKSkippedSeq TCPACKSkippedFinWait2 TCPACKSkippedTimeWait TCPACKSkippedChallenge TCPWinProbe TCPKeepAlive \
    TCPMTUPFail TCPMTUPSuccess TCPDelivered TCPDeliveredCE TCPAckCompressed TCPZeroWindowDrop TCPRcvQDrop \
    TCPWqueueTooBig TCPFastOpenPassiveAltKey TcpTimeoutRehash TcpDuplicateDataRehash TCPDSACKRecvSegs \
    TCPDSACKIgnoredDubious TCPMigrateReqSuccess TCPMigrateReqFailure";
const IP_MORE: &str = "\
    InNoRoutes InTruncatedPkts InMcastPkts OutMcastPkts InBcastPkts OutBcastPkts InOctets OutOctets \
    InMcastOctets OutMcastOctets InBcastOctets OutBcastOctets InCsumErrors InNoECTPkts InECT1Pkts InECT0Pkts \
    InCEPkts ReasmOverlaps";
const SIMPLE_6: &str = "\
    Ip6InReceives Ip6InHdrErrors Ip6InTooBigErrors Ip6InNoRoutes Ip6InAddrErrors Ip6InUnknownProtos \
    Ip6InTruncatedPkts Ip6InDiscards Ip6InDelivers Ip6OutForwDatagrams Ip6OutRequests Ip6OutDiscards \
    Ip6OutNoRoutes Ip6ReasmTimeout Ip6ReasmReqds Ip6ReasmOKs Ip6ReasmFails Ip6FragOKs Ip6FragFails \
    Ip6FragCreates Ip6InMcastPkts Ip6OutMcastPkts Ip6InOctets Ip6OutOctets Ip6InMcastOctets Ip6OutMcastOctets \
    Ip6InBcastOctets Ip6OutBcastOctets Ip6InNoECTPkts Ip6InECT1Pkts Ip6InECT0Pkts Ip6InCEPkts Icmp6InMsgs \
    Icmp6InErrors Icmp6OutMsgs Icmp6OutErrors Icmp6InCsumErrors Icmp6InDestUnreachs Icmp6InPktTooBigs \
    Icmp6InTimeExcds Icmp6InParmProblems Icmp6InEchos Icmp6InEchoReplies Icmp6InGroupMembQueries \
    Icmp6InGroupMembResponses Icmp6InGroupMembReductions Icmp6InRouterSolicits Icmp6InRouterAdvertisements \
    Icmp6InNeighborSolicits Icmp6InNeighborAdvertisements Icmp6InRedirects Icmp6InMLDv2Reports \
    Icmp6OutDestUnreachs Icmp6OutPktTooBigs Icmp6OutTimeExcds Icmp6OutParmProblems Icmp6OutEchos \
    Icmp6OutEchoReplies Icmp6OutGroupMembQueries Icmp6OutGroupMembResponses Icmp6OutGroupMembReductions \
    Icmp6OutRouterSolicits Icmp6OutRouterAdvertisements Icmp6OutNeighborSolicits Icmp6OutNeighborAdvertisements \
    Icmp6OutRedirects Icmp6OutMLDv2Reports Udp6InDatagrams Udp6NoPorts Udp6InErrors Udp6OutDatagrams \
    Udp6RcvbufErrors Udp6SndbufErrors Udp6InCsumErrors Udp6IgnoredMulti Udp6MemErrors UdpLite6InDatagrams \
    UdpLite6NoPorts UdpLite6InErrors UdpLite6OutDatagrams UdpLite6RcvbufErrors UdpLite6SndbufErrors \
    UdpLite6InCsumErrors UdpLite6MemErrors";

/// A value that is no counter.
type Fact = (&'static str, i64);

/// Looks counters up by Linux's names.
struct Counted<'a>(&'a Inet);

impl Counted<'_> {
    /// The value of a counter; 0: there is none of that name.
    fn value(&self, protocol: &str, name: &str, facts: &[Fact]) -> i64 {
        if let Some(fact) = facts.iter().find(|fact| fact.0 == name) {
            return fact.1;
        }
        let mut found = 0;
        self.0.stack().counters().for_each(|counter, value| {
            if counter.strip_prefix(protocol) == Some(name) {
                found = value;
            }
        });
        found.cast_signed()
    }

    /// A protocol's line of names and line of values.
    fn lines(&self, protocol: &str, names: &str, facts: &[Fact], out: &mut Text<'_>) {
        put!(out, "{protocol}: {names}\n{protocol}:");
        names.split(' ').for_each(|name| put!(out, " {}", self.value(protocol, name, facts)));
        out.raw(b"\n");
    }
}

/// `net/snmp`.
pub(super) fn simple(inet: &Inet, out: &mut Text<'_>) {
    let counted = Counted(inet);
    let (open, _) = inet.connection_counts();
    counted.lines("Ip", IP, &[("Forwarding", 2), ("DefaultTTL", 64)], out);
    counted.lines("Icmp", ICMP, &[], out);
    let times = [("RtoAlgorithm", 1), ("RtoMin", 200), ("RtoMax", 120_000), ("MaxConn", -1)];
    counted.lines("Tcp", TCP, &[&times[..], &[("CurrEstab", open as i64)]].concat(), out);
    counted.lines("Udp", UDP, &[], out);
    counted.lines("UdpLite", UDP, &[], out);
}

/// `net/snmp6`.
pub(super) fn simple_v6(inet: &Inet, out: &mut Text<'_>) {
    for name in SIMPLE_6.split(' ') {
        put!(out, "{name:<32}\t{}\n", Counted(inet).value("", name, &[]));
    }
}

/// `net/netstat`.
pub(super) fn more(inet: &Inet, view: &NetworkView, out: &mut Text<'_>) {
    let sum = |of: fn(&exos::net::inet::interface::Traffic) -> u64| {
        view.interfaces.iter().map(|interface| of(&interface.traffic)).fold(0, u64::saturating_add).cast_signed()
    };
    let octets = [("InOctets", sum(|of| of.received_bytes)), ("OutOctets", sum(|of| of.sent_bytes))];
    Counted(inet).lines("TcpExt", TCP_MORE, &[], out);
    Counted(inet).lines("IpExt", IP_MORE, &octets, out);
}

/// What a protocol's sockets are asked to do, in the columns of `net/protocols`.
const OF_TCP: &str = "y  y  y  y  y  y  y  y  y  y  y  y  n  y  y  y  y  y";
const OF_UDP: &str = "y  y  y  n  y  y  y  n  y  y  y  y  n  n  y  y  y  n";
const OF_UNIX: &str = "y  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n";
const OF_NETLINK: &str = "n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n";

/// `net/protocols`, with how many local and how many netlink sockets there are.
pub(super) fn protocols(inet: &Inet, [unix, netlink]: [usize; 2], out: &mut Text<'_>) {
    let count = |protocol, family: Family| {
        let mut count = 0;
        inet.for_each_socket(protocol, |socket| count += usize::from(socket.family() == family));
        count
    };
    out.raw(b"protocol  size sockets  memory press maxhdr  slab module     ");
    out.raw(b"cl co di ac io in de sh ss gs se re bi br ha uh gp em\n");
    let mut line = |name: &str, bytes: u32, count: usize, memory: i32, rest: [&str; 3], calls: &str| {
        put!(out, "{name:<9} {bytes:4} {count:6}  {memory:6}   {:<3} {:>6}   {:<3}  ", rest[0], rest[1], rest[2]);
        put!(out, "{:<10}  {calls}\n", "kernel");
    };
    line("UDPv6", 1344, count(Protocol::Udp, Family::V6), 0, ["NI", "0", "yes"], OF_UDP);
    line("TCPv6", 2408, count(Protocol::Tcp, Family::V6), 0, ["no", "320", "yes"], OF_TCP);
    line("UNIX", 1088, unix, -1, ["NI", "0", "yes"], OF_UNIX);
    line("UDP", 1152, count(Protocol::Udp, Family::V4), 0, ["NI", "0", "yes"], OF_UDP);
    line("TCP", 2248, count(Protocol::Tcp, Family::V4), 0, ["no", "320", "yes"], OF_TCP);
    line("NETLINK", 1080, netlink, -1, ["NI", "0", "no"], OF_NETLINK);
}
