//! The switches in a terminal's modes, by their Linux numbers (termios(3)), and questions about them.

use super::super::stream::TerminalModes;

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
