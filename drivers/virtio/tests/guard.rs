//! Guarded functions: drivers work over a guard as over registers, and a driver that wants otherwise reaches nothing.

use std::cell::RefCell;
use std::rc::Rc;

use aegis_hal::fake::{FakeBuffer, FakeBus, FakeMmio};
use aegis_hal::net::{Frame, NetDevice, NoWindow, TransmitMeta, Wishes};
use aegis_hal::{AccessError, DeviceAddress, Dma, DmaBuffer, DmaError, PAGE_BYTES, Volatile, Width, check_range};
use aegis_virtio::console::{Console, DEVICE_TYPE_CONSOLE, Limits, PortId};
use aegis_virtio::device::{FEATURE_VERSION_1, negotiate, reset, start};
use aegis_virtio::fake::{FakeSerial, HostPort, MmioModel, Pace, SharedSerial, mmio};
use aegis_virtio::guard::{
    Answer, FunctionMemory, Geometry, Guard, GuardedFunction, GuardedTransport, Request, operation, outcome,
};
use aegis_virtio::net::NetCard;
use aegis_virtio::ninep::{Channel, LANE_COUNT, LANE_SLOT_COUNT};
use aegis_virtio::{DeviceFault, Interrupts, MmioTransport, Transport, VirtioError};
use proptest::prelude::*;

/// A part of memory that several look at.
#[derive(Clone, Debug)]
struct Part {
    all: Rc<RefCell<FakeBuffer>>,
    offset: usize,
    length_bytes: usize,
    address: DeviceAddress,
    is_read_only: bool,
}

impl Part {
    fn new(buffer: FakeBuffer) -> Self {
        let (length_bytes, address) = (buffer.length_bytes(), buffer.device_address());
        Self { all: Rc::new(RefCell::new(buffer)), offset: 0, length_bytes, address, is_read_only: false }
    }

    fn pages(&self, first: usize, count: usize) -> Self {
        let offset = first * PAGE_BYTES;
        let address = self.address.offset(offset);
        Self { offset: self.offset + offset, length_bytes: count * PAGE_BYTES, address, ..self.clone() }
    }
}

impl Volatile for Part {
    fn length_bytes(&self) -> usize {
        self.length_bytes
    }
    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError> {
        check_range(offset, width.bytes(), self.length_bytes)?;
        self.all.borrow().read(self.offset + offset, width)
    }
    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError> {
        assert!(!self.is_read_only, "the driver wrote what it only reads");
        check_range(offset, width.bytes(), self.length_bytes)?;
        self.all.borrow_mut().write(self.offset + offset, width, value)
    }
}

impl DmaBuffer for Part {
    fn device_address(&self) -> DeviceAddress {
        self.address
    }

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        assert!(!self.is_read_only, "the driver wrote what it only reads");
        check_range(offset, bytes.len(), self.length_bytes)?;
        self.all.borrow_mut().copy_in(self.offset + offset, bytes)
    }
    fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.length_bytes)?;
        self.all.borrow().copy_out(self.offset + offset, bytes)
    }
}

/// What the driver has: pages, or a page of rings with that of the used ring behind it.
#[derive(Debug)]
enum Buffer {
    Pages(Part),
    Rings(Part, Part),
}

impl Buffer {
    fn at(&self, offset: usize) -> (&Part, usize) {
        match self {
            Self::Pages(part) => (part, offset),
            Self::Rings(ring, _) if offset < PAGE_BYTES => (ring, offset),
            Self::Rings(_, used) => (used, offset - PAGE_BYTES),
        }
    }
    fn at_mut(&mut self, offset: usize) -> (&mut Part, usize) {
        match self {
            Self::Pages(part) => (part, offset),
            Self::Rings(ring, _) if offset < PAGE_BYTES => (ring, offset),
            Self::Rings(_, used) => (used, offset - PAGE_BYTES),
        }
    }
}

impl Volatile for Buffer {
    fn length_bytes(&self) -> usize {
        match self {
            Self::Pages(part) => part.length_bytes,
            Self::Rings(..) => 2 * PAGE_BYTES,
        }
    }
    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError> {
        let (part, offset) = self.at(offset);
        part.read(offset, width)
    }
    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError> {
        let (part, offset) = self.at_mut(offset);
        part.write(offset, width, value)
    }
}

