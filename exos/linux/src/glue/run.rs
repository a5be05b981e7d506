//! The order of a run: console, bundle, pod, program, and the end.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::FrameNumber;
use aegis_abi::boot::{BootInfo, PART_CONFIG, PART_ROOT};
use aegis_abi::counter::Counter;
use aegis_abi::types::{SLOT_BUNDLE, SLOT_FIRST_PROCESSOR, SLOT_MACHINE, SLOT_NONE};
use aegis_abi::upcall::UpcallFrame;
use aegis_image::bundle;
use aegis_link::config::{Config, Flags};
use aegis_link::control::VERSION;
use aegis_link::pods::{POD_WORDS_BASE, POD_WORDS_BYTES_MAX, SLOT_POD_END};
use aegis_rt::{call, clock};
use core::sync::atomic::{AtomicU64, Ordering};
use exos::block::device::{DiskCarrier, Disks};
use exos::fs::ninep::Requester;
use exos::fs::readiness::WaitQueue;
use exos::fs::stream::Stream;
use exos::mem::FramePool;
use exos::platform::FrameGrant;
use exos::reserve;
use exos::rewrite::REFUSALS;
use exos::sync::{Mutex, Once};
use exos::task::schedule::Scheduler;
use exos::task::signal::Signal;
use exos_linux::host::boot::{Ground, Pod};
use exos_linux::host::disks;
use exos_linux::host::mounts::Served;
use exos_linux::host::network::{self, statistics};
use exos_linux::host::ports::{HostPorts, Port};
use exos_linux::host::sessions::Sessions;
use exos_linux::host::stream::PortStream;
use exos_linux::task::exec::{ExecRequest, StartError, prepare, search_path, start as start_program};
use exos_linux::task::process::Ending;
use exos_linux::task::system::{Platform, ThreadStart};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

use super::devices::HostConsole;
use super::disk::BlockCarrier;
use super::heap::HEAP;
use super::machine::{Host, MachineKernel, MachinePlatform};
use super::net_card::NetCarrier;
use super::pod::POD;
use super::processor::Bells;
use super::shares::Share;
use super::stack::Stack;
use super::{direct, domain, fiber, idle, kernel, memory, processor, user};

/// The machine under the pod ([`super::pod`]).
pub(crate) struct Run {
    pub(crate) platform: Arc<MachinePlatform>,
    pub(crate) host: Arc<Host>,
    pub(crate) streams: [Arc<PortStream<HostConsole>>; 3],
    boot_ns: u64,
}

/// The run, once it has begun.
pub(crate) static RUN: Once<Run> = Once::new();

/// Where the kernel enters, on the save area's stack.
pub(crate) extern "C" fn start(info: *const BootInfo) -> ! {
    // SAFETY: the kernel maps the boot information before it starts the first environment.
    let info = unsafe { info.read() };
    let host = greet_host(&info);
    let mut frame = UpcallFrame::default();
    match begin(&info, &host, &mut frame) {
        Ok((pod, run)) => {
            POD.call_once(|| pod);
            RUN.call_once(|| run);
        }
        Err(failure) => fail(&host, failure.status, &failure.text),
    };
    let pod = POD.get().expect("set just now");
    let start = ThreadStart { fs_base: Some(0) };
    if fiber::start(&pod.process, &pod.thread, &frame, start, &pod.system).is_err() {
        fail(&host, 125, "no memory for the first thread");
    }
    let made_count = idle::make_others(pod.system.processor_count as usize);
    if made_count < pod.system.processor_count as usize {
        host.log("warn", &alloc::format!("only {made_count} virtual processors could be made"));
    }
    idle::idle_first()
}

/// The line to the host, which is told that there is somebody. The stack is the save area's, and what is built on it is
/// large: each step of the start has it to itself.
#[inline(never)]
fn greet_host(info: &BootInfo) -> Arc<Host> {
    let console = match HostConsole::find(info) {
        Ok(console) => console,
        Err(error) => panic!("no console to the host: {error}"),
    };
    let host = Arc::new(HostPorts::new(console));
    host.prepare();
    host.send_line(&alloc::format!("hello {VERSION}"));
    host
}

/// The process and thread that run on the processor that asks.
fn current_numbers() -> Option<(u32, u32)> {
    fiber::current().map(|fiber| (fiber.owner().0.pid, fiber.owner().1.tid()))
}

/// Why there is no run: status and line for the user.
struct Failure {
    status: u8,
    text: String,
}

