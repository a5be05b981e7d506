//! The line discipline: what happens to bytes between a keyboard, a program and a screen (termios(3)).
//!
//! A plain structure without locks, clocks or wake-ups; [`super::Terminal`](super) drives it. Bytes from the keyboard
//! go through [`LineDiscipline::receive`], which edits the line, echoes into the output, and answers with a signal
//! where a character asks for one. What a program writes goes through [`LineDiscipline::write`]. Both ways out,
//! [`LineDiscipline::read`] for the program and [`LineDiscipline::take_output`] for the screen, are queues with limits.
//!
//! The rules are Linux's, also where POSIX leaves them open: how tabs and control characters are erased, what a mode
//! change does to a line in progress, how a line that is too long goes on.

use alloc::collections::VecDeque;

use super::modes::{TerminalModes, character, input, local, output};
use crate::task::signal::Signal;

/// Bytes of input that are kept for the program.
pub const INPUT_BYTES_MAX: usize = 4096;
/// Bytes of output that are kept for the screen before writers wait.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// Bytes of echo that are kept besides.
const ECHO_BYTES_MAX: usize = 4096;
/// Columns from one tab stop to the next.
const TAB_COLUMNS: usize = 8;
/// Bytes that one byte of output becomes at most.
const EXPANSION_BYTES_MAX: usize = TAB_COLUMNS;

/// A byte of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    byte: u8,
    end: End,
}

/// Whether a line ends with a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    No,
    /// Edited line by line (`ICANON`).
    Line,
    /// With it, and it is not given to the program (`VEOF`).
    Mark,
}

/// How much of the line in progress a character erases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Erase {
    Character,
    Word,
    Line,
}

/// The line discipline of one terminal.
pub struct LineDiscipline {
    modes: TerminalModes,
    input: VecDeque<Cell>,
    /// Where the line in progress begins; what is before it can be read.
    line_start: usize,
    output: VecDeque<u8>,
    /// Echo that waits while output is stopped.
    held_echo: VecDeque<u8>,
    /// Bytes at the output's end that echo what was typed in one go: a signal character takes them away again.
    fresh_echo: usize,
    column: usize,
    /// The column where the line in progress began on the screen.
    line_column: usize,
    is_literal_next: bool,
    /// Within `\` and `/` of `ECHOPRT`.
    is_erasing: bool,
    is_stopped: bool,
}

/// Whether output control moves no column for it.
fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

impl LineDiscipline {
    /// Empty, at the start of a line.
    pub fn new(modes: TerminalModes) -> Self {
        Self {
            modes,
            input: VecDeque::new(),
            line_start: 0,
            output: VecDeque::new(),
            held_echo: VecDeque::new(),
            fresh_echo: 0,
            column: 0,
            line_column: 0,
            is_literal_next: false,
            is_erasing: false,
            is_stopped: false,
        }
    }

    /// The modes.
    pub fn modes(&self) -> &TerminalModes {
        &self.modes
    }

    /// Sets the modes. Changing between lines and bytes makes what was typed so far readable, as it is.
    pub fn set_modes(&mut self, modes: TerminalModes) {
        let was_flow = self.modes.has_input(input::FLOW);
        let toggles = modes.is_canonical() != self.modes.is_canonical();
        self.modes = modes;
        if toggles {
            for cell in &mut self.input {
                cell.end = End::No;
            }
            if modes.is_canonical()
                && let Some(last) = self.input.back_mut()
            {
                last.end = End::Line;
            }
            self.line_start = self.input.len();
            self.is_erasing = false;
            self.is_literal_next = false;
        }
        if was_flow && !modes.has_input(input::FLOW) {
            self.restart();
        }
    }

    /// Whether output waits for `VSTART` or `TCOON`.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Lets output wait.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Sends the other side the character that tells it to stop or to go on, before all else (`TCIOFF`, `TCION`).
    pub fn send_flow(&mut self, stops: bool) {
        let place = if stops { character::STOP } else { character::START };
        let byte = self.modes.characters[place];
        if byte != 0 {
            self.untake_output(&[byte]);
        }
    }

