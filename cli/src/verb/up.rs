//! `aegis up`: several pods in one machine, from a file to the exit status.
//!
//! The same steps as for `run`, once for each pod; then one machine whose first environment is the manager (`pods/`),
//! which gives each pod its part. The order is again that in which a user wants to hear of problems.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use aegis_launch::errors::{Doing, Error};
use aegis_launch::machine::boot::{self, BootBundle, PodImage, PodsImage};
use aegis_launch::machine::disks::DiskImage;
use aegis_launch::machine::process::sockets;
use aegis_launch::machine::qemu::{Driver, function_count};
use aegis_link::config::{Config, Flags};
use aegis_link::disks::KERNEL_DISK_COUNT_MAX;
use aegis_link::drivers::{Drivers, Model, Placement, Role};
use aegis_link::pods::{CurrencyPlan, ExtentPlan, PodPlan, PoolPlan, encode};

use crate::compose::{self, Compose, is_compose};
use crate::options::UpOptions;
use crate::options::groups::MachineOptions;
use crate::relay::Session;
use crate::relay::ending::verdict_of_pods;
use crate::remote::address::{Address, NameChoice};
use crate::remote::server::ControlServer;
use crate::remote::server::channel::Channel;
use crate::remote::server::payers::Payers;
use crate::remote::server::web::WebPlace;
use crate::start::file_volumes::settle_files;
use crate::start::image::settle;
use crate::start::memory::{memory_of_pods_mib, pod_quota_frames};
use crate::start::network::PodNetwork;
use crate::start::pod::{Pod, PodFiles};
use crate::start::{MachineSpec, Starter};
use crate::verb::up_currencies::CurrencyEntry;
use crate::verb::up_dependencies::Condition;
use crate::verb::up_file::{PodEntry, UpFile, parse};
use crate::verb::up_pool::{MachinePool, foreign_driver, has_pool};

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most pods of a machine in which one has its disks' driver in a domain or in the kernel.
const SERVED_POD_COUNT_MAX: usize = 3;

/// Runs the pods of a file; the answer is the tool's exit status.
pub(crate) fn up(options: &UpOptions, start: Instant) -> Result<u8, Error> {
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let path = cwd.join(&options.file);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let (mut file, directories) = read(&path, folder, options.machine.quiet)
        .map_err(|why| Error::Usage(format!("{}: {why}", options.file.display())))?;
    file.trusts_devices |= options.trust_devices;
    file.pool_fault = options.fault_pool;
    for entry in &mut file.pods {
        settle_files(&mut entry.options, folder);
        let name = entry.name.clone();
        let settled = settle(&mut entry.options, &mut entry.words, folder);
        for warning in settled.map_err(|error| of_pod(entry, error))?.iter().filter(|_| !options.machine.quiet) {
            eprintln!("aegis: {name}: {warning}");
        }
    }
    make_directories(&mut file, &directories, &options.machine)?;
    check_dependencies(&file)?;
    let name = NameChoice::new(options.name.as_deref(), &options.file);
    let is_named = options.name.is_some();
    let on_start = &|_: &str| Ok(());
    let (machine, metrics) = (&options.machine, options.metrics);
    let wanted = Wanted { machine, name, is_named, has_marks: true, hands_on: false, on_start, metrics };
    run_pods(&file, folder, &wanted, start)
}

/// Who waits for a pod's health wants one with a check, which its image may have had.
fn check_dependencies(file: &UpFile) -> Result<(), Error> {
    for entry in &file.pods {
        let of_health = entry.dependencies.iter().filter(|it| it.condition == Condition::Healthy);
        let mut checks = of_health.map(|it| &file.pods[it.pod]);
        if let Some(other) = checks.find(|other| other.options.image.health_check.is_none()) {
            let text = format!("depends_on: {}: has no health check, and so is never healthy", other.name);
            return Err(of_pod(entry, Error::Usage(text)));
        }
    }
    Ok(())
}

/// Makes the directories that volumes want; a dry run is without those volumes, and says so.
fn make_directories(file: &mut UpFile, directories: &[PathBuf], options: &MachineOptions) -> Result<(), Error> {
    for path in directories {
        if !options.dry_run {
            std::fs::create_dir_all(path).map_err(|error| Error::Usage(format!("{}: {error}", path.display())))?;
            continue;
        }
        file.pods.iter_mut().for_each(|entry| entry.options.volumes.retain(|volume| volume.host != *path));
        if !options.quiet {
            eprintln!("aegis: {} would be made", path.display());
        }
    }
    Ok(())
}

