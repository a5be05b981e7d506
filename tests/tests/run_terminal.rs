//! `aegis run -t`: the program's streams are a terminal whose line discipline is in exos. The keys come through a pipe
//! here, so that what is typed when does not depend on the clock.

use aegis_tests::programs::aegis;

fn typed(command: &[&str], keys: &[u8]) -> (String, i32) {
    let ended = aegis(&["-q", "-t"], command, keys);
    (String::from_utf8_lossy(&ended.output).into_owned(), ended.status)
}

#[test]
fn lines_are_edited_and_echoed_before_the_program_reads_them() {
    let (screen, status) = typed(&["cat"], b"abc\x7fd\n\x04");
    assert_eq!((screen.as_str(), status), ("abc\x08 \x08d\r\nabd\r\n", 0));
}

#[test]
fn keys_that_are_signals_reach_a_program_that_does_not_read() {
    for (key, shown, status) in [(b"\x03", "^C", 130), (b"\x1c", "^\\", 131)] {
        assert_eq!(typed(&["sleep", "100"], key), (shown.into(), status));
    }
}

#[test]
fn the_program_sees_one_terminal_with_a_name() {
    let (screen, status) = typed(&["tty"], b"");
    assert_eq!((screen.as_str(), status), ("/dev/pts/0\r\n", 0));
    let (screen, status) = typed(&["stty", "-a"], b"");
    assert!(screen.contains("intr = ^C") && screen.contains(" icanon") && screen.contains("\nechoctl "), "{screen}");
    assert_eq!(status, 0);
}

#[test]
fn a_shell_is_interactive() {
    let keys = b"PS1='> '\necho one\x7f\x7f\x7ftwo\n[ -t 0 ] && echo t\x65rminal\n: > /dev/tty && exit 7\n";
    let (screen, status) = typed(&["dash", "-i"], keys);
    // Once as it was typed, once as the shell said it.
    let twice = ["two\r\n", "terminal\r\n"].map(|text| screen.matches(text).count());
    assert_eq!(twice, [2, 2], "{screen}");
    assert_eq!(status, 7);
}
