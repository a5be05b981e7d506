//! Random operations on a lottery and on a naive model of it, which computes everything anew each time. Seeds are
//! fixed.

use std::collections::BTreeMap;

use aegis_lottery::random::Keyed;
use aegis_lottery::{AMOUNT_SUM_MAX, COMPENSATION_ONE, CurrencyId, Error, Lottery, Random, TicketId, VALUE_ONE};

#[derive(Clone, Debug)]
struct ModelCurrency {
    own: u64,
    is_ready: bool,
    compensation: u32,
}

#[derive(Clone, Debug)]
struct ModelTicket {
    amount: u64,
    issuer: CurrencyId,
    target: Option<CurrencyId>,
}

/// What is so, and nothing that follows from it.
#[derive(Clone, Default)]
struct Model {
    currencies: BTreeMap<usize, (CurrencyId, ModelCurrency)>,
    tickets: BTreeMap<usize, (TicketId, ModelTicket)>,
}

impl Model {
    fn issued_by(&self, id: CurrencyId) -> impl Iterator<Item = &ModelTicket> {
        self.tickets.values().map(|(_, ticket)| ticket).filter(move |ticket| ticket.issuer == id)
    }

    fn own(&self, id: CurrencyId) -> u64 {
        self.currencies.get(&id.index()).map_or(0, |(_, currency)| currency.own)
    }

    fn issued_amount(&self, id: CurrencyId) -> u64 {
        self.own(id) + self.issued_by(id).map(|ticket| ticket.amount).sum::<u64>()
    }

    fn is_active(&self, id: CurrencyId) -> bool {
        self.active_amount(id) != 0
    }

    fn active_amount(&self, id: CurrencyId) -> u64 {
        let own = self.currencies.get(&id.index()).map_or(0, |(_, c)| if c.is_ready { c.own } else { 0 });
        own + self
            .issued_by(id)
            .filter(|ticket| ticket.target.is_some_and(|target| self.is_active(target)))
            .map(|ticket| ticket.amount)
            .sum::<u64>()
    }

    /// Whether `from` funds `to`, or is it.
    fn reaches(&self, from: CurrencyId, to: CurrencyId) -> bool {
        from == to || self.issued_by(from).filter_map(|ticket| ticket.target).any(|target| self.reaches(target, to))
    }

    fn value(&self, id: CurrencyId) -> f64 {
        if id == CurrencyId::BASE {
            return self.active_amount(id) as f64;
        }
        if !self.is_active(id) {
            return 0.0;
        }
        self.tickets
            .values()
            .map(|(_, ticket)| ticket)
            .filter(|ticket| ticket.target == Some(id))
            .map(|ticket| self.value(ticket.issuer) * ticket.amount as f64 / self.active_amount(ticket.issuer) as f64)
            .sum()
    }

    /// Weight of one active unit of a currency: the compensation of the clients that run by it, in the mean.
    fn ratio(&self, id: CurrencyId) -> f64 {
        if !self.is_active(id) {
            return 0.0;
        }
        let own = self.currencies.get(&id.index()).map_or(0.0, |(_, c)| {
            if c.is_ready { c.own as f64 * f64::from(c.compensation) / f64::from(COMPENSATION_ONE) } else { 0.0 }
        });
        let tickets: f64 =
            self.issued_by(id).filter_map(|ticket| Some(ticket.amount as f64 * self.ratio(ticket.target?))).sum();
        (own + tickets) / self.active_amount(id) as f64
    }

    /// The chances of all clients in a draw of `id`.
    fn chances(&self, id: CurrencyId, chance: f64, into: &mut BTreeMap<usize, f64>) {
        let total = self.active_amount(id) as f64 * self.ratio(id);
        if total == 0.0 {
            return;
        }
        if let Some((_, c)) = self.currencies.get(&id.index())
            && c.is_ready
        {
            let own = c.own as f64 * f64::from(c.compensation) / f64::from(COMPENSATION_ONE);
            *into.entry(id.index()).or_default() += chance * own / total;
        }
        for ticket in self.issued_by(id) {
            if let Some(target) = ticket.target {
                let part = ticket.amount as f64 * self.ratio(target) / total;
                self.chances(target, chance * part, into);
            }
        }
    }
}

struct Pair<const C: usize, const T: usize> {
    lottery: Box<Lottery<C, T>>,
    model: Model,
    random: Keyed,
}

impl<const C: usize, const T: usize> Pair<C, T> {
    fn new(seed: u64) -> Self {
        Self { lottery: Box::new(Lottery::new()), model: Model::default(), random: Keyed::new([seed, 1]) }
    }

