//! Registers and descriptors as the card has them (8254x and 82574 software developer's manuals). Offsets in bytes.

/// Control.
pub(crate) const CTRL: usize = 0x0000;
pub(crate) const CTRL_GIO_DISABLE: u32 = 1 << 2;
pub(crate) const CTRL_LINK_RESET: u32 = 1 << 3;
pub(crate) const CTRL_SET_LINK_UP: u32 = 1 << 6;
pub(crate) const CTRL_INVERT_LOSS: u32 = 1 << 7;
pub(crate) const CTRL_RESET: u32 = 1 << 26;
pub(crate) const CTRL_PHY_RESET: u32 = 1 << 31;

/// Status.
pub(crate) const STATUS: usize = 0x0008;
pub(crate) const STATUS_LINK_UP: u32 = 1 << 1;
pub(crate) const STATUS_GIO_ENABLED: u32 = 1 << 19;

/// One word of the card's own memory.
pub(crate) const EERD: usize = 0x0014;
pub(crate) const EERD_START: u32 = 1;

/// Flow control: addresses, type and time, of which none is used.
pub(crate) const FLOW_CONTROL: [usize; 4] = [0x0028, 0x002c, 0x0030, 0x0170];

/// Causes of interrupts; reading clears them where the card interrupts by a line.
pub(crate) const ICR: usize = 0x00c0;
/// Least time between interrupts, in units of 256 ns.
pub(crate) const ITR: usize = 0x00c4;
/// Causes that interrupt: those that are added, and those that are taken away.
pub(crate) const IMS: usize = 0x00d0;
pub(crate) const IMC: usize = 0x00d8;
pub(crate) const CAUSE_SENT: u32 = 1;
pub(crate) const CAUSE_LINK: u32 = 1 << 2;
pub(crate) const CAUSE_OVERRUN: u32 = 1 << 6;
pub(crate) const CAUSE_RECEIVED: u32 = 1 << 7;
/// 82574L: the same for messages, by queue.
pub(crate) const CAUSE_RECEIVE_QUEUE: u32 = 1 << 20;
pub(crate) const CAUSE_TRANSMIT_QUEUE: u32 = 1 << 22;
pub(crate) const CAUSE_OTHER: u32 = 1 << 24;

/// 82574L: causes that clear themselves; which message each cause has.
pub(crate) const EIAC: usize = 0x00dc;
pub(crate) const IVAR: usize = 0x00e4;
/// Every cause has message 0, at each descriptor that is written back.
pub(crate) const IVAR_ALL_FIRST: u32 = 0x8000_0000 | 0x8_8888;

/// Receive control.
pub(crate) const RCTL: usize = 0x0100;
pub(crate) const RCTL_ENABLE: u32 = 1 << 1;
pub(crate) const RCTL_ALL_GROUPS: u32 = 1 << 4;
pub(crate) const RCTL_BROADCAST: u32 = 1 << 15;
pub(crate) const RCTL_STRIP_CHECK: u32 = 1 << 26;

/// Transmit control.
pub(crate) const TCTL: usize = 0x0400;
pub(crate) const TCTL_ENABLE: u32 = 1 << 1;
pub(crate) const TCTL_PAD: u32 = 1 << 3;
/// 15 tries after collisions, distance of a full duplex.
pub(crate) const TCTL_COLLISIONS: u32 = 0xf << 4 | 0x40 << 12;
pub(crate) const TCTL_MULTIPLE_REQUESTS: u32 = 1 << 28;
/// Gaps between frames.
pub(crate) const TIPG: usize = 0x0410;
pub(crate) const TIPG_82540: u32 = 0x0060_200a;
pub(crate) const TIPG_82574: u32 = 0x0060_2008;

/// Rings: where each begins, and its registers from there.
pub(crate) const RECEIVE_RING: usize = 0x2800;
pub(crate) const TRANSMIT_RING: usize = 0x3800;
pub(crate) const RING_BASE_LOW: usize = 0x00;
pub(crate) const RING_BASE_HIGH: usize = 0x04;
pub(crate) const RING_LENGTH: usize = 0x08;
pub(crate) const RING_HEAD: usize = 0x10;
pub(crate) const RING_TAIL: usize = 0x18;
/// Delays of interrupts for received and sent frames.
pub(crate) const DELAYS: [usize; 4] = [0x2820, 0x282c, 0x3820, 0x382c];
/// When sent descriptors are written back.
pub(crate) const TXDCTL: usize = 0x3828;
pub(crate) const TXDCTL_82540: u32 = 0x0101_0000;
pub(crate) const TXDCTL_82574: u32 = 0x0141_0000;
/// 82574L: arbitration of the first sending queue.
pub(crate) const TARC: usize = 0x3840;
pub(crate) const TARC_ENABLE: u32 = 1 << 10;
pub(crate) const TARC_ERRATA_SET: u32 = 1 << 26;
pub(crate) const TARC_ERRATA_CLEAR: u32 = 0xf << 27;

/// Checksums of what is received; 82574L: form of descriptors, and queues by hash.
pub(crate) const RXCSUM: usize = 0x5000;
pub(crate) const RXCSUM_IP_AND_TRANSPORT: u32 = 1 << 8 | 1 << 9;
pub(crate) const RFCTL: usize = 0x5008;
pub(crate) const MRQC: usize = 0x5818;

/// Addresses that the card takes frames for.
pub(crate) const ADDRESS_COUNT: usize = 16;
pub(crate) const RAL: usize = 0x5400;
pub(crate) const RAH: usize = 0x5404;
pub(crate) const RAH_VALID: u32 = 1 << 31;

/// Bytes of the registers.
pub(crate) const WINDOW_BYTES: usize = 0x2_0000;

/// Bytes of a descriptor. The first word is an address, or a context's places; the second the rest.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;

/// Second word of a received descriptor.
pub(crate) mod received {
    /// The card has done with it.
    pub(crate) const DONE: u64 = 1 << 32;
    /// Last of its frame.
    pub(crate) const END: u64 = 1 << 33;
    /// Checksums were not looked at.
    pub(crate) const IGNORE_CHECKSUMS: u64 = 1 << 34;
    /// The transport checksum was looked at.
    pub(crate) const TRANSPORT_CHECKED: u64 = 1 << 37;
    /// It does not hold.
    pub(crate) const TRANSPORT_WRONG: u64 = 1 << (40 + 5);
    /// The frame is damaged: check sequence, symbol, sequence or data.
    pub(crate) const DAMAGED: u64 = (1 | 1 << 1 | 1 << 2 | 1 << 7) << 40;
}

/// Second word of a descriptor that is sent.
pub(crate) mod sent {
    /// Last of its frame.
    pub(crate) const END: u64 = 1 << 24;
    /// The card adds the check sequence.
    pub(crate) const ADD_CHECK: u64 = 1 << 25;
    /// Of a context: of TCP, of IPv4.
    pub(crate) const TCP: u64 = 1 << 24;
    pub(crate) const IP4: u64 = 1 << 25;
    /// Cut into segments.
    pub(crate) const SEGMENTED: u64 = 1 << 26;
    /// Report when it is done.
    pub(crate) const REPORT: u64 = 1 << 27;
    /// Of the new form.
    pub(crate) const NEW_FORM: u64 = 1 << 29;
    /// Of the new form: data, not a context.
    pub(crate) const DATA: u64 = 1 << 20;
    /// It is done.
    pub(crate) const DONE: u64 = 1 << 32;
    /// Fill in the header's checksum, and the transport's.
    pub(crate) const FILL_IP: u64 = 1 << 40;
    pub(crate) const FILL_TRANSPORT: u64 = 1 << 41;
}
