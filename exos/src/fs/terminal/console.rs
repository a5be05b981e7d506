//! The host's terminal as one of exos's: its keyboard and screen are streams, which give and take bytes unchanged.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use super::super::stream::Stream;
use super::super::transfer::SliceDestination;
use super::tty::Tty;
use crate::error::Errno;
use crate::sync::Mutex;

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 256;

/// A keyboard and a screen.
pub struct Screen {
    keyboard: Arc<dyn Stream>,
    screen: Arc<dyn Stream>,
    has_ended: AtomicBool,
    /// Held while bytes move, so that they stay in order.
    is_moving: Mutex<()>,
}

impl Screen {
    /// Over these streams.
    pub fn new(keyboard: Arc<dyn Stream>, screen: Arc<dyn Stream>) -> Self {
        Self { keyboard, screen, has_ended: AtomicBool::new(false), is_moving: Mutex::new(()) }
    }

    /// Whether nothing more will be typed.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Moves what there is in both directions. A thread that comes while another moves has nothing to do.
    pub(super) fn pump(&self, tty: &Tty) {
        let Some(_moving) = self.is_moving.try_lock() else { return };
        let mut bytes = [0; CHUNK_BYTES];
        while !self.has_ended() {
            let room = tty.input_room().min(CHUNK_BYTES);
            if room == 0 {
                break;
            }
            match self.keyboard.read(&mut SliceDestination::new(&mut bytes[..room])) {
                Ok(0) => self.has_ended.store(true, Ordering::Relaxed),
                Ok(count) => {
                    tty.type_in(&bytes[..count]);
                }
                Err(_) => break,
            }
        }
        let mut has_moved = false;
        loop {
            let count = tty.take_output(&mut bytes);
            if count == 0 {
                break;
            }
            let written = match self.screen.write(&mut &bytes[..count]) {
                Ok(written) => written,
                Err(Errno::EAGAIN) => 0,
                // Nobody looks any more.
                Err(_) => count,
            };
            has_moved |= written > 0;
            if written < count {
                tty.untake_output(&bytes[written..count]);
                break;
            }
        }
        if has_moved {
            tty.tell_room();
        }
    }
}