impl Failure {
    fn new(status: u8, text: String) -> Self {
        Self { status, text }
    }
}

/// Gives the pod its network, if the run has one, and waits for the lease that it may need.
fn attach_network(info: &BootInfo, config: &Config, platform: &MachinePlatform, pod: &Pod) {
    let Some(configuration) = network::configuration(config) else { return };
    let (host, bells) = (platform.host.clone(), platform.bells.clone());
    let carrier = NetCarrier { info: *info, host, bells, drivers: config.drivers };
    let inet = &pod.system.files.inet;
    inet.attach(configuration, Arc::new(carrier));
    inet.await_lease(network::LEASE_NS_MAX, || {
        // The driver may be in an environment of its own.
        let _ = call::yield_to(SLOT_NONE);
        pod.system.kernel.now_ns()
    });
}

/// Everything up to the program's first instruction.
#[inline(never)]
fn begin(info: &BootInfo, host: &Arc<Host>, frame: &mut UpcallFrame) -> Result<(Pod, Run), Failure> {
    let bytes = bundle_bytes(info)?;
    let parts =
        bundle::parse(bytes).map_err(|error| Failure::new(125, alloc::format!("the boot bundle: {error:?}")))?;
    let config = match parts.find(PART_CONFIG) {
        Some(part) => Config::decode(parts.contents(part)),
        None => return Err(Failure::new(125, String::from("the boot bundle holds no configuration"))),
    };
    let config = config.map_err(|error| Failure::new(125, alloc::format!("the run configuration: {error}")))?;
    if config.flags.contains(Flags::INPUT_IS_EMPTY) {
        host.end_input();
    }
    let root = parts
        .find(PART_ROOT)
        .map(|part| (parts.contents(part), FrameNumber(info.bundle_frame + part.offset_bytes / 4096)));
    let timer_bell = kernel::next_slot();
    call::bell_create(timer_bell, SLOT_FIRST_PROCESSOR)
        .map_err(|refusal| Failure::new(125, alloc::format!("no timer: {refusal:?}")))?;
    idle::join_first().map_err(|()| Failure::new(125, String::from("no bell for the first processor")))?;
    let machine_kernel =
        Arc::new(MachineKernel { host: host.clone(), random: Mutex::new(ChaCha20Rng::from_seed(config.random_seed)) });
    // SAFETY: the kernel maps the system page for the first environment.
    let clock = unsafe { *clock::system_page() };
    user::choose_copies(clock.vector_state_mask);
    let streams = [Port::Input, Port::Output, Port::Error].map(|port| PortStream::new(host.clone(), port));
    let processor_count = (clock.processor_count as usize).min(processor::COUNT_MAX);
    let bells = Arc::new(Bells { timer_bell, armed_ns: AtomicU64::new(u64::MAX) });
    let platform = Arc::new(MachinePlatform {
        host: host.clone(),
        bells: bells.clone(),
        system: Once::new(),
        streams: streams.clone(),
        sessions: Sessions::new(processor::ring_first),
        console_changes: WaitQueue::new(),
        vector_mask: clock.vector_state_mask,
        vector_bytes: super::machine::vector_bytes(),
    });
    let pool = FramePool::new(machine_kernel.clone(), Arc::new(direct::DirectView), memory_limit(&config));
    pool.add_borrowed(bundle_grant(info));
    // Frames of stacks lie side by side: they are taken while there are such. Without, the first thread says so.
    drop(Stack::new());
    pool.fill_reserve();
    HEAP.fill_reserve();
    reserve::set_refill(|| HEAP.fill_reserve());
    let carrier: Arc<dyn DiskCarrier> =
        Arc::new(BlockCarrier::new(*info, &config, host.clone(), platform.bells.clone()));
    let disks = Disks::new(disks::descriptions(&config), &carrier, &pool);
    let scheduler = Scheduler::new(processor_count, bells);
    scheduler.set_key(draw_key(&config));
    let ground = Ground {
        kernel: machine_kernel,
        platform: platform.clone(),
        pool,
        scheduler,
        clock,
        root,
        streams: streams.clone().map(|stream| stream as Arc<dyn Stream>),
        served: served(info, &config)?,
        disks,
    };
    let pod = exos_linux::host::boot::boot(ground, &config)
        .map_err(|error| Failure::new(error.exit_status(), alloc::format!("{error}")))?;
    attach_network(info, &config, &platform, &pod);
    load(&pod, &config, frame)?;
    platform.system.call_once(|| (pod.system.clone(), pod.process.clone()));
    pod.system.listing.set_current_source(current_numbers);
    Ok((pod, Run { platform, host: host.clone(), streams, boot_ns: info.boot_ns }))
}

