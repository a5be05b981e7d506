//! A bank that is killed: accounts in recoverable memory, threads that move money between them, and the sum, which
//! never changes.
//!
//! - `bank create PATH [ACCOUNTS]` makes it: every account has 1,000.
//! - `bank run PATH [SECONDS] [set-range|page|diff|dirty-bits]` moves money until it is killed, or for so long.
//! - `bank check PATH` says what the sum is; its status says if it is right.
//! - `bank kill PATH TIMES` runs it so often, kills it with SIGKILL after a few milliseconds, and checks each time.
#![allow(unsafe_code, reason = "accounts are plain memory")]

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rhino::fake::Draws;
use rhino::linux::{Database, Mapping, Settings};
use rhino::{Detector, Durability, Error, PAGE_BYTES, Restore};

const FIRST_BALANCE: u64 = 1000;
/// An account: its balance, and what makes it as long as in TPC-A.
const ACCOUNT_BYTES: usize = 128;
const LOG_BYTES: u64 = 256 << 10;

struct Bank {
    database: Database,
    mapping: Mapping,
    account_count: usize,
}

impl Bank {
    fn open(path: &Path, detector: Detector) -> Result<Self, Error> {
        let settings = Settings { log_bytes: LOG_BYTES, ..Settings::default() };
        let database = Database::open(path, settings)?;
        let bytes = database.bytes() as usize;
        let mapping = database.map(0, bytes / PAGE_BYTES, detector, 0)?;
        Ok(Self { database, mapping, account_count: bytes / ACCOUNT_BYTES })
    }

    fn balance(&self, account: usize) -> *mut u64 {
        // SAFETY: an account lies inside the mapping.
        unsafe { self.mapping.address().add(account * ACCOUNT_BYTES).cast() }
    }

    fn read(&self, account: usize) -> u64 {
        // SAFETY: as above; the page is locked to this transaction from here on.
        unsafe { self.balance(account).read_volatile() }
    }

    fn write(&self, account: usize, balance: u64) {
        // SAFETY: as above.
        unsafe { self.balance(account).write_volatile(balance) }
    }

    /// Moves an amount around some accounts; the transaction is aborted now and then.
    fn transfer(&self, draws: &mut Draws) -> Result<(), Error> {
        let transaction = self.database.begin(Restore::Yes)?;
        let mut from = draws.below(self.account_count);
        for _ in 0..3 {
            let to = draws.below(self.account_count);
            if to == from {
                continue;
            }
            for account in [from, to] {
                transaction.set_range(&self.mapping, (account * ACCOUNT_BYTES) as u64, 8)?;
            }
            let amount = self.read(from).min(1 + draws.below(100) as u64);
            self.write(from, self.read(from) - amount);
            self.write(to, self.read(to) + amount);
            from = to;
        }
        match draws.below(10) {
            0 => transaction.abort(),
            1..4 => transaction.commit(Durability::Lazy),
            _ => transaction.commit(Durability::Flush),
        }
    }

    fn sum(&self) -> Result<u64, Error> {
        let transaction = self.database.begin(Restore::Yes)?;
        let sum = (0..self.account_count).map(|account| self.read(account)).sum();
        transaction.commit(Durability::Flush)?;
        Ok(sum)
    }
}

fn create(path: &Path, account_count: usize) -> Result<(), Error> {
    let bytes = (account_count * ACCOUNT_BYTES).next_multiple_of(PAGE_BYTES);
    Database::create(path, bytes as u64)?;
    let bank = Bank::open(path, Detector::Diff)?;
    for first in (0..bank.account_count).step_by(256) {
        let transaction = bank.database.begin(Restore::Yes)?;
        for account in first..bank.account_count.min(first + 256) {
            bank.write(account, FIRST_BALANCE);
        }
        transaction.commit(Durability::Flush)?;
    }
    bank.database.checkpoint()
}

fn run(path: &Path, seconds: u64, detector: Detector) -> Result<u64, Error> {
    let bank = Bank::open(path, detector)?;
    println!("open");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut draws = Draws::new(u64::from(std::process::id()));
    let mut count = 0;
    while Instant::now() < end {
        bank.transfer(&mut draws)?;
        count += 1;
        if draws.once_in(64) {
            bank.database.truncate()?;
        }
    }
    Ok(count)
}

fn check(path: &Path) -> Result<bool, Error> {
    let bank = Bank::open(path, Detector::Diff)?;
    let (sum, expected) = (bank.sum()?, bank.account_count as u64 * FIRST_BALANCE);
    let report = bank.database.report();
    println!("sum {sum}, expected {expected}; {} replayed, {} undone", report.replayed_count, report.undone_count);
    Ok(sum == expected)
}

/// Kills a running bank so often; answers how many sums were wrong.
fn kill(path: &str, times: usize) -> Result<usize, Error> {
    let program = env::current_exe().map_err(|_| Error::NoMemory)?;
    let mut draws = Draws::new(times as u64);
    let mut wrong = 0;
    for number in 0..times {
        let detector = ["set-range", "page", "diff"][number % 3];
        let arguments = ["run", path, "3600", detector];
        let child = Command::new(&program).args(arguments).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|_| Error::NoMemory)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        thread::sleep(Duration::from_micros(draws.below(8000) as u64));
        let _ = child.kill();
        let _ = child.wait();
        let is_right = line.starts_with("open") && check(Path::new(path))?;
        if !is_right {
            println!("kill {number} ({detector}): WRONG");
            wrong += 1;
        }
    }
    println!("{times} kills, {wrong} wrong");
    Ok(wrong)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |word: Option<&&str>, usual: usize| word.and_then(|word| word.parse().ok()).unwrap_or(usual);
    let detector = match words.get(3) {
        Some(&"set-range") => Detector::SetRange,
        Some(&"page") => Detector::Page,
        Some(&"dirty-bits") => Detector::DirtyBits,
        _ => Detector::Diff,
    };
    let result = match words[..] {
        ["create", path, ..] => create(Path::new(path), number(words.get(2), 4096)).map(|()| true),
        ["run", path, ..] => run(Path::new(path), number(words.get(2), 10) as u64, detector).map(|count| {
            println!("{count} transactions");
            true
        }),
        ["check", path] => check(Path::new(path)),
        ["kill", path, ..] => kill(path, number(words.get(2), 100)).map(|wrong| wrong == 0),
        _ => {
            eprintln!("usage: bank create|run|check|kill PATH ...");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bank: {error:?}");
            ExitCode::FAILURE
        }
    }
}
