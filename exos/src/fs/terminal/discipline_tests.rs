//! The line discipline, one rule after the other.

use alloc::string::String;
use alloc::vec::Vec;

use super::discipline::{INPUT_BYTES_MAX, LineDiscipline};
use super::modes::{TerminalModes, character, input, local, output};
use crate::task::signal::Signal;

fn cooked() -> LineDiscipline {
    LineDiscipline::new(TerminalModes::DEFAULT)
}

fn with(change: impl FnOnce(&mut TerminalModes)) -> LineDiscipline {
    let mut modes = TerminalModes::DEFAULT;
    change(&mut modes);
    LineDiscipline::new(modes)
}

pub(super) fn type_in(discipline: &mut LineDiscipline, bytes: &[u8]) -> Vec<Signal> {
    bytes.iter().filter_map(|byte| discipline.receive(*byte)).collect()
}

/// What one read of up to `room` bytes gets.
pub(super) fn read(discipline: &mut LineDiscipline, room: usize) -> Option<Vec<u8>> {
    let minimum = usize::from(discipline.modes().minimum());
    discipline.is_readable(minimum).then(|| {
        let mut bytes = alloc::vec![0; room];
        let (count, _) = discipline.read(&mut bytes);
        bytes.truncate(count);
        bytes
    })
}

