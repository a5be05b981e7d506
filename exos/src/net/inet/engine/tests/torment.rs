//! Segments that mean harm, at a whole network: connections in every state, and in front of each real segment some that
//! differ from it where it hurts. Nothing may panic, hang or stay for ever, and afterwards all works as before.

use super::*;

/// Clients that are there at a time.
const CLIENT_COUNT: u64 = 12;
/// Sequence numbers that are near the right ones, and far ones.
const OFFSETS: [u32; 14] = [
    0,
    1,
    2,
    100,
    1448,
    65_535,
    1 << 20,
    1 << 30,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    u32::MAX - 1448,
    u32::MAX - 1,
    u32::MAX,
];
const WINDOWS: [u16; 6] = [0, 1, 100, 1448, 32_768, 65_535];
const LENGTHS: [usize; 6] = [0, 1, 2, 536, 1448, 9000];

struct Torment {
    world: World,
    chance: Chance,
    listener: Arc<Socket>,
    /// Of either end.
    sockets: [Vec<Arc<Socket>>; 2],
    /// Segments that were under way once.
    kept: Vec<(usize, Sent)>,
    thrown: u64,
}

impl Torment {
    fn new(seed: u64) -> Self {
        let world = World::new(seed, Faults { lost: 20, repeated: 20, late: 50, spoiled: 0 });
        let listener = world.listener(1, 80, 8);
        let sockets = [Vec::new(), Vec::new()];
        Self { world, chance: Chance::new(seed ^ 0x7a7a), listener, sockets, kept: Vec::new(), thrown: 0 }
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.chance.below(of.len() as u64) as usize]
    }

    /// A variant of a segment.
    fn variant(&mut self, bytes: &[u8]) -> Sent {
        if self.chance.happens(200) {
            return self.spoilt(bytes);
        }
        let Some((mut header, payload)) = Header::parse(bytes) else { return self.spoilt(bytes) };
        let mut length = payload.len();
        for _ in 0..1 + self.chance.below(3) {
            match self.chance.below(10) {
                0 | 1 => header.sequence = header.sequence.wrapping_add(self.pick(&OFFSETS)),
                2 | 3 => header.acknowledgement = header.acknowledgement.wrapping_add(self.pick(&OFFSETS)),
                4 => header.flags = self.chance.next() as u8,
                5 => header.flags ^= 1 << self.chance.below(6),
                6 => header.window = self.pick(&WINDOWS),
                7 => length = self.pick(&LENGTHS),
                8 => self.change_options(&mut header),
                _ => {
                    let first = header.acknowledgement.wrapping_add(self.pick(&OFFSETS));
                    let end = first.wrapping_add(self.pick(&OFFSETS));
                    header.sack[self.chance.below(4) as usize] = Some((first, end));
                }
            }
        }
        let mut written = [0; 60];
        let header_bytes = header.emit(&mut written);
        let mut segment = written[..header_bytes].to_vec();
        segment.extend((0..length).map(|at| payload.get(at).copied().unwrap_or(at as u8)));
        segment
    }

    fn change_options(&mut self, header: &mut Header) {
        let number = self.chance.next();
        match number % 4 {
            0 => header.segment_bytes_max = Some(self.pick(&[0, 1, 8, 536, 1460, 65_535])),
            1 => header.window_shift = Some((number >> 8) as u8),
            2 => header.is_sack_permitted = !header.is_sack_permitted,
            _ => {
                let offsets = [self.pick(&OFFSETS), self.pick(&OFFSETS)];
                let (value, echo) = header.times.unwrap_or_default();
                header.times = Some((value.wrapping_add(offsets[0]), echo.wrapping_add(offsets[1])));
            }
        }
    }

    /// The same bytes but for a few.
    fn spoilt(&mut self, bytes: &[u8]) -> Sent {
        let mut bytes = bytes.to_vec();
        for _ in 0..1 + self.chance.below(4) {
            let at = self.chance.below(bytes.len() as u64) as usize;
            let value = self.chance.next() as u8;
            match (value >> 2) % 3 {
                // Ports stay, or it is for nobody.
                0 if at >= 4 => bytes[at] = value,
                1 if at >= 20 => bytes.truncate(at),
                _ => bytes.push(value),
            }
        }
        bytes
    }

    /// Carries what is due, and throws variants of it.
    fn carry(&mut self) {
        self.world.collect();
        for (to, bytes) in self.world.link.arrivals(self.world.now_ns) {
            for _ in 0..self.chance.below(8) {
                let variant = self.variant(&bytes);
                self.world.deliver(to, &variant);
                self.thrown += 1;
            }
            if self.chance.happens(100) && !self.kept.is_empty() {
                let old = self.kept[self.chance.below(self.kept.len() as u64) as usize].clone();
                self.world.deliver(old.0, &old.1);
                self.thrown += 1;
            }
            self.world.deliver(to, &bytes);
            if self.kept.len() < 64 {
                self.kept.push((to, bytes));
            } else {
                let at = self.chance.below(64) as usize;
                self.kept[at] = (to, bytes);
            }
        }
        for end in 0..2 {
            let _ = tcp_poll(&self.world.inets[end], self.world.now_ns);
        }
    }

    /// What programs do meanwhile.
    fn act(&mut self) {
        let end = self.chance.below(2) as usize;
        if let Ok(server) = self.listener.accept() {
            self.sockets[1].push(server);
        }
        if self.sockets[0].len() < CLIENT_COUNT as usize {
            let client = self.world.tcp(0);
            if client.begin_connect(SocketAddr::new(address(1), 80)).is_ok() {
                self.sockets[0].push(client);
            }
        }
        if self.sockets[end].is_empty() {
            return;
        }
        let at = self.chance.below(self.sockets[end].len() as u64) as usize;
        let socket = self.sockets[end][at].clone();
        match self.chance.below(40) {
            0 => drop(socket.shutdown(Halves { receiving: false, sending: true })),
            1..=3 => {
                socket.close();
                self.sockets[end].swap_remove(at);
            }
            4..=20 => drop(receive(&socket, 1 + self.chance.below(70_000) as usize)),
            _ => drop(send(&socket, &[7; 9000][..1 + self.chance.below(8999) as usize])),
        }
    }

    /// All close, and time goes on until nothing is left of them.
    fn end(mut self) {
        for socket in self.sockets.iter_mut().flat_map(core::mem::take) {
            socket.close();
        }
        self.listener.close();
        self.world.link.faults = Faults::default();
        self.world.run(3600 * SECOND_NS);
        for inet in &self.world.inets {
            assert_eq!(inet.engine.counts(), (0, 0, 0));
        }
        let [client, server] = self.world.pair();
        assert_eq!(send(&client, b"still"), Ok(5));
        self.world.run(SECOND_NS);
        assert_eq!(receive(&server, 10), Ok(b"still".to_vec()));
    }
}

fn torment(seed: u64, thrown: u64) {
    let mut torment = Torment::new(seed);
    while torment.thrown < thrown {
        torment.act();
        torment.carry();
        let pause_ns = if torment.chance.happens(20) { SECOND_NS * 3 } else { 3_000_000 };
        let pause_ns = torment.chance.below(pause_ns);
        torment.world.set_now(torment.world.now_ns + pause_ns);
    }
    torment.end();
}

#[test]
fn any_segments_do_no_harm() {
    let thrown = std::env::var("AEGIS_FRAME_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000_u64);
    // Worlds of their own, so that each goes through all states from the beginning.
    let world_count = thrown.div_ceil(100_000).max(4);
    let first = std::env::var("AEGIS_FRAME_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    (first..first + world_count).for_each(|seed| torment(seed, thrown / world_count));
}
