//! The QEMU command line, as a pure function of what a run asks for.
//!
//! Each option is there for a reason that was measured or is stated here; the golden tests below fail when
//! one changes, so a change is a decision. `process` starts it.
//!
//! - `-nodefaults -no-user-config -display none -vga none -net none`: nothing that the guest does not drive.
//! - `-no-reboot`: a triple fault ends QEMU (status 0) instead of starting over.
//! - The processor has every feature that TCG emulates at a fair speed; four that it emulates slowly are off,
//!   as in the Linux anchor, so that figures compare.
//! - `-M pc` and `-M q35` start through qboot where it is installed: 35 ms instead of 70 to 90 ms with
//!   SeaBIOS (QEMU 7.2).

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;

use aegis_link::drivers::Model;
use clap::ValueEnum;

use crate::machine::disks::DiskImage;
use crate::machine::mounts::Served;
use crate::machine::network::Card;

/// A QEMU machine type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MachineKind {
    /// The smallest and fastest to start; virtio over MMIO
    Microvm,
    /// A PC of 1996 with PCI
    Pc,
    /// A PC of 2009 with PCI Express
    Q35,
}

/// The side that drives the devices of several pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The manager, on behalf of pods that it does not trust.
    Guard,
    /// Each pod its own.
    Pod,
}

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU's translator; works everywhere.
    Tcg,
    /// The processor itself, by way of `/dev/kvm`.
    Kvm,
}

impl Accelerator {
    /// The name that QEMU and `--accel` use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcg => "tcg",
            Self::Kvm => "kvm",
        }
    }
}

/// The guest's ends of the sockets, as file descriptor numbers that QEMU inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFds {
    /// Port 1.
    pub stdin: RawFd,
    /// Port 2.
    pub stdout: RawFd,
    /// Port 3.
    pub stderr: RawFd,
    /// Port 4.
    pub control: RawFd,
}

/// A pod's own devices.
#[derive(Clone, Copy, Debug)]
pub struct PodDevices<'a> {
    /// Descriptors of the console's ports.
    pub ports: PortFds,
    /// Its line of sessions, a port more.
    pub sessions: Option<RawFd>,
    /// Directories of the host that QEMU serves to it.
    pub mounts: &'a [Served],
    /// Its network card.
    pub card: Option<&'a Card>,
    /// Its disks, and what model they are.
    pub disks: (&'a [DiskImage], Model),
}

impl PodDevices<'_> {
    /// Device functions that it takes.
    pub(crate) fn function_count(&self) -> usize {
        function_count(self.mounts, self.card, self.disks.0)
    }
}

/// Device functions that a pod takes: its console, its directories, its card, its disks.
pub fn function_count(mounts: &[Served], card: Option<&Card>, disks: &[DiskImage]) -> usize {
    1 + mounts.len() + usize::from(card.is_some()) + disks.len()
}

/// Virtio-mmio register blocks in a page. What is in one page can be mapped by the owner of one of them.
const BLOCKS_PER_PAGE: usize = 8;
/// Register blocks of microvm with ACPI (QEMU 7.2).
const BLOCK_COUNT: usize = 24;
/// QEMU's name for the pool's disk.
const POOL_NAME: &str = "pool";
/// First place on the PCI bus for a function of ours, and one behind the last: bridges of both machine types are below,
/// and `-M q35` has more at 31.
const PCI_PLACES: std::ops::Range<usize> = 2..30;

impl MachineKind {
    /// The first place of each of several pods that have so many functions; `None` if there is no room for them.
    ///
    /// On microvm block 0 stays empty, because QEMU (7.2) raises line 2 of an interrupt controller for its line 0, so
    /// that the block would interrupt in the name of block 2. Pods that drive their devices themselves have a page of
    /// register blocks each, because protection ends at pages. Functions on PCI have pages of their own.
    pub fn places(self, function_counts: &[usize], driver: Driver) -> Option<Vec<usize>> {
        let mut next = match self {
            Self::Microvm => 1,
            Self::Pc | Self::Q35 => PCI_PLACES.start,
        };
        let mut firsts = Vec::new();
        for count in function_counts {
            let end = next + count;
            let (has_room, behind) = match self {
                Self::Microvm if driver == Driver::Guard => (end <= BLOCK_COUNT, end),
                Self::Microvm => {
                    let page_end = (next + 1).next_multiple_of(BLOCKS_PER_PAGE);
                    (end <= page_end.min(BLOCK_COUNT), page_end)
                }
                Self::Pc | Self::Q35 => (end <= PCI_PLACES.end, end),
            };
            if !has_room {
                return None;
            }
            firsts.push(next);
            next = behind;
        }
        Some(firsts)
    }