/// What the pod's draws are keyed with: the host's chance for this run, which is fixed where a run is to be repeated.
fn draw_key(config: &Config) -> [u64; 2] {
    let word = |index: usize| {
        let bytes = config.random_seed[8 * index..].iter().take(8).rev();
        bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    [word(0), word(1)]
}

/// The host directories that the run asks for. A machine without any has no such device, and none is looked for.
fn served(info: &BootInfo, config: &Config) -> Result<Vec<Served>, Failure> {
    if config.mounts.is_empty() {
        return Ok(Vec::new());
    }
    let shares = Share::find_all(info)
        .map_err(|error| Failure::new(125, alloc::format!("the host's directories cannot be reached: {error}")))?;
    let shares = super::shares::keep(shares);
    Ok(shares.iter().map(|share| (share.tag(), share.clone() as Arc<dyn Requester>)).collect())
}

/// Finds the program and makes `frame` its first state.
fn load(pod: &Pod, config: &Config, frame: &mut UpcallFrame) -> Result<(), Failure> {
    let name = String::from_utf8_lossy(&config.program).into_owned();
    let access = exos_linux::file::paths::Access::for_process(&pod.system, &pod.process);
    let current = pod.process.files.current();
    let path = search_path(&access, &current, &config.program, &config.environment);
    let (arguments, environment) = (config.arguments.clone(), config.environment.clone());
    let found = access.find(&current, &path, true, false).map_err(StartError::Open);
    let request = ExecRequest { path, is_path_lost: false, arguments, environment };
    let prepared = found
        .and_then(|found| prepare(&pod.system, &access, &current, found, request))
        .map_err(|error| Failure::new(error.exit_status(), alloc::format!("{name}: {}", error.text())))?;
    start_program(&pod.system, &pod.process, &pod.thread, prepared, frame)
        .map_err(|error| Failure::new(125, alloc::format!("{name}: {error}")))
}

/// The whole bundle, in the direct view.
fn bundle_bytes(info: &BootInfo) -> Result<&'static [u8], Failure> {
    direct::show(bundle_grant(info), false)
        .map_err(|fault| Failure::new(125, alloc::format!("the boot bundle cannot be mapped: {fault:?}")))?;
    let length = (info.bundle_frame_count * 4096) as usize;
    // SAFETY: shown just now, for good; the image's writable segments lie in it too, but only the parts that are
    // never written are looked at through this slice after the start.
    Ok(unsafe { direct::bytes(FrameNumber(info.bundle_frame), length) })
}

fn bundle_grant(info: &BootInfo) -> FrameGrant {
    FrameGrant { slot: SLOT_BUNDLE, first: FrameNumber(info.bundle_frame), count: info.bundle_frame_count }
}

/// What the program may use at most: what the user said. What there is for it is looked at as it changes.
fn memory_limit(config: &Config) -> u64 {
    kernel::note_own_frames();
    memory::begin();
    let limit = if config.memory_limit_bytes == 0 { u64::MAX } else { config.memory_limit_bytes };
    if let Some((guaranteed, _)) = memory::bounds() {
        // It can become more.
        kernel::limit_program_frames(limit / 4096, guaranteed);
        return u64::MAX;
    }
    limit
}

/// Ends the run because the process has ended.
pub(crate) fn end() -> ! {
    let (pod, run) = POD.get().zip(RUN.get()).expect("what ends has begun");
    let ending = pod.process.ending.lock().take();
    for process in pod.system.processes.all() {
        process.end(Ending::Killed { signal: Signal::KILL, has_core: false, text: String::new() });
    }
    if let Err(error) = pod.system.files.namespace.sync() {
        run.host
            .log("warn", &alloc::format!("not everything that was mapped could be written to the host ({error:?})"));
    }
    let pending_bytes = || {
        let terminal = exos_linux::host::events::pending_terminal_bytes(&pod.process);
        terminal + run.streams[1].pending_bytes() + run.streams[2].pending_bytes()
    };
    while pending_bytes() > 0 {
        run.platform.wait_for_console(|| pending_bytes() == 0);
    }
    if pod.system.options.stats {
        send_stats(pod, run);
    }
    let line = match ending {
        Some(Ending::Exited(status)) => alloc::format!("exit {status}"),
        Some(Ending::Killed { signal, has_core, text }) => {
            alloc::format!("killed {} {} {text}", signal.number(), u8::from(has_core))
        }
        None => String::from("fail 125 the program ended in no known way"),
    };
    finish(&run.host, line.trim_end())
}