impl DmaBuffer for Buffer {
    fn device_address(&self) -> DeviceAddress {
        self.at(0).0.address
    }

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        self.at_mut(0).0.copy_in(offset, bytes)
    }
    fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        self.at(0).0.copy_out(offset, bytes)
    }
}

/// The driver's memory: the window, whose first page it calls 0.
struct WindowDma {
    pages: Part,
    used: Part,
    geometry: Geometry,
    next: usize,
}

impl WindowDma {
    fn part(&self, first: usize, count: usize) -> Part {
        let address = DeviceAddress((first * PAGE_BYTES) as u64);
        Part { address, ..self.pages.pages(first, count) }
    }
}

impl Dma for WindowDma {
    type Buffer = Buffer;

    fn allocate(&mut self, page_count: usize) -> Result<Buffer, DmaError> {
        if self.next + page_count > self.geometry.window_page_count {
            return Err(DmaError::Exhausted);
        }
        self.next += page_count;
        Ok(Buffer::Pages(self.part(self.next - page_count, page_count)))
    }
    fn allocate_rings(&mut self, queue: u16, page_count: usize) -> Result<Buffer, DmaError> {
        assert_eq!(page_count, 2);
        let queue = usize::from(queue);
        let used = Part { is_read_only: true, ..self.used.pages(queue, 1) };
        Ok(Buffer::Rings(self.part(self.geometry.window_page_count + queue, 1), used))
    }
    fn has_guarded_rings(&self) -> bool {
        true
    }
    fn release(&mut self, _: Buffer) {}
}

type Function = GuardedFunction<MmioTransport<FakeMmio<MmioModel>>, Part>;

#[derive(Clone)]
struct TestGuard(Rc<RefCell<Function>>);

impl Guard for TestGuard {
    fn call(&self, [operation, function, first, second, third]: Request) -> Option<Answer> {
        match function {
            0 => Some(self.0.borrow_mut().serve(operation, [first, second, third])),
            _ => Some([outcome::REFUSED, 0, 0]),
        }
    }
}

const SECRET: u8 = 0x5e;

struct World {
    bus: FakeBus,
    device: SharedSerial,
    geometry: Geometry,
    pages: Part,
    used: Part,
    secret: Part,
    guard: TestGuard,
}

impl World {
    fn new(device: impl FnOnce(&FakeBus) -> SharedSerial) -> Self {
        let bus = FakeBus::new(1024);
        let device = device(&bus);
        Self::over(bus, device)
    }

    fn over(bus: FakeBus, device: SharedSerial) -> Self {
        let transport = MmioTransport::new(mmio(&device)).expect("a modern device");
        let geometry = Geometry::of(transport.device_type().expect("a type")).expect("a type that can be guarded");
        let mut dma = bus.dma();
        let mut take = |page_count| Part::new(dma.allocate(page_count).expect("memory"));
        let mut secret = take(2);
        secret.copy_in(0, &[SECRET; 2 * PAGE_BYTES]).expect("in bounds");
        let pages = take(geometry.driver_page_count());
        let (used, own) = (take(geometry.queue_count), take(geometry.device_page_count()));
        let rings = pages.pages(geometry.window_page_count, geometry.queue_count);
        let memory = FunctionMemory { driver_base: pages.address, rings, used: used.clone(), device: own };
        let guard = TestGuard(Rc::new(RefCell::new(GuardedFunction::new(transport, memory).expect("it fits"))));
        Self { bus, device, geometry, pages, used, secret, guard }
    }

    /// Takes the function apart, and lets its memory go.
    fn end(self) -> (FakeBus, SharedSerial) {
        assert!(self.guard.0.borrow_mut().stop());
        let own = {
            let Self { guard, pages, used, secret, .. } = self;
            let function = Rc::into_inner(guard.0).expect("nobody else has it").into_inner();
            let own = function.into_memory().device;
            [pages, used, secret, own]
        };
        let mut dma = self.bus.dma();
        for part in own {
            dma.release(Rc::into_inner(part.all).expect("nobody else has it").into_inner());
        }
        (self.bus, self.device)
    }