    /// Whether the characters that stop and start output are the usual ones, and obeyed: what packet mode tells.
    pub fn has_usual_flow(&self) -> bool {
        let characters = &self.modes.characters;
        self.modes.has_input(input::FLOW) && (characters[character::STOP], characters[character::START]) == (0x13, 0x11)
    }

    /// Lets it go on.
    pub fn restart(&mut self) {
        self.is_stopped = false;
        let held = core::mem::take(&mut self.held_echo);
        self.output.extend(held);
    }

    // From the keyboard.

    /// Bytes that [`Self::receive`] takes now. A line that is too long can always be ended, so it always takes one.
    pub fn input_room(&self) -> usize {
        let room = (INPUT_BYTES_MAX - 1).saturating_sub(self.input.len());
        if room == 0 && self.modes.is_canonical() && self.line_start == 0 { 1 } else { room }
    }

    /// What is received from now on was typed after what was received before.
    pub fn begin_input(&mut self) {
        self.fresh_echo = 0;
    }

    /// Takes a byte from the keyboard. The answer is the signal that it stands for.
    pub fn receive(&mut self, byte: u8) -> Option<Signal> {
        let mut byte = byte;
        if self.modes.has_input(input::STRIP) {
            byte &= 0x7f;
        }
        if self.modes.has_input(input::LOWER) && self.modes.has_local(local::EXTENDED) {
            byte = byte.to_ascii_lowercase();
        }
        if core::mem::take(&mut self.is_literal_next) {
            self.receive_plain(byte);
            return None;
        }
        if self.controls_flow(byte) {
            return None;
        }
        if let Some(signal) = self.signal_of(byte) {
            self.interrupt(byte);
            return Some(signal);
        }
        if self.is_stopped && self.modes.has_input(input::FLOW) && self.modes.has_input(input::ANY_RESTARTS) {
            self.restart();
        }
        match byte {
            b'\r' if self.modes.has_input(input::IGNORE_RETURN) => return None,
            b'\r' if self.modes.has_input(input::RETURN_TO_NEWLINE) => byte = b'\n',
            b'\n' if self.modes.has_input(input::NEWLINE_TO_RETURN) => byte = b'\r',
            0xff if self.modes.has_input(input::MARK_PARITY) && !self.modes.has_input(input::STRIP) => {
                // Doubled, so that it cannot be taken for the mark of a faulty byte.
                self.receive_plain(byte);
            }
            _ => {}
        }
        if !(self.modes.is_canonical() && self.receive_editing(byte)) {
            self.receive_plain(byte);
        }
        None
    }

    /// Stops and restarts output.
    fn controls_flow(&mut self, byte: u8) -> bool {
        if !self.modes.has_input(input::FLOW) {
            return false;
        }
        if self.modes.is(byte, character::START) {
            self.restart();
            return true;
        }
        if self.modes.is(byte, character::STOP) {
            self.stop();
            return true;
        }
        false
    }

    fn signal_of(&self, byte: u8) -> Option<Signal> {
        if !self.modes.has_local(local::SIGNALS) {
            return None;
        }
        let signals =
            [(character::INTERRUPT, Signal::INT), (character::QUIT, Signal::QUIT), (character::SUSPEND, Signal::TSTP)];
        signals.into_iter().find(|(place, _)| self.modes.is(byte, *place)).map(|(_, signal)| signal)
    }

    /// What a signal character does besides the signal.
    fn interrupt(&mut self, byte: u8) {
        if !self.modes.has_local(local::NO_FLUSH) {
            self.flush_input();
            // What has been on its way to the screen for longer stays, as it does on Linux.
            let kept = self.output.len() - self.fresh_echo.min(self.output.len());
            self.output.truncate(kept);
            self.fresh_echo = 0;
            self.held_echo.clear();
        }
        if self.modes.has_input(input::FLOW) {
            self.restart();
        }
        if self.modes.has_local(local::ECHO) {
            self.echo(byte);
        }
    }

