//! Host directories: finds the 9P transports among the device functions, and waits for their answers.
//!
//! [`Share`] is the one place where anything waits for the host's file server: it looks for a short while, because an
//! answer often comes at once, then sleeps on the device's bell. A server that does not answer within
//! [`ANSWER_LIMIT_NS`] is given up for good: whatever it sends later is never looked at.
//!
//! The wait blocks this virtual processor and runs nothing else of exos, since callers hold locks. The bell belongs to
//! no processor, so it makes no upcalls.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::CapSlot;
use aegis_abi::boot::BootInfo;
use aegis_abi::device::DeviceOperation;
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_NONE};
use aegis_hal::{DmaPool, Irq};
use aegis_rt::call;
use aegis_virtio::ninep::{Channel, DEVICE_TYPE_NINEP, Limits, SLOT_COUNT, TAG_BYTES};
use aegis_virtio::{Interrupts, VirtioError};
use exos::fs::ninep::{CLUNK_BYTES, COMPANION_COUNT_MAX, Requester, Silence};
use exos::sync::Mutex;

use super::devices::{AnyTransport, BellIrq, DeviceError, dma_pool, open};
use super::{kernel, processor};

/// Pages of the longest message: 128 KiB of a file with what stands before it.
const MESSAGE_PAGE_COUNT: usize = 33;
const LIMITS: Limits = Limits { message_page_count: MESSAGE_PAGE_COUNT, reset_poll_count_max: 100_000 };
/// Pages for rings and messages.
const DMA_PAGE_COUNT: usize = LIMITS.page_count();
/// How long an answer is looked for before the processor sleeps.
const SPIN_NS: u64 = 20_000;
/// Longest sleep without another look.
const SLEEP_NS: u64 = 100_000_000;
/// Time after which a server counts as dead. Only time that was spent waiting counts: a machine that was stopped
/// meanwhile (Ctrl-Z) does not use it up.
const ANSWER_LIMIT_NS: u64 = 30_000_000_000;

const _: () = assert!(COMPANION_COUNT_MAX < SLOT_COUNT);

struct Inner {
    channel: Channel<AnyTransport, DmaPool<DMA_PAGE_COUNT>>,
    irq: BellIrq,
    has_failed: bool,
}

/// A directory of the host.
pub(crate) struct Share {
    tag: [u8; TAG_BYTES],
    inner: Mutex<Inner>,
}

impl Share {
    /// All that the machine has.
    pub(crate) fn find_all(info: &BootInfo) -> Result<Vec<Arc<Self>>, DeviceError> {
        let mut shares = Vec::new();
        for index in 0..info.device_count {
            let device = CapSlot(SLOT_DEVICE_FIRST.0 + index);
            if let Some(transport) = open(device, DEVICE_TYPE_NINEP)? {
                shares.push(Arc::new(Self::start(device, transport)?));
            }
        }
        Ok(shares)
    }

    /// The name that the host tool gave to it.
    pub(crate) fn tag(&self) -> [u8; TAG_BYTES] {
        self.tag
    }

    fn start(device: CapSlot, transport: AnyTransport) -> Result<Self, DeviceError> {
        // SAFETY: the function reaches only the frames that are bound for it below.
        unsafe { call::device_control(device, DeviceOperation::Enable) }?;
        let dma = dma_pool::<DMA_PAGE_COUNT>(device)?;
        let bell = kernel::next_slot();
        call::bell_create(bell, SLOT_NONE)?;
        call::device_interrupt_bind(device, 0, bell)?;
        let channel = Channel::new(transport, dma, LIMITS).map_err(DeviceError::Driver)?;
        let mut irq = BellIrq::new(device, bell);
        irq.unmask().map_err(|_| DeviceError::NotFound)?;
        Ok(Self { tag: *channel.tag(), inner: Mutex::new(Inner { channel, irq, has_failed: false }) })
    }
}

impl Inner {
    fn exchange(
        &mut self,
        message: &[u8],
        companions: &[[u8; CLUNK_BYTES]],
        reply: &mut Vec<u8>,
    ) -> Result<bool, VirtioError> {
        self.channel.set_interrupts(Interrupts::Suppressed)?;
        self.channel.put(0, message)?;
        for (slot, companion) in (1..).zip(companions) {
            self.channel.put(slot, companion)?;
        }
        self.channel.submit()?;
        if !self.wait()? {
            return Ok(false);
        }
        reply.resize(self.channel.answer_bytes(0).unwrap_or(0), 0);
        self.channel.take(0, reply)?;
        for (slot, _) in (1..).zip(companions) {
            let mut ignored = [0; CLUNK_BYTES];
            self.channel.take(slot, &mut ignored)?;
        }
        Ok(true)
    }

    /// Waits until everything is answered; false if the time limit came first.
    fn wait(&mut self) -> Result<bool, VirtioError> {
        let spin_end_ns = kernel::now_ns() + SPIN_NS;
        let mut waited_ns = 0;
        while waited_ns < ANSWER_LIMIT_NS {
            self.channel.poll()?;
            if self.channel.is_answered(SLOT_COUNT) {
                return Ok(true);
            }
            let now_ns = kernel::now_ns();
            if now_ns < spin_end_ns {
                core::hint::spin_loop();
                continue;
            }
            self.channel.set_interrupts(Interrupts::Wanted)?;
            self.channel.poll()?;
            if !self.channel.is_answered(SLOT_COUNT) {
                self.sleep(now_ns + SLEEP_NS)?;
                waited_ns += kernel::now_ns().saturating_sub(now_ns).min(2 * SLEEP_NS);
            }
        }
        Ok(false)
    }

    /// Sleeps until the device's bell rings, at most until `until_ns`.
    fn sleep(&mut self, until_ns: u64) -> Result<(), VirtioError> {
        let clock = Term {
            product: 1,
            source: TermSource::Clock as u32,
            operator: TermOperator::AtLeast as u32,
            slot: 0,
            address: 0,
            value: until_ns,
        };
        // Whatever ended the sleep, the caller looks again.
        let _ = call::sleep(&[processor::bell_term(0, self.irq.bell()), clock]);
        if self.irq.take() > 0 { self.channel.on_interrupt(&mut self.irq) } else { Ok(()) }
    }
}

impl Requester for Share {
    fn message_bytes_max(&self) -> usize {
        MESSAGE_PAGE_COUNT * aegis_hal::PAGE_BYTES
    }

    fn request(&self, message: &[u8], companions: &[[u8; CLUNK_BYTES]], reply: &mut Vec<u8>) -> Result<(), Silence> {
        let mut inner = self.inner.lock();
        if inner.has_failed {
            return Err(Silence::Device);
        }
        let outcome = match inner.exchange(message, companions, reply) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Silence::TimeLimit),
            Err(_) => Err(Silence::Device),
        };
        inner.has_failed = outcome.is_err();
        outcome
    }
}