    fn currency(&mut self) -> CurrencyId {
        let count = self.model.currencies.len() as u64;
        match self.random.below(count + 1) {
            0 => CurrencyId::BASE,
            n => self.model.currencies.values().nth(n as usize - 1).expect("counted").0,
        }
    }

    fn ticket(&mut self) -> Option<TicketId> {
        let count = self.model.tickets.len() as u64;
        (count != 0).then(|| {
            let index = self.random.below(count) as usize;
            self.model.tickets.values().nth(index).expect("counted").0
        })
    }

    fn amount(&mut self) -> u64 {
        match self.random.below(40) {
            0 => 0,
            1 => AMOUNT_SUM_MAX,
            2 => u64::MAX,
            3 => self.random.below(1 << 40),
            _ => 1 + self.random.below(1000),
        }
    }

    fn create(&mut self) {
        let own = if self.random.below(2) == 0 { 0 } else { 1 + self.random.below(1000) };
        let is_full = self.model.currencies.len() + 1 == C;
        let made = if own == 0 { self.lottery.create_currency(7) } else { self.lottery.create_client(own, 7) };
        assert_eq!(made.is_err(), is_full);
        if let Ok(id) = made {
            let entry = ModelCurrency { own, is_ready: false, compensation: COMPENSATION_ONE };
            assert!(self.model.currencies.insert(id.index(), (id, entry)).is_none());
        }
    }

    fn destroy(&mut self) {
        let id = self.currency();
        let is_used = self.model.tickets.values().any(|(_, t)| t.issuer == id || t.target == Some(id));
        let expected = match id {
            CurrencyId::BASE => Err(Error::IsBase),
            _ if is_used => Err(Error::InUse),
            _ => Ok(()),
        };
        // A client that is ready without funding may go as it is.
        assert_eq!(self.lottery.destroy_currency(id), expected);
        if expected.is_ok() {
            self.model.currencies.remove(&id.index());
            assert_eq!(self.lottery.destroy_currency(id), Err(Error::UnknownCurrency));
        }
    }

    fn amount_error(&self, id: CurrencyId, before: u64, amount: u64) -> Option<Error> {
        if amount == 0 {
            return Some(Error::ZeroAmount);
        }
        let sum = (self.model.issued_amount(id) - before).saturating_add(amount);
        (sum > AMOUNT_SUM_MAX).then_some(Error::SumTooLarge)
    }

    fn issue(&mut self) {
        let (issuer, amount) = (self.currency(), self.amount());
        let is_full = self.model.tickets.len() == T;
        let expected = self.amount_error(issuer, 0, amount).or(is_full.then_some(Error::TableFull));
        let made = self.lottery.issue(issuer, amount);
        assert_eq!(made.err(), expected);
        if let Ok(id) = made {
            let entry = ModelTicket { amount, issuer, target: None };
            assert!(self.model.tickets.insert(id.index(), (id, entry)).is_none());
        }
    }

    fn fund(&mut self) {
        let Some(id) = self.ticket() else { return };
        let target = self.currency();
        let entry = self.model.tickets[&id.index()].1.clone();
        let expected = if target == CurrencyId::BASE {
            Err(Error::IsBase)
        } else if entry.target.is_some() {
            Err(Error::InUse)
        } else if self.model.reaches(target, entry.issuer) {
            Err(Error::Cycle)
        } else {
            Ok(())
        };
        assert_eq!(self.lottery.fund(id, target), expected);
        if expected.is_ok() {
            self.model.tickets.get_mut(&id.index()).expect("it is there").1.target = Some(target);
        }
    }

    fn reissue(&mut self) {
        let Some(id) = self.ticket() else { return };
        let (issuer, entry) = (self.currency(), self.model.tickets[&id.index()].1.clone());
        let is_full = self.model.tickets.len() == T;
        let expected = if entry.issuer == issuer {
            None
        } else {
            let cycle = entry.target.filter(|target| self.model.reaches(*target, issuer)).map(|_| Error::Cycle);
            self.amount_error(issuer, 0, entry.amount).or(is_full.then_some(Error::TableFull)).or(cycle)
        };
        let made = self.lottery.reissue(id, issuer);
        assert_eq!(made.err(), expected);
        if let Ok(new) = made {
            self.model.tickets.remove(&id.index());
            let entry = ModelTicket { issuer, ..entry };
            assert!(self.model.tickets.insert(new.index(), (new, entry)).is_none());
        }
    }