    /// Whether a device of this model can be in it.
    pub fn has(self, model: Model) -> bool {
        match model {
            Model::Virtio => true,
            Model::E1000 | Model::E1000e => self != Self::Microvm,
            Model::Ide => self == Self::Pc,
        }
    }

    /// The name that QEMU and `-M` use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Microvm => "microvm",
            Self::Pc => "pc",
            Self::Q35 => "q35",
        }
    }

    /// The place of the pool's disk, behind all pods'; `None` if there is no room for it. On microvm its page of
    /// register blocks has nothing else, since the domain that drives it maps that page.
    pub fn place_of_pool(self, function_counts: &[usize], driver: Driver) -> Option<usize> {
        let firsts = self.places(function_counts, driver)?;
        let end = firsts.last()? + function_counts.last()?;
        match self {
            Self::Microvm => Some(end.next_multiple_of(BLOCKS_PER_PAGE)).filter(|place| *place < BLOCK_COUNT),
            Self::Pc | Self::Q35 => Some(end).filter(|place| PCI_PLACES.contains(place)),
        }
    }

    /// Whether there is room for several pods that have so many functions, and for the disk of their pool.
    pub fn has_room(self, function_counts: &[usize], has_pool: bool, driver: Driver) -> bool {
        match has_pool {
            true => self.place_of_pool(function_counts, driver).is_some(),
            false => self.places(function_counts, driver).is_some(),
        }
    }

    /// The machine type that several pods get if nobody says which: the smallest that has room for them.
    pub fn for_pods(function_counts: &[usize], has_pool: bool, driver: Driver) -> Self {
        if Self::Microvm.has_room(function_counts, has_pool, driver) { Self::Microvm } else { Self::Q35 }
    }
}

/// Everything that the command line depends on.
#[derive(Clone, Debug)]
pub struct MachineLine<'a> {
    /// The QEMU executable.
    pub qemu: &'a Path,
    /// Machine type.
    pub machine: MachineKind,
    /// Accelerator, already decided.
    pub accelerator: Accelerator,
    /// Guest time counts guest instructions, each of them this power of two of nanoseconds (TCG only).
    pub icount_shift: Option<u8>,
    /// Processors, 1..=8.
    pub cpu_count: u8,
    /// Memory of the machine, bundle included.
    pub memory_mib: u64,
    /// The kernel's ELF file.
    pub kernel: &'a Path,
    /// Words for the kernel; empty for none.
    pub kernel_words: &'a str,
    /// The boot bundle.
    pub bundle: &'a Path,
    /// qboot, for the machine types that have another default.
    pub firmware: Option<&'a Path>,
    /// The first serial port: the kernel's log.
    pub log: RawFd,
    /// The pods' devices. Those of several pods have fixed places, in this order; those of one without a pool are
    /// where QEMU puts them.
    pub pods: &'a [PodDevices<'a>],
    /// The disk of which pods have parts: the machine's last, and none of a pod's.
    pub pool: Option<&'a DiskImage>,
    /// The side that drives them, if there are several pods.
    pub driver: Driver,
    /// The line to the manager of several pods: the second serial port.
    pub orders: Option<RawFd>,
    /// The port of a debugger, which the machine then waits for.
    pub debugger: Option<RawFd>,
    /// More words, at the end.
    pub more: &'a [OsString],
}

