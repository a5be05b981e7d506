//! What a starting processor runs before it has its number is run by all of them at the same time, on memory that all
//! of them share. Meetings there are a matter of a few instructions and were seen once in hundreds of starts, so the
//! text itself is judged: nothing in it may use a stack or write memory.

const STACK_OPERATIONS: [&str; 8] = ["push", "pop", "call", "ret", "int", "iret", "enter", "leave"];

/// The instructions between the start and the one that takes a processor's number, without comments and labels.
fn shared_instructions() -> impl Iterator<Item = &'static str> {
    include_str!("x86_64/boot.s")
        .lines()
        .skip_while(|line| !line.starts_with("processor_start_begin:"))
        .take_while(|line| !line.contains("{started_count}"))
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty() && !line.ends_with(':'))
}

#[test]
fn starting_processors_share_no_stack() {
    assert!(shared_instructions().count() > 20, "the start was not found in boot.s");
    for line in shared_instructions() {
        let operation = line.split_whitespace().next().unwrap_or("");
        let uses_stack = STACK_OPERATIONS.iter().any(|word| operation.starts_with(word));
        assert!(!uses_stack, "`{line}` uses a stack that other processors have too");
        // The bytes of a far return, however they are written.
        assert!(!line.contains("0xcb") && !line.contains("0x68"), "`{line}` encodes a use of the stack");
        let destination = line.trim_start_matches(operation).trim_start();
        assert!(operation == "lgdt" || !destination.starts_with('['), "`{line}` writes memory that others have too");
    }
}