    fn console() -> Self {
        let names = ["aegis.stdin", "aegis.stdout", "aegis.stderr", "aegis.control"];
        let ports = (1..).zip(names).map(|(number, name)| HostPort::named(number, name)).collect();
        Self::new(|bus| FakeSerial::new(bus, 6, ports))
    }

    fn ninep() -> Self {
        let answer = |message: &[u8]| Some(message.iter().rev().copied().collect());
        Self::new(|bus| FakeSerial::ninep(bus, b"aegis0", Box::new(answer)))
    }

    fn dma(&self) -> WindowDma {
        WindowDma { pages: self.pages.clone(), used: self.used.clone(), geometry: self.geometry, next: 0 }
    }

    fn transport(&self) -> GuardedTransport<TestGuard> {
        GuardedTransport::open(self.guard.clone(), 0).expect("there is one")
    }

    fn ask(&self, operation: u64, arguments: [u64; 3]) -> Answer {
        self.guard.0.borrow_mut().serve(operation, arguments)
    }

    /// Nobody saw anything that is against the rules, and what is not the driver's is as it was.
    fn assert_clean(&self) {
        assert_eq!(self.device.borrow().driver_faults, []);
        assert_eq!(self.bus.violations(), []);
        let mut bytes = [0; 2 * PAGE_BYTES];
        self.secret.copy_out(0, &mut bytes).expect("in bounds");
        assert!(bytes.iter().all(|byte| *byte == SECRET));
        for port in &self.device.borrow().ports {
            assert!(!port.output.contains(&SECRET), "the secret left the machine");
        }
    }

    /// From a reset device to a running one, whose queue has 16 descriptors.
    fn run(&self, queue: u16) {
        let mut transport = self.transport();
        let (device_type, features) =
            if self.geometry == Geometry::CONSOLE { (DEVICE_TYPE_CONSOLE, 2) } else { (9, 1) };
        reset(&mut transport, 1).expect("it resets");
        negotiate(&mut transport, device_type, features, 0).expect("as the device offers");
        let address = self.geometry.ring_address(usize::from(queue));
        assert_eq!(self.ask(operation::ENABLE_QUEUE, [queue.into(), 16, address]), [outcome::DONE, 0, 0]);
        start(&mut transport).expect("all is set up");
    }

    fn rings(&self, queue: u16) -> Part {
        self.pages.pages(self.geometry.window_page_count + usize::from(queue), 1)
    }
}

/// A descriptor as its two words.
fn descriptor(address: u64, length_bytes: u64, flags: u64, next: u64) -> [u64; 2] {
    [address, length_bytes | flags << 32 | next << 48]
}

/// Writes descriptors and available entries of a queue of 16, and the index.
fn write_rings(rings: &mut Part, descriptors: &[[u64; 2]], heads: &[u16], index: u16) {
    for (number, words) in descriptors.iter().enumerate() {
        for (half, word) in words.iter().enumerate() {
            rings.write_u64(16 * number + 8 * half, *word).expect("in bounds");
        }
    }
    for (slot, head) in heads.iter().enumerate() {
        rings.write_u16(256 + 4 + 2 * slot, *head).expect("in bounds");
    }
    rings.write_u16(258, index).expect("in bounds");
}

const LIMITS: Limits =
    Limits { port_count_max: 6, receive_buffer_count: 4, transmit_buffer_count: 16, reset_poll_count_max: 10 };

fn names() -> [&'static [u8]; 4] {
    [b"aegis.stdin", b"aegis.stdout", b"aegis.stderr", b"aegis.control"]
}

#[test]
fn a_console_works_over_a_guard() {
    let world = World::console();
    for round in 0..3 {
        let mut console = Console::new(world.transport(), world.dma(), LIMITS).expect("an honest device");
        console.wait_for_ports(&names(), 10).expect("an immediate device");
        let (stdin, stdout) = (PortId::new(1), PortId::new(2));
        let text: Vec<u8> = (0..200_000).map(|index| (index % 90) as u8).collect();
        let mut sent = 0;
        while sent < text.len() {
            sent += console.write(stdout, &text[sent..]).expect("an honest device");
            let _ = console.poll().expect("an honest device");
        }
        assert_eq!(world.device.borrow().ports[1].output, text);
        world.device.borrow_mut().ports[1].output.clear();
        console.start_receiving(stdin).expect("memory");
        for _ in 0..20 {
            world.device.borrow_mut().port(1).input.extend(&text[..5000]);
            world.device.borrow_mut().step();
            let mut read = vec![0; 8000];
            let mut count = 0;
            while count < 5000 {
                count += console.read(stdin, &mut read[count..]).expect("an honest device");
                world.device.borrow_mut().step();
            }
            assert_eq!(read[..count], text[..5000], "round {round}");
        }
        assert_eq!(console.stop().outcome, Ok(()));
        world.assert_clean();
    }
}

