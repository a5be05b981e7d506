//! Random operations from a seed.

/// An operation on both sides.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Open { path: String, flags: Flags, steps: Vec<FileStep> },
    MakeDirectory(String),
    RemoveDirectory(String),
    Unlink(String),
    Rename(String, String, Mode),
    Link(String, String, bool),
    Symlink(String, String),
    MakeFifo(String),
    ReadLink(String),
    Stat(String, bool),
    Truncate(String, u64),
    SetPermissions(String, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
    pub(crate) append: bool,
    pub(crate) directory: bool,
    pub(crate) no_follow: bool,
    pub(crate) path_only: bool,
}

/// Something done with an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileStep {
    Read(u64),
    Write(u64),
    ReadAt(u64, u64),
    WriteAt(u64, u64),
    SeekStart(i64),
    SeekCurrent(i64),
    SeekEnd(i64),
    SeekData(u64),
    SeekHole(u64),
    Truncate(u64),
    Extend(u64, u64),
    KeepSize(u64, u64),
    PunchHole(u64, u64),
}

impl Operation {
    pub(crate) fn open_read_write(path: &str, steps: Vec<FileStep>) -> Self {
        let flags = Flags { read: true, write: true, create: true, ..Flags::default() };
        Self::Open { path: path.into(), flags, steps }
    }

    /// Whether it changes something when it succeeds.
    pub(crate) fn may_change(&self) -> bool {
        match self {
            Self::Open { flags, steps, .. } => flags.create || flags.truncate || !steps.is_empty(),
            Self::ReadLink(_) | Self::Stat(..) => false,
            _ => true,
        }
    }
}

pub(crate) struct Generator {
    state: u64,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        let mut generator = Self { state: seed };
        // Neighbouring seeds would otherwise give the same numbers, shifted.
        generator.state = generator.below(u64::MAX);
        generator
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn name(&mut self) -> &'static str {
        const NAMES: [&str; 12] = ["a", "b", "d", "e", "l", "m", "x", "o", "p", "f", "g", "empty"];
        NAMES[self.below(NAMES.len() as u64) as usize]
    }

    /// Mostly a name in a directory that is probably there, sometimes anything.
    fn path(&mut self) -> String {
        const DIRECTORIES: [&str; 8] = ["", "", "", "d/", "d/e/", "m/", "f/", "d/empty/../"];
        if self.chance(30) {
            return self.wild_path();
        }
        let directory = DIRECTORIES[self.below(DIRECTORIES.len() as u64) as usize];
        let slash = if self.chance(4) { "/" } else { "" };
        format!("{directory}{}{slash}", self.name())
    }

    fn wild_path(&mut self) -> String {
        let mut path = String::new();
        let mut parents = 0;
        for index in 0..=self.below(3) {
            if index > 0 {
                path.push_str(if self.chance(10) { "//" } else { "/" });
            }
            let dice = self.below(100);
            if dice < 6 && parents < 1 {
                parents += 1;
                path.push_str("..");
            } else if dice < 12 {
                path.push('.');
            } else {
                path.push_str(self.name());
            }
        }
        if self.chance(10) {
            path.push('/');
        }
        path
    }

    fn flags(&mut self) -> Flags {
        let access = self.below(6);
        Flags {
            read: access != 1,
            write: access != 0,
            create: self.chance(50),
            exclusive: self.chance(10),
            truncate: self.chance(10),
            append: self.chance(15),
            directory: self.chance(5),
            no_follow: self.chance(10),
            path_only: self.chance(3),
        }
    }

    fn offset(&mut self) -> u64 {
        const OFFSETS: [u64; 10] = [0, 1, 5, 100, 4095, 4096, 4097, 8192, 9000, 20_000];
        OFFSETS[self.below(OFFSETS.len() as u64) as usize]
    }

    fn file_step(&mut self) -> FileStep {
        let (offset, length) = (self.offset(), self.offset());
        match self.below(12) {
            0 | 1 => FileStep::Read(length),
            2 | 3 => FileStep::Write(length),
            4 => FileStep::ReadAt(offset, length),
            5 => FileStep::WriteAt(offset, length),
            6 => FileStep::SeekStart(offset.cast_signed() - 5),
            7 => FileStep::SeekCurrent(offset.cast_signed() - 100),
            8 => FileStep::SeekEnd(10 - offset.cast_signed()),
            9 => FileStep::Truncate(offset),
            10 => FileStep::PunchHole(offset, length),
            _ if self.chance(50) => FileStep::Extend(offset, length),
            _ => FileStep::KeepSize(offset, length),
        }
    }

    pub(crate) fn operation(&mut self) -> Operation {
        let path = self.path();
        match self.below(24) {
            0..=8 => {
                let flags = self.flags();
                let step_count = self.below(10);
                let steps = (0..step_count).map(|_| self.file_step()).collect();
                Operation::Open { path, flags, steps }
            }
            9 => Operation::MakeDirectory(path),
            10 => Operation::RemoveDirectory(path),
            11 => Operation::Unlink(path),
            12..=15 => {
                let mode = match self.below(6) {
                    0 => Mode::NoReplace,
                    1 => Mode::Exchange,
                    _ => Mode::Replace,
                };
                Operation::Rename(path, self.path(), mode)
            }
            16 | 17 => Operation::Link(path, self.path(), self.chance(40)),
            18 => {
                const TARGETS: [&str; 8] = ["a", "d", "d/e", "../a", "none", ".", "d/", "f/g"];
                let target = TARGETS[self.below(TARGETS.len() as u64) as usize];
                Operation::Symlink(target.into(), path)
            }
            19 => Operation::MakeFifo(path),
            20 => Operation::ReadLink(path),
            21 => Operation::Stat(path, self.chance(50)),
            22 => Operation::Truncate(path, self.offset()),
            _ => Operation::SetPermissions(path, [0o600, 0o644, 0o755, 0o4711][self.below(4) as usize]),
        }
    }
}

/// Every kind of operation with `first` as its path; where there are two, the second is some of `others`.
pub(crate) fn every_operation_on(first: &str, others: &[&str]) -> Vec<Operation> {
    let path = || String::from(first);
    let mut operations = vec![
        Operation::MakeDirectory(path()),
        Operation::RemoveDirectory(path()),
        Operation::Unlink(path()),
        Operation::Symlink("t".into(), path()),
        Operation::MakeFifo(path()),
        Operation::ReadLink(path()),
        Operation::Stat(path(), true),
        Operation::Stat(path(), false),
        Operation::Truncate(path(), 3),
    ];
    for bits in 0..128_u32 {
        let bit = |index: u32| bits & (1 << index) != 0;
        let flags = Flags {
            read: true,
            write: bit(0),
            create: bit(1),
            exclusive: bit(2),
            truncate: bit(3),
            directory: bit(4),
            no_follow: bit(5),
            path_only: bit(6),
            append: false,
        };
        operations.push(Operation::Open { path: path(), flags, steps: Vec::new() });
    }
    for second in others {
        let second = String::from(*second);
        for mode in [Mode::Replace, Mode::NoReplace, Mode::Exchange] {
            operations.push(Operation::Rename(path(), second.clone(), mode));
        }
        operations.push(Operation::Link(path(), second.clone(), false));
        operations.push(Operation::Link(path(), second, true));
    }
    operations
}
