//! What a terminal is set to and answers: its size, its modes with their switches by Linux's numbers (termios(3)), and
//! questions about them.
//!
//! This stands below all terminals: [`super::tty`], and what only looks like one ([`TerminalState`]).

use alloc::sync::Arc;

use crate::sync::Mutex;

/// Size of a terminal in characters and pixels (`TIOCGWINSZ`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub row_count: u16,
    /// Characters in a line.
    pub column_count: u16,
    /// Width in pixels, 0 if unknown.
    pub width_pixels: u16,
    /// Height in pixels, 0 if unknown.
    pub height_pixels: u16,
}

/// The modes of a terminal (`TCGETS`); the numbers are termios(3)'s, kept as the program gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalModes {
    /// `c_iflag`.
    pub input: u32,
    /// `c_oflag`.
    pub output: u32,
    /// `c_cflag`.
    pub control: u32,
    /// `c_lflag`.
    pub local: u32,
    /// `c_line`.
    pub line: u8,
    /// `c_cc`.
    pub characters: [u8; 19],
}

impl TerminalModes {
    /// What Linux gives a fresh terminal.
    pub const DEFAULT: Self = Self {
        input: 0x500,
        output: 0x5,
        control: 0xbf,
        local: 0x8a3b,
        line: 0,
        characters: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
    };
}

/// What a terminal answers to `ioctl`.
pub trait Terminal: Send + Sync {
    /// Its size.
    fn window_size(&self) -> WindowSize;
    /// Sets its size (`TIOCSWINSZ`).
    fn set_window_size(&self, size: WindowSize);
    /// Its modes.
    fn modes(&self) -> TerminalModes;
    /// Sets its modes (`TCSETS`). Where the host's terminal does the line discipline they are only remembered.
    fn set_modes(&self, modes: TerminalModes);
    /// The foreground process group, 0 if none was set.
    fn foreground_group(&self) -> u32;
    /// Sets it (`TIOCSPGRP`).
    fn set_foreground_group(&self, group: u32);
    /// Whether it signals its foreground group by itself when its size changes.
    fn signals_itself(&self) -> bool {
        false
    }
    /// Moves bytes between the host and the program, where exos does the line discipline.
    fn pump(&self) {}
    /// Bytes that programs wrote and that have not been passed on to the host.
    fn pending_bytes(&self) -> usize {
        0
    }
}

/// A terminal's state, for all the streams that belong to it.
pub struct TerminalState {
    size: Mutex<WindowSize>,
    modes: Mutex<TerminalModes>,
    foreground_group: Mutex<u32>,
}

impl TerminalState {
    /// A terminal of that size.
    pub fn new(size: WindowSize) -> Arc<Self> {
        Arc::new(Self {
            size: Mutex::new(size),
            modes: Mutex::new(TerminalModes::DEFAULT),
            foreground_group: Mutex::new(0),
        })
    }
}

impl Terminal for TerminalState {
    fn window_size(&self) -> WindowSize {
        *self.size.lock()
    }

    fn set_window_size(&self, size: WindowSize) {
        *self.size.lock() = size;
    }

    fn modes(&self) -> TerminalModes {
        *self.modes.lock()
    }

    fn set_modes(&self, modes: TerminalModes) {
        *self.modes.lock() = modes;
    }

    fn foreground_group(&self) -> u32 {
        *self.foreground_group.lock()
    }

    fn set_foreground_group(&self, group: u32) {
        *self.foreground_group.lock() = group;
    }
}

/// `c_iflag`.
pub(super) mod input {
    pub(in super::super) const MARK_PARITY: u32 = 8;
    pub(in super::super) const STRIP: u32 = 0x20;
    pub(in super::super) const NEWLINE_TO_RETURN: u32 = 0x40;
    pub(in super::super) const IGNORE_RETURN: u32 = 0x80;
    pub(in super::super) const RETURN_TO_NEWLINE: u32 = 0x100;
    pub(in super::super) const LOWER: u32 = 0x200;
    pub(in super::super) const FLOW: u32 = 0x400;
    pub(in super::super) const ANY_RESTARTS: u32 = 0x800;
    pub(in super::super) const UTF8: u32 = 0x4000;
}

