//! What a link does to packets: pure, so that the same seed does the same to the same packets.

use std::time::Duration;

use rollhouse_core::split_mix64;

/// A link in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkProfile {
    /// From the last byte in to the last byte out, when nothing waits.
    pub delay: Duration,
    /// The share of packets that are lost, from 0 to 1.
    pub loss: f64,
    /// The share of packets that are held back by [`LinkProfile::held_back`], so that later ones overtake them.
    pub reorder: f64,
    /// How long those are held back.
    pub held_back: Duration,
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may wait for the rate; a packet that finds more waiting is dropped, as at a router.
    pub queue_bytes: u64,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives then.
    Arrives(Duration),
    /// It is lost on the way.
    Lost,
    /// The queue is full.
    Dropped,
}

/// One direction of a link. Times are durations since any zero of the caller's clock, which only goes forward.
#[derive(Debug, Clone)]
pub struct LinkModel {
    profile: LinkProfile,
    seed: u64,
    packets: u64,
    /// When the last byte that was taken in will have left.
    busy_until: Duration,
}

impl LinkModel {
    /// An idle link, whose losses `seed` decides.
    pub const fn new(profile: LinkProfile, seed: u64) -> Self {
        Self { profile, seed, packets: 0, busy_until: Duration::ZERO }
    }

    /// A packet of that size comes in at `now`.
    pub fn offer(&mut self, now: Duration, bytes: u64) -> Fate {
        let waiting = self.busy_until.saturating_sub(now);
        if waiting > self.sending_time(self.profile.queue_bytes) {
            return Fate::Dropped;
        }
        self.busy_until = self.busy_until.max(now) + self.sending_time(bytes);
        self.packets += 1;
        if self.chance(0) < self.profile.loss {
            return Fate::Lost;
        }
        let late =
            if self.chance(1) < self.profile.reorder { self.profile.held_back } else { Duration::ZERO };
        Fate::Arrives(self.busy_until + self.profile.delay + late)
    }

    fn sending_time(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.profile.rate as f64)
    }

    /// From 0 to 1, for the packet that came in last.
    fn chance(&self, what: u64) -> f64 {
        let bits = split_mix64(split_mix64(self.seed ^ what) ^ self.packets);
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: LinkProfile = LinkProfile {
        delay: Duration::from_millis(20),
        loss: 0.01,
        reorder: 0.02,
        held_back: Duration::from_millis(3),
        rate: 12_500_000,
        queue_bytes: 100_000,
    };

    fn fates(profile: LinkProfile, seed: u64, packets: u32, every: Duration) -> Vec<Fate> {
        let mut link = LinkModel::new(profile, seed);
        (0..packets).map(|packet| link.offer(every * packet, 1500)).collect()
    }

    #[test]
    fn the_same_seed_does_the_same_and_another_one_does_not() {
        let run = |seed| fates(PROFILE, seed, 2000, Duration::from_millis(1));
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn as_many_packets_are_lost_and_held_back_as_the_profile_says() {
        let fates = fates(PROFILE, 7, 100_000, Duration::from_millis(1));
        let lost = fates.iter().filter(|&&fate| fate == Fate::Lost).count();
        // Six standard deviations of 100,000 draws are 190.
        assert!((810..1190).contains(&lost), "{lost}");
        let late = Duration::from_micros(120) + PROFILE.delay + PROFILE.held_back;
        let held = (0..)
            .zip(&fates)
            .filter(|&(packet, &fate)| fate == Fate::Arrives(Duration::from_millis(1) * packet + late));
        let held = held.count();
        assert!((1720..2240).contains(&held), "{held}");
    }

    #[test]
    fn a_burst_leaves_at_the_rate_and_what_does_not_fit_the_queue_is_dropped() {
        let profile = LinkProfile { loss: 0.0, reorder: 0.0, ..PROFILE };
        let fates = fates(profile, 1, 100, Duration::ZERO);
        // 1500 bytes take 120 us at 12.5 MB/s; 100,000 bytes in the queue are 66.7 packets beside the first.
        assert_eq!(fates[0], Fate::Arrives(PROFILE.delay + Duration::from_micros(120)));
        assert_eq!(fates[1], Fate::Arrives(PROFILE.delay + Duration::from_micros(240)));
        assert_eq!(fates.iter().position(|&fate| fate == Fate::Dropped), Some(67));
    }
}
