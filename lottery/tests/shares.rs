//! Shares as statistics. Every seed is fixed, so that no test passes or fails by luck; that the judgement can fail is a
//! test too.

use std::sync::Mutex as HostMutex;

use aegis_lottery::inverse::{Holder, loser};
use aegis_lottery::mutex::{Acquire, Mutex, MutexIn};
use aegis_lottery::random::Keyed;
use aegis_lottery::{COMPENSATION_ONE, CurrencyId, Error, Lottery, Policy, Random, RoundRobin, Stride, Used};

const SEEDS: u64 = 30;
const SLICE_NS: u64 = 10_000_000;
const WHOLE: Used = Used { used_ns: SLICE_NS, slice_ns: SLICE_NS };

type Small = Lottery<32, 64>;

fn client(lottery: &mut Small, issuer: CurrencyId, amount: u64) -> CurrencyId {
    let client = lottery.create_client(1000, 0).expect("room");
    lottery.transfer(issuer, client, amount).expect("room");
    lottery.set_ready(client, true);
    client
}

/// How far the counts are from what the parts ask for: the statistic of a chi-square test.
fn chi_square(counts: &[u64], parts: &[u64]) -> f64 {
    let (count, part_sum) = (counts.iter().sum::<u64>() as f64, parts.iter().sum::<u64>() as f64);
    counts
        .iter()
        .zip(parts)
        .map(|(count_of_one, part)| {
            let expected = count * *part as f64 / part_sum;
            (*count_of_one as f64 - expected).powi(2) / expected
        })
        .sum()
}

/// The part of `SEEDS` runs whose chi-square with four degrees of freedom is above 9.488 (5 %), and the sum of all.
fn judge<R: Random>(generator: impl Fn(u64) -> R) -> (u32, f64) {
    let parts = [1, 2, 3, 10, 50];
    let (mut above, mut sum) = (0, 0.0);
    for seed in 0..SEEDS {
        let mut random = generator(seed);
        let mut lottery = Small::new();
        let clients = parts.map(|part| client(&mut lottery, CurrencyId::BASE, part));
        let mut counts = [0; 5];
        for _ in 0..5_000 {
            let winner = lottery.choose(&mut random).expect("they are ready");
            counts[clients.iter().position(|client| *client == winner).expect("a client")] += 1;
        }
        let statistic = chi_square(&counts, &parts);
        above += u32::from(statistic > 9.488);
        sum += statistic;
    }
    (above, sum)
}

/// 120 degrees of freedom in all: mean 120, 99.9 % below 174; of 30 runs at most 6 are above their 5 % (99.9 %).
fn is_fair((above, sum): (u32, f64)) -> bool {
    above <= 6 && sum < 174.0 && sum > 75.0
}

#[test]
fn draws_pass_a_chi_square_test_over_thirty_seeds() {
    let verdict = judge(|seed| Keyed::new([seed, 2]));
    assert!(is_fair(verdict), "{verdict:?}");
}

#[test]
fn biased_generators_are_caught() {
    /// Takes a remainder of few bits instead of a number without bias.
    struct Remainder(Keyed);
    impl Random for Remainder {
        fn next_word(&mut self) -> u64 {
            self.0.next_word()
        }
        fn below(&mut self, end: u64) -> u64 {
            // Of 64 tickets' weights in 66: the last two are never drawn by a number of as many bits.
            (self.next_word() >> 58) * (1 << 16) % end
        }
    }
    /// Ones in its highest bit are a little too frequent.
    struct Heavy(Keyed);
    impl Random for Heavy {
        fn next_word(&mut self) -> u64 {
            let word = self.0.next_word();
            if self.0.next_word() < u64::MAX / 10 { word | 1 << 63 } else { word }
        }
    }
    /// Every fifth word is the same.
    struct Stuck(Keyed, u32);
    impl Random for Stuck {
        fn next_word(&mut self) -> u64 {
            self.1 += 1;
            if self.1.is_multiple_of(5) { 1 << 40 } else { self.0.next_word() }
        }
    }
    assert!(!is_fair(judge(|seed| Remainder(Keyed::new([seed, 2])))));
    assert!(!is_fair(judge(|seed| Heavy(Keyed::new([seed, 2])))));
    assert!(!is_fair(judge(|seed| Stuck(Keyed::new([seed, 2]), 0))));
}

