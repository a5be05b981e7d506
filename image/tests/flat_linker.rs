//! The real thing: a program of this toolchain, linked as static-pie for the bare target, becomes a flat image whose
//! pointers point into the image. A test says so and passes where the bare target is not installed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::Command;

use aegis_abi::boot::{FLAT_EXECUTE, FLAT_WRITE};
use aegis_image::flat::{from_elf, parse};

const SOURCE: &str = r#"
#![no_std]
#![no_main]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }
fn first() -> u32 { 0x1111 }
fn second() -> u32 { 0x2222 }
#[unsafe(no_mangle)]
static TABLE: [fn() -> u32; 2] = [first, second];
#[unsafe(no_mangle)]
static mut ZEROS: [u64; 10_000] = [0; 10_000];
#[unsafe(no_mangle)]
static mut DATA: u64 = 0x0123_4567_89ab_cdef;
#[unsafe(no_mangle)]
extern "C" fn _start(index: usize) -> ! {
    unsafe { DATA += u64::from(core::ptr::read_volatile(&raw const TABLE)[index & 1]()) };
    unsafe { core::ptr::write_volatile(&raw mut ZEROS[index % 10_000], DATA) };
    loop {}
}
"#;

#[test]
fn a_linked_program_becomes_a_flat_image() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (directory.join("flat_linker.rs"), directory.join("flat_linker"));
    std::fs::write(&source, SOURCE).unwrap();
    let output = Command::new("rustc")
        .args(["--edition=2024", "--target=x86_64-unknown-none", "-Cpanic=abort", "-O", "-o"])
        .arg(&program)
        .arg(&source)
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        other => {
            println!("skipped: no program for x86_64-unknown-none can be built here: {other:?}");
            return;
        }
    }
    let image = from_elf(&std::fs::read(&program).unwrap()).unwrap();
    let header = parse(&image).unwrap();
    let segments = &header.segments[..header.segment_count as usize];
    let text = segments.iter().find(|segment| segment.flags == FLAT_EXECUTE).unwrap();
    assert!(
        segments
            .iter()
            .any(|segment| { segment.flags == FLAT_WRITE && u64::from(segment.page_count) * 4096 >= 80_000 })
    );
    let text_end = text.virtual_address + u64::from(text.page_count) * 4096;
    assert!((text.virtual_address..text_end).contains(&header.entry));
    // Both functions' addresses lie in the data; the linker may have joined nothing, so look for them everywhere.
    let words = image[4096..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let pointers = words.filter(|word| (text.virtual_address..text_end).contains(word)).count();
    assert!(pointers >= 2, "{pointers} pointers into the text");
}