/// What the screen has been given.
pub(super) fn shown(discipline: &mut LineDiscipline) -> String {
    let mut bytes = alloc::vec![0; discipline.pending_output()];
    discipline.take_output(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn lines_are_given_whole_and_one_at_a_time() {
    let mut tty = cooked();
    type_in(&mut tty, b"one");
    assert_eq!((read(&mut tty, 9), tty.readable_bytes()), (None, 0));
    type_in(&mut tty, b"\rtwo\n");
    assert_eq!(tty.readable_bytes(), 8);
    assert_eq!(read(&mut tty, 2), Some(b"on".to_vec()));
    assert_eq!(read(&mut tty, 9), Some(b"e\n".to_vec()));
    assert_eq!(read(&mut tty, 9), Some(b"two\n".to_vec()));
    assert_eq!((read(&mut tty, 9), shown(&mut tty)), (None, String::from("one\r\ntwo\r\n")));
}

#[test]
fn the_end_character_ends_a_line_without_being_in_it() {
    let mut tty = cooked();
    type_in(&mut tty, b"ab\x04\x04");
    assert_eq!(tty.readable_bytes(), 2);
    assert_eq!(read(&mut tty, 9), Some(b"ab".to_vec()));
    assert_eq!(read(&mut tty, 9), Some(Vec::new()), "the end of the file");
    type_in(&mut tty, b"ab\x04");
    assert_eq!(read(&mut tty, 2), Some(b"ab".to_vec()));
    assert_eq!(read(&mut tty, 2), None, "the mark went with the bytes that it ended");
    assert_eq!(shown(&mut tty), "abab");
}

#[test]
fn erasing_takes_away_what_is_on_the_screen() {
    let mut tty = cooked();
    type_in(&mut tty, b"ab\x7f\x7f\x7f");
    assert_eq!(shown(&mut tty), "ab\x08 \x08\x08 \x08");
    type_in(&mut tty, b"\x16\x01\x7f");
    assert_eq!(shown(&mut tty), "^\x08^A\x08 \x08\x08 \x08");
    type_in(&mut tty, b"x\t\x7f");
    assert_eq!(shown(&mut tty), "x\t\x08\x08\x08\x08\x08\x08\x08");
    type_in(&mut tty, b"\x15");
    assert_eq!(shown(&mut tty), "\x08 \x08");
    type_in(&mut tty, b"one, two  \x17");
    assert_eq!(shown(&mut tty), String::from("one, two  ") + &"\x08 \x08".repeat(5));
    type_in(&mut tty, b"\n");
    assert_eq!(read(&mut tty, 99), Some(b"one, \n".to_vec()));
}

#[test]
fn characters_of_several_bytes_are_erased_whole() {
    let mut tty = with(|modes| modes.input |= input::UTF8);
    type_in(&mut tty, "aé€\x7f\x7f\n".as_bytes());
    assert_eq!(read(&mut tty, 9), Some(b"a\n".to_vec()));
    assert_eq!(shown(&mut tty), "aé€\x08 \x08\x08 \x08\r\n");
}

#[test]
fn killing_a_line_shows_it_as_the_modes_say() {
    let mut tty = with(|modes| modes.local &= !local::ECHO_KILL_ERASE);
    type_in(&mut tty, b"abc\x15d\n");
    assert_eq!((read(&mut tty, 9), shown(&mut tty)), (Some(b"d\n".to_vec()), String::from("abc^U\r\nd\r\n")));
    let mut tty = with(|modes| modes.local &= !(local::ECHO_KILL_ERASE | local::ECHO_KILL | local::ECHO_ERASE));
    type_in(&mut tty, b"abc\x15d\x7f");
    assert_eq!(shown(&mut tty), "abc^Ud^?");
    let mut tty = with(|modes| modes.local = (modes.local | local::ECHO_PRINT) & !local::ECHO_CONTROL);
    type_in(&mut tty, b"abc\x7f\x7fd\n");
    assert_eq!((read(&mut tty, 9), shown(&mut tty)), (Some(b"ad\n".to_vec()), String::from("abc\\cb/d\r\n")));
    let mut tty = with(|modes| modes.local &= !local::ECHO);
    type_in(&mut tty, b"abc\x15\x7f\x17d\n");
    assert_eq!((read(&mut tty, 9), shown(&mut tty)), (Some(b"d\n".to_vec()), String::new()));
}

#[test]
fn the_line_is_shown_again_and_the_next_character_taken_as_it_is() {
    let mut tty = cooked();
    type_in(&mut tty, b"ab\x12\x16\x03\x16\n\n");
    assert_eq!(shown(&mut tty), "ab^R\r\nab^\x08^C^\x08\r\n\r\n");
    assert_eq!(read(&mut tty, 9), Some(b"ab\x03\n\n".to_vec()), "a newline that was quoted ends nothing");
}

#[test]
fn signal_characters_signal_and_throw_away() {
    let mut tty = cooked();
    assert_eq!(type_in(&mut tty, b"abc\x03d\x1c\x1a"), [Signal::INT, Signal::QUIT, Signal::TSTP]);
    assert_eq!((read(&mut tty, 9), shown(&mut tty)), (None, String::from("^Z")));
    let mut tty = with(|modes| modes.local |= local::NO_FLUSH);
    assert_eq!(type_in(&mut tty, b"abc\x03d\n"), [Signal::INT]);
    assert_eq!((read(&mut tty, 9), shown(&mut tty)), (Some(b"abcd\n".to_vec()), String::from("abc^Cd\r\n")));
    let mut tty = with(|modes| modes.local &= !local::SIGNALS);
    assert_eq!(type_in(&mut tty, b"\x03\n"), []);
    assert_eq!(read(&mut tty, 9), Some(b"\x03\n".to_vec()));
    let mut tty = with(|modes| modes.characters[character::INTERRUPT] = 0);
    assert_eq!(type_in(&mut tty, b"\x03\0\n"), []);
    assert_eq!(read(&mut tty, 9), Some(b"\x03\0\n".to_vec()));
}

#[test]
fn output_stops_and_goes_on() {
    let mut tty = cooked();
    type_in(&mut tty, b"\x13");
    assert!(!tty.has_output_room());
    type_in(&mut tty, b"x");
    assert_eq!(shown(&mut tty), "", "echo waits too");
    type_in(&mut tty, b"\x11");
    assert_eq!((tty.has_output_room(), shown(&mut tty)), (true, String::from("x")));
    let mut tty = with(|modes| modes.input |= input::ANY_RESTARTS);
    type_in(&mut tty, b"\x13y");
    assert_eq!(shown(&mut tty), "y");
    let mut tty = with(|modes| modes.input &= !input::FLOW);
    type_in(&mut tty, b"\x13\x11\n");
    assert_eq!(read(&mut tty, 9), Some(b"\x13\x11\n".to_vec()));
}

#[test]
fn returns_and_newlines_are_turned_into_each_other() {
    for (flags, expected) in [
        (0, &b"a\rb\n"[..]),
        (input::RETURN_TO_NEWLINE, b"a\nb\n"),
        (input::IGNORE_RETURN, b"ab\n"),
        (input::NEWLINE_TO_RETURN | input::RETURN_TO_NEWLINE, b"a\nb\r"),
    ] {
        let mut tty = with(|modes| {
            modes.input = flags;
            modes.local = 0;
        });
        type_in(&mut tty, b"a\rb\n");
        assert_eq!(read(&mut tty, 9), Some(expected.to_vec()), "{flags:x}");
    }
    let mut tty = with(|modes| modes.input |= input::STRIP | input::LOWER);
    type_in(&mut tty, b"A\xe2\n");
    assert_eq!(read(&mut tty, 9), Some(b"ab\n".to_vec()));
}

fn written(flags: u32, bytes: &[u8]) -> String {
    let mut tty = with(|modes| modes.output = flags);
    bytes.iter().for_each(|byte| tty.write(*byte));
    shown(&mut tty)
}

#[test]
fn output_is_changed_as_the_modes_say() {
    use output::{NEWLINE_RETURNS, NEWLINE_TO_BOTH, NO_RETURN_AT_START, PROCESS, RETURN_TO_NEWLINE, TABS, UPPER};
    assert_eq!(written(0, b"a\n\tb\r"), "a\n\tb\r");
    assert_eq!(written(PROCESS | NEWLINE_TO_BOTH, b"a\nb\r\n"), "a\r\nb\r\r\n");
    assert_eq!(written(PROCESS | RETURN_TO_NEWLINE, b"a\rb"), "a\nb");
    assert_eq!(written(PROCESS | NO_RETURN_AT_START, b"\ra\r\r"), "a\r");
    assert_eq!(written(PROCESS | NEWLINE_RETURNS | NO_RETURN_AT_START, b"a\n\r"), "a\n");
    assert_eq!(written(PROCESS | UPPER, b"aZ1"), "AZ1");
    assert_eq!(written(PROCESS | TABS, b"ab\t\x08\tc"), "ab      \x08 c");
    assert_eq!(written(NEWLINE_TO_BOTH, b"\n"), "\n", "nothing without OPOST");
}

#[test]
fn bytes_come_at_once_when_there_are_no_lines() {
    let mut tty = with(|modes| modes.local &= !local::CANONICAL);
    type_in(&mut tty, b"a\x7f\x04\n");
    assert_eq!((tty.readable_bytes(), read(&mut tty, 3)), (4, Some(b"a\x7f\x04".to_vec())));
    assert_eq!(read(&mut tty, 3), Some(b"\n".to_vec()));
    assert_eq!(shown(&mut tty), "a^?^D\r\n");
    let mut tty = with(|modes| {
        modes.local &= !local::CANONICAL;
        modes.characters[character::COUNT] = 3;
    });
    type_in(&mut tty, b"ab");
    assert_eq!(read(&mut tty, 9), None);
    type_in(&mut tty, b"c");
    assert_eq!(read(&mut tty, 9), Some(b"abc".to_vec()));
}

#[test]
fn a_change_of_modes_keeps_what_was_typed() {
    let raw = TerminalModes { local: TerminalModes::DEFAULT.local & !local::CANONICAL, ..TerminalModes::DEFAULT };
    let mut tty = cooked();
    type_in(&mut tty, b"one\ntw");
    tty.set_modes(raw);
    assert_eq!(read(&mut tty, 9), Some(b"one\ntw".to_vec()));
    type_in(&mut tty, b"raw");
    tty.set_modes(TerminalModes::DEFAULT);
    type_in(&mut tty, b"more\n");
    assert_eq!(read(&mut tty, 9), Some(b"raw".to_vec()));
    assert_eq!(read(&mut tty, 9), Some(b"more\n".to_vec()));
}

#[test]
fn a_line_that_is_too_long_can_still_be_ended() {
    let mut tty = with(|modes| modes.local &= !local::ECHO);
    for _ in 0..5000 {
        assert_ne!(tty.input_room(), 0);
        tty.receive(b'x');
    }
    tty.receive(b'\n');
    assert_eq!(tty.input_room(), 0, "nothing more until it is read");
    let line = read(&mut tty, 9999).unwrap();
    assert_eq!((line.len(), line[INPUT_BYTES_MAX - 1]), (INPUT_BYTES_MAX, b'\n'));
    assert_eq!(tty.input_room(), INPUT_BYTES_MAX - 1);
}

#[test]
fn a_screen_that_takes_nothing_loses_echo_only() {
    let mut tty = with(|modes| modes.local &= !local::CANONICAL);
    for _ in 0..100 {
        type_in(&mut tty, &[b'x'; 1000]);
        tty.flush_input();
    }
    assert!(tty.pending_output() <= super::discipline::OUTPUT_BYTES_MAX + 4096);
    assert!(!tty.has_output_room());
    shown(&mut tty);
    assert!(tty.has_output_room());
}
