//! Programs that take over their library OS and want their devices to reach memory that is not their pod's
//! (`tests/attacks/dma_guard.c`), beside a pod with a secret.

use aegis_tests::programs::{Ended, compile, up};

const ATTACK: &str = include_str!("../attacks/dma_guard.c");
const SECRET: &str = "HONEST-SECRET";

/// Cases of the table on one function, and on all fourteen queues of a console.
const CASE_COUNT: usize = 66;
const CONSOLE_CASE_COUNT: usize = 12 + 14 * 36;

/// A pod that runs the program in this mode.
fn pod(name: &str, program: &std::path::Path, mode: &str, more: &str) -> String {
    let words: Vec<String> = mode.split(' ').map(|word| format!("\"{word}\"")).collect();
    let words = words.join(", ");
    format!("[pod.{name}]\nprogram = \"{}\"\nargs = [{words}]\nmemory = \"24M\"\n{more}\n", program.display())
}

fn lines_of(ended: &Ended, pod: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&ended.output).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(" | "));
    lines.filter(|(mark, _)| mark.trim_end() == pod).map(|(_, line)| line.to_owned()).collect()
}

/// The devices that nobody is given, in QEMU's words.
fn others(machine: &str) -> Vec<&'static str> {
    match machine {
        "microvm" => vec!["-device", "virtio-balloon-device", "-device", "virtio-rng-device"],
        _ => vec!["-device", "e1000", "-device", "virtio-balloon-pci", "-device", "virtio-rng-pci"],
    }
}

fn attack(machine: &str, processors: u8) {
    let Some(program) = compile("dma", ATTACK, &["-O1", "-static"]) else { return };
    let folder = std::env::temp_dir();
    let volume = format!("volumes = ['{}:/v:ro']", folder.display());
    let text = [
        format!("[machine]\ncpus = {processors}\n"),
        pod("served", &program, "cases", &volume),
        pod("console", &program, "console", ""),
        pod("honest", &program, "honest 8", &volume),
    ];
    let mut options = vec!["-M", machine];
    for word in others(machine) {
        options.extend(["--qemu-word", word]);
    }
    let name = format!("dma-{machine}-{processors}");
    let ended = up(&name, &options, &text.concat());
    assert_eq!(lines_of(&ended, "served"), [format!("{CASE_COUNT} cases, 0 not refused")], "{machine} {ended:?}");
    let console = lines_of(&ended, "console");
    assert_eq!(console, ["before".into(), format!("raw: {CONSOLE_CASE_COUNT} cases, 0 not refused")], "{ended:?}");
    assert_eq!(lines_of(&ended, "honest"), ["intact"], "{machine} {ended:?}");
    assert!(!String::from_utf8_lossy(&ended.output).contains(SECRET), "{machine}");
    assert!(ended.errors.contains("console: stopped by the kernel"), "{machine} {ended:?}");
}

#[test]
fn a_hostile_library_os_reaches_only_its_own_memory_on_microvm() {
    attack("microvm", 1);
}

#[test]
fn and_on_several_processors() {
    attack("microvm", 4);
}

#[test]
fn and_on_pc() {
    attack("pc", 2);
}

#[test]
fn and_on_q35() {
    attack("q35", 2);
}

/// Pods that end in the middle of their requests, as many as there is room for, each of them seven times.
const FLIGHT_COUNT: usize = 11;
const FLIGHT_END_COUNT: usize = 6;

/// A pod that ends in the middle of its requests is started again: its functions are reset, and nothing of it is left
/// in the memory that the next one gets. The manager gives a window of zeros: the next one says so if the half of it
/// that its library OS has not used, where late answers would come, holds anything else.
fn end_in_flight(machine: &str) {
    let Some(program) = compile("dma", ATTACK, &["-O1", "-static"]) else { return };
    let volume = format!("volumes = ['{}:/v:ro']", std::env::temp_dir().display());
    let restart = format!("{volume}\nrestart = \"on-failure:{}\"", FLIGHT_END_COUNT - 1);
    let flight = |number| pod(&format!("flight-{number}"), &program, "flight", &restart);
    let mut text: String = (0..FLIGHT_COUNT).map(flight).collect();
    text.push_str(&pod("honest", &program, "honest 6", ""));
    let ended = up(&format!("flight-{machine}"), &["-M", machine], &text);
    for number in 0..FLIGHT_COUNT {
        assert_eq!(lines_of(&ended, &format!("flight-{number}")), [""; 0], "{machine} {ended:?}");
    }
    assert_eq!(lines_of(&ended, "honest"), ["intact"], "{machine} {ended:?}");
    let end_count = ended.errors.matches("stopped by the kernel").count();
    assert_eq!(end_count, FLIGHT_COUNT * FLIGHT_END_COUNT, "{machine} {ended:?}");
}

#[test]
fn pods_that_end_with_requests_in_flight_leave_nothing() {
    end_in_flight("microvm");
    end_in_flight("q35");
}

#[test]
#[ignore = "minutes"]
fn a_thousand_pods_that_end_with_requests_in_flight_leave_nothing() {
    for _ in 0..1000_usize.div_ceil(FLIGHT_COUNT * FLIGHT_END_COUNT) {
        end_in_flight("microvm");
    }
}
