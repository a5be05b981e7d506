//! The rows of suite `disk`: kinds of disk, and what is done with each.

/// Block sizes of the sequential rows: 1 KiB to 1 MiB, doubling.
const SEQUENTIAL_POWERS: std::ops::RangeInclusive<u32> = 10..=20;
/// Requests under way of the random rows.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// Requests of the row whose order is the system's affair.
const TOGETHER_COUNT: u32 = 64;

/// A kind of disk, and how its data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    Virtio,
    /// By DMA.
    Ide,
    /// By the processor.
    Pio,
}

impl Model {
    pub(super) const ALL: [Self; 3] = [Self::Virtio, Self::Ide, Self::Pio];

    /// The program's word for it, and the rows'.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::Ide => "ide",
            Self::Pio => "pio",
        }
    }

    /// `--driver`'s word for it.
    pub(super) const fn driver(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::Ide => "ide",
            Self::Pio => "ide-pio",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Virtio => "A virtio disk",
            Self::Ide => "An IDE disk by DMA",
            Self::Pio => "An IDE disk by the processor",
        }
    }

    /// What Linux's machine has.
    pub(super) const fn device(self) -> &'static str {
        match self {
            Self::Virtio => concat!(
                "virtio-blk-pci,disable-legacy=on,disable-modern=off,drive=disk0,",
                "num-queues=1,queue-size=256,discard=on,write-zeroes=on"
            ),
            Self::Ide | Self::Pio => "ide-hd,drive=disk0,bus=ide.0",
        }
    }
}

/// What is done with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// 64 MiB in blocks of so many bytes.
    Sequential(u32),
    /// 4 KiB at random places, so many under way.
    Random(u32),
    /// So many of 4 KiB at random places within 1 MiB, asked for at once and waited for together.
    Together(u32),
}

/// The same, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation(Kind);

impl Operation {
    pub(super) const fn kind(self) -> Kind {
        self.0
    }

    /// The program's word for it.
    pub(super) fn word(self) -> String {
        match self.0 {
            Kind::Sequential(bytes) => format!("seq_{bytes}"),
            Kind::Random(depth) => format!("rand_{depth}"),
            Kind::Together(count) => format!("async_{count}"),
        }
    }
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskRow {
    pub(super) model: Model,
    pub(super) operation: Operation,
}

impl DiskRow {
    /// `virtio_seq_64K`, `ide_rand_4K_16`
    pub(super) fn name(&self) -> String {
        let model = self.model.name();
        match self.operation.0 {
            Kind::Sequential(bytes) if bytes >= 1 << 20 => format!("{model}_seq_{}M", bytes >> 20),
            Kind::Sequential(bytes) => format!("{model}_seq_{}K", bytes >> 10),
            Kind::Random(depth) => format!("{model}_rand_4K_{depth}"),
            Kind::Together(count) => format!("{model}_async_4K_{count}"),
        }
    }
}

/// All of them, those of a kind of disk together.
pub(super) fn all() -> Vec<DiskRow> {
    let kinds = || {
        let sequential = SEQUENTIAL_POWERS.map(|power| Kind::Sequential(1 << power));
        let others = DEPTHS.map(Kind::Random).into_iter().chain([Kind::Together(TOGETHER_COUNT)]);
        sequential.chain(others).map(Operation)
    };
    Model::ALL.into_iter().flat_map(|model| kinds().map(move |operation| DiskRow { model, operation })).collect()
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn names_and_words() {
        let rows = all();
        assert_eq!(rows.len(), 48);
        let shown = |at: usize| (rows[at].name(), rows[at].operation.word());
        assert_eq!(shown(0), ("virtio_seq_1K".into(), "seq_1024".into()));
        assert_eq!(shown(10), ("virtio_seq_1M".into(), "seq_1048576".into()));
        assert_eq!(shown(30), ("ide_rand_4K_64".into(), "rand_64".into()));
    }
}
