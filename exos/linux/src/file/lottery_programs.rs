//! The programs of the lottery's commands: one file with nine names, in a directory that is in every pod.
//!
//! What the commands do is exos's own (`call/lottery.rs`). So there is no need of a compiler, of a root image that
//! holds them, or of a library: the program is some hundred bytes, made here, which pass their words on by a native
//! call, print the answer and exit with its status. It is an ordinary static ELF file for the loader.

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::vnode::{Creation, InodeRef, NewNode, WritePosition};
use exos_native::abi;

/// Where they are. The default `PATH` ends with it.
pub const DIRECTORY: &[u8] = b"/sys/fs/lottery";

/// Where the file is in memory, and behind it the room for an answer.
const BASE: u32 = 0x40_0000;
const REPLY: u32 = 0x40_1000;
/// Most bytes of an answer.
pub const REPLY_BYTES_MAX: u32 = 512 << 10;

const ELF_HEADER_BYTES: u32 = 64;
const SEGMENT_HEADER_BYTES: u32 = 56;
const CODE_OFFSET: u32 = ELF_HEADER_BYTES + 2 * SEGMENT_HEADER_BYTES;

/// The code. Nothing of it depends on where it lies.
fn code() -> Vec<u8> {
    let with = |opcode: &[u8], value: u32| [opcode, &value.to_le_bytes()].concat();
    let parts: [&[u8]; 20] = [
        &[0x48, 0x8b, 0x04, 0x24],                         // mov (%rsp), %rax: how many words
        &[0x48, 0x8d, 0x7c, 0x24, 0x08],                   // lea 8(%rsp), %rdi: the words
        &[0x48, 0x8d, 0x74, 0xc4, 0x10],                   // lea 16(%rsp,%rax,8), %rsi: the environment
        &with(&[0xba], REPLY),                             // mov $REPLY, %edx
        &with(&[0x41, 0xba], REPLY_BYTES_MAX),             // mov $REPLY_BYTES_MAX, %r10d
        &with(&[0xb8], abi::CALL_COMMAND as u32),          // mov $CALL_COMMAND, %eax
        &[0x0f, 0x05],                                     // syscall
        &[0x49, 0x89, 0xc4, 0x49, 0xc1, 0xec, 0x20],       // mov %rax, %r12; shr $32, %r12: the status
        &[0x41, 0x89, 0xc5],                               // mov %eax, %r13d: the length
        &with(&[0xbd], REPLY),                             // mov $REPLY, %ebp
        &[0xbb, 1, 0, 0, 0],                               // mov $1, %ebx: standard output
        &[0x45, 0x85, 0xe4, 0x74, 0x02],                   // test %r12d, %r12d; je next
        &[0xff, 0xc3],                                     // inc %ebx: standard error
        &[0x45, 0x85, 0xed, 0x74, 0x1c],                   // next: test %r13d, %r13d; je exit
        &[0x89, 0xdf, 0x48, 0x89, 0xee, 0x44, 0x89, 0xea], // mov %ebx, %edi; mov %rbp, %rsi; mov %r13d, %edx
        &[0xb8, 1, 0, 0, 0, 0x0f, 0x05],                   // mov $1, %eax; syscall: write
        &[0x48, 0x85, 0xc0, 0x7e, 0x08],                   // test %rax, %rax; jle exit
        &[0x48, 0x01, 0xc5, 0x41, 0x29, 0xc5, 0xeb, 0xdf], // add %rax, %rbp; sub %eax, %r13d; jmp next
        &[0x44, 0x89, 0xe7, 0xb8, 0xe7, 0, 0, 0],          // exit: mov %r12d, %edi; mov $231, %eax
        &[0x0f, 0x05],                                     // syscall: exit_group
    ];
    parts.concat()
}

/// A static ELF file with the code, and a segment of zeros for the answer.
fn program() -> Vec<u8> {
    /// Type and machine: executable, x86-64.
    const KIND: u32 = 62 << 16 | 2;
    const LOAD: u32 = 1;
    const READ_EXECUTE: u32 = 5;
    const READ_WRITE: u32 = 6;
    let code = code();
    let file_bytes = u64::from(CODE_OFFSET) + code.len() as u64;
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut put = |words: &[u32]| words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    put(&[KIND, 1, BASE + CODE_OFFSET, 0, ELF_HEADER_BYTES, 0, 0, 0, 0]);
    put(&[SEGMENT_HEADER_BYTES << 16 | ELF_HEADER_BYTES, 2, 0]);
    let mut segment = |flags: u32, address: u32, in_file: u64, in_memory: u64| {
        put(&[LOAD, flags]);
        let words = [0, u64::from(address), u64::from(address), in_file, in_memory, 4096];
        words.iter().for_each(|word| put(&[*word as u32, (word >> 32) as u32]));
    };
    segment(READ_EXECUTE, BASE, file_bytes, file_bytes);
    segment(READ_WRITE, REPLY, 0, REPLY_BYTES_MAX.into());
    bytes.extend_from_slice(&code);
    bytes
}

/// Puts the programs into a directory.
///
/// # Errors
/// The file system's.
pub fn populate(directory: &InodeRef, names: impl Iterator<Item = &'static str>, creation: Creation) -> Result<()> {
    let mut first: Option<InodeRef> = None;
    for name in names {
        match &first {
            Some(file) => directory.link(name.as_bytes(), file, creation.now)?,
            None => {
                let file = directory.create(name.as_bytes(), NewNode::Regular, creation)?;
                let bytes = program();
                let (_, count) = file.write_at(WritePosition::At(0), &mut &bytes[..], creation.now)?;
                if count != bytes.len() {
                    return Err(Errno::EIO);
                }
                first = Some(file);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BASE, CODE_OFFSET, REPLY, REPLY_BYTES_MAX, program};
    use exos::load::elf::{ElfImage, ElfKind};

    #[test]
    fn the_program_is_one_for_the_loader() {
        let bytes = program();
        let mut read_at = |offset: u64, into: &mut [u8]| {
            into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
            Ok(())
        };
        let image = ElfImage::read(bytes.len() as u64, &mut read_at).expect("an ELF file");
        assert_eq!((image.kind, image.entry), (ElfKind::Fixed, u64::from(BASE + CODE_OFFSET)));
        assert!(image.interpreter.is_none());
        let [code, answer] = &image.segments[..] else { panic!("two segments") };
        assert_eq!((code.address, code.file_bytes), (BASE.into(), bytes.len() as u64));
        assert_eq!((answer.address, answer.memory_bytes), (REPLY.into(), REPLY_BYTES_MAX.into()));
        assert!(bytes.len() < 4096, "one page, below the answer");
    }
}
