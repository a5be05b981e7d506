//! Options of TCP, UDP and IP: numbers that a program sets and is told back; a few of them are acted upon.
//!
//! What concerns only how packets travel (their type of service, how often they are repeated) has nothing to act on
//! over loopback, but programs read it back.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident = $default:expr,)*) => {
        /// An option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Setting {
            $($(#[$doc])* $name,)*
        }

        const DEFAULTS: &[i32] = &[$($default,)*];
    };
}

settings! {
    /// `TCP_NODELAY`: nothing is ever held back here.
    NoDelay = 0,
    /// `TCP_CORK`: as above.
    Cork = 0,
    /// `TCP_MAXSEG`; 0: as the interface has it.
    SegmentBytesMax = 0,
    /// `TCP_KEEPIDLE`.
    KeepIdle = 7200,
    /// `TCP_KEEPINTVL`.
    KeepInterval = 75,
    /// `TCP_KEEPCNT`.
    KeepCount = 9,
    /// `TCP_SYNCNT`.
    SynCount = 6,
    /// `TCP_LINGER2`.
    FinWait2Seconds = 60,
    /// `TCP_WINDOW_CLAMP`.
    WindowClamp = 0,
    /// `TCP_QUICKACK`.
    QuickAcknowledge = 1,
    /// `TCP_USER_TIMEOUT`.
    UserTimeout = 0,
    /// `TCP_NOTSENT_LOWAT`.
    NotSentLowWater = 0,
    /// `IP_TOS`.
    TypeOfService = 0,
    /// `IP_TTL`; -1: as the system has it.
    TimeToLive = -1,
    /// `IP_MTU_DISCOVER`.
    MtuDiscover = 1,
    /// `IP_RECVERR`, `IPV6_RECVERR`.
    ReceiveErrors = 0,
    /// `IP_PKTINFO`.
    ReceivePacketInfo = 0,
    /// `IPV6_RECVPKTINFO`.
    ReceivePacketInfo6 = 0,
    /// `IP_RECVTTL`.
    ReceiveTimeToLive = 0,
    /// `IPV6_RECVHOPLIMIT`.
    ReceiveHopLimit = 0,
    /// `IP_RECVTOS`.
    ReceiveTypeOfService = 0,
    /// `IPV6_RECVTCLASS`.
    ReceiveTrafficClass = 0,
    /// `IP_FREEBIND`.
    FreeBind = 0,
    /// `IP_BIND_ADDRESS_NO_PORT`.
    BindAddressNoPort = 0,
    /// `IP_MULTICAST_TTL`.
    MulticastTimeToLive = 1,
    /// `IP_MULTICAST_LOOP`.
    MulticastLoop = 1,
    /// `IPV6_V6ONLY`.
    V6Only = 0,
    /// `IPV6_UNICAST_HOPS`; -1: as the system has it.
    UnicastHops = -1,
    /// `IPV6_MULTICAST_HOPS`.
    MulticastHops = 1,
    /// `IPV6_MULTICAST_LOOP`.
    MulticastLoop6 = 1,
    /// `IPV6_MTU_DISCOVER`.
    MtuDiscover6 = 1,
    /// `IPV6_TCLASS`.
    TrafficClass = 0,
    /// `SO_MARK`.
    Mark = 0,
    /// `TCP_DEFER_ACCEPT`, as how often the answer to a first segment would be sent again.
    DeferAccept = 0,
    /// `TCP_FASTOPEN`: how many connections may begin with data, of which none does.
    FastOpen = 0,
    /// `TCP_FASTOPEN_CONNECT`, or a first send that asked for it: connections ask for a cookie, which none is given.
    FastOpenConnect = 0,
    /// `UDP_CORK`.
    DatagramCork = 0,
    /// `UDP_SEGMENT`.
    DatagramSegmentBytes = 0,
    /// `UDP_GRO`: datagrams that came together may be told as one, which none is.
    DatagramReceiveOffload = 0,
    /// `UDP_NO_CHECK6_TX`, `UDP_NO_CHECK6_RX`: checksums that are left out.
    NoChecksumSent6 = 0,
    /// See above.
    NoChecksumReceived6 = 0,
    /// `UDPLITE_SEND_CSCOV`: bytes that the checksum covers; 0: all.
    SentCoverage = 0,
    /// `UDPLITE_RECV_CSCOV`; -1: it was not set, and everything is taken.
    ReceivedCoverage = -1,
    /// `TCP_CONGESTION`, by its place among those that are known.
    Congestion = 0,
    /// `IP_MINTTL`.
    TimeToLiveMin = 0,
    /// `IPV6_MINHOPCOUNT`.
    HopsMin = 0,
    /// `IPV6_MULTICAST_IF`.
    MulticastInterface6 = 0,
    /// `IP_RECVERR_RFC4884`, `IPV6_RECVERR_RFC4884`.
    ReceiveErrorsInFull = 0,
}

/// The level of an option that is a switch which is kept and told back, and does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `IPPROTO_IP`.
    Ip,
    /// `IPPROTO_TCP`.
    Tcp,
    /// `IPPROTO_IPV6`.
    Ipv6,
}

/// A switch of [`Level::Ip`] that is acted upon: a raw socket's program makes headers (`IP_HDRINCL`).
pub const HEADER_INCLUDED: u64 = 3;

/// Words of switches: one of IP, one of TCP, two of IPv6.
const SWITCH_WORDS: usize = 4;

const COUNT: usize = DEFAULTS.len();

/// A socket's options.
pub struct Settings([AtomicI32; COUNT], [AtomicU64; SWITCH_WORDS]);

impl Default for Settings {
    fn default() -> Self {
        // IP_MULTICAST_ALL; IPV6_MULTICAST_ALL; IPV6_AUTOFLOWLABEL, which is on.
        let switches = [1 << 49, 0, 1 << 29, 1 << (70 - 64)];
        Self(core::array::from_fn(|index| AtomicI32::new(DEFAULTS[index])), switches.map(AtomicU64::new))
    }
}

impl Settings {
    /// What an option is.
    pub fn get(&self, setting: Setting) -> i32 {
        self.0[setting as usize].load(Ordering::Relaxed)
    }

    /// Whether an option is on.
    pub fn is_on(&self, setting: Setting) -> bool {
        self.get(setting) != 0
    }

    /// Sets an option.
    pub fn set(&self, setting: Setting, value: i32) {
        self.0[setting as usize].store(value, Ordering::Relaxed);
    }

    fn place_of(level: Level, number: u64) -> (usize, u64) {
        let word = match level {
            Level::Ip => 0,
            Level::Tcp => 1,
            Level::Ipv6 => 2 + usize::from(number >= 64),
        };
        (word, 1 << (number % 64))
    }

    /// Whether a switch is on, by the number of its option (less than 64; of IPv6 less than 128).
    pub fn is_switched_on(&self, level: Level, number: u64) -> bool {
        let (word, bit) = Self::place_of(level, number);
        self.1[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Sets or clears a switch.
    pub fn switch(&self, level: Level, number: u64, value: bool) {
        let (word, bit) = Self::place_of(level, number);
        if value {
            self.1[word].fetch_or(bit, Ordering::Relaxed);
        } else {
            self.1[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// What an option is at first.
    #[must_use]
    pub fn default_of(setting: Setting) -> i32 {
        DEFAULTS[setting as usize]
    }

    /// Takes over all of another socket's.
    pub(super) fn inherit(&self, other: &Self) {
        for (own, from) in self.0.iter().zip(&other.0) {
            own.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (own, from) in self.1.iter().zip(&other.1) {
            own.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
