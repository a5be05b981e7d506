//! Plans, trampolines and function bounds over bytes written here, and over the programs of the host.

use alloc::sync::Arc;

use super::Refusal;
use super::functions::{FileBytes, function_at};
use super::plan::{JUMP_BYTES, Plan, SYSCALL_BYTES, plan};
use super::sites::SiteTable;
use super::trampoline::{Site, TRAMPOLINE_BYTES_MAX, TRAPPING};

const START: u64 = 0x40_1000;

/// Plans for the only `syscall` in `code`.
fn plan_of(code: &[u8]) -> Result<Plan, Refusal> {
    let at = code.windows(2).position(|pair| pair == [0x0f, 0x05]).expect("has a syscall") as u64;
    plan(START, code, START + at)
}

#[test]
fn the_number_before_a_call_gives_way_to_the_jump_and_the_call_stays() {
    // endbr64; mov $0x27,%eax; syscall; ret
    let code = [0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3];
    let plan = plan_of(&code).expect("the seven-byte form");
    assert_eq!((plan.jump, plan.syscall, plan.end), (START + 4, START + 9, START + 11));
    assert_eq!(plan.interior().count(), 0);
    assert!(plan.returns_in_place());
}

#[test]
fn two_short_moves_are_moved_together() {
    // mov %rdx,%rdi; mov %rdx,%rsi; syscall; add $1,%r8; ret
    let code = [0x48, 0x89, 0xd7, 0x48, 0x89, 0xd6, 0x0f, 0x05, 0x49, 0x83, 0xc0, 0x01, 0xc3];
    let plan = plan_of(&code).expect("six bytes before");
    assert_eq!((plan.jump, plan.end), (START, START + 8));
    assert_eq!(plan.interior().collect::<Vec<_>>(), [3]);
    assert!(plan.returns_in_place());
}

#[test]
fn what_follows_moves_where_nothing_before_can() {
    // je +2; syscall; cmp $-4096,%rax; ja; ret
    let code = [0x74, 0x00, 0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x01, 0xc3, 0xc3];
    let plan = plan_of(&code).expect("the comparison moves");
    assert_eq!((plan.jump, plan.syscall, plan.end), (START + 2, START + 2, START + 10));
    assert_eq!(plan.interior().collect::<Vec<_>>(), [2]);
    assert!(!plan.returns_in_place());
}

#[test]
fn a_jump_into_the_five_bytes_forbids_them() {
    // mov %rdx,%rdi; L: mov %rdx,%rsi; syscall; jmp L
    let looped = [0x48, 0x89, 0xd7, 0x48, 0x89, 0xd6, 0x0f, 0x05, 0xeb, 0xf9];
    let plan = plan_of(&looped).expect("the jump can stand at its target");
    assert_eq!(plan.jump, START + 3);
    // The same with a jump past a prefix: into no instruction that there is.
    let odd = [0x48, 0x89, 0xd7, 0x48, 0x89, 0xd6, 0x0f, 0x05, 0xeb, 0xfa];
    assert_eq!(plan_of(&odd), Err(Refusal::Undecodable));
}

#[test]
fn the_jump_stands_where_a_loop_meets_it() {
    // mov $0,%ecx (5 bytes); L: mov %rbx,%rax; mov %rdx,%rdi; syscall; jmp L
    let code = [0xb9, 0, 0, 0, 0, 0x48, 0x89, 0xd8, 0x48, 0x89, 0xd7, 0x0f, 0x05, 0xeb, 0xf6];
    assert_eq!(plan_of(&code).expect("inside the loop").jump, START + 5);
}

