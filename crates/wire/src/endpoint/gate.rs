//! Admission of strangers' handshakes: decides which are begun, and which give way to others. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

/// The decision about a stranger's first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Begin the handshake; tell [`Gate::ended`] when it ends.
    Begin {
        /// The id of this handshake.
        id: u64,
        /// An earlier handshake that is given up for it, and counts as ended.
        instead_of: Option<u64>,
    },
    /// Make the stranger prove its address first; this costs no state here.
    Prove,
    /// Refuse the handshake.
    Refuse,
    /// Say nothing; the stranger will send again.
    Drop,
}

/// Admits handshakes at a bounded rate and number, so that nobody keeps others out by beginning handshakes and not
/// ending them. Time is given by the caller, counted from any fixed start.
///
/// One address has a quarter of the places and half of the rate. When the places are taken, of one address or all of
/// them, a new handshake takes the place of the oldest: of its own address, or of the address that has most. An honest
/// handshake takes a few round trips, so that it is over before its place is needed: at the full rate a place is kept
/// for `max_pending / per_second`, half a second with the defaults, and a quarter if one address takes all of its
/// share.
#[derive(Debug)]
pub(crate) struct Gate {
    max_pending: usize,
    max_connections: usize,
    rate: Bucket,
    /// Addresses of handshakes that have begun, by age.
    pending: BTreeMap<u64, IpAddr>,
    /// Addresses that have handshakes under way or less than full credit: no more than begin in a second or two.
    addresses: HashMap<IpAddr, Share>,
    begun: u64,
}

/// The rate and the handshakes of one address.
#[derive(Debug)]
struct Share {
    rate: Bucket,
    pending: BTreeSet<u64>,
}

impl Gate {
    pub(crate) fn new(max_pending: usize, max_connections: usize, per_second: u32) -> Self {
        Self {
            max_pending,
            max_connections,
            rate: Bucket::full(f64::from(per_second), Duration::ZERO),
            pending: BTreeMap::new(),
            addresses: HashMap::new(),
            begun: 0,
        }
    }

    /// Decides on a stranger's first packet from that address while `connections` are open. `proven` says whether the
    /// stranger has shown that it receives what is sent to its address.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        from: IpAddr,
        connections: usize,
        proven: bool,
    ) -> Admission {
        self.rate.pass(now);
        if self.max_pending == 0 || connections >= self.max_connections {
            return Admission::Refuse;
        }
        let busy = self.pending.len() >= self.max_pending / 4 || self.rate.credit < self.rate.most / 2.0;
        if busy && !proven {
            return Admission::Prove;
        }
        let from = network_of(from);
        if self.addresses.len() > self.pending.len() + TIDY_AFTER {
            self.tidy(now);
        }
        let most = self.rate.most / 2.0;
        let share = self.addresses.entry(from);
        let share = share
            .or_insert_with(|| Share { rate: Bucket::full(most.max(1.0), now), pending: BTreeSet::new() });
        share.rate.pass(now);
        if self.rate.credit < 1.0 || share.rate.credit < 1.0 {
            return Admission::Drop;
        }
        self.rate.credit -= 1.0;
        share.rate.credit -= 1.0;
        let instead_of = if share.pending.len() >= (self.max_pending / 4).max(1) {
            share.pending.first().copied()
        } else if self.pending.len() >= self.max_pending {
            let greediest = self.addresses.values().max_by_key(|share| share.pending.len());
            greediest.and_then(|share| share.pending.first().copied())
        } else {
            None
        };
        if let Some(id) = instead_of {
            self.ended(id);
        }
        self.begun += 1;
        let id = self.begun;
        self.pending.insert(id, from);
        if let Some(share) = self.addresses.get_mut(&from) {
            share.pending.insert(id);
        }
        Admission::Begin { id, instead_of }
    }

    /// Notes that a handshake is over, however it ended.
    pub(crate) fn ended(&mut self, id: u64) {
        if let Some(share) = self.pending.remove(&id).and_then(|from| self.addresses.get_mut(&from)) {
            share.pending.remove(&id);
        }
    }

    /// Forgets addresses that have no handshakes and full credit.
    fn tidy(&mut self, now: Duration) {
        self.addresses.retain(|_, share| {
            share.rate.pass(now);
            !share.pending.is_empty() || share.rate.credit < share.rate.most
        });
    }
}

/// A rate with bursts of a second's worth.
#[derive(Debug)]
struct Bucket {
    most: f64,
    credit: f64,
    updated: Duration,
}

impl Bucket {
    const fn full(most: f64, now: Duration) -> Self {
        Self { most, credit: most, updated: now }
    }

    fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.updated).as_secs_f64();
        self.updated = self.updated.max(now);
        self.credit = (self.credit + passed * self.most).min(self.most);
    }
}

