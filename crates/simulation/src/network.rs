//! Decides when messages arrive.
//!
//! Connections are QUIC's: what a link loses is sent again, so loss is delay; a connection on which nothing comes
//! through for [`IDLE`] is lost at both ends.

use std::time::Duration;

use crate::random::Random;

/// A party of the simulated cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The coordinator.
    Coordinator,
    /// A node.
    Node(usize),
    /// A trainer.
    Trainer(usize),
}

/// The qualities of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: &'static str,
    /// Time there and back, without jitter.
    pub round_trip: Duration,
    /// Most by which a packet is later than others, one way: if it is more than the gap between two packets, they are
    /// reordered.
    pub jitter: Duration,
    /// Packets that are lost, of a thousand.
    pub loss_per_mille: u64,
}

/// Links as they are met: round trips and loss of a machine room, a cloud region, two continents, a home's wireless
/// network, a mobile one, a geostationary satellite (ETSI TR 103 124 assumes about 600 ms there and back), and one
/// worse than any of them.
pub const LINKS: [Link; 8] = [
    Link {
        name: "lan",
        round_trip: Duration::from_micros(200),
        jitter: Duration::from_micros(50),
        loss_per_mille: 0,
    },
    Link {
        name: "region",
        round_trip: Duration::from_millis(2),
        jitter: Duration::from_millis(1),
        loss_per_mille: 0,
    },
    Link {
        name: "continent",
        round_trip: Duration::from_millis(80),
        jitter: Duration::from_millis(10),
        loss_per_mille: 2,
    },
    Link {
        name: "wireless",
        round_trip: Duration::from_millis(20),
        jitter: Duration::from_millis(30),
        loss_per_mille: 20,
    },
    Link {
        name: "mobile",
        round_trip: Duration::from_millis(200),
        jitter: Duration::from_millis(80),
        loss_per_mille: 50,
    },
    Link {
        name: "satellite",
        round_trip: Duration::from_millis(600),
        jitter: Duration::from_millis(50),
        loss_per_mille: 10,
    },
    Link {
        name: "bad satellite",
        round_trip: Duration::from_millis(700),
        jitter: Duration::from_millis(100),
        loss_per_mille: 100,
    },
    Link {
        name: "hopeless",
        round_trip: Duration::from_millis(800),
        jitter: Duration::from_millis(200),
        loss_per_mille: 250,
    },
];

/// A partition: for a while nothing gets from some sites to others.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) from: Duration,
    pub(crate) until: Duration,
    pub(crate) one: Vec<Site>,
    /// Whether only messages from `one` to the others are lost; else those back are lost as well.
    pub(crate) one_way: bool,
}

impl Cut {
    /// Returns whether it stops what leaves `from` at `at` for `to`.
    fn stops(&self, from: Site, to: Site, at: Duration) -> bool {
        let (inside, target) = (self.one.contains(&from), self.one.contains(&to));
        self.from <= at && at < self.until && inside != target && (inside || !self.one_way)
    }

    /// Returns whether a connection between the two cannot survive it.
    pub(crate) fn breaks(&self, a: Site, b: Site) -> bool {
        self.one.contains(&a) != self.one.contains(&b) && self.until - self.from >= IDLE
    }
}

/// Decides when packets arrive.
#[derive(Debug)]
pub(crate) struct Network {
    link: Link,
    random: Random,
    pub(crate) cuts: Vec<Cut>,
}

impl Network {
    pub(crate) const fn new(link: Link, random: Random, cuts: Vec<Cut>) -> Self {
        Self { link, random, cuts }
    }

    /// Makes the links good ones.
    pub(crate) const fn mend(&mut self) {
        self.link = LINKS[0];
    }

    /// Returns when a message that is sent at `now` arrives; `None` if its connection is given up before.
    pub(crate) fn arrival(&mut self, from: Site, to: Site, now: Duration) -> Option<Duration> {
        let Link { round_trip, jitter, loss_per_mille, .. } = self.link;
        let mut leaves = now;
        let mut again = round_trip + round_trip / 2 + jitter * 2 + LEAST_RESEND;
        while leaves - now < IDLE {
            let stopped = self.cuts.iter().any(|cut| cut.stops(from, to, leaves));
            if !self.random.chance(loss_per_mille) && !stopped {
                let late = Duration::from_nanos(self.random.within(0, jitter.as_nanos() as u64));
                return Some(leaves + round_trip / 2 + late);
            }
            leaves += again;
            again = (again * 2).min(LONGEST_RESEND.max(round_trip * 2));
        }
        None
    }
}

/// Time for which a silent connection is believed in.
pub(crate) const IDLE: Duration = Duration::from_secs(15);
/// Interval at which each end looks whether the other is there.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Longest duration of a handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
const LEAST_RESEND: Duration = Duration::from_millis(25);
/// Longest pause before a packet is sent again: heartbeats and frames keep telling what did not arrive, so pauses do
/// not double for ever.
const LONGEST_RESEND: Duration = Duration::from_millis(1500);

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) ends: [(Site, u64); 2],
    /// Whether each end believes in the connection.
    pub(crate) open: [bool; 2],
    /// Number of times that each end has received something.
    pub(crate) heard: [u64; 2],
    pub(crate) welcomed: bool,
}
