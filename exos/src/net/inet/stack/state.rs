//! The stack itself: its card and its tables.

use alloc::sync::Arc;
use core::net::IpAddr;

use super::super::wire::{Arrival, Carrier, IcmpError, Interface, NetworkConfiguration};
use crate::platform::Kernel;
use crate::sync::{Mutex, Once};

/// What takes what comes in. Called with no lock held.
pub trait Transports {
    /// A transport packet of a protocol (`IPPROTO_*`) came in; false: there is nothing that takes it.
    fn arrive(&self, protocol: u8, arrival: &Arrival<'_>) -> bool;
    /// ICMP says something of a packet that was sent; false: of none that there is.
    fn complain(&self, error: &IcmpError<'_>) -> bool;
}

/// The way to the network that a card is on.
pub struct Stack {
    #[expect(dead_code, reason = "used by the next step")]
    kernel: Arc<dyn Kernel>,
    attached: Once<(NetworkConfiguration, Arc<dyn Carrier>)>,
    card: Once<Option<Arc<dyn Interface>>>,
    /// Held while the card is looked for.
    opening: Mutex<()>,
}

impl Stack {
    /// No network.
    pub fn new(kernel: &Arc<dyn Kernel>) -> Self {
        Self { kernel: kernel.clone(), attached: Once::new(), card: Once::new(), opening: Mutex::new(()) }
    }

    /// Says which network there is and what carries it. Once; later calls change nothing.
    pub fn attach(&self, configuration: NetworkConfiguration, carrier: Arc<dyn Carrier>) {
        self.attached.call_once(|| (configuration, carrier));
    }

    /// What it was attached with.
    pub fn configuration(&self) -> Option<&NetworkConfiguration> {
        self.attached.get().map(|(configuration, _)| configuration)
    }

    /// Finds the card, if that was not done yet. Whether there is one.
    pub fn open(&self) -> bool {
        if let Some(card) = self.card.get() {
            return card.is_some();
        }
        let Some((_, carrier)) = self.attached.get() else { return false };
        // What else comes here meanwhile waits for the outcome.
        let opening = self.opening.lock();
        if self.card.get().is_none() {
            let card = carrier.open();
            self.card.call_once(|| card);
        }
        drop(opening);
        self.card().is_some()
    }

    /// The card, if it was found.
    pub fn card(&self) -> Option<&Arc<dyn Interface>> {
        self.card.get().and_then(Option::as_ref)
    }

    /// Has [`Self::poll`] called at `deadline_ns`, or before.
    pub fn wake_at(&self, deadline_ns: u64) {
        self.attached.get().into_iter().for_each(|(_, carrier)| carrier.wake_at(deadline_ns));
    }

    /// Takes frames from the card, up to a bound, and does what is due; when something is due next.
    pub fn poll(&self, _now_ns: u64, _above: &dyn Transports) -> Option<u64> {
        None
    }

    /// Whether packets to `address` come back to this machine.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.configuration()
            .is_some_and(|configuration| configuration.addresses.iter().any(|own| own.address == address))
    }
}