impl MachineLine<'_> {
    /// The arguments, without the executable.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut line = Arguments(Vec::new());
        self.push_machine(&mut line);
        for option in ["-nodefaults", "-no-user-config", "-no-reboot"] {
            line.flag(option);
        }
        line.pair("-display", "none").pair("-vga", "none").pair("-net", "none");
        line.path("-kernel", self.kernel).path("-initrd", self.bundle);
        if !self.kernel_words.is_empty() {
            line.pair("-append", self.kernel_words);
        }
        line.pair("-device", "isa-debug-exit,iobase=0xf4,iosize=0x04");
        line.pair("-chardev", &format!("socket,id=log,fd={}", self.log)).pair("-serial", "chardev:log");
        if let Some(fd) = self.orders {
            line.pair("-chardev", &format!("socket,id=orders,fd={fd}"));
            line.pair("-device", "isa-serial,chardev=orders,index=1");
        }
        if self.machine == MachineKind::Microvm {
            line.pair("-global", "virtio-mmio.force-legacy=false");
            if self.icount_shift.is_some() {
                line.pair("-global", "virtio-mmio.ioeventfd=off");
            }
        }
        if let Some(fd) = self.debugger {
            line.pair("-chardev", &format!("socket,id=gdb,fd={fd}")).pair("-gdb", "chardev:gdb");
        }
        let counts: Vec<usize> = self.pods.iter().map(PodDevices::function_count).collect();
        let are_placed = counts.len() > 1 || self.pool.is_some();
        let firsts = if are_placed { self.machine.places(&counts, self.driver) } else { None };
        for (number, pod) in self.pods.iter().enumerate() {
            let first = firsts.as_ref().and_then(|firsts| firsts.get(number)).copied();
            let place = first.map(|first| BusPosition { number, first });
            self.push_ports(&mut line, pod, place);
            self.push_mounts(&mut line, pod, place);
            self.push_card(&mut line, pod, place);
            self.push_disks(&mut line, pod, place);
        }
        if let Some(pool) = self.pool {
            for node in pool.nodes(POOL_NAME) {
                line.words("-blockdev", node);
            }
            let place = self.machine.place_of_pool(&counts, self.driver).map_or(String::new(), |it| self.place(it));
            let options = pool.device_options(POOL_NAME, Model::Virtio);
            line.pair("-device", &format!("{}{place}{options}", self.virtio("blk")));
        }
        line.0.extend_from_slice(self.more);
        line.0
    }

    fn push_machine(&self, line: &mut Arguments) {
        match (self.accelerator, self.icount_shift.is_some()) {
            (Accelerator::Kvm, _) => line.pair("-accel", "kvm"),
            // Counting instructions and one host thread per processor exclude each other.
            (Accelerator::Tcg, true) => line.pair("-accel", "tcg,thread=single"),
            (Accelerator::Tcg, false) => line.pair("-accel", "tcg,thread=multi"),
        };
        line.pair(
            "-M",
            match self.machine {
                MachineKind::Microvm => "microvm,acpi=on",
                MachineKind::Pc => "pc",
                MachineKind::Q35 => "q35",
            },
        );
        if let Some(firmware) = self.firmware {
            line.path("-bios", firmware);
        }
        line.pair(
            "-cpu",
            match self.accelerator {
                Accelerator::Tcg => "max,erms=off,fsrm=off,pku=off,la57=off",
                // Some nested hosts fault on the MSR behind this feature.
                Accelerator::Kvm => "max,arch-capabilities=off,pku=off,la57=off",
            },
        );
        line.pair("-smp", &self.cpu_count.to_string());
        line.pair("-m", &format!("{}M", self.memory_mib));
        if let Some(shift) = self.icount_shift {
            let has_disks = self.pool.is_some() || self.pods.iter().any(|pod| !pod.disks.0.is_empty());
            let sleep = if has_disks { "on" } else { "off" };
            line.pair("-icount", &format!("shift={shift},sleep={sleep}"));
            line.pair("-rtc", "base=2026-01-01T00:00:00,clock=vm");
            line.pair("-seed", "1");
        }
    }

    /// Place `number` as the end of a device's options.
    fn place(&self, number: usize) -> String {
        match self.machine {
            MachineKind::Microvm => format!(",bus=virtio-mmio-bus.{number}"),
            MachineKind::Pc | MachineKind::Q35 => format!(",addr={number:#x}"),
        }
    }

    /// The kind of a virtio device on this machine's bus.
    ///
    /// Where instructions are counted, a device does what it is asked for at the instruction that asks: by an event
    /// descriptor another thread of QEMU would, whenever the host lets it run, and a run would not repeat.
    fn virtio(&self, kind: &str) -> String {
        match self.machine {
            MachineKind::Microvm => format!("virtio-{kind}-device"),
            MachineKind::Pc | MachineKind::Q35 => {
                let notices = if self.icount_shift.is_some() { ",ioeventfd=off" } else { "" };
                format!("virtio-{kind}-pci,disable-legacy=on,disable-modern=off{notices}")
            }
        }
    }

    /// A pod's console. Names of ports, like those of all else, have to differ in QEMU; exos looks at what is in front
    /// of the `@`.
    fn push_ports(&self, line: &mut Arguments, pod: &PodDevices<'_>, place: Option<BusPosition>) {
        let console = format!("{},max_ports={}", self.virtio("serial"), 5 + u8::from(pod.sessions.is_some()));
        let (mark, suffix, bus) = match place {
            None => {
                line.pair("-device", &console);
                (String::new(), String::new(), String::new())
            }
            Some(BusPosition { number, first }) => {
                let place = self.place(first);
                line.pair("-device", &format!("{console},id=console-{number}{place}"));
                (format!("-{number}"), format!("@{number}"), format!(",bus=console-{number}.0"))
            }
        };
        let ports = [
            ("stdin", Some(pod.ports.stdin)),
            ("stdout", Some(pod.ports.stdout)),
            ("stderr", Some(pod.ports.stderr)),
            ("control", Some(pod.ports.control)),
            ("sessions", pod.sessions),
        ];
        let ports = ports.into_iter().filter_map(|(name, fd)| Some((name, fd?)));
        for (index, (name, fd)) in ports.enumerate() {
            line.pair("-chardev", &format!("socket,id={name}{mark},fd={fd}"));
            let number = index + 1;
            let device = format!("virtserialport,nr={number},chardev={name}{mark},name=aegis.{name}{suffix}{bus}");
            line.pair("-device", &device);
        }
    }

    fn push_mounts(&self, line: &mut Arguments, pod: &PodDevices<'_>, place: Option<BusPosition>) {
        for (served, offset) in pod.mounts.iter().zip(1..) {
            let tag = served.tag();
            let (name, place) = match place {
                None => (tag.to_owned(), String::new()),
                Some(BusPosition { number, first }) => (format!("{tag}-{number}"), self.place(first + offset)),
            };
            line.0.push("-fsdev".into());
            line.0.push(served.server(&name));
            line.pair("-device", &format!("{},fsdev={name},mount_tag={tag}{place}", self.virtio("9p")));
        }
    }

    fn push_card(&self, line: &mut Arguments, pod: &PodDevices<'_>, place: Option<BusPosition>) {
        let Some(card) = pod.card else { return };
        let (name, place) = match place {
            None => ("net0".to_owned(), String::new()),
            Some(BusPosition { number, first }) => (format!("net0-{number}"), self.place(first + 1 + pod.mounts.len())),
        };
        line.words("-netdev", card.netdev(&name));
        let firmware = if self.machine == MachineKind::Microvm { "" } else { ",romfile=" };
        let device = match card.model {
            Model::Virtio => self.virtio("net"),
            other => other.name().to_owned(),
        };
        line.pair("-device", &format!("{device}{}{firmware}{place}", card.device_options(&name)));
        if let Some(object) = card.capture_object(&name) {
            line.words("-object", object);
        }
    }

    fn push_disks(&self, line: &mut Arguments, pod: &PodDevices<'_>, place: Option<BusPosition>) {
        let (disks, model) = pod.disks;
        for (index, disk) in disks.iter().enumerate() {
            let mark = place.map_or(String::new(), |place| format!("-{}", place.number));
            let name = format!("disk{index}{mark}");
            for node in disk.nodes(&name) {
                line.words("-blockdev", node);
            }
            let device = match (model, place) {
                (Model::Ide, _) => format!("ide-hd,bus=ide.{index},unit=0"),
                (_, Some(BusPosition { first, .. })) => {
                    let before = 1 + pod.mounts.len() + usize::from(pod.card.is_some());
                    format!("{}{}", self.virtio("blk"), self.place(first + before + index))
                }
                (_, None) => format!("{}{}", self.virtio("blk"), self.place_of_disk(index)),
            };
            line.pair("-device", &format!("{device}{}", disk.device_options(&name, model)));
        }
    }

    /// The place of a disk of a pod that has the machine for itself. On microvm QEMU gives places out from the last one
    /// down, so without one the second disk would come before the first; and place 0 does not interrupt
    /// ([`MachineKind::places`]).
    fn place_of_disk(&self, index: usize) -> String {
        if self.machine == MachineKind::Microvm { self.place(1 + index) } else { String::new() }
    }

    /// The whole line as a POSIX shell would take it.
    pub fn shell_line(&self) -> String {
        let arguments = self.arguments();
        let words = std::iter::once(self.qemu.as_os_str()).chain(arguments.iter().map(|a| &**a));
        words.map(|word| shell_quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
    }
}

