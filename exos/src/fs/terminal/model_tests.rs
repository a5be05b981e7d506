//! The line discipline against a naive editor: a line is a list of characters, the screen is a row of cells, and what
//! one sees is always the line.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::discipline::LineDiscipline;
use super::discipline_tests::{read, shown, type_in};
use super::modes::TerminalModes;

/// What a keyboard can send in this test.
const KEYS: &[u8] = b"abz019_ ,-\t\x01\x1f\x7f\x7f\x15\x17\n\n\x04\x12";

/// A screen of endless rows: what one row shows, and where the cursor is.
#[derive(Default)]
struct Screen {
    row: Vec<u8>,
    column: usize,
}

impl Screen {
    fn show(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                8 => self.column = self.column.saturating_sub(1),
                b'\r' => self.column = 0,
                b'\n' => self.row.clear(),
                b'\t' => self.column = (self.column / 8 + 1) * 8,
                _ => {
                    let needed = self.row.len().max(self.column + 1);
                    self.row.resize(needed, b' ');
                    self.row[self.column] = byte;
                    self.column += 1;
                }
            }
        }
    }

    /// What one sees up to the cursor; behind it there must be nothing.
    fn visible(&self) -> Vec<u8> {
        let mut seen = self.row.clone();
        seen.resize(self.column.max(seen.len()), b' ');
        assert!(seen[self.column..].iter().all(|cell| *cell == b' '), "something is left behind the cursor");
        seen.truncate(self.column);
        seen
    }
}

/// The line as it looks behind `prompt`.
fn looks(prompt: &[u8], line: &[u8]) -> Vec<u8> {
    let mut seen = prompt.to_vec();
    for byte in line {
        match *byte {
            b'\t' => {
                let stop = (seen.len() / 8 + 1) * 8;
                seen.resize(stop, b' ');
            }
            byte if byte < 0x20 || byte == 0x7f => seen.extend([b'^', byte ^ 0x40]),
            byte => seen.push(byte),
        }
    }
    seen
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

proptest! {
    #[test]
    fn what_one_sees_is_the_line_and_what_one_reads_are_the_lines(
        keys in proptest::collection::vec(0..KEYS.len(), 0..200),
        rooms in proptest::collection::vec(1_usize..12, 0..40),
        prompt_length in 0_usize..11,
    ) {
        let mut tty = LineDiscipline::new(TerminalModes::DEFAULT);
        let mut screen = Screen::default();
        let prompt = alloc::vec![b'>'; prompt_length];
        prompt.iter().for_each(|byte| tty.write(*byte));
        let (mut line, mut lines): (Vec<u8>, VecDeque<Vec<u8>>) = Default::default();
        let mut before: Vec<u8> = prompt.clone();
        for key in keys {
            let key = KEYS[key];
            prop_assert!(type_in(&mut tty, &[key]).is_empty());
            screen.show(&shown(&mut tty));
            match key {
                0x7f => { line.pop(); }
                0x15 => line.clear(),
                0x17 => {
                    while line.pop_if(|byte| !is_word(*byte)).is_some() {}
                    while line.pop_if(|byte| is_word(*byte)).is_some() {}
                }
                b'\n' => {
                    line.push(key);
                    lines.push_back(core::mem::take(&mut line));
                    before.clear();
                }
                4 => {
                    // What was typed stays on the screen, before what comes next.
                    before = looks(&before, &line);
                    lines.push_back(core::mem::take(&mut line));
                }
                0x12 => before.clear(),
                _ => line.push(key),
            }
            prop_assert_eq!(screen.visible(), looks(&before, &line));
        }
        prop_assert_eq!(tty.readable_bytes(), lines.iter().map(Vec::len).sum::<usize>());
        for room in rooms.into_iter().chain(core::iter::repeat_n(99, lines.len())) {
            let expected = lines.pop_front().map(|mut line| {
                if line.len() > room {
                    let rest = line.split_off(room);
                    lines.push_front(rest);
                }
                line
            });
            prop_assert_eq!(read(&mut tty, room), expected);
        }
    }

    #[test]
    fn no_bytes_and_no_modes_break_it(
        steps in proptest::collection::vec((0_u8..5, any::<[u8; 12]>(), any::<[u32; 3]>(), any::<[u8; 19]>()), 1..60),
    ) {
        let mut tty = LineDiscipline::new(TerminalModes::DEFAULT);
        for (kind, bytes, flags, characters) in steps {
            match kind {
                0 => {
                    let modes = TerminalModes { input: flags[0], output: flags[1], local: flags[2], characters,
                        ..TerminalModes::DEFAULT };
                    tty.set_modes(modes);
                }
                1 => { type_in(&mut tty, &bytes); }
                2 => for byte in bytes { if tty.has_output_room() { tty.write(byte) } },
                3 => { let _ = read(&mut tty, usize::from(bytes[0] % 9) + 1); }
                _ => { shown(&mut tty); }
            }
            prop_assert!(tty.readable_bytes() <= super::discipline::INPUT_BYTES_MAX);
        }
    }
}