/// Returns the network that counts as one address: a user of IPv6 has 2^64 addresses.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Number of addresses without a handshake that are remembered before the unneeded ones are looked for.
const TIDY_AFTER: usize = 1024;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use proptest::prelude::*;

    fn host(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    /// Begins a handshake.
    fn begin(gate: &mut Gate, now: Duration, from: IpAddr) -> (u64, Option<u64>) {
        match gate.admit(now, from, 0, true) {
            Admission::Begin { id, instead_of } => (id, instead_of),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_first_stranger_need_not_prove_his_address() {
        let mut gate = Gate::new(8, 100, 10);
        let first = gate.admit(Duration::ZERO, host(1), 0, false);
        assert_eq!(first, Admission::Begin { id: 1, instead_of: None });
    }

    #[test]
    fn under_load_addresses_are_proven_before_anything_is_kept() {
        let mut gate = Gate::new(8, 100, 10);
        for from in 1..3 {
            begin(&mut gate, Duration::ZERO, host(from));
        }
        assert_eq!(gate.admit(Duration::ZERO, host(3), 0, false), Admission::Prove);
        assert!(matches!(gate.admit(Duration::ZERO, host(3), 0, true), Admission::Begin { .. }));
        assert_eq!(gate.admit(Duration::ZERO, host(4), 100, true), Admission::Refuse);
    }

    #[test]
    fn who_begins_many_handshakes_gives_up_his_oldest_for_his_next_and_for_others() {
        let mut gate = Gate::new(8, 100, 1000);
        let greedy: Vec<u64> = (0..2).map(|_| begin(&mut gate, Duration::ZERO, host(1)).0).collect();
        // A quarter of the places is one address's share.
        let (third, given_up) = begin(&mut gate, Duration::ZERO, host(1));
        assert_eq!(given_up, Some(greedy[0]));
        let others: Vec<u64> = (2..8).map(|from| begin(&mut gate, Duration::ZERO, host(from)).0).collect();
        assert_eq!(gate.pending.len(), 8);
        let (_, given_up) = begin(&mut gate, Duration::ZERO, host(9));
        assert_eq!(given_up, Some(greedy[1]), "the oldest of who has most makes room");
        gate.ended(third);
        let (_, given_up) = begin(&mut gate, Duration::ZERO, host(10));
        assert_eq!((given_up, gate.pending.len()), (None, 8));
        assert!(others.iter().all(|id| gate.pending.contains_key(id)));
    }

    #[test]
    fn one_address_has_half_of_the_rate_and_all_of_a_network_of_ipv6_are_one() {
        let mut gate = Gate::new(1000, 1000, 10);
        let begun = |gate: &mut Gate, from: IpAddr| {
            (0..100)
                .filter(|_| matches!(gate.admit(Duration::ZERO, from, 0, true), Admission::Begin { .. }))
                .count()
        };
        let of_network = |host: u128| IpAddr::V6(Ipv6Addr::from_bits((0xfd << 120) + host));
        assert_eq!(begun(&mut gate, of_network(1)), 5);
        assert_eq!(begun(&mut gate, of_network(2)), 0);
        assert_eq!(begun(&mut gate, host(7)), 5);
    }

    #[test]
    fn silence_restores_the_credit_and_what_is_remembered_is_bounded() {
        let mut gate = Gate::new(1000, 1000, 4000);
        for from in 0..4 * TIDY_AFTER as u32 {
            let now = Duration::from_millis(from.into());
            let (id, _) = begin(&mut gate, now, host(from));
            gate.ended(id);
            assert!(gate.addresses.len() <= TIDY_AFTER + 2, "{}", gate.addresses.len());
        }
    }

    proptest! {
        /// However strangers come, no more begin in a span than the rate allows for it and one burst, and no more are
        /// under way than there are places.
        #[test]
        fn the_rate_and_the_number_hold_over_any_span(
            comes in proptest::collection::vec((0u64..5_000, 0u32..5), 1..400),
            per_second in 1u32..1000,
            places in 1usize..40,
        ) {
            let mut gate = Gate::new(places, usize::MAX, per_second);
            let (mut now, mut begun) = (Duration::ZERO, 0.0);
            for (gap, from) in comes {
                now += Duration::from_micros(gap);
                let admitted = gate.admit(now, host(from), 0, true);
                begun += f64::from(u8::from(matches!(admitted, Admission::Begin { .. })));
                prop_assert!(gate.pending.len() <= places);
                let share = gate.addresses.values().map(|share| share.pending.len()).max().unwrap_or(0);
                prop_assert!(share <= (places / 4).max(1));
            }
            prop_assert!(begun <= f64::from(per_second) * (1.0 + now.as_secs_f64()) + 1e-6);
        }
    }
}