#[test]
fn a_wish_for_interrupts_reaches_the_device_at_once() {
    for is_armed in [false, true] {
        wish_for_interrupts(is_armed);
    }
}

fn wish_for_interrupts(is_armed: bool) {
    let world = World::console();
    world.device.borrow_mut().pace = Pace::Stepped;
    let mut console = Console::new(world.transport(), world.dma(), LIMITS).expect("an honest device");
    for _ in 0..10 {
        let _ = console.poll();
        world.device.borrow_mut().step();
    }
    console.wait_for_ports(&names(), 1).expect("all have come");
    let stdout = PortId::new(2);
    world.device.borrow_mut().port(2).output_room = 0;
    while console.write(stdout, &[1; 4096]).expect("an honest device") > 0 {}
    if is_armed {
        console.arm_tx(stdout).expect("an honest device");
    }
    world.device.borrow_mut().lower_all();
    world.device.borrow_mut().port(2).output_room = usize::MAX;
    world.device.borrow_mut().step();
    assert!(world.device.borrow().is_interrupting());
    assert!(console.poll().expect("an honest device").writable.contains(stdout));
    world.assert_clean();
}

#[test]
fn a_share_works_over_a_guard() {
    let world = World::ninep();
    let limits = aegis_virtio::ninep::Limits { message_page_count: 33, reset_poll_count_max: 10 };
    let mut channel = Channel::new(world.transport(), world.dma(), limits).expect("an honest device");
    assert_eq!(channel.tag(), b"aegis0");
    let message: Vec<u8> = (0..channel.message_bytes_max()).map(|index| (index % 90) as u8).collect();
    let reversed: Vec<u8> = message.iter().rev().copied().collect();
    for round in 0..100 {
        for lane in 0..LANE_COUNT {
            channel.put(lane * LANE_SLOT_COUNT, &message).expect("free");
            channel.put(lane * LANE_SLOT_COUNT + 1, &[1, 2, 3]).expect("free");
        }
        channel.set_interrupts(if round % 2 == 0 { Interrupts::Wanted } else { Interrupts::Suppressed }).expect("so");
        channel.submit().expect("an honest device");
        channel.poll().expect("an honest device");
        let mut reply = vec![0; message.len()];
        for lane in 0..LANE_COUNT {
            assert_eq!(channel.take(lane * LANE_SLOT_COUNT, &mut reply), Ok(message.len()));
            assert_eq!(reply, reversed);
            assert_eq!(channel.take(lane * LANE_SLOT_COUNT + 1, &mut reply), Ok(3));
        }
    }
    world.assert_clean();
}

#[test]
fn a_card_works_over_a_guard_also_after_a_reset() {
    let world = World::new(FakeSerial::net);
    let limits =
        aegis_virtio::net::Limits { receive_buffer_count: 256, transmit_buffer_count: 256, reset_poll_count_max: 10 };
    let mut card = NetCard::new(world.transport(), world.dma(), limits).expect("an honest device");
    let wishes = Wishes { received: true, completed: true };
    for round in 0..300usize {
        let frame: Vec<u8> = (0..60 + round).map(|index| (index % 90) as u8).collect();
        let sent = Frame { copied: &[&frame], shared: &[], meta: TransmitMeta::default(), token: 3 };
        card.transmit(&sent, &NoWindow).expect("room");
        world.device.borrow_mut().lower_all();
        assert_eq!(card.ask_for_interrupt(wishes), Ok(true), "the frame was sent at once");
        world.device.borrow_mut().arrive(&frame);
        assert!(world.device.borrow().is_interrupting());
        assert_eq!(world.device.borrow_mut().wire().sent.pop().map(|frame| frame[12..].to_vec()), Some(frame.clone()));
        let mut bytes = vec![0; 1000];
        let count = card.receive(2, &mut |received| assert_eq!(received.copy_out(&mut bytes), Ok(frame.len())));
        assert_eq!((count, &bytes[..frame.len()]), (Ok(1), &frame[..]));
        assert_eq!(card.completed(&mut |token| assert_eq!(token, 3)), Ok(1));
        if round % 100 == 99 {
            card.reset().expect("an honest device");
        }
    }
    world.assert_clean();
}