    /// Characters that edit or end a line; false for all others.
    fn receive_editing(&mut self, byte: u8) -> bool {
        let modes = self.modes;
        let is_extended = modes.has_local(local::EXTENDED);
        let echoes = modes.has_local(local::ECHO);
        if modes.is(byte, character::ERASE) {
            self.erase(byte, Erase::Character);
        } else if modes.is(byte, character::KILL) {
            self.erase(byte, Erase::Line);
        } else if is_extended && modes.is(byte, character::WORD_ERASE) {
            self.erase(byte, Erase::Word);
        } else if is_extended && modes.is(byte, character::LITERAL_NEXT) {
            self.is_literal_next = true;
            if echoes {
                self.finish_erasing();
                if modes.has_local(local::ECHO_CONTROL) {
                    self.echo_raw(b'^');
                    self.echo_raw(8);
                }
            }
        } else if is_extended && echoes && modes.is(byte, character::REPRINT) {
            self.reprint(byte);
        } else if byte == b'\n' {
            if echoes || modes.has_local(local::ECHO_NEWLINE) {
                self.echo_raw(b'\n');
            }
            self.end_line(byte, End::Line);
        } else if modes.is(byte, character::END) {
            self.end_line(0, End::Mark);
        } else if modes.is(byte, character::END_LINE) || (is_extended && modes.is(byte, character::END_LINE_2)) {
            if echoes {
                self.note_line_column();
                self.echo(byte);
            }
            self.end_line(byte, End::Line);
        } else {
            return false;
        }
        true
    }

    fn end_line(&mut self, byte: u8, end: End) {
        self.input.push_back(Cell { byte, end });
        self.line_start = self.input.len();
    }

    /// A byte that means itself.
    fn receive_plain(&mut self, byte: u8) {
        let is_canonical = self.modes.is_canonical();
        if is_canonical && self.input.len() >= INPUT_BYTES_MAX - 1 {
            // The line is as long as it can be; only its end is still taken.
            return;
        }
        if self.modes.has_local(local::ECHO) {
            self.finish_erasing();
            if byte == b'\n' {
                self.echo_raw(byte);
            } else {
                self.note_line_column();
                self.echo(byte);
            }
        }
        self.input.push_back(Cell { byte, end: End::No });
        if !is_canonical {
            self.line_start = self.input.len();
        }
    }

    fn reprint(&mut self, byte: u8) {
        self.finish_erasing();
        self.echo(byte);
        self.echo_raw(b'\n');
        for index in self.line_start..self.input.len() {
            self.echo(self.input[index].byte);
        }
    }

    /// Whether `byte` goes on with a character that began before it.
    fn continues(&self, byte: u8) -> bool {
        self.modes.has_input(input::UTF8) && byte & 0xc0 == 0x80
    }

    fn erase(&mut self, byte: u8, what: Erase) {
        if self.input.len() == self.line_start {
            return;
        }
        let echoes = self.modes.has_local(local::ECHO);
        let shows_all = [local::ECHO_KILL, local::ECHO_KILL_ERASE, local::ECHO_ERASE];
        if what == Erase::Line && !(echoes && shows_all.iter().all(|flag| self.modes.has_local(*flag))) {
            self.input.truncate(self.line_start);
            if echoes {
                self.finish_erasing();
                self.echo(byte);
                if self.modes.has_local(local::ECHO_KILL) {
                    self.echo_raw(b'\n');
                }
            }
            return;
        }
        let mut has_seen_word = false;
        while self.input.len() > self.line_start {
            let mut start = self.input.len() - 1;
            while start > self.line_start && self.continues(self.input[start].byte) {
                start -= 1;
            }
            let first = self.input[start].byte;
            if self.continues(first) {
                break;
            }
            if what == Erase::Word {
                if first.is_ascii_alphanumeric() || first == b'_' {
                    has_seen_word = true;
                } else if has_seen_word {
                    break;
                }
            }
            self.erase_from(start, byte, what == Erase::Character);
            if what == Erase::Character {
                break;
            }
        }
        if echoes && self.input.len() == self.line_start {
            self.finish_erasing();
        }
    }