/// How the machine of several pods is to run.
pub(crate) struct Wanted<'a> {
    pub(crate) machine: &'a MachineOptions,
    pub(crate) name: NameChoice,
    /// It has to be called so.
    pub(crate) is_named: bool,
    /// Lines of output say whose they are.
    pub(crate) has_marks: bool,
    /// As [`Session::hands_on`].
    pub(crate) hands_on: bool,
    /// What is done with the machine's name when all that can be wrong beforehand is right.
    pub(crate) on_start: &'a dyn Fn(&str) -> Result<(), Error>,
    /// Where browsers and collectors find it.
    pub(crate) metrics: Option<SocketAddr>,
}

/// Runs these pods; the answer is the tool's exit status.
pub(crate) fn run_pods(file: &UpFile, folder: &Path, options: &Wanted<'_>, start: Instant) -> Result<u8, Error> {
    let pods = found(file, folder)?;
    let web = options.metrics.filter(|_| !options.machine.dry_run).map(WebPlace::take).transpose()?;
    let mut starter = Starter::find(options.machine)?;
    let files = files_of(file, &pods, &starter)?;
    files.iter().for_each(|files| files.report(options.machine));
    let networks = pods.iter().zip(&file.pods).map(|(pod, entry)| network(pod, entry, &starter));
    let networks = networks.collect::<Result<Vec<_>, _>>()?;
    let driver = if file.trusts_devices { Driver::Pod } else { Driver::Guard };
    let disks =
        file.pods.iter().zip(&pods).map(|(entry, pod)| disks(pod, entry, driver)).collect::<Result<Vec<_>, _>>()?;
    let counts: Vec<usize> = files.iter().zip(&networks).zip(&disks).map(function_count_of).collect();
    let drivers: Vec<_> = pods.iter().map(Pod::drivers).collect();
    let has_network: Vec<bool> = networks.iter().map(Option::is_some).collect();
    check_drivers(file, &Devices { drivers: &drivers, has_network: &has_network, disks: &disks }, driver)?;
    starter.fit(&counts, has_pool(file), driver, &drivers)?;
    if options.machine.verbose {
        eprintln!("aegis: {}", confinement(driver));
    }
    let (library_os, manager) = (starter.artifacts.flat_library_os()?, starter.artifacts.flat_manager()?);
    let mut configs = Vec::new();
    for (((entry, pod), files), network) in file.pods.iter().zip(&pods).zip(&files).zip(&networks) {
        let config = pod.config(options.machine, Flags::empty(), entry.name.as_bytes(), files, network.as_ref());
        configs.push(config.map_err(|error| of_pod(entry, error))?);
    }
    let accelerator = starter.accelerator(&library_os)?;
    let domains = pods.iter().map(|pod| pod.domains(&starter)).collect::<Result<Vec<_>, _>>()?;
    let roots = files.iter().map(|files| files.root.as_ref().map(|root| &root.image));
    let images = configs.iter().zip(&domains).zip(roots);
    let images = images.map(|((config, domains), root)| PodImage { config, domains, root }).collect();
    let pool = MachinePool::take(file, options.machine)?;
    let pool_domain = pool.as_ref().map(|_| starter.artifacts.flat_disk_domain()).transpose()?;
    let extents = pool.as_ref().map_or(&[][..], |pool| &pool.extents);
    let plan = plan_of(file, &counts, extents)?;
    let pool_domain = pool_domain.as_deref();
    let image = PodsImage { manager: &manager, library_os: &library_os, plan: &plan, pool_domain, pods: images };
    let bundle = boot::build_several(&image)?;
    let (host, mut guest) = sockets(pods.len())?;
    let (orders, orders_guest) = UnixStream::pair().doing("making the machine's sockets")?;
    orders.set_nonblocking(true).doing("making the machine's sockets")?;
    let sessions = configs.iter().map(|_| session_sockets()).collect::<Result<Vec<_>, _>>()?;
    let ports = networks.iter().map(shown_ports).collect();
    let spec = MachineSpec {
        cpu_count: file.cpus,
        memory_mib: memory_mib(file, networks.iter().flatten().count(), &bundle)?,
        slice_ms: file.slice_ms,
        bundle: &bundle,
        driver,
        mounts: files.iter().map(|files| files.mounts.as_slice()).collect(),
        networks,
        disks,
        pool: pool.as_ref().map(|pool| &pool.image),
        orders: Some(guest.add(&orders_guest.into())?),
        sessions: sessions.iter().map(|(_, theirs)| guest.add(theirs)).collect::<Result<_, _>>()?,
        debugger: None,
    };
    let Some(machine) = starter.prepare(spec, accelerator, host, guest)? else { return Ok(0) };
    drop(bundle);
    let names: Vec<String> = file.pods.iter().map(|entry| entry.name.clone()).collect();
    // Their machine's ends are QEMU's now.
    let channels = sessions.into_iter().zip(&configs).map(|((ours, _), config)| channel(ours, config));
    let channels = channels.collect::<Result<Vec<_>, _>>()?;
    let (server, name) = server(options, file, &names, orders, channels)?;
    web.iter().filter(|_| !options.machine.quiet).for_each(say_page);
    let server = Some(informed(server.with_ports(ports).with_web(web), file));
    (options.on_start)(&name)?;
    let (has_marks, hands_on) = (options.has_marks, options.hands_on);
    let session = Session { names: &names, has_marks, server, has_terminal: false, hands_on, start, mappings: None };
    let (finished, _) = starter.run(machine, session)?;
    let verdict = verdict_of_pods(&names, &finished.reports, finished.first_failure, finished.ending);
    starter.report(&verdict, &finished.log);
    Ok(verdict.status)
}