#[test]
fn numbers_below_a_bound_have_no_favourites() {
    // With a remainder, numbers below 2^62 would come twice as often as the others.
    let end = 3 << 62;
    let mut random = Keyed::new([5, 6]);
    let mut counts = [0; 3];
    for _ in 0..30_000 {
        counts[(random.below(end) >> 62) as usize] += 1;
    }
    assert!(chi_square(&counts, &[1, 1, 1]) < 13.8, "{counts:?}");
    assert_eq!(random.below(1), 0);
}

/// Figure 4: two clients, every ratio; wins pooled over the seeds within the 99 % interval, the mean ratio within 2 %.
#[test]
fn two_clients_win_in_their_ratio() {
    let mut outside = 0;
    for ratio in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20] {
        let mut pooled = 0.0;
        let (draws, chance) = (4_000.0, ratio as f64 / (ratio as f64 + 1.0));
        for seed in 0..SEEDS {
            let mut random = Keyed::new([seed, ratio]);
            let mut lottery = Small::new();
            let first = client(&mut lottery, CurrencyId::BASE, 1000 * ratio);
            client(&mut lottery, CurrencyId::BASE, 1000);
            let wins = (0..draws as u32).filter(|_| lottery.choose(&mut random) == Some(first)).count() as f64;
            let deviation = (draws * chance * (1.0 - chance)).sqrt();
            outside += u32::from((wins - draws * chance).abs() > 2.576 * deviation);
            pooled += wins;
        }
        let all = draws * SEEDS as f64;
        let deviation = (all * chance * (1.0 - chance)).sqrt();
        assert!((pooled - all * chance).abs() < 2.576 * deviation, "{ratio}:1 gave {pooled} of {all}");
        let observed = pooled / (all - pooled);
        assert!((observed / ratio as f64 - 1.0).abs() < 0.02, "{ratio}:1 gave {observed}");
    }
    // 330 runs: 3.3 are due outside their interval, and more than 10 with a chance of less than 0.1 %.
    assert!(outside <= 10, "{outside}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut random = Keyed::new([seed, 0]);
        let mut lottery = Small::new();
        for amount in 1..20 {
            client(&mut lottery, CurrencyId::BASE, amount);
        }
        (0..500).map(|_| lottery.choose(&mut random).unwrap().index()).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Time that each client of a policy gets, if it uses this part of each slice.
fn times<P: Policy>(policy: &mut P, clients: &[(P::Client, u64)], slices: u32, random: &mut Keyed) -> Vec<f64> {
    let mut times = vec![0.0; clients.len()];
    for _ in 0..slices {
        let winner = policy.choose(random).expect("they are ready");
        let index = clients.iter().position(|(client, _)| *client == winner).expect("a client");
        let used_ns = clients[index].1;
        times[index] += used_ns as f64;
        policy.charge(winner, Used { used_ns, slice_ns: SLICE_NS });
    }
    times
}

/// Section 3a's example, and the same one currency further down: compensation is felt in every currency above.
#[test]
fn a_client_that_uses_a_fifth_of_its_slices_gets_its_share() {
    let mut random = Keyed::new([11, 0]);
    let mut lottery = Small::new();
    let first = client(&mut lottery, CurrencyId::BASE, 400);
    let second = client(&mut lottery, CurrencyId::BASE, 400);
    let clients = [(first, SLICE_NS), (second, SLICE_NS / 5)];
    let got = times(&mut lottery, &clients, 200_000, &mut random);
    assert!((got[0] / got[1] - 1.0).abs() < 0.02, "{got:?}");

    let shop = lottery.create_currency(0).unwrap();
    lottery.transfer(CurrencyId::BASE, shop, 800).unwrap();
    let third = client(&mut lottery, shop, 1);
    let fourth = client(&mut lottery, shop, 3);
    let clients = [(first, SLICE_NS), (second, SLICE_NS / 5), (third, SLICE_NS / 10), (fourth, SLICE_NS)];
    let got = times(&mut lottery, &clients, 400_000, &mut random);
    let all: f64 = got.iter().sum();
    for (part, due) in got.iter().zip([0.25, 0.25, 0.125, 0.375]) {
        assert!((part / all / due - 1.0).abs() < 0.03, "{got:?}");
    }
}

/// A client that uses more than its slice wins as much less often, also by turns with using next to nothing.
#[test]
fn a_client_that_overruns_its_slices_gets_its_share() {
    let mut random = Keyed::new([13, 0]);
    for pattern in [[3 * SLICE_NS / 2; 2], [4 * SLICE_NS, SLICE_NS / 100], [2 * SLICE_NS, SLICE_NS]] {
        let mut lottery = Small::new();
        let shop = lottery.create_currency(0).unwrap();
        lottery.transfer(CurrencyId::BASE, shop, 500).unwrap();
        let greedy = client(&mut lottery, shop, 7);
        let honest = client(&mut lottery, CurrencyId::BASE, 500);
        let mut used = [0.0; 2];
        for turn in 0..100_000 {
            let winner = lottery.choose(&mut random).expect("they are ready");
            let used_ns = if winner == honest { SLICE_NS } else { pattern[turn % 2] };
            used[usize::from(winner == honest)] += used_ns as f64;
            lottery.charge(winner, Used { used_ns, slice_ns: SLICE_NS });
        }
        assert!((used[0] / used[1] - 1.0).abs() < 0.03, "{pattern:?}: {used:?}");
        assert!(lottery.check() && lottery.is_active(greedy));
    }
}

/// Figure 9: inflation in one currency is nothing to the other.
#[test]
fn currencies_insulate() {
    let mut random = Keyed::new([12, 0]);
    let mut lottery = Small::new();
    let [a, b] = [0; 2].map(|_| {
        let currency = lottery.create_currency(0).unwrap();
        lottery.transfer(CurrencyId::BASE, currency, 1000).unwrap();
        currency
    });
    let [a1, a2] = [100, 200].map(|amount| client(&mut lottery, a, amount));
    let [b1, b2] = [100, 200].map(|amount| client(&mut lottery, b, amount));
    let b3 = client(&mut lottery, b, 300);
    let clients = [a1, a2, b1, b2, b3].map(|client| (client, SLICE_NS));
    let got = times(&mut lottery, &clients, 120_000, &mut random);
    let all: f64 = got.iter().sum();
    for (part, due) in got.iter().zip([6.0, 12.0, 3.0, 6.0, 9.0]) {
        assert!((part / all * 36.0 / due - 1.0).abs() < 0.03, "{got:?}");
    }
    // Fifty children more are nothing to the other either: they share.
    lottery.set_ready(b3, false);
    for _ in 0..20 {
        client(&mut lottery, b, 5000);
    }
    let wins = (0..20_000).filter(|_| lottery.choose(&mut random).is_some_and(|c| c == a1 || c == a2)).count();
    assert!((9_800..10_200).contains(&wins), "{wins}");
}

/// A call passes the caller's whole funding on, through any number of servers, and back in reverse.
#[test]
fn transfers_nest_and_unwind() {
    let mut lottery = Small::new();
    let caller = client(&mut lottery, CurrencyId::BASE, 700);
    client(&mut lottery, CurrencyId::BASE, 300);
    let [first, second] = [0; 2].map(|_| lottery.create_client(1000, 0).unwrap());
    let unit = aegis_lottery::VALUE_ONE;
    lottery.set_ready(first, true);
    assert_eq!(lottery.value(first), Ok(0), "a server without tickets is worth nothing");
    lottery.set_ready(first, false);

    lottery.set_ready(caller, false);
    let to_first = lottery.transfer(caller, first, 1000).unwrap();
    assert!(!lottery.is_active(caller));
    lottery.set_ready(first, true);
    assert_eq!(lottery.value(first), Ok(700 * unit));
    lottery.set_ready(first, false);
    let to_second = lottery.transfer(first, second, 1000).unwrap();
    lottery.set_ready(second, true);
    assert_eq!((lottery.value(first), lottery.value(second)), (Ok(700 * unit), Ok(700 * unit)));
    // None can be made to wait for itself.
    assert_eq!(lottery.transfer(second, caller, 1), Err(Error::Cycle));
    // The caller dies: its funding is gone at once, for everyone below.
    let mut other = Small::new();
    core::mem::swap(&mut other, &mut lottery);
    other.destroy_ticket(to_first).unwrap();
    assert_eq!((other.value(first), other.value(second)), (Ok(0), Ok(0)));
    other.destroy_ticket(to_second).unwrap();
    assert!(other.check());
}

/// A client that waits for several servers splits what it has.
#[test]
fn a_transfer_splits() {
    let mut random = Keyed::new([13, 0]);
    let mut lottery = Small::new();
    let caller = client(&mut lottery, CurrencyId::BASE, 10);
    lottery.set_ready(caller, false);
    let servers = [0; 3].map(|_| lottery.create_client(1000, 0).unwrap());
    for (server, amount) in servers.into_iter().zip([1, 2, 5]) {
        lottery.transfer(caller, server, amount).unwrap();
        lottery.set_ready(server, true);
    }
    let clients = servers.map(|server| (server, SLICE_NS));
    let got = times(&mut lottery, &clients, 40_000, &mut random);
    let counts: Vec<u64> = got.iter().map(|time| (time / SLICE_NS as f64) as u64).collect();
    assert!(chi_square(&counts, &[1, 2, 5]) < 9.21, "{counts:?}");
}

#[test]
fn a_lock_goes_to_the_waiters_in_their_ratio() {
    let mut random = Keyed::new([14, 0]);
    let mut lottery = Small::new();
    let mut lock: Mutex<8> = Mutex::new(&mut lottery).unwrap();
    let clients: Vec<_> = (0..8).map(|n| client(&mut lottery, CurrencyId::BASE, if n < 4 { 2 } else { 1 })).collect();
    let mut acquired = [0; 8];
    for (index, one) in clients.iter().enumerate() {
        let outcome = lock.acquire(&mut lottery, *one).unwrap();
        assert_eq!(outcome == Acquire::Held, index == 0);
        lottery.set_ready(*one, index == 0);
    }
    // The holder runs with the funding of all.
    assert_eq!(lottery.value(clients[0]), Ok(12 * aegis_lottery::VALUE_ONE));
    for _ in 0..20_000 {
        let holder = lock.holder().unwrap();
        assert_eq!(lottery.choose(&mut random), Some(holder));
        let next = lock.release(&mut lottery, holder, &mut random).unwrap().unwrap();
        acquired[clients.iter().position(|one| *one == next).unwrap()] += 1;
        lottery.set_ready(next, true);
        lock.acquire(&mut lottery, holder).unwrap();
        lottery.set_ready(holder, false);
    }
    let (rich, poor) = (acquired[..4].iter().sum::<u32>(), acquired[4..].iter().sum::<u32>());
    // The client that released is not in the draw, so the ratio is a little below 2 (published: 1.80).
    let ratio = f64::from(rich) / f64::from(poor);
    assert!((1.7..2.0).contains(&ratio), "{rich}:{poor}");
    assert!(lottery.check());
}

#[test]
fn a_lock_without_draws_goes_to_who_waited_longest_and_has_room_for_more() {
    let mut lottery = Small::new();
    let mut lock = MutexIn::with_places(&mut lottery, Vec::new()).unwrap();
    let [a, b, c] = [1, 100, 1].map(|amount| client(&mut lottery, CurrencyId::BASE, amount));
    assert_eq!(lock.acquire(&mut lottery, a), Ok(Acquire::Held));
    assert_eq!(lock.acquire(&mut lottery, c), Err(Error::TableFull));
    lock.grow(2);
    assert_eq!(lock.acquire(&mut lottery, c), Ok(Acquire::Waits));
    assert_eq!(lock.acquire(&mut lottery, b), Ok(Acquire::Waits));
    assert_eq!(lock.release_in_turn(&mut lottery, b), Err(Error::WrongState));
    assert_eq!(lock.release_in_turn(&mut lottery, a), Ok(Some(c)));
    assert_eq!(lock.release_in_turn(&mut lottery, c), Ok(Some(b)));
    assert_eq!(lock.release_in_turn(&mut lottery, b), Ok(None));
    assert!(lock.destroy(&mut lottery).is_ok() && lottery.check());
}

#[test]
fn a_deadlock_of_two_locks_is_refused() {
    let mut lottery = Small::new();
    let mut random = Keyed::new([15, 0]);
    let [mut first, mut second]: [Mutex<4>; 2] = [0; 2].map(|_| Mutex::new(&mut lottery).unwrap());
    let [a, b] = [0; 2].map(|_| client(&mut lottery, CurrencyId::BASE, 1));
    assert_eq!(first.acquire(&mut lottery, a), Ok(Acquire::Held));
    assert_eq!(second.acquire(&mut lottery, b), Ok(Acquire::Held));
    assert_eq!(first.acquire(&mut lottery, b), Ok(Acquire::Waits));
    assert_eq!(second.acquire(&mut lottery, a), Err(Error::Cycle));
    assert_eq!(second.waiter_count(), 0);
    assert_eq!(first.acquire(&mut lottery, b), Err(Error::WrongState));
    assert_eq!(first.release(&mut lottery, b, &mut random), Err(Error::WrongState));
    first.cancel(&mut lottery, b).unwrap();
    assert_eq!(first.release(&mut lottery, a, &mut random), Ok(None));
    assert_eq!(second.acquire(&mut lottery, a), Ok(Acquire::Waits));
    let second = second.destroy(&mut lottery).err().unwrap();
    assert_eq!((second.holder(), first.destroy(&mut lottery).is_ok()), (Some(b), true));
    assert!(lottery.check());
}

#[test]
fn the_inverse_lottery_takes_from_the_poor_and_the_large() {
    let mut random = Keyed::new([16, 0]);
    let mut count = |holders: &[Holder]| {
        let mut counts = vec![0; holders.len()];
        for _ in 0..30_000 {
            counts[loser(holders, &mut random).unwrap()] += 1;
        }
        counts
    };
    let holder = |tickets, units| Holder { tickets, units };
    // (1 - t/T) / (n - 1) of 3:2:1 are 3/12, 4/12, 5/12.
    let counts = count(&[holder(3, 7), holder(2, 7), holder(1, 7)]);
    assert!(chi_square(&counts, &[3, 4, 5]) < 9.21, "{counts:?}");
    let counts = count(&[holder(5, 10), holder(5, 30)]);
    assert!(chi_square(&counts, &[1, 3]) < 6.64, "{counts:?}");
    let big = u32::MAX;
    let counts = count(&[holder(big, big), holder(big, big), holder(0, 0)]);
    assert!(chi_square(&counts[..2], &[1, 1]) < 6.64 && counts[2] == 0, "{counts:?}");
    assert_eq!(loser(&[holder(4, 2)], &mut random), Some(0));
    assert_eq!(loser(&[holder(4, 0), holder(0, 0)], &mut random), None);
    assert_eq!(loser(&[], &mut random), None);
}

#[test]
fn stride_is_never_off_by_more_than_a_slice() {
    let mut random = Keyed::new([17, 0]);
    let mut stride: Stride<4> = Stride::new();
    let tickets = [1, 2, 3, 10];
    for (index, amount) in tickets.into_iter().enumerate() {
        stride.set_tickets(index, amount).unwrap();
        stride.set_ready(index, true);
    }
    let mut counts = [0.0; 4];
    for slice in 1..10_000 {
        let winner = stride.choose(&mut random).unwrap();
        counts[winner] += 1.0;
        stride.charge(winner, WHOLE);
        for pair in [(0, 1), (1, 2), (2, 3), (0, 3)] {
            let (first, second) = pair;
            let sum = f64::from(tickets[first] + tickets[second]);
            let due = (counts[first] + counts[second]) * f64::from(tickets[first]) / sum;
            assert!((counts[first] - due).abs() <= 1.0 + 1e-6, "slice {slice}: {counts:?}");
        }
    }
    let parts = [(0, SLICE_NS / 4), (1, SLICE_NS), (2, SLICE_NS), (3, SLICE_NS / 10)];
    let got = times(&mut stride, &parts, 100_000, &mut random);
    let all: f64 = got.iter().sum();
    for (part, due) in got.iter().zip([1.0, 2.0, 3.0, 10.0]) {
        assert!((part / all * 16.0 / due - 1.0).abs() < 0.01, "{got:?}");
    }
    // A client that was away gets no more than its share when it comes back.
    stride.set_ready(3, false);
    times(&mut stride, &parts, 1_000, &mut random);
    stride.set_tickets(3, 6).unwrap();
    stride.set_ready(3, true);
    let got = times(&mut stride, &[(0, SLICE_NS), (1, SLICE_NS), (2, SLICE_NS), (3, SLICE_NS)], 1_200, &mut random);
    assert!((got[3] / got.iter().sum::<f64>() - 0.5).abs() < 0.01, "{got:?}");
    assert_eq!(stride.set_tickets(3, 0), Err(Error::ZeroAmount));
    assert_eq!(stride.set_tickets(4, 1), Err(Error::UnknownCurrency));
}

#[test]
fn round_robin_takes_turns() {
    let mut random = Keyed::new([18, 0]);
    let mut ring: RoundRobin<4> = RoundRobin::new();
    assert_eq!(ring.choose(&mut random), None);
    for client in [1, 3] {
        ring.set_ready(client, true);
    }
    let order: Vec<_> = (0..4).map(|_| ring.choose(&mut random).unwrap()).collect();
    assert_eq!(order, [1, 3, 1, 3]);
}

static LARGE: HostMutex<Lottery<10_001, 10_000>> = HostMutex::new(Lottery::new());

/// A draw among 10,000 takes at most four times the steps of one among 10.
#[test]
fn draws_cost_the_logarithm() {
    let mut random = Keyed::new([19, 0]);
    let mut lottery = LARGE.lock().unwrap();
    let mut steps = |lottery: &mut Lottery<10_001, 10_000>| {
        let draws: Vec<u32> = (0..20_000).map(|_| lottery.draw(&mut random).unwrap().steps).collect();
        *draws.iter().max().unwrap()
    };
    let mut few = 0;
    for number in 1..=10_000_u64 {
        let client = lottery.create_client(1, 0).unwrap();
        lottery.transfer(CurrencyId::BASE, client, 1 + number % 7).unwrap();
        lottery.set_client(client, true, COMPENSATION_ONE).unwrap();
        if number == 10 {
            few = steps(&mut lottery);
        }
    }
    let many = steps(&mut lottery);
    assert_eq!((few, many), (4, 14));
    assert!(lottery.check());
}
