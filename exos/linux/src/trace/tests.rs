//! Lines as users see them with `--trace`.

use super::{enter, errno_text};
use crate::abi::bytes::Encoder;
use crate::abi::errno;
use crate::testing::pod::World;
use exos::error::{Errno, Result};
use syscalls::Sysno;

const PAGE: u64 = 0x10_0000;

struct Traced(World);

impl Traced {
    fn new() -> Self {
        let world = World::new();
        world.map_zeros(PAGE, 0x2000);
        Self(world)
    }

    /// Puts bytes at an offset of the page; their address.
    fn put(&self, offset: u64, bytes: &[u8]) -> u64 {
        self.0.pod.process.space().lock().write_all(PAGE + offset, bytes).unwrap();
        PAGE + offset
    }

    /// The line of a call that writes `output` to an address and ends with `result`.
    fn line_with<const N: usize>(
        &mut self,
        number: Sysno,
        arguments: [u64; N],
        output: Option<(u64, &[u8])>,
        result: Result<u64>,
    ) -> String {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&arguments);
        let pending = enter(&self.0.context(), number as u64, all);
        if let Some((address, bytes)) = output {
            self.put(address - PAGE, bytes);
        }
        pending.finish(&self.0.context(), result)
    }

    fn line<const N: usize>(&mut self, number: Sysno, arguments: [u64; N], result: Result<u64>) -> String {
        self.line_with(number, arguments, None, result)
    }
}