    /// Takes the last character, which begins at `start`, away and off the screen.
    fn erase_from(&mut self, start: usize, erasing: u8, is_single: bool) {
        let first = self.input[start].byte;
        if self.modes.has_local(local::ECHO) {
            if self.modes.has_local(local::ECHO_PRINT) {
                if !core::mem::replace(&mut self.is_erasing, true) {
                    self.echo_raw(b'\\');
                }
                self.echo(first);
                for index in start + 1..self.input.len() {
                    self.echo_raw(self.input[index].byte);
                }
            } else if is_single && !self.modes.has_local(local::ECHO_ERASE) {
                self.echo(erasing);
            } else if first == b'\t' {
                self.echo_tab_erased(start);
            } else {
                let shows_control = self.modes.has_local(local::ECHO_CONTROL);
                let columns = match is_control(first) {
                    true if shows_control => 2,
                    true => 0,
                    false => 1,
                };
                for _ in 0..columns {
                    b"\x08 \x08".iter().for_each(|byte| self.echo_raw(*byte));
                }
            }
        }
        self.input.truncate(start);
    }

    /// Goes back over the tab at `tab`: how wide it was depends on what stands before it.
    fn echo_tab_erased(&mut self, tab: usize) {
        let mut columns = 0;
        let mut is_after_tab = false;
        for cell in self.input.range(self.line_start..tab).rev() {
            if cell.byte == b'\t' {
                is_after_tab = true;
                break;
            }
            if is_control(cell.byte) {
                columns += if self.modes.has_local(local::ECHO_CONTROL) { 2 } else { 0 };
            } else if !self.continues(cell.byte) {
                columns += 1;
            }
        }
        if !is_after_tab {
            columns += self.line_column;
        }
        self.echoed(|this| {
            for _ in 0..TAB_COLUMNS - columns % TAB_COLUMNS {
                this.put(8);
                this.column = this.column.saturating_sub(1);
            }
        });
    }

    fn finish_erasing(&mut self) {
        if core::mem::take(&mut self.is_erasing) {
            self.echo_raw(b'/');
        }
    }

    /// Remembers where the line begins on the screen, if nothing of it is there yet.
    fn note_line_column(&mut self) {
        if self.input.len() == self.line_start {
            self.line_column = self.column;
        }
    }

    /// Forgets what was typed.
    pub fn flush_input(&mut self) {
        self.input.clear();
        self.line_start = 0;
        self.is_literal_next = false;
        self.is_erasing = false;
    }

    // To the program.

    /// Bytes that can be read (`FIONREAD`).
    pub fn readable_bytes(&self) -> usize {
        let readable = if self.modes.is_canonical() { self.line_start } else { self.input.len() };
        self.input.range(..readable).filter(|cell| cell.end != End::Mark).count()
    }

    /// Whether a read would get something: a line, or when there are no lines at least `minimum` bytes.
    pub fn is_readable(&self, minimum: usize) -> bool {
        if self.modes.is_canonical() { self.line_start > 0 } else { self.input.len() >= minimum.max(1) }
    }

    /// Gives input to the program: how many bytes, and whether a line ended with them.
    pub fn read(&mut self, into: &mut [u8]) -> (usize, bool) {
        let is_canonical = self.modes.is_canonical();
        let readable = if is_canonical { self.line_start } else { self.input.len() };
        let mut count = 0;
        let mut taken = 0;
        let mut is_end = false;
        while taken < readable && !is_end {
            let cell = self.input[taken];
            if cell.end == End::Mark {
                // The mark that ends what just filled the buffer goes with it.
                (taken, is_end) = (taken + 1, true);
            } else if count < into.len() {
                into[count] = cell.byte;
                (count, taken, is_end) = (count + 1, taken + 1, cell.end == End::Line);
            } else {
                break;
            }
        }
        self.input.drain(..taken);
        self.line_start = self.line_start.saturating_sub(taken);
        (count, is_end)
    }