    fn change_ticket(&mut self) {
        let Some(id) = self.ticket() else { return };
        match self.random.below(4) {
            3 => self.reissue(),
            0 => {
                self.lottery.unfund(id).expect("a ticket");
                self.model.tickets.get_mut(&id.index()).expect("it is there").1.target = None;
            }
            1 => {
                self.lottery.destroy_ticket(id).expect("a ticket");
                self.model.tickets.remove(&id.index());
                assert_eq!(self.lottery.destroy_ticket(id), Err(Error::UnknownTicket));
            }
            _ => {
                let entry = self.model.tickets[&id.index()].1.clone();
                let amount = self.amount();
                let expected = self.amount_error(entry.issuer, entry.amount, amount).map_or(Ok(()), Err);
                assert_eq!(self.lottery.set_amount(id, amount), expected);
                if expected.is_ok() {
                    self.model.tickets.get_mut(&id.index()).expect("it is there").1.amount = amount;
                }
            }
        }
    }

    fn client(&mut self) {
        let id = self.currency();
        let is_ready = self.random.below(3) != 0;
        let compensation = COMPENSATION_ONE << self.random.below(4) >> self.random.below(4);
        let is_client = self.model.own(id) != 0;
        let expected = if is_client { Ok(()) } else { Err(Error::NoClient) };
        assert_eq!(self.lottery.set_client(id, is_ready, compensation), expected);
        if is_client {
            let entry = &mut self.model.currencies.get_mut(&id.index()).expect("a client").1;
            entry.is_ready = is_ready;
            entry.compensation = compensation;
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0 | 1 => self.create(),
            2 => self.destroy(),
            3..=5 => self.issue(),
            6..=8 => self.fund(),
            9 | 10 => self.change_ticket(),
            _ => self.client(),
        }
    }

    fn check(&mut self) {
        assert!(self.lottery.check());
        let mut chances = BTreeMap::new();
        self.model.chances(CurrencyId::BASE, 1.0, &mut chances);
        let ids: Vec<CurrencyId> = self.model.currencies.values().map(|(id, _)| *id).collect();
        for id in ids.into_iter().chain([CurrencyId::BASE]) {
            assert_eq!(self.lottery.active_amount(id), self.model.active_amount(id));
            assert_eq!(self.lottery.issued_amount(id), self.model.issued_amount(id));
            assert_eq!(self.lottery.issued(id).count(), self.model.issued_by(id).count());
            let value = self.lottery.value(id).expect("it is there") as f64 / VALUE_ONE as f64;
            let expected = self.model.value(id);
            assert!((value - expected).abs() <= expected * 1e-6 + 1e-3, "{id:?}: {value} for {expected}");
        }
        match self.lottery.draw(&mut self.random) {
            None => assert!(chances.is_empty(), "somebody could have won"),
            Some(draw) => assert!(chances[&draw.client.index()] > 0.0),
        }
    }
}

fn run<const C: usize, const T: usize>(seed: u64, steps: usize, check_every: usize) {
    let mut pair = Pair::<C, T>::new(seed);
    for step in 0..steps {
        pair.step();
        if step % check_every == 0 {
            pair.check();
        }
    }
    pair.check();
}

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..3 {
        run::<9, 14>(seed, 1_500, 1);
    }
    run::<40, 80>(99, 4_000, 200);
}

#[test]
#[ignore = "takes minutes: millions of operations"]
fn millions_of_operations_agree_with_the_model() {
    for seed in 0..100 {
        run::<9, 14>(seed + 1000, 30_000, 20);
    }
    run::<40, 80>(2000, 50_000, 5_000);
}

/// Draws in graphs of all shapes, against the chances that the model computes.
#[test]
fn draws_in_random_graphs_follow_the_chances() {
    let (mut judged, mut outside) = (0, 0);
    for seed in 0..150 {
        let mut pair = Pair::<12, 24>::new(seed + 500);
        for _ in 0..150 {
            pair.step();
        }
        let mut chances = BTreeMap::new();
        pair.model.chances(CurrencyId::BASE, 1.0, &mut chances);
        let count = 2_000;
        let mut wins: BTreeMap<usize, u32> = BTreeMap::new();
        for _ in 0..count {
            if let Some(draw) = pair.lottery.draw(&mut pair.random) {
                *wins.entry(draw.client.index()).or_default() += 1;
            }
        }
        for (client, chance) in chances.iter().filter(|(_, chance)| (0.005..0.995).contains(*chance)) {
            let mean = chance * f64::from(count);
            let deviation = (mean * (1.0 - chance)).sqrt();
            let got = f64::from(wins.get(client).copied().unwrap_or(0));
            judged += 1;
            outside += u32::from((got - mean).abs() > 2.576 * deviation);
            assert!((got - mean).abs() < 5.0 * deviation, "seed {seed}: {got} wins where {mean} are due");
        }
    }
    assert!(judged > 60, "{judged}");
    assert!(f64::from(outside) < 0.04 * f64::from(judged), "{outside} of {judged} outside the 99 % interval");
}
