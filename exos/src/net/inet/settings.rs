//! Options of TCP, UDP and IP: numbers that a program sets and is told back; a few of them are acted upon.
//!
//! What concerns only how packets travel (their type of service, how often they are repeated) has nothing to act on
//! over loopback, but programs read it back.

use core::sync::atomic::{AtomicI32, Ordering};

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
}

const COUNT: usize = DEFAULTS.len();

/// A socket's options.
pub struct Settings([AtomicI32; COUNT]);

impl Default for Settings {
    fn default() -> Self {
        Self(core::array::from_fn(|index| AtomicI32::new(DEFAULTS[index])))
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
    }
}
