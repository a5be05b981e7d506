//! Nice values, control groups and tickets decide shares of a processor (`tests/linux/shares.c`), and the commands of
//! the lottery's paper do what they say.
//!
//! With guest time counting instructions a run is the same every time. The draws are judged by an interval that one of
//! 15,000 fair runs leaves, so that a change elsewhere, which makes other draws, does not fail here by chance; narrower
//! ones, over many keys, are judged on the host (`exos/src/task/share_tests.rs`).

use std::path::Path;

use aegis_tests::programs::{aegis, compile_with};

/// Slices in 800 ms.
const DRAWS: f64 = 200.0;
const DEVIATIONS: f64 = 4.0;

fn check_part(thousandths: f64, chance: f64) {
    let deviation = (chance * (1.0 - chance) / DRAWS).sqrt();
    let part = thousandths / 1000.0;
    assert!((part - chance).abs() <= DEVIATIONS * deviation, "{part} is not {chance}");
}

#[test]
fn shares_are_those_of_nice_values_weights_and_limits() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux/shares.c");
    let text = std::fs::read_to_string(source).expect("the program's source is in the tree");
    let Some(program) = compile_with("gcc", "shares-static", &text, &["-O1", "-static", "-w"]) else { return };
    let found = aegis(&["--icount"], &[&program.display().to_string()], b"");
    let output = String::from_utf8_lossy(&found.output);
    assert!(found.status == 0 && output.ends_with("end\n"), "{output}{}", found.errors);
    let part = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name)).expect("each experiment has a line");
        line.trim().parse::<f64>().expect("a number")
    };
    assert_eq!(output.lines().count(), 6, "{output}");
    check_part(part("nice"), 1024.0 / (1024.0 + 335.0));
    check_part(part("weight"), 0.25);
    check_part(part("fifty"), 0.5);
    check_part(part("tickets"), 2.0 / 3.0);
    let limited = part("limit");
    assert!((180.0..=220.0).contains(&limited), "{limited}");
}

/// Commands as a user types them. Columns are made single spaces.
const COMMANDS: &str = "
show() { \"$@\" | tr -s ' ' | sed 's/^ //'; }
mkcur shop; mktkt 1000 base; fund 1 shop; mktkt 200 shop; fund 2 $$; show lstkt; show lscur
fundx 50 shop busybox sh -c '
    lstkt | tail -n 1 | tr -s \" \" | sed \"s/ $$ / self /\"
    busybox sh -c lscur | tail -n 1 | tr -s \" \" | sed \"s/^$$ /self /\"; exit 5'; echo $?
mktkt 3 shop; fund 4 shop; fund 2 shop; rmtkt 4; lstkt | wc -l
mkdir /sys/fs/cgroup/batch; mktkt 5 /batch; echo +cpu > /sys/fs/cgroup/cgroup.subtree_control; mktkt 5 /batch
fund 5 shop; show lscur | grep batch; rmdir /sys/fs/cgroup/batch; rmtkt 5; rmdir /sys/fs/cgroup/batch; echo $?
for wrong in 'mktkt 0 shop' 'mktkt -5 shop' 'mktkt 99999999999999999999 shop' 'mktkt 1099511627775 shop' \\
    'mktkt 5 none' 'mktkt 5' 'fund 2 base' 'fund 9 shop' 'fund 2 99999' 'rmcur shop' 'mkcur shop' 'mkcur a/b' \\
    'rmtkt 9' 'fundx 0 shop true' 'fundx 5 none true' 'fundx 5 shop nothing' 'fundx 5 shop' 'lscur x'; do
    $wrong; echo $?
done
show lstkt";

const PRINTED: &str = "\
1
2
TICKET AMOUNT CURRENCY FUNDS OWNER
1 1000 base shop 0
2 200 shop 1 0
CURRENCY OWNER ISSUED FUNDED BY
base 0 1000
shop 0 200 1000.base
1 0 0 200.shop
 3 50 shop self 0
self 0 0 50.shop
5
4
3
5
shop 0 200 1000.base 5./batch
/batch 0 5
0
1
1
1
1
1
2
1
1
1
1
1
1
1
1
1
127
2
2
TICKET AMOUNT CURRENCY FUNDS OWNER
1 1000 base shop 0
2 200 shop 1 0
";

const SAID: &str = "\
fund: shop: the currency would fund itself
fund: 2: it funds something already
mktkt: /batch: no such currency
rmdir: '/sys/fs/cgroup/batch': Device or resource busy
mktkt: 0: an amount is a whole number from 1 to 1099511627775
mktkt: -5: an amount is a whole number from 1 to 1099511627775
mktkt: 99999999999999999999: an amount is a whole number from 1 to 1099511627775
mktkt: shop: the currency's amounts come to more than its limit
mktkt: none: no such currency
mktkt: usage: mktkt AMOUNT CURRENCY
fund: base: the base currency cannot be funded or destroyed
fund: 9: no such ticket
fund: 99999: no such process
rmcur: shop: still in use
mkcur: shop: there is a currency of this name
mkcur: a/b: a name has 1 to 32 letters, digits, '_' and '-', a letter first
rmtkt: 9: no such ticket
fundx: 0: an amount is a whole number from 1 to 1099511627775
fundx: none: no such currency
fundx: nothing: not found
fundx: usage: fundx AMOUNT CURRENCY COMMAND [ARGUMENT]...
lscur: usage: lscur
";

#[test]
fn the_papers_commands_say_what_they_do_and_why_not() {
    let found = aegis(&["--icount", "-q"], &["busybox", "sh", "-c", COMMANDS], b"");
    assert_eq!((String::from_utf8_lossy(&found.output).as_ref(), found.errors.as_str()), (PRINTED, SAID));
    assert_eq!(found.status, 0);
}

#[test]
fn a_program_is_funded_from_its_start() {
    for (tickets, expected) in [("300", "1 300 base 1 0"), ("300.shop", "2 300 shop 1 0")] {
        let script = "lstkt | tail -n 1 | tr -s ' ' | sed 's/^ //'";
        let found = aegis(&["--icount", "--tickets", tickets], &["busybox", "sh", "-c", script], b"");
        assert_eq!(String::from_utf8_lossy(&found.output).trim_end(), expected, "{}", found.errors);
    }
    for wrong in ["0", "-1", "1099511627776", "5.", "5.base"] {
        let found = aegis(&["--tickets", wrong], &["busybox", "true"], b"");
        assert!(found.status == 125 && found.errors.contains("--tickets"), "{wrong}: {found:?}");
    }
}