#[test]
fn what_cannot_move_is_left_where_it_is() {
    // mov 0x100(%rip),%eax; syscall; ret
    assert_eq!(plan_of(&[0x8b, 0x05, 0, 1, 0, 0, 0x0f, 0x05, 0xc3]), Err(Refusal::NoRoom));
    // call +0; syscall; ret
    assert_eq!(plan_of(&[0xe8, 0, 0, 0, 0, 0x0f, 0x05, 0xc3]), Err(Refusal::NoRoom));
    // mov $0x050f,%eax; ret: no syscall, only its bytes
    assert_eq!(plan_of(&[0xb8, 0x0f, 0x05, 0, 0, 0xc3]), Err(Refusal::NotAnInstruction));
    // 0x06 means nothing in 64-bit mode.
    assert_eq!(plan_of(&[0x06, 0xb8, 0x27, 0, 0, 0, 0x0f, 0x05]), Err(Refusal::Undecodable));
}

/// A site in the first place below that is safe.
fn site_of(plan: &Plan) -> Site {
    let mut pages = (1..4096).map(|count| START - 0x1000 - count * 0x1_0000 % 0x40_0000);
    pages.find_map(|page| SiteTable::place_in_new(page, plan)).expect("one of many places")
}

#[test]
fn every_replaced_instruction_start_traps_and_has_a_copy() {
    let codes: [&[u8]; 3] = [
        &[0x48, 0x89, 0xd7, 0x48, 0x89, 0xd6, 0x0f, 0x05, 0xc3],
        &[0x74, 0x00, 0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x01, 0xc3, 0xc3],
        &[0xc3, 0x89, 0xd0, 0x89, 0xf7, 0x90, 0x0f, 0x05, 0xc3],
    ];
    for code in codes {
        let plan = plan_of(code).expect("a plan");
        let site = site_of(&plan);
        let original = &code[(plan.jump - START) as usize..(plan.end - START) as usize];
        let bytes = site.encode(original, 0x3b0);
        assert_eq!(bytes.len() as u64, Site::length_bytes(&plan));
        assert!(bytes.len() as u64 <= TRAMPOLINE_BYTES_MAX);
        let jump = site.jump();
        for offset in plan.interior() {
            assert!(TRAPPING.contains(&jump[offset as usize]));
            let copy = site.forward(plan.jump + offset).expect("has a copy");
            assert_eq!(site.original(copy), Some(plan.jump + offset), "there and back");
            let at = (copy - site.trampoline) as usize;
            if plan.jump + offset != plan.syscall {
                assert_eq!(bytes[at], original[offset as usize]);
            }
        }
        assert_eq!(site.forward(plan.jump + plan.end), None);
        assert_eq!(site.original(site.trampoline + bytes.len() as u64), None);
    }
}

#[test]
fn the_table_forgets_text_and_finds_patches_that_lose_their_trampoline() {
    let plan = Plan { jump: START, syscall: START + 5, end: START + 7, starts: 0b10_0001 };
    let mut table = SiteTable::default();
    let site = site_of(&plan);
    table.add_page(site.trampoline & !0xfff);
    assert!(table.note(plan.syscall));
    assert!(!table.note(plan.syscall));
    table.add(site);
    assert!(!table.is_free(&plan));
    let overlapping = Plan { jump: START + 4, syscall: START + 9, end: START + 11, starts: 1 };
    assert!(!table.is_free(&overlapping));
    assert_ne!(table.place(&plan, |_| true), Some(site), "a slot is used once");
    let page = START >> 12;
    assert_eq!(table.patched_pages(&(page..page + 1)), [page]);
    let mut table = Arc::new(table);
    let mut copy = SiteTable::share(&table).expect("there is memory");
    assert!(Arc::ptr_eq(&table, &copy), "one table until somebody changes it");
    let copy = Arc::make_mut(&mut copy);
    assert_eq!(copy.forget(&(page..page + 1)), Vec::<u64>::new());
    assert_eq!(copy.state(plan.syscall), None);
    let trampoline = site.trampoline >> 12;
    let table = Arc::make_mut(&mut table);
    assert_eq!(table.forget(&(trampoline..trampoline + 1)), [page]);
    assert!(table.is_empty());
    // A long table is copied at once, where there may be no memory for it.
    (0..2000).for_each(|index| assert!(table.note(START + index * 16)));
    let long = Arc::new(core::mem::take(table));
    assert!(!Arc::ptr_eq(&long, &SiteTable::share(&long).expect("there is memory")));
}