/// Which pod of several, and where its functions begin.
#[derive(Clone, Copy)]
struct BusPosition {
    number: usize,
    first: usize,
}

struct Arguments(Vec<OsString>);

impl Arguments {
    fn flag(&mut self, option: &str) -> &mut Self {
        self.0.push(option.into());
        self
    }

    fn pair(&mut self, option: &str, value: &str) -> &mut Self {
        self.0.push(option.into());
        self.0.push(value.into());
        self
    }

    fn words(&mut self, option: &str, value: OsString) -> &mut Self {
        self.0.push(option.into());
        self.0.push(value);
        self
    }

    fn path(&mut self, option: &str, value: &Path) -> &mut Self {
        self.0.push(option.into());
        self.0.push(value.into());
        self
    }
}

fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{Accelerator, Driver, MachineKind, MachineLine, PodDevices, PortFds, shell_quoted};
    use crate::machine::disks::DiskImage;
    use crate::machine::mounts::{RootChanges, serve};
    use crate::machine::network::{Backend, Card, HARDWARE_ADDRESS_DEFAULT};
    use aegis_link::drivers::Model;
    use std::path::Path;

    const PORTS: PortFds = PortFds { stdin: 101, stdout: 102, stderr: 103, control: 104 };

    fn line() -> MachineLine<'static> {
        MachineLine {
            qemu: Path::new("qemu-system-x86_64"),
            machine: MachineKind::Microvm,
            accelerator: Accelerator::Tcg,
            icount_shift: None,
            cpu_count: 1,
            memory_mib: 256,
            kernel: Path::new("/k/kernel.elf"),
            kernel_words: "",
            bundle: Path::new("/b/my bundle"),
            firmware: None,
            orders: None,
            debugger: None,
            more: &[],
            log: 105,
            pods: &[PodDevices { ports: PORTS, sessions: None, mounts: &[], card: None, disks: (&[], Model::Virtio) }],
            pool: None,
            driver: Driver::Guard,
        }
    }

    #[test]
    fn golden_microvm() {
        assert_eq!(
            line().shell_line(),
            "qemu-system-x86_64 -accel tcg,thread=multi -M microvm,acpi=on \
             -cpu max,erms=off,fsrm=off,pku=off,la57=off -smp 1 -m 256M \
             -nodefaults -no-user-config -no-reboot -display none -vga none -net none \
             -kernel /k/kernel.elf -initrd '/b/my bundle' \
             -device isa-debug-exit,iobase=0xf4,iosize=0x04 \
             -chardev socket,id=log,fd=105 -serial chardev:log \
             -global virtio-mmio.force-legacy=false -device virtio-serial-device,max_ports=5 \
             -chardev socket,id=stdin,fd=101 \
             -device virtserialport,nr=1,chardev=stdin,name=aegis.stdin \
             -chardev socket,id=stdout,fd=102 \
             -device virtserialport,nr=2,chardev=stdout,name=aegis.stdout \
             -chardev socket,id=stderr,fd=103 \
             -device virtserialport,nr=3,chardev=stderr,name=aegis.stderr \
             -chardev socket,id=control,fd=104 \
             -device virtserialport,nr=4,chardev=control,name=aegis.control"
        );
    }

    #[test]
    fn golden_q35_kvm() {
        let mut it = line();
        it.machine = MachineKind::Q35;
        it.accelerator = Accelerator::Kvm;
        it.firmware = Some(Path::new("/usr/share/qemu/qboot.rom"));
        it.cpu_count = 4;
        it.kernel_words = "log=info";
        let text = it.shell_line();
        assert!(text.starts_with(
            "qemu-system-x86_64 -accel kvm -M q35 -bios /usr/share/qemu/qboot.rom \
             -cpu max,arch-capabilities=off,pku=off,la57=off -smp 4 -m 256M "
        ));
        assert!(text.contains(" -device virtio-serial-pci,disable-legacy=on,disable-modern=off,max_ports=5 "));
        assert!(text.contains(" -append log=info "));
        assert!(!text.contains("mmio"));
    }

    #[test]
    fn directories_are_served_by_a_device_each() {
        let root = serve(Some((Path::new("/"), RootChanges::InMemory)), &[], &[]).expect("a directory");
        let mut it = line();
        let pods =
            [PodDevices { ports: PORTS, sessions: None, mounts: &root, card: None, disks: (&[], Model::Virtio) }];
        it.pods = &pods;
        let server = "-fsdev local,id=aegis0,security_model=none,multidevs=remap,readonly=on,path=/";
        let mmio = format!(" {server} -device virtio-9p-device,fsdev=aegis0,mount_tag=aegis0");
        assert!(it.shell_line().ends_with(&mmio));
        it.machine = MachineKind::Q35;
        let pci = "-device virtio-9p-pci,disable-legacy=on,disable-modern=off,fsdev=aegis0,mount_tag=aegis0";
        assert!(it.shell_line().ends_with(pci));
    }

    #[test]
    fn a_card_is_a_device_behind_the_directories() {
        let card = Card {
            model: Model::Virtio,
            backend: Backend::Tap("tap0".into()),
            hardware_address: HARDWARE_ADDRESS_DEFAULT,
            capture: Some("/tmp/frames".into()),
        };
        let pods =
            [PodDevices { ports: PORTS, sessions: None, mounts: &[], card: Some(&card), disks: (&[], Model::Virtio) }];
        let mut it = line();
        it.pods = &pods;
        let options = "netdev=net0,mac=52:54:00:12:34:56,rx_queue_size=1024,guest_announce=off";
        let netdev = " -netdev tap,id=net0,ifname=tap0,script=no,downscript=no";
        let capture = " -object filter-dump,id=net0-capture,netdev=net0,file=/tmp/frames";
        let mmio = format!("{netdev} -device virtio-net-device,{options}{capture}");
        assert!(it.shell_line().ends_with(&mmio), "{}", it.shell_line());
        it.machine = MachineKind::Pc;
        let pci = "-device virtio-net-pci,disable-legacy=on,disable-modern=off";
        let pci = format!("{netdev} {pci},{options},romfile={capture}");
        assert!(it.shell_line().ends_with(&pci), "{}", it.shell_line());
        let root = serve(Some((Path::new("/"), RootChanges::InMemory)), &[], &[]).expect("a directory");
        let pods = [PodDevices {
            ports: PORTS,
            sessions: None,
            mounts: &root,
            card: Some(&card),
            disks: (&[], Model::Virtio),
        }; 2];
        it.pods = &pods;
        let text = it.shell_line();
        assert!(text.contains("id=console-1,addr=0x5") && text.contains("mount_tag=aegis0,addr=0x6"), "{text}");
        assert!(text.contains(" -netdev tap,id=net0-1,") && text.contains("netdev=net0-1,mac="), "{text}");
        assert!(text.contains(",romfile=,addr=0x4 ") && text.contains(",romfile=,addr=0x7 "), "{text}");
        let card = Card { model: Model::E1000, ..card.clone() };
        let pods =
            [PodDevices { ports: PORTS, sessions: None, mounts: &[], card: Some(&card), disks: (&[], Model::Virtio) }];
        it.pods = &pods;
        let pci = format!("{netdev} -device e1000,netdev=net0,mac=52:54:00:12:34:56,romfile={capture}");
        assert!(it.shell_line().ends_with(&pci), "{}", it.shell_line());
    }

    #[test]
    fn counting_instructions_fixes_clock_and_seed() {
        let mut it = line();
        it.icount_shift = Some(0);
        let text = it.shell_line();
        assert!(text.contains("-accel tcg,thread=single "));
        assert!(text.contains(" -icount shift=0,sleep=off -rtc base=2026-01-01T00:00:00,clock=vm -seed 1 "));
        assert!(text.contains(" -global virtio-mmio.ioeventfd=off "));
        it.machine = MachineKind::Pc;
        let serial = " -device virtio-serial-pci,disable-legacy=on,disable-modern=off,ioeventfd=off,max_ports=5 ";
        assert!(it.shell_line().contains(serial));
    }

    #[test]
    fn a_debugger_and_more_words() {
        let mut it = line();
        it.debugger = Some(106);
        let more = ["-d".into(), "int".into()];
        it.more = &more;
        assert!(it.shell_line().contains(" -chardev socket,id=gdb,fd=106 -gdb chardev:gdb "));
        assert!(it.shell_line().ends_with(" -d int"));
    }

    #[test]
    fn several_pods_have_devices_at_fixed_places() {
        let root = serve(Some((Path::new("/"), RootChanges::InMemory)), &[], &[]).expect("a directory");
        let other = PortFds { stdin: 111, stdout: 112, stderr: 113, control: 114 };
        let pods = [
            PodDevices { ports: PORTS, sessions: None, mounts: &root, card: None, disks: (&[], Model::Virtio) },
            PodDevices { ports: other, sessions: Some(116), mounts: &[], card: None, disks: (&[], Model::Virtio) },
        ];
        let mut it = line();
        it.pods = &pods;
        it.orders = Some(115);
        let text = it.shell_line();
        for words in [
            " -chardev socket,id=orders,fd=115 -device isa-serial,chardev=orders,index=1 ",
            " -device virtio-serial-device,max_ports=5,id=console-0,bus=virtio-mmio-bus.1 ",
            " -device virtserialport,nr=2,chardev=stdout-0,name=aegis.stdout@0,bus=console-0.0 ",
            " -fsdev local,id=aegis0-0,",
            " -device virtio-9p-device,fsdev=aegis0-0,mount_tag=aegis0,bus=virtio-mmio-bus.2 ",
            " -device virtio-serial-device,max_ports=6,id=console-1,bus=virtio-mmio-bus.3 ",
            " -device virtserialport,nr=5,chardev=sessions-1,name=aegis.sessions@1,bus=console-1.0",
            " -chardev socket,id=control-1,fd=114 ",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        it.machine = MachineKind::Q35;
        let text = it.shell_line();
        assert!(text.contains("max_ports=5,id=console-0,addr=0x2 "), "{text}");
        assert!(text.contains("mount_tag=aegis0,addr=0x3 ") && text.contains("id=console-1,addr=0x4 "), "{text}");
    }

    #[test]
    fn pods_share_no_page_of_registers() {
        let (microvm, q35) = (MachineKind::Microvm, MachineKind::Q35);
        assert_eq!(microvm.places(&[7, 8, 1], Driver::Pod), Some(vec![1, 8, 16]));
        for counts in [&[8, 1][..], &[1, 9], &[1, 1, 1, 1]] {
            assert_eq!(microvm.places(counts, Driver::Pod), None, "{counts:?}");
            assert_eq!(MachineKind::for_pods(counts, false, Driver::Pod), q35);
        }
        assert_eq!(MachineKind::for_pods(&[1, 1, 8], false, Driver::Pod), microvm);
        for driver in [Driver::Pod, Driver::Guard] {
            assert_eq!(q35.places(&[1; 13], driver), Some((2..15).collect()));
            assert_eq!(q35.places(&[10, 18], driver), Some(vec![2, 12]));
            assert_eq!(q35.places(&[10, 19], driver), None);
        }
    }

    #[test]
    fn guarded_functions_stand_close() {
        let microvm = MachineKind::Microvm;
        assert_eq!(microvm.places(&[9, 1, 13], Driver::Guard), Some(vec![1, 10, 11]));
        assert_eq!(microvm.places(&[1; 13], Driver::Guard), Some((1..14).collect()));
        assert_eq!(microvm.places(&[9, 1, 14], Driver::Guard), None);
        assert_eq!(MachineKind::for_pods(&[9, 1, 14], false, Driver::Guard), MachineKind::Q35);
    }

    #[test]
    fn the_pool_is_the_last_disk_and_alone_with_its_registers() {
        let (microvm, q35) = (MachineKind::Microvm, MachineKind::Q35);
        for (counts, driver, place) in [
            (&[1, 1][..], Driver::Guard, Some(8)),
            (&[7], Driver::Guard, Some(8)),
            (&[8], Driver::Guard, Some(16)),
            (&[8, 7], Driver::Guard, Some(16)),
            (&[8, 8], Driver::Guard, None),
            (&[2, 3], Driver::Pod, Some(16)),
            (&[2, 3, 1], Driver::Pod, None),
        ] {
            assert_eq!(microvm.place_of_pool(counts, driver), place, "{counts:?}");
            assert_eq!(MachineKind::for_pods(counts, true, driver) == microvm, place.is_some());
        }
        assert_eq!(q35.place_of_pool(&[10, 17], Driver::Guard), Some(29));
        assert!(q35.has_room(&[10, 18], false, Driver::Guard) && !q35.has_room(&[10, 18], true, Driver::Guard));
    }

    #[test]
    fn the_pool_is_behind_all_pods() {
        let image = |path: &str| DiskImage { path: path.into(), is_read_only: false, serial: None, failures: None };
        let (own, pool) = ([image("/own")], image("/pool,img"));
        let pod = PodDevices { ports: PORTS, sessions: None, mounts: &[], card: None, disks: (&own, Model::Virtio) };
        let mut it = MachineLine { pool: Some(&pool), driver: Driver::Pod, ..line() };
        let device = "drive=pool,num-queues=1,queue-size=256,discard=on,write-zeroes=on,werror=report,rerror=report";
        let pods = [pod; 2];
        for (count, place, own_place) in [(1, 8, "addr=0x3"), (2, 16, "addr=0x5")] {
            it.pods = &pods[..count];
            it.machine = MachineKind::Microvm;
            let text = it.shell_line();
            let end = format!(
                " -blockdev driver=raw,node-name=pool,read-only=off,discard=unmap,cache.direct=off,cache.no-flush=off,\
                 file=pool-file -device virtio-blk-device,bus=virtio-mmio-bus.{place},{device}"
            );
            assert!(text.ends_with(&end), "{text}");
            assert!(text.contains(",filename=/pool,,img "), "{text}");
            it.machine = MachineKind::Q35;
            let place = if count == 1 { "0x4" } else { "0x6" };
            let end = format!("virtio-blk-pci,disable-legacy=on,disable-modern=off,addr={place},{device}");
            assert!(it.shell_line().ends_with(&end), "{}", it.shell_line());
            assert!(it.shell_line().contains(&format!("disable-modern=off,{own_place},drive=disk0-")));
        }
        it.icount_shift = Some(0);
        it.pods = &[PodDevices { ports: PORTS, sessions: None, mounts: &[], card: None, disks: (&[], Model::Virtio) }];
        assert!(it.shell_line().contains(" -icount shift=0,sleep=on "));
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(shell_quoted("a/b-c=1,2"), "a/b-c=1,2");
        assert_eq!(shell_quoted(""), "''");
        assert_eq!(shell_quoted("it's $x"), r"'it'\''s $x'");
    }
}
