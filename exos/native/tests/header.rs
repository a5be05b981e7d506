//! `exos.h` says what the crate says.

use exos_native::abi;

#[test]
fn the_headers_numbers_are_the_crates() {
    let text = include_str!("../include/exos.h");
    let expected: [(&str, u64); 42] = [
        ("VERSION", abi::VERSION),
        ("CALL_VERSION", abi::CALL_VERSION),
        ("CALL_HANDLE_FAULTS", abi::CALL_HANDLE_FAULTS),
        ("CALL_HANDLE_SHORTAGE", abi::CALL_HANDLE_SHORTAGE),
        ("CALL_APPLY", abi::CALL_APPLY),
        ("CALL_PAGES", abi::CALL_PAGES),
        ("CALL_TICKETS", abi::CALL_TICKETS),
        ("CALL_COMMAND", abi::CALL_COMMAND),
        ("CALL_WATCH", abi::CALL_WATCH),
        ("WATCH_PLACE", abi::WATCH_PLACE),
        ("WATCH_FORGET", abi::WATCH_FORGET),
        ("WATCH_CLOSE_STORES", abi::WATCH_CLOSE_STORES),
        ("WATCH_CLOSE_ACCESSES", abi::WATCH_CLOSE_ACCESSES),
        ("CLOSE_PAGE_COUNT_MAX", abi::CLOSE_PAGE_COUNT_MAX),
        ("NOTES_OWNER", abi::NOTES_OWNER as u64),
        ("NOTES_TOUCH_COUNT", abi::NOTES_TOUCH_COUNT as u64),
        ("NOTES_SHADOW_COUNT", abi::NOTES_SHADOW_COUNT as u64),
        ("NOTES_TOUCH_FIRST", abi::NOTES_TOUCH_FIRST as u64),
        ("NOTES_TOUCH_COUNT_MAX", abi::NOTES_TOUCH_COUNT_MAX as u64),
        ("TICKETS_MAX", abi::TICKETS_MAX),
        ("CHANGE_COUNT_MAX", abi::CHANGE_COUNT_MAX),
        ("PAGE_COUNT_MAX", abi::PAGE_COUNT_MAX),
        ("CHANGE_MAP", abi::CHANGE_MAP.into()),
        ("CHANGE_PROTECT", abi::CHANGE_PROTECT.into()),
        ("CHANGE_UNMAP", abi::CHANGE_UNMAP.into()),
        ("CHANGE_DISCARD", abi::CHANGE_DISCARD.into()),
        ("CHANGE_WATCH_STORES", abi::CHANGE_WATCH_STORES.into()),
        ("CHANGE_WATCH_ACCESSES", abi::CHANGE_WATCH_ACCESSES.into()),
        ("CHANGE_UNWATCH", abi::CHANGE_UNWATCH.into()),
        ("PAGE_PRESENT", abi::PAGE_PRESENT.into()),
        ("PAGE_WRITABLE", abi::PAGE_WRITABLE.into()),
        ("PAGE_ACCESSED", abi::PAGE_ACCESSED.into()),
        ("PAGE_DIRTY", abi::PAGE_DIRTY.into()),
        ("PAGES_CLEAR", abi::PAGES_CLEAR),
        ("CAUSE_STORE", abi::CAUSE_STORE),
        ("CAUSE_FETCH", abi::CAUSE_FETCH),
        ("CAUSE_NOT_MAPPED", abi::CAUSE_NOT_MAPPED),
        ("CAUSE_NOT_ALLOWED", abi::CAUSE_NOT_ALLOWED),
        ("CAUSE_BEYOND_FILE", abi::CAUSE_BEYOND_FILE),
        ("CAUSE_SHORTAGE", abi::CAUSE_SHORTAGE),
        ("CAUSE_WATCHED", abi::CAUSE_WATCHED),
        ("RED_ZONE_BYTES", abi::RED_ZONE_BYTES),
    ];
    for (name, value) in expected {
        if name == "RED_ZONE_BYTES" {
            assert!(text.contains(&format!("ret ${value}\\n")), "the entries return over the red zone");
            continue;
        }
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define EXOS_{name} ")));
        let word = line.unwrap_or_else(|| panic!("exos.h has no EXOS_{name}")).trim();
        let number = word.strip_prefix("0x").map_or_else(|| word.parse(), |hex| u64::from_str_radix(hex, 16));
        assert_eq!(number, Ok(value), "EXOS_{name}");
    }
    // A definition with more than a number goes on in the next line, and the guard has none.
    let is_number =
        |line: &&str| line.starts_with("#define EXOS_") && !line.ends_with('\\') && *line != "#define EXOS_H";
    let count = text.lines().filter(is_number).count();
    assert_eq!(count, expected.len() - 1, "a number of the header that this test does not know");
}