fn files_of(file: &UpFile, pods: &[Pod], starter: &Starter) -> Result<Vec<PodFiles>, Error> {
    let pairs = file.pods.iter().zip(pods);
    pairs.map(|(entry, pod)| pod.files(starter.cache.as_ref()).map_err(|error| of_pod(entry, error))).collect()
}

/// The same server, which knows what the file says of the pods.
fn informed(server: ControlServer, file: &UpFile) -> ControlServer {
    let images = || file.pods.iter().map(|entry| &entry.options.image);
    let server = server.with_images(images()).with_health(images().map(|image| image.health_check.clone()));
    let server = server.with_dependencies(file.pods.iter().map(|entry| entry.dependencies.clone()));
    server.with_extents(file.pods.iter().map(PodEntry::extent_count))
}

fn say_page(web: &WebPlace) {
    eprintln!("aegis: to be watched at http://{}/", web.address);
}

/// What keeps a pod's devices from memory that is not its own, in one line.
pub(crate) fn confinement(driver: Driver) -> &'static str {
    match driver {
        Driver::Guard => "devices: the manager guards them; a pod's reach the pod's memory and no other",
        Driver::Pod => "devices: nothing confines them; whoever takes over a pod's library OS reaches all memory",
    }
}

/// Where commands for the machine come in. A machine runs without a place for them, if the host has none and nobody
/// asked for a name.
fn server(
    options: &Wanted<'_>,
    file: &UpFile,
    names: &[String],
    orders: UnixStream,
    channels: Vec<Channel>,
) -> Result<(ControlServer, String), Error> {
    let address = match Address::take(&options.name) {
        Ok(address) => Some(address),
        Err(why) if options.is_named => return Err(Error::Usage(why.to_string())),
        Err(why) => {
            if !options.machine.quiet {
                eprintln!("aegis: no commands can reach this machine: {why}");
            }
            None
        }
    };
    let restarts = file.pods.iter().map(|entry| entry.restart).collect();
    let pod_payers = file.pods.iter().map(|entry| entry.payer).collect();
    let name = address.as_ref().map(|address| address.name.clone()).unwrap_or_default();
    let server =
        ControlServer::new(address, names, restarts, Payers::new(&file.currencies, pod_payers), orders, channels);
    Ok((server, name))
}

/// Both ends of a pod's line of sessions.
fn session_sockets() -> Result<(UnixStream, OwnedFd), Error> {
    let (ours, theirs) = UnixStream::pair().doing("making the machine's sockets")?;
    ours.set_nonblocking(true).doing("making the machine's sockets")?;
    Ok((ours, theirs.into()))
}

/// The line of a pod that was configured so.
fn channel(stream: UnixStream, config: &[u8]) -> Result<Channel, Error> {
    Config::decode(config).map(|config| Channel::new(stream, config)).map_err(|why| Error::Usage(why.to_string()))
}

/// A file's pods, and the directories that are to be made for them.
fn read(path: &Path, folder: &Path, is_quiet: bool) -> Result<(UpFile, Vec<PathBuf>), String> {
    let size_bytes = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size_bytes > FILE_BYTES_MAX {
        return Err(format!("longer than {} MiB", FILE_BYTES_MAX >> 20));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    if !is_compose(path) {
        return parse(&text, folder).map(|file| (file, Vec::new())).map_err(|error| error.to_string());
    }
    let Compose { file, notes, directories } = compose::read(&text, folder, std::env::vars_os().filter_map(text_of))?;
    for note in notes.iter().filter(|_| !is_quiet) {
        eprintln!("aegis: {}: {note}", path.display());
    }
    Ok((file, directories))
}

/// A variable that is text.
fn text_of((name, value): (OsString, OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

/// Finds every pod's program.
fn found<'a>(file: &'a UpFile, folder: &Path) -> Result<Vec<Pod<'a>>, Error> {
    let one = |entry: &'a PodEntry| {
        let words: &[OsString] = &entry.words;
        Pod::find(&entry.options, words, folder).map_err(|error| of_pod(entry, error))
    };
    file.pods.iter().map(one).collect()
}