/// Ends a run that never began.
fn fail(host: &Host, status: u8, text: &str) -> ! {
    finish(host, &alloc::format!("fail {status} {text}"))
}

/// Sends the last line and ends the machine, or this pod of it, when it has left.
fn finish(host: &Host, line: &str) -> ! {
    // There is always memory for one line.
    while host.control_backlog_bytes() > 0 {
        host.pump();
        core::hint::spin_loop();
    }
    host.send_line(line);
    while host.control_backlog_bytes() > 0 {
        host.pump();
        core::hint::spin_loop();
    }
    power_off(0)
}

fn power_off(code: u32) -> ! {
    let _ = call::machine_off(SLOT_MACHINE, code);
    // Refused: the machine is not ours alone. The environment's maker takes it apart when the bell rings.
    let _ = call::bell_ring(SLOT_POD_END);
    loop {
        let _ = call::sleep(&[]);
    }
}

/// Sends what was counted.
fn send_stats(pod: &Pod, run: &Run) {
    let counters = &pod.system.counters;
    let kernel = |counter| call::counter_read(counter).unwrap_or(0);
    let memory = pod.system.pool.statistics();
    let faults = pod.system.fault_counts();
    let values = [
        ("boot_ns", run.boot_ns),
        ("run_ns", kernel::now_ns()),
        ("processor_ns", run.platform.processor_time_ns()),
        ("kernel_calls", kernel(Counter::KernelCalls)),
        ("upcalls_syscall", kernel(Counter::UpcallsSyscall)),
        ("upcalls_exception", kernel(Counter::UpcallsException)),
        ("upcalls_bell", kernel(Counter::UpcallsBell)),
        ("upcalls_slice", kernel(Counter::UpcallsSlice)),
        ("interrupts", kernel(Counter::Interrupts)),
        ("slices", kernel(Counter::Slices)),
        ("pages_bound", kernel(Counter::PagesBound)),
        ("pages_unbound", kernel(Counter::PagesUnbound)),
        ("syscalls_trapped", counters.syscalls_trapped.load(Ordering::Relaxed)),
        ("syscalls_rewritten", idle::long_call_count() + idle::short_call_count()),
        ("syscalls_short", idle::short_call_count()),
        ("sites_found", counters.sites_found.load(Ordering::Relaxed)),
        ("sites_patched", counters.sites_patched.load(Ordering::Relaxed)),
        ("sites_shared", pod.system.shared.patched_text().taken_count()),
        ("signals", counters.signals.load(Ordering::Relaxed)),
        ("page_faults", faults.resolved),
        ("pages_mapped", faults.pages),
        ("pages_copied", faults.copied),
        ("memory_held_bytes", memory.held * 4096),
        ("heap_bytes", HEAP.used_bytes()),
        ("heap_held_bytes", HEAP.bound_bytes()),
        ("capabilities", kernel::capability_count(pod.system.shared.kept_space_count())),
        ("memory_peak_bytes", pod.process.peak_bytes()),
    ];
    for (key, value) in values {
        run.host.send_line(&alloc::format!("stats {key}={value}"));
    }
    for (key, value) in statistics(&pod.system.files.inet).into_iter().chain(domain::statistics()) {
        run.host.send_line(&alloc::format!("stats {key}={value}"));
    }
    for (refusal, name) in REFUSALS {
        let count = counters.sites_refused[refusal as usize].load(Ordering::Relaxed);
        if count > 0 {
            run.host.send_line(&alloc::format!("stats sites_refused_{name}={count}"));
        }
    }
}

#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    use core::fmt::Write;
    /// The kernel's log or, in a pod, which may not write there, the page that its manager looks at.
    struct LastWords(usize);
    impl Write for LastWords {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            if call::machine_log(SLOT_MACHINE, text.as_bytes()).is_ok() {
                return Ok(());
            }
            for byte in text.bytes().take(POD_WORDS_BYTES_MAX.saturating_sub(self.0)) {
                // SAFETY: an environment that may not write to the log is a pod, whose manager maps this page for
                // writing; nothing refers to it, and no more than a page's bytes are counted.
                unsafe { (POD_WORDS_BASE as *mut u8).add(self.0).write_volatile(byte) };
                self.0 += 1;
            }
            Ok(())
        }
    }
    let _ = writeln!(LastWords(0), "exos: {information}");
    power_off(1)
}