/// What breaks a rule: its name, descriptors, entries of the available ring, and its index.
type Row = (&'static str, Vec<[u64; 2]>, Vec<u16>, u16);

#[test]
fn a_broken_rule_costs_the_function_and_nothing_else() {
    let write = 2;
    let good = descriptor(0, 100, 0, 0);
    let end = (Geometry::CONSOLE.driver_page_count() * PAGE_BYTES) as u64;
    let rows: [Row; 20] = [
        ("one byte beyond", vec![descriptor(end - 99, 100, 0, 0)], vec![0], 1),
        ("begins beyond", vec![descriptor(end, 1, 0, 0)], vec![0], 1),
        ("the kernel", vec![descriptor(0x10_0000, 1 << 20, 0, 0)], vec![0], 1),
        ("a forged message interrupt", vec![descriptor(0xfee0_0000, 4, write, 0)], vec![0], 1),
        ("the same, unaligned", vec![descriptor(0xfeef_fffc, 4, 0, 0)], vec![0], 1),
        ("wraps", vec![descriptor(u64::MAX, 2, 0, 0)], vec![0], 1),
        ("wraps to the start", vec![descriptor(u64::MAX - 99, 100, write, 0)], vec![0], 1),
        ("longest", vec![descriptor(0, 0xffff_ffff, 0, 0)], vec![0], 1),
        ("sign", vec![descriptor(1 << 63, 4, 0, 0)], vec![0], 1),
        ("empty", vec![descriptor(0, 0, 0, 0)], vec![0], 1),
        ("indirect", vec![descriptor(0, 160, 4, 0)], vec![0], 1),
        ("indirect and next", vec![descriptor(0, 160, 5, 1), good], vec![0], 1),
        ("unknown flags", vec![descriptor(0, 100, 0x8000, 0)], vec![0], 1),
        ("loop of one", vec![descriptor(0, 100, 1, 0)], vec![0], 1),
        ("loop of two", vec![descriptor(0, 100, 1, 1), descriptor(0, 100, 1, 0)], vec![0], 1),
        ("next beyond the queue", vec![descriptor(0, 100, 1, 16)], vec![0], 1),
        ("head beyond the queue", vec![good], vec![16], 1),
        ("twice the same", vec![descriptor(0, 100, 0, 0)], vec![0, 0], 2),
        ("too many at once", vec![good], vec![0; 16], 17),
        ("read behind write", vec![descriptor(0, 9, write | 1, 1), good], vec![0], 1),
    ];
    for queue in [0, 1, 3, 4, 5] {
        let world = World::console();
        for (name, descriptors, heads, index) in &rows {
            world.run(queue);
            world.device.borrow_mut().pace = Pace::Stepped;
            write_rings(&mut world.rings(queue), descriptors, heads, *index);
            let answer = world.ask(operation::KICK, [queue.into(), 0, 0]);
            assert_eq!(answer[0], outcome::FAILED, "{name}");
            assert_eq!(world.ask(operation::STATUS, [0; 3]), [outcome::DONE, 64, 0], "{name}");
            assert_eq!(world.ask(operation::INTERRUPT, [0; 3])[1] & 2, 2, "{name}");
            for operation in [operation::KICK, operation::FEATURES, operation::CONFIG, operation::ENABLE_QUEUE] {
                assert_eq!(world.ask(operation, [0; 3])[0], outcome::FAILED, "{name}");
            }
            assert_eq!(world.transport().notify(queue), Err(VirtioError::Device(DeviceFault::NeedsReset)), "{name}");
            world.device.borrow_mut().step();
            world.assert_clean();
        }
        world.run(queue);
        let mut rings = world.rings(queue);
        write_rings(&mut rings, &[descriptor(0, 100, write, 0)], &[0], 1);
        assert_eq!(world.ask(operation::KICK, [queue.into(), 0, 0])[0], outcome::DONE, "as good as new");
    }
}

#[test]
fn what_was_shown_to_the_device_does_not_change() {
    let world = World::console();
    let port = PortId::new(2);
    world.device.borrow_mut().pace = Pace::Stepped;
    let mut console = Console::new(world.transport(), world.dma(), LIMITS).expect("an honest device");
    for _ in 0..10 {
        let _ = console.poll();
        world.device.borrow_mut().step();
    }
    console.wait_for_ports(&names(), 1).expect("all have come");
    assert_eq!(console.write(port, b"as it was"), Ok(9));
    // Queue 7 is the port's to the host. All that the driver can write says now: the secret.
    let mut rings = world.rings(7);
    let secret = world.secret.address.0.wrapping_sub(world.pages.address.0);
    for number in 0..16 {
        rings.write_u64(16 * number, secret).expect("in bounds");
        rings.write_u64(16 * number + 8, 100).expect("in bounds");
    }
    world.device.borrow_mut().step();
    assert_eq!(world.device.borrow().ports[1].output, b"as it was");
    world.assert_clean();
}

#[test]
fn steps_come_in_their_order() {
    let world = World::console();
    let refused = |operation, arguments| {
        assert_eq!(world.ask(operation, arguments), [outcome::REFUSED, 0, 0], "{operation} {arguments:?}");
    };
    let address = |queue| world.geometry.ring_address(queue);
    assert_eq!(world.ask(operation::DESCRIBE, [0; 3]), [outcome::DONE, 3, 124 | 14 << 32]);
    for status in [2, 4, 8, 11, 15, 64, 256, u64::MAX] {
        refused(operation::SET_STATUS, [status, 0, 0]);
    }
    refused(operation::SET_FEATURES, [FEATURE_VERSION_1, 0, 0]);
    refused(operation::KICK, [0; 3]);
    refused(operation::ENABLE_QUEUE, [0, 16, address(0)]);
    let mut transport = world.transport();
    transport.set_status(1).expect("in order");
    transport.set_status(3).expect("in order");
    assert_eq!(transport.device_features(), Ok(FEATURE_VERSION_1 | 2), "neither indirect nor event index");
    for features in [0, 2, FEATURE_VERSION_1 | 1, FEATURE_VERSION_1 | 1 << 28, FEATURE_VERSION_1 | 1 << 33, u64::MAX] {
        refused(operation::SET_FEATURES, [features, 0, 0]);
    }
    refused(operation::SET_STATUS, [11, 0, 0]);
    transport.set_driver_features(FEATURE_VERSION_1 | 2).expect("offered");
    transport.set_status(11).expect("in order");
    refused(operation::SET_FEATURES, [FEATURE_VERSION_1, 0, 0]);
    assert_eq!(transport.queue_size_max(14), Ok(0));
    for (queue, size, address) in [
        (14, 16, address(14)),
        (u64::MAX, 16, address(0)),
        (0, 0, address(0)),
        (0, 3, address(0)),
        (0, 128, address(0)),
        (0, 1 << 16, address(0)),
        (0, 16, 0),
        (0, 16, address(1)),
        (0, 16, address(0) + 16),
        (0, 16, u64::MAX),
    ] {
        refused(operation::ENABLE_QUEUE, [queue, size, address]);
    }
    assert_eq!(world.ask(operation::ENABLE_QUEUE, [0, 16, address(0)])[0], outcome::DONE);
    refused(operation::ENABLE_QUEUE, [0, 16, address(0)]);
    transport.set_status(15).expect("in order");
    refused(operation::SET_STATUS, [11, 0, 0]);
    refused(operation::ENABLE_QUEUE, [1, 16, address(1)]);
    for queue in [1, 13, 14, 1 << 32, u64::MAX] {
        refused(operation::KICK, [queue, 0, 0]);
    }
    for offset in [1, 64, u64::MAX - 3] {
        refused(operation::CONFIG, [offset, 0, 0]);
    }
    refused(10, [0; 3]);
    refused(u64::MAX, [0; 3]);
    assert!(world.device.borrow().accepted_features() & 1 << 33 != 0, "the guard takes what is the platform's");
    world.assert_clean();
}

#[test]
fn a_thousand_functions_that_end_with_requests_in_flight_leave_quiet_memory() {
    let mut world = World::console();
    world.device.borrow_mut().pace = Pace::Stepped;
    for round in 0..1000 {
        world.run(5);
        let chains: Vec<[u64; 2]> = (0..8).map(|number| descriptor(number * 4096, 4096, 0, 0)).collect();
        write_rings(&mut world.rings(5), &chains, &[0, 1, 2, 3, 4, 5, 6, 7], 8);
        assert_eq!(world.ask(operation::KICK, [5, 0, 0])[0], outcome::DONE);
        world.device.borrow_mut().port(1).output_room = round % 9000;
        if round % 2 == 0 {
            world.device.borrow_mut().step();
        }
        let (bus, device) = world.end();
        // What it had in hand is nothing to it any more.
        device.borrow_mut().step();
        assert_eq!(bus.violations(), []);
        assert_eq!(bus.live_page_count(), 0);
        world = World::over(bus, device);
    }
    world.assert_clean();
}

#[test]
fn a_device_that_cannot_be_reset_is_lost() {
    let world = World::console();
    world.run(0);
    world.device.borrow_mut().refuses_reset = true;
    assert_eq!(world.ask(operation::SET_STATUS, [0; 3])[0], outcome::FAILED);
    assert_eq!(world.ask(operation::SET_STATUS, [0; 3])[0], outcome::FAILED);
    assert!(!world.guard.0.borrow_mut().stop());
    world.device.borrow_mut().refuses_reset = false;
    assert!(world.guard.0.borrow_mut().stop());
}

proptest! {
    /// Requests and rings of all kinds: nothing panics, the device meets nothing that is against the rules, and no
    /// memory but the driver's is read or written.
    #[test]
    fn no_driver_reaches_beyond_its_window(
        is_console in any::<bool>(),
        is_stepped in any::<bool>(),
        moves in proptest::collection::vec((0_u8..8, any::<u64>(), any::<u64>(), any::<u64>()), 1..200),
    ) {
        let world = if is_console { World::console() } else { World::ninep() };
        let queue = if is_console { 5 } else { 0 };
        world.run(queue);
        world.device.borrow_mut().pace = if is_stepped { Pace::Stepped } else { Pace::Immediate };
        let end = (world.geometry.driver_page_count() * PAGE_BYTES) as u64;
        let mut index = 0_u16;
        for (kind, first, second, third) in moves {
            let mut rings = world.rings(queue);
            let address = match third % 6 {
                0 => end.wrapping_sub(second % 300),
                1 => u64::MAX - second % 300,
                2 => world.secret.address.0.wrapping_sub(world.pages.address.0),
                _ => second % end,
            };
            match kind {
                0 => { world.ask(first % 12, [second % 20, third % 130, world.geometry.ring_address(0)]); }
                1 => { world.ask(operation::KICK, [u64::from(queue), 0, 0]); }
                2..=4 => {
                    // A descriptor that is nearly right.
                    let length_bytes = if third % 11 == 0 { second >> 20 & 0xffff_ffff } else { second >> 40 & 0x7f };
                    let flags = if third % 13 == 0 { first >> 8 & 0xffff } else { first >> 8 & 2 };
                    let words = descriptor(address, length_bytes, flags, first >> 24 & 0x1f);
                    let at = 16 * (first % 16) as usize;
                    rings.write_u64(at, words[0]).expect("in bounds");
                    rings.write_u64(at + 8, words[1]).expect("in bounds");
                }
                5 => {
                    let head = if second % 9 == 0 { second >> 8 } else { second >> 8 & 15 };
                    rings.write_u16(260 + 2 * usize::from(index % 16), head as u16).expect("in bounds");
                    index = index.wrapping_add(if third % 17 == 0 { third >> 8 & 31 } else { 1 } as u16);
                    rings.write_u16(258, index).expect("in bounds");
                    world.ask(operation::KICK, [u64::from(queue), 0, 0]);
                }
                6 => world.device.borrow_mut().step(),
                _ if third % 3 == 0 => {
                    write_rings(&mut rings, &[], &[], 0);
                    index = 0;
                    world.run(queue);
                }
                _ => rings.write_u16(2 * (first % 2048) as usize, second as u16).expect("in bounds"),
            }
        }
        world.assert_clean();
    }
}