/// Makes a pod's network. A pod whose file says nothing of it has none.
fn network(pod: &Pod<'_>, entry: &PodEntry, starter: &Starter<'_>) -> Result<Option<PodNetwork>, Error> {
    pod.network(starter).map_err(|error| of_pod(entry, error))
}

/// What the pods have of devices, in their order.
struct Devices<'a> {
    drivers: &'a [Drivers],
    has_network: &'a [bool],
    disks: &'a [PodDisks<'a>],
}

/// What a machine of several pods can have. Of guarded devices that is virtio's alone, which the manager knows, with
/// drivers in the pods' library OSes.
fn check_drivers(file: &UpFile, devices: &Devices<'_>, driver: Driver) -> Result<(), Error> {
    for (entry, drivers) in file.pods.iter().zip(devices.drivers) {
        let refuse = |text: String| Err(of_pod(entry, Error::Usage(format!("drivers: {text}"))));
        if drivers.disk.model == Model::Ide {
            return refuse("the controller of IDE disks is no pod's own; take disk=library:virtio".into());
        }
        for (role, it) in Role::ALL.map(|role| (role, drivers.of(role))) {
            if driver == Driver::Guard && it.placement != Placement::Library {
                let (role, placement) = (role.name(), it.placement.name());
                return refuse(format!("{role}={placement} needs trust_devices = true in [machine]"));
            }
            if driver == Driver::Guard && it.model != Model::Virtio {
                let model = it.model.name();
                return refuse(format!("{model} is not guarded; it needs trust_devices = true in [machine]"));
            }
        }
        // A session with a disk's service takes a part of the kernel's table of ranges that devices reach.
        if drivers.disk.placement != Placement::Library && file.pods.len() > SERVED_POD_COUNT_MAX {
            let placement = drivers.disk.placement.name();
            return refuse(format!("disk={placement} is for machines of at most {SERVED_POD_COUNT_MAX} pods"));
        }
    }
    check_kernel(file, devices)
}

/// An extended kernel drives every disk of the machine, if any, and one card.
fn check_kernel(file: &UpFile, devices: &Devices<'_>) -> Result<(), Error> {
    let in_kernel = |role| devices.drivers.iter().position(|it| it.of(role).placement == Placement::Kernel);
    let refuse = |index: usize, text: String| Err(of_pod(&file.pods[index], Error::Usage(format!("drivers: {text}"))));
    let card_count = devices.has_network.iter().filter(|has_network| **has_network).count();
    if let Some(index) = in_kernel(Role::Net)
        && card_count > 1
    {
        return refuse(index, "net=kernel: the kernel drives one card, and other pods have one too".into());
    }
    if let Some((index, text)) = foreign_driver(file, devices.drivers) {
        return refuse(index, text);
    }
    let Some(index) = in_kernel(Role::Disk) else { return Ok(()) };
    let disks = || devices.disks.iter().zip(devices.drivers);
    let is_elsewhere = |(disks, drivers): (&PodDisks<'_>, &Drivers)| {
        !disks.0.is_empty() && drivers.disk.placement != Placement::Kernel
    };
    if disks().any(is_elsewhere) {
        return refuse(index, "disk=kernel: the kernel drives all disks, and another pod's are elsewhere".into());
    }
    if disks().map(|(disks, _)| disks.0.len()).sum::<usize>() > KERNEL_DISK_COUNT_MAX {
        return refuse(index, format!("disk=kernel: at most {KERNEL_DISK_COUNT_MAX} disks in a machine"));
    }
    Ok(())
}

/// The disks of a pod and their model.
fn disks<'a>(pod: &Pod<'a>, entry: &PodEntry, driver: Driver) -> Result<PodDisks<'a>, Error> {
    let disks = pod.disks().map_err(|error| of_pod(entry, error))?;
    if !disks.0.is_empty() && driver == Driver::Guard {
        // The guard looks after rings and windows; a disk works on the memory of programs.
        let text = "disk: disks are not guarded; they need trust_devices = true in [machine]";
        return Err(of_pod(entry, Error::Usage(text.into())));
    }
    Ok(disks)
}

/// Images, and what model their devices are.
type PodDisks<'a> = (&'a [DiskImage], Model);