/// `c_oflag`.
pub(super) mod output {
    pub(in super::super) const PROCESS: u32 = 1;
    pub(in super::super) const UPPER: u32 = 2;
    pub(in super::super) const NEWLINE_TO_BOTH: u32 = 4;
    pub(in super::super) const RETURN_TO_NEWLINE: u32 = 8;
    pub(in super::super) const NO_RETURN_AT_START: u32 = 0x10;
    pub(in super::super) const NEWLINE_RETURNS: u32 = 0x20;
    pub(in super::super) const TABS: u32 = 0x1800;
}

/// `c_lflag`.
pub(super) mod local {
    pub(in super::super) const SIGNALS: u32 = 1;
    pub(in super::super) const CANONICAL: u32 = 2;
    pub(in super::super) const ECHO: u32 = 8;
    pub(in super::super) const ECHO_ERASE: u32 = 0x10;
    pub(in super::super) const ECHO_KILL: u32 = 0x20;
    pub(in super::super) const ECHO_NEWLINE: u32 = 0x40;
    pub(in super::super) const NO_FLUSH: u32 = 0x80;
    pub(in super::super) const STOP_BACKGROUND: u32 = 0x100;
    pub(in super::super) const ECHO_CONTROL: u32 = 0x200;
    pub(in super::super) const ECHO_PRINT: u32 = 0x400;
    pub(in super::super) const ECHO_KILL_ERASE: u32 = 0x800;
    pub(in super::super) const EXTENDED: u32 = 0x8000;
    pub(in super::super) const EXTERNAL: u32 = 0x10000;
}

/// Places in `c_cc`.
pub(super) mod character {
    pub(in super::super) const INTERRUPT: usize = 0;
    pub(in super::super) const QUIT: usize = 1;
    pub(in super::super) const ERASE: usize = 2;
    pub(in super::super) const KILL: usize = 3;
    pub(in super::super) const END: usize = 4;
    pub(in super::super) const TIME: usize = 5;
    pub(in super::super) const COUNT: usize = 6;
    pub(in super::super) const START: usize = 8;
    pub(in super::super) const STOP: usize = 9;
    pub(in super::super) const SUSPEND: usize = 10;
    pub(in super::super) const END_LINE: usize = 11;
    pub(in super::super) const REPRINT: usize = 12;
    pub(in super::super) const WORD_ERASE: usize = 14;
    pub(in super::super) const LITERAL_NEXT: usize = 15;
    pub(in super::super) const END_LINE_2: usize = 16;
}

impl TerminalModes {
    /// A pty's master: nothing is done to what passes.
    pub const TRANSPARENT: Self = Self { input: 0, output: 0, control: 0xbf, local: 0, ..Self::DEFAULT };

    pub(super) fn has_input(&self, flag: u32) -> bool {
        self.input & flag != 0
    }

    pub(super) fn has_output(&self, flag: u32) -> bool {
        self.output & flag != 0
    }

    pub(super) fn has_local(&self, flag: u32) -> bool {
        self.local & flag != 0
    }

    /// Whether input comes in lines (`ICANON`).
    pub fn is_canonical(&self) -> bool {
        self.has_local(local::CANONICAL)
    }

    /// Whether `byte` is the special character at `place`; 0 there means that there is none.
    pub(super) fn is(&self, byte: u8, place: usize) -> bool {
        byte != 0 && self.characters[place] == byte
    }

    /// Bytes that a read waits for when input does not come in lines (`VMIN`).
    pub fn minimum(&self) -> u8 {
        self.characters[character::COUNT]
    }

    /// Tenths of a second that such a read waits (`VTIME`).
    pub fn time_ds(&self) -> u8 {
        self.characters[character::TIME]
    }
}