struct Whole(Vec<u8>);

/// The same, by pages of which one is at hand.
struct Paged(Whole);

impl FileBytes for Paged {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Option<()> {
        self.0.read(offset, into)
    }

    fn at_hand(&mut self, offset: u64) -> &[u8] {
        let end = (offset as usize / 4096 + 1) * 4096;
        self.0.0.get(offset as usize..end.min(self.0.0.len())).unwrap_or_default()
    }
}

impl FileBytes for Whole {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Option<()> {
        let start = usize::try_from(offset).ok()?;
        into.copy_from_slice(self.0.get(start..start.checked_add(into.len())?)?);
        Some(())
    }
}

/// All that the host's C library and this very test have: bounds that hold the site, plans that keep their promises.
#[test]
fn the_sites_of_real_files_are_planned_within_their_functions() {
    let own = std::env::current_exe().expect("has a name");
    let paths = [own.as_path(), std::path::Path::new("/lib/x86_64-linux-gnu/libc.so.6")];
    let mut planned = 0;
    for path in paths {
        let Ok(bytes) = std::fs::read(path) else { continue };
        let mut file = Whole(bytes);
        for at in 0..file.0.len() - 1 {
            if file.0[at..at + 2] != [0x0f, 0x05] {
                continue;
            }
            let Some(function) = function_at(&mut file, at as u64) else { continue };
            assert!(function.contains(&(at as u64)));
            let Some(code) = file.0.get(function.start as usize..function.end as usize) else { continue };
            let Ok(plan) = plan(function.start, code, at as u64) else { continue };
            assert!(plan.jump >= function.start && plan.end <= function.end);
            assert!(plan.jump <= plan.syscall && plan.syscall + SYSCALL_BYTES <= plan.end);
            assert!(plan.end - plan.jump >= JUMP_BYTES);
            assert!(Site::length_bytes(&plan) <= TRAMPOLINE_BYTES_MAX);
            planned += 1;
        }
    }
    assert!(planned > 0 || !std::path::Path::new("/lib/x86_64-linux-gnu/libc.so.6").exists());
}

/// A file without a sorted table is walked: by what is at hand as by single reads, and both find what the table says.
#[test]
fn a_walk_finds_what_the_table_finds() {
    let own = std::env::current_exe().expect("has a name");
    let bytes = std::fs::read(own).expect("is there");
    let mut by_table = Whole(bytes.clone());
    let mut walked = Whole(bytes);
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[at + byte]));
    let (headers, count) = (word(&walked.0, 32) as usize, word(&walked.0, 56) as u16);
    for header in (0..usize::from(count)).map(|index| headers + index * 56) {
        if word(&walked.0, header) as u32 == 0x6474_e550 {
            walked.0[header..header + 4].fill(0);
        }
    }
    let mut paged = Paged(Whole(walked.0.clone()));
    let length = walked.0.len() as u64;
    let told = (0..500).map(|step| length / 500 * step);
    let told: Vec<_> = told.filter_map(|at| Some((at, function_at(&mut by_table, at)?))).collect();
    assert!(told.len() > 10);
    for (at, function) in told.iter().step_by(told.len() / 10) {
        assert_eq!(function_at(&mut walked, *at).as_ref(), Some(function));
        assert_eq!(function_at(&mut paged, *at).as_ref(), Some(function));
    }
}

#[test]
fn a_file_that_lies_is_refused() {
    let mut file = Whole(vec![0; 64]);
    assert_eq!(function_at(&mut file, 0), None);
    let mut header = vec![0xff; 4096];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let mut file = Whole(header);
    assert_eq!(function_at(&mut file, 100), None);
}