fn function_count_of(((files, network), disks): ((&PodFiles, &Option<PodNetwork>), &PodDisks<'_>)) -> usize {
    function_count(&files.mounts, network.as_ref().map(|network| &network.card), disks.0)
}

fn shown_ports(network: &Option<PodNetwork>) -> Vec<String> {
    network.iter().flat_map(|network| &network.ports).map(ToString::to_string).collect()
}

/// Says whose error it is. The status stays.
fn of_pod(entry: &PodEntry, error: Error) -> Error {
    Error::Pod(entry.name.clone(), Box::new(error))
}

/// What the manager is told of the pods.
fn plan_of(file: &UpFile, function_counts: &[usize], extents: &[ExtentPlan]) -> Result<Vec<u8>, Error> {
    let plan = file.pods.iter().zip(function_counts).map(|(entry, function_count)| {
        let frame_quota = pod_quota_frames(entry.options.memory, entry.extent_count());
        let device_count = *function_count as u32;
        PodPlan::new(&entry.name, frame_quota, entry.tickets, device_count).map(|plan| {
            plan.limited(pod_quota_frames(entry.memory_limit, entry.extent_count()))
                .held(entry.restart.is_ever())
                .late(!entry.dependencies.is_empty())
                .paid_by(entry.payer.map(|payer| payer as u32))
        })
    });
    let currency = |entry: &CurrencyEntry| CurrencyPlan {
        ticket_amount: entry.tickets,
        payer: entry.payer.map(|payer| payer as u32),
    };
    let currencies: Vec<CurrencyPlan> = file.currencies.iter().map(currency).collect();
    let pool = PoolPlan { extents, fault: file.pool_fault };
    let plan = plan.collect::<Option<Vec<_>>>();
    let plan = plan.and_then(|plan| encode(&plan, &currencies, &pool, file.trusts_devices));
    plan.ok_or_else(|| Error::Usage("the pods cannot be described".into()))
}

/// The memory of the machine: what the file says, or what all pods may have together. Of the host's memory no more than
/// there is, unless the pods are guaranteed more.
fn memory_mib(file: &UpFile, card_count: usize, bundle: &BootBundle) -> Result<u64, Error> {
    let of_pods = |bytes: fn(&PodEntry) -> u64| {
        let quota = |entry: &PodEntry| pod_quota_frames(bytes(entry), entry.extent_count());
        let quotas: Vec<u64> = file.pods.iter().map(quota).collect();
        memory_of_pods_mib(&quotas, card_count, has_pool(file), bundle.size_bytes)
    };
    let needed_mib = of_pods(|entry| entry.options.memory);
    let wished_mib = of_pods(|entry| entry.memory_limit);
    match file.memory.map(|bytes| bytes.div_ceil(1 << 20)) {
        Some(mib) if mib < needed_mib => Err(Error::Usage(format!(
            "[machine] memory is {mib} MiB, and the pods with their roots and the system need {needed_mib} MiB"
        ))),
        Some(mib) => Ok(mib),
        None if wished_mib > needed_mib => Ok(wished_mib.min(host_memory_mib()).max(needed_mib)),
        None => Ok(needed_mib),
    }
}

/// Memory of the host that is not in use; none where it does not say.
fn host_memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::make_directories;
    use crate::options::{Command, Parsed, parse};

    #[test]
    fn a_dry_run_makes_no_directories() {
        let folder = std::env::temp_dir().join(format!("aegis-up-{}", std::process::id()));
        let text = "name: p\nservices:\n  a: {image: x, volumes: ['./made:/m', '.:/here', 'v:/v']}\n";
        let environment = [("XDG_DATA_HOME".to_owned(), folder.join("data").display().to_string())];
        std::fs::create_dir_all(&folder).expect("writable");
        for (words, is_dry) in [(&["aegis", "up", "-q", "--dry-run", "f"][..], true), (&["aegis", "up", "f"], false)] {
            let Ok(Parsed::Command(Command::Up(options))) = parse(words.iter().map(Into::into)) else {
                panic!("it is an up")
            };
            let found = crate::compose::read(text, &folder, environment.clone().into_iter()).expect("understood");
            let mut file = found.file;
            make_directories(&mut file, &found.directories, &options.machine).expect("done");
            let volumes = &file.pods[0].options.volumes;
            assert_eq!((found.directories.len(), volumes.len()), (2, if is_dry { 1 } else { 3 }));
            assert!(volumes.iter().all(|volume| volume.host.is_dir()));
            assert_eq!(folder.join("made").exists() || folder.join("data").exists(), !is_dry);
        }
        std::fs::remove_dir_all(folder).expect("ours");
    }
}