#[test]
fn paths_flags_and_errors_are_named() {
    let mut traced = Traced::new();
    let path = traced.put(0, b"/etc/passwd\0");
    let here = -100i64 as u64;
    assert_eq!(
        traced.line(Sysno::openat, [here, path, 0o2_000_000, 0], Ok(3)),
        r#"openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3"#
    );
    assert_eq!(
        traced.line(Sysno::openat, [5, path, 0o1101, 0o644], Err(Errno::ENOENT)),
        r#"openat(5, "/etc/passwd", O_WRONLY|O_CREAT|O_TRUNC, 0644) = -1 ENOENT (No such file or directory)"#
    );
    assert_eq!(traced.line(Sysno::access, [path, 0], Ok(0)), r#"access("/etc/passwd", F_OK) = 0"#);
    assert_eq!(
        traced.line(Sysno::access, [0x10, 5], Err(Errno::EFAULT)),
        "access(0x10, R_OK|X_OK) = -1 EFAULT (Bad address)"
    );
    assert_eq!(traced.line(Sysno::unlink, [0], Err(Errno::EFAULT)), "unlink(NULL) = -1 EFAULT (Bad address)");
}

#[test]
fn a_path_is_read_before_the_call_and_a_buffer_behind_it() {
    let mut traced = Traced::new();
    let path = traced.put(0, b"before\0");
    let line = traced.line_with(Sysno::chdir, [path], Some((path, b"after!\0")), Ok(0));
    assert_eq!(line, r#"chdir("before") = 0"#);
    let buffer = PAGE + 0x100;
    let line = traced.line_with(Sysno::read, [0, buffer, 1024], Some((buffer, b"a\"b\n\x01\x012\xff")), Ok(8));
    assert_eq!(line, r#"read(0, "a\"b\n\1\0012\377", 1024) = 8"#);
    let line = traced.line(Sysno::read, [0, buffer, 1024], Err(Errno::EAGAIN));
    assert_eq!(line, "read(0, 0x100100, 1024) = -1 EAGAIN (Resource temporarily unavailable)");
    assert_eq!(traced.line(Sysno::read, [0, buffer, 1024], Ok(0)), r#"read(0, "", 1024) = 0"#);
}

#[test]
fn long_texts_are_cut() {
    let mut traced = Traced::new();
    let buffer = traced.put(0, &[b'x'; 200]);
    let shown = "x".repeat(32);
    assert_eq!(traced.line(Sysno::write, [1, buffer, 33], Ok(33)), format!("write(1, \"{shown}\"..., 33) = 33"));
    assert_eq!(traced.line(Sysno::write, [1, buffer, 32], Ok(32)), format!("write(1, \"{shown}\", 32) = 32"));
    // Memory ends in the middle of what would be shown.
    assert_eq!(
        traced.line(Sysno::write, [1, PAGE + 0x1ff0, 32], Err(Errno::EFAULT)),
        "write(1, 0x101ff0, 32) = -1 EFAULT (Bad address)"
    );
    let long = traced.put(0x400, &[b"/".as_slice(), &[b'p'; 300], b"\0"].concat());
    let line = traced.line(Sysno::rmdir, [long], Ok(0));
    assert!(line.ends_with("p\"...) = 0") && line.len() < 280, "{line}");
}

#[test]
fn programs_are_shown_with_their_arguments() {
    let mut traced = Traced::new();
    let path = traced.put(0, b"/bin/ls\0");
    let option = traced.put(16, b"-l\0");
    let arguments = Encoder::new().u64(path).u64(option).u64(0).finish();
    let arguments = traced.put(64, &arguments);
    assert_eq!(
        traced.line(Sysno::execve, [path, arguments, arguments], Ok(0)),
        r#"execve("/bin/ls", ["/bin/ls", "-l"], 0x100040 /* 2 vars */) = 0"#
    );
    assert_eq!(traced.line(Sysno::exit_group, [7], Ok(0)), "exit_group(7) = ?");
}

#[test]
fn memory_calls_show_addresses() {
    let mut traced = Traced::new();
    let anonymous = [0, 4096, 3, 0x22, u64::from(u32::MAX), 0];
    assert_eq!(
        traced.line(Sysno::mmap, anonymous, Ok(0x7f00_0000_0000)),
        "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0x0) = 0x7f0000000000"
    );
    assert_eq!(traced.line(Sysno::brk, [0], Ok(0x5555)), "brk(NULL) = 0x5555");
    assert_eq!(traced.line(Sysno::mprotect, [0x1000, 4096, 0], Ok(0)), "mprotect(0x1000, 4096, PROT_NONE) = 0");
}

#[test]
fn structures_are_shown_by_their_fields() {
    let mut traced = Traced::new();
    let at = PAGE + 0x200;
    let stat = Encoder::new().zero_to(24).u32(0o100_644).zero_to(48).u64(1234).zero_to(144).finish();
    assert_eq!(
        traced.line_with(Sysno::fstat, [3, at], Some((at, &stat)), Ok(0)),
        "fstat(3, {st_mode=S_IFREG|0644, st_size=1234, ...}) = 0"
    );
    let time = Encoder::new().u64(2).u64(5).finish();
    let time = traced.put(0x300, &time);
    assert_eq!(traced.line(Sysno::nanosleep, [time, 0], Ok(0)), "nanosleep({tv_sec=2, tv_nsec=5}, NULL) = 0");
    let set = traced.put(0x320, &(1u64 << 1 | 1 << 16).to_le_bytes());
    assert_eq!(
        traced.line(Sysno::rt_sigprocmask, [0, set, 0, 8], Ok(0)),
        "rt_sigprocmask(SIG_BLOCK, [INT CHLD], NULL, 8) = 0"
    );
    let all = traced.put(0x330, &(!(1u64 << 8)).to_le_bytes());
    assert_eq!(
        traced.line(Sysno::rt_sigsuspend, [all, 8], Err(Errno::EINTR)),
        "rt_sigsuspend(~[KILL], 8) = -1 EINTR (Interrupted system call)"
    );
    let action = Encoder::new().u64(1).u64(0x1400_0000).u64(9).u64(0).finish();
    let action = traced.put(0x340, &action);
    assert_eq!(
        traced.line(Sysno::rt_sigaction, [13, action, 0, 8], Ok(0)),
        "rt_sigaction(SIGPIPE, {sa_handler=SIG_IGN, sa_mask=[], sa_flags=SA_RESTORER|SA_RESTART}, NULL, 8) = 0"
    );
    let limit = Encoder::new().u64(8 << 20).u64(u64::MAX).finish();
    assert_eq!(
        traced.line_with(Sysno::prlimit64, [0, 3, 0, at], Some((at, &limit)), Ok(0)),
        "prlimit64(0, RLIMIT_STACK, NULL, {rlim_cur=8192*1024, rlim_max=RLIM64_INFINITY}) = 0"
    );
    let poll = Encoder::new().i32(0).u16(1).u16(0).finish();
    let poll = traced.put(0x380, &poll);
    assert_eq!(
        traced.line(Sysno::poll, [poll, 1, u64::from(u32::MAX)], Ok(1)),
        "poll([{fd=0, events=POLLIN}], 1, -1) = 1"
    );
}

#[test]
fn vectors_show_what_was_moved() {
    let mut traced = Traced::new();
    let text = traced.put(0, b"hello world");
    let vector = Encoder::new().u64(text).u64(5).u64(text + 5).u64(6).finish();
    let vector = traced.put(0x100, &vector);
    assert_eq!(
        traced.line(Sysno::writev, [1, vector, 2], Ok(11)),
        r#"writev(1, [{iov_base="hello", iov_len=5}, {iov_base=" world", iov_len=6}], 2) = 11"#
    );
    assert_eq!(
        traced.line(Sysno::readv, [1, vector, 2], Ok(6)),
        r#"readv(1, [{iov_base="hello", iov_len=5}, {iov_base=" ", iov_len=6}], 2) = 6"#
    );
    let line = traced.line(Sysno::writev, [1, 0x10, 2], Err(Errno::EFAULT));
    assert_eq!(line, "writev(1, 0x10, 2) = -1 EFAULT (Bad address)");
}

#[test]
fn unknown_calls_show_their_registers() {
    let mut traced = Traced::new();
    let pending = enter(&traced.0.context(), 5000, [1, 2, 3, 4, 5, 255]);
    let line = pending.finish(&traced.0.context(), Err(Errno::ENOSYS));
    assert_eq!(line, "syscall_5000(0x1, 0x2, 0x3, 0x4, 0x5, 0xff) = -1 ENOSYS (Function not implemented)");
}

#[test]
fn hostile_arguments_are_shown_too() {
    let mut traced = Traced::new();
    for number in 0..460 {
        for value in [0, 1, PAGE, PAGE + 0x1fff, u64::MAX, 1 << 63, 0x7fff_ffff_efff] {
            for result in [Ok(value), Err(Errno::EINVAL)] {
                let line = enter(&traced.0.context(), number, [value; 6]).finish(&traced.0.context(), result);
                assert!(line.len() < 4000 && !line.contains('\n'), "{line}");
            }
        }
    }
}

#[test]
fn every_error_has_a_text() {
    for error in [Errno::EPERM, Errno::ENOTSUP, Errno::ENOTRECOVERABLE, Errno::ESTALE, Errno::EDOM] {
        assert_ne!(errno_text(error), "Unknown error", "{}", errno::number(error));
    }
    assert!(super::ERROR_TEXTS.is_sorted_by_key(|row| row.0));
}
