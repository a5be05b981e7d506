//! What is counted, by the names that Linux gives it (`/proc/net/snmp`, `/proc/net/snmp6`, RFC 4293), and what is
//! Aegis's own.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $name,)*
        }

        const NAMES: &[&str] = &[$($text,)*];
    };
}

counters! {
    /// Frames that came in.
    ReceivedFrames = "EthReceivedFrames",
    /// Their bytes.
    ReceivedBytes = "EthReceivedBytes",
    /// Frames that were sent.
    SentFrames = "EthSentFrames",
    /// Their bytes.
    SentBytes = "EthSentBytes",
    /// Frames that are too short, or not for this card.
    BadFrames = "EthBadFrames",
    /// Frames of a protocol that is not spoken here.
    OtherFrames = "EthOtherFrames",
    /// Frames for a group or all.
    GroupFrames = "EthGroupFrames",
    /// Frames that the card had no room for.
    SendFull = "EthSendFull",
    /// ARP packets that are wrong.
    ArpBad = "ArpBad",
    /// Packets that were given up because their neighbour did not answer.
    NeighbourFailed = "NeighbourFailed",
    /// Packets that waited for a neighbour and had to make room.
    NeighbourDropped = "NeighbourDropped",
    /// IPv4 packets that came in.
    Ip4Received = "IpInReceives",
    /// With a broken header.
    Ip4HeaderErrors = "IpInHdrErrors",
    /// For another address, or from one that cannot be.
    Ip4AddressErrors = "IpInAddrErrors",
    /// Of a protocol that nothing takes.
    Ip4UnknownProtocols = "IpInUnknownProtos",
    /// Handed on.
    Ip4Delivered = "IpInDelivers",
    /// Sent.
    Ip4Sent = "IpOutRequests",
    /// That no way leads for.
    Ip4NoRoutes = "IpOutNoRoutes",
    /// Fragments that came in.
    Ip4ReassemblyReceived = "IpReasmReqds",
    /// Packets made of fragments.
    Ip4ReassemblyDone = "IpReasmOKs",
    /// Fragments that were given up.
    Ip4ReassemblyFailed = "IpReasmFails",
    /// Packets whose fragments did not come in time.
    Ip4ReassemblyTimeouts = "IpReasmTimeout",
    /// Packets that were sent in fragments.
    Ip4Fragmented = "IpFragOKs",
    /// Fragments that were sent.
    Ip4FragmentsSent = "IpFragCreates",
    /// Packets that were too long to go whole.
    Ip4FragmentFailed = "IpFragFails",
    /// ICMP messages that came in.
    Icmp4Received = "IcmpInMsgs",
    /// That are wrong.
    Icmp4Errors = "IcmpInErrors",
    /// With a wrong checksum.
    Icmp4ChecksumErrors = "IcmpInCsumErrors",
    /// "Unreachable" that came in.
    Icmp4UnreachableReceived = "IcmpInDestUnreachs",
    /// Echo requests that came in.
    Icmp4EchoReceived = "IcmpInEchos",
    /// Echo replies that came in.
    Icmp4EchoReplyReceived = "IcmpInEchoReps",
    /// Messages that were sent.
    Icmp4Sent = "IcmpOutMsgs",
    /// "Unreachable" that were sent.
    Icmp4UnreachableSent = "IcmpOutDestUnreachs",
    /// Echo replies that were sent.
    Icmp4EchoReplySent = "IcmpOutEchoReps",
    /// Messages that were not sent because there had been too many.
    IcmpLimited = "IcmpOutRateLimitGlobal",
    /// IPv6 packets that came in.
    Ip6Received = "Ip6InReceives",
    /// With a broken header.
    Ip6HeaderErrors = "Ip6InHdrErrors",
    /// For another address.
    Ip6AddressErrors = "Ip6InAddrErrors",
    /// Of a protocol that nothing takes.
    Ip6UnknownProtocols = "Ip6InUnknownProtos",
    /// Handed on.
    Ip6Delivered = "Ip6InDelivers",
    /// Sent.
    Ip6Sent = "Ip6OutRequests",
    /// That no way leads for.
    Ip6NoRoutes = "Ip6OutNoRoutes",
    /// Fragments that came in.
    Ip6ReassemblyReceived = "Ip6ReasmReqds",
    /// Packets made of fragments.
    Ip6ReassemblyDone = "Ip6ReasmOKs",
    /// Fragments that were given up.
    Ip6ReassemblyFailed = "Ip6ReasmFails",
    /// Packets whose fragments did not come in time.
    Ip6ReassemblyTimeouts = "Ip6ReasmTimeout",
    /// Packets that were sent in fragments.
    Ip6Fragmented = "Ip6FragOKs",
    /// Fragments that were sent.
    Ip6FragmentsSent = "Ip6FragCreates",
    /// Packets that were too long to go whole.
    Ip6FragmentFailed = "Ip6FragFails",
    /// ICMPv6 messages that came in.
    Icmp6Received = "Icmp6InMsgs",
    /// That are wrong.
    Icmp6Errors = "Icmp6InErrors",
    /// With a wrong checksum.
    Icmp6ChecksumErrors = "Icmp6InCsumErrors",
    /// Echo requests that came in.
    Icmp6EchoReceived = "Icmp6InEchos",
    /// Messages that were sent.
    Icmp6Sent = "Icmp6OutMsgs",
    /// TCP segments that were sent again.
    TcpRetransmitted = "TcpRetransSegs",
    /// TCP segments with a wrong checksum.
    TcpChecksumErrors = "TcpInCsumErrors",
    /// Datagrams that came in and were handed to a socket.
    UdpReceived = "UdpInDatagrams",
    /// To a port where nothing is.
    UdpNoPorts = "UdpNoPorts",
    /// That are wrong or had no room.
    UdpErrors = "UdpInErrors",
    /// With a wrong checksum.
    UdpChecksumErrors = "UdpInCsumErrors",
    /// That a full socket lost.
    UdpReceiveBufferErrors = "UdpRcvbufErrors",
    /// Datagrams that were sent.
    UdpSent = "UdpOutDatagrams",
    /// Packets to the host that it was not allowed to send.
    HostRefused = "HostRefused",
}

/// How many there are.
const COUNT: usize = NAMES.len();

/// All counters.
#[derive(Debug)]
pub struct Counters([AtomicU64; COUNT]);

impl Default for Counters {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counters {
    /// Counts one.
    pub fn add(&self, counter: Counter) {
        self.add_many(counter, 1);
    }

    /// Counts several.
    pub fn add_many(&self, counter: Counter, count: u64) {
        self.0[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// How many were counted.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    /// Calls `action` with the name and value of each.
    pub fn for_each(&self, mut action: impl FnMut(&'static str, u64)) {
        for (name, value) in NAMES.iter().zip(&self.0) {
            action(name, value.load(Ordering::Relaxed));
        }
    }
}