    // From the program, to the screen.

    /// Whether a byte can be written now.
    pub fn has_output_room(&self) -> bool {
        !self.is_stopped && self.output.len() + EXPANSION_BYTES_MAX <= OUTPUT_BYTES_MAX
    }

    /// Bytes that can be written for certain.
    pub fn output_room(&self) -> usize {
        OUTPUT_BYTES_MAX.saturating_sub(self.output.len()) / EXPANSION_BYTES_MAX
    }

    /// Takes a byte from the program; there is room.
    pub fn write(&mut self, byte: u8) {
        self.fresh_echo = 0;
        self.process(byte);
    }

    /// Bytes that the screen has not taken.
    pub fn pending_output(&self) -> usize {
        self.output.len()
    }

    /// Gives output to the screen.
    pub fn take_output(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.output.len());
        for (slot, byte) in into.iter_mut().zip(self.output.drain(..count)) {
            *slot = byte;
        }
        count
    }

    /// Gives the last taken bytes back.
    pub fn untake_output(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().rev() {
            self.output.push_front(*byte);
        }
    }

    /// Forgets what the screen has not taken.
    pub fn flush_output(&mut self) {
        self.output.clear();
        self.held_echo.clear();
    }

    /// Output control.
    fn process(&mut self, byte: u8) {
        if !self.modes.has_output(output::PROCESS) {
            return self.put(byte);
        }
        match byte {
            b'\n' => {
                if self.modes.has_output(output::NEWLINE_RETURNS) {
                    self.column = 0;
                }
                if self.modes.has_output(output::NEWLINE_TO_BOTH) {
                    self.column = 0;
                    self.line_column = 0;
                    self.put(b'\r');
                }
                self.line_column = self.column;
                self.put(byte);
            }
            b'\r' if self.modes.has_output(output::NO_RETURN_AT_START) && self.column == 0 => {}
            b'\r' if self.modes.has_output(output::RETURN_TO_NEWLINE) => {
                if self.modes.has_output(output::NEWLINE_RETURNS) {
                    (self.column, self.line_column) = (0, 0);
                }
                self.put(b'\n');
            }
            b'\r' => {
                (self.column, self.line_column) = (0, 0);
                self.put(byte);
            }
            b'\t' => {
                let columns = TAB_COLUMNS - self.column % TAB_COLUMNS;
                self.column += columns;
                if self.modes.output & output::TABS == output::TABS {
                    (0..columns).for_each(|_| self.put(b' '));
                } else {
                    self.put(byte);
                }
            }
            8 => {
                self.column = self.column.saturating_sub(1);
                self.put(byte);
            }
            _ => {
                let byte = if self.modes.has_output(output::UPPER) { byte.to_ascii_uppercase() } else { byte };
                if !is_control(byte) && !self.continues(byte) {
                    self.column += 1;
                }
                self.put(byte);
            }
        }
    }

    /// Echoes a byte as people see it: control characters as `^X`.
    fn echo(&mut self, byte: u8) {
        if self.modes.has_local(local::ECHO_CONTROL) && is_control(byte) && byte != b'\t' {
            self.echoed(|this| {
                this.put(b'^');
                this.put(byte ^ 0x40);
                this.column += 2;
            });
        } else {
            self.echo_raw(byte);
        }
    }

    /// Echoes a byte as it is.
    fn echo_raw(&mut self, byte: u8) {
        self.echoed(|this| this.process(byte));
    }

    /// Echo waits while output is stopped, and is lost when the screen takes nothing for too long.
    fn echoed(&mut self, put: impl FnOnce(&mut Self)) {
        if self.output.len() + self.held_echo.len() + EXPANSION_BYTES_MAX <= OUTPUT_BYTES_MAX + ECHO_BYTES_MAX {
            let before = self.output.len();
            put(self);
            self.fresh_echo += self.output.len() - before;
        }
    }

    fn put(&mut self, byte: u8) {
        if self.is_stopped {
            self.held_echo.push_back(byte);
        } else {
            self.output.push_back(byte);
        }
    }
}
