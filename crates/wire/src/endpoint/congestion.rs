//! Cubic congestion control that random loss does not slow down.
//!
//! Owners wait for an answer before they ask again, so a connection sends little and in bursts of one answer per
//! session. Cubic (RFC 9438) takes every lost packet for a full path and shrinks its window by 0.7; with 1 % of
//! random loss it ends near 12 datagrams whatever the path carries, and then the answers of one round trip wait
//! for another. Two rules mend that:
//!
//! - A loss counts as congestion only if the path shows it: round trips have grown beyond [`QUEUE_SHARE`] of the
//!   least one (as TCP Veno tells noise from queues), or more than [`TOLERATED_LOSS`] of what was sent was lost
//!   (BBRv2's threshold, for paths that drop without queueing). Congestion that the path marks (ECN) and lasting
//!   loss always count.
//! - The window never falls below a floor: as many TCP connections as there are sessions would have one each.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

/// Makes congestion windows that follow Cubic, that random loss does not shrink, and that never fall below `least`
/// bytes.
#[derive(Debug)]
pub(super) struct SteadyCubic {
    least: u64,
    cubic: Arc<CubicConfig>,
}

impl SteadyCubic {
    pub(super) fn new(least: u64) -> Self {
        Self { least, cubic: Arc::new(CubicConfig::default()) }
    }
}

impl ControllerFactory for SteadyCubic {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let cubic = self.cubic.clone().build(now, mtu);
        Box::new(Window { cubic, least: self.least, path: PathSigns::default() })
    }
}

struct Window {
    cubic: Box<dyn Controller>,
    least: u64,
    path: PathSigns,
}

/// Signs of congestion on a path, from its round trips and losses.
#[derive(Debug, Clone, Copy, Default)]
struct PathSigns {
    /// The least and the smoothed round trip.
    round_trip: Option<(Duration, Duration)>,
    /// Bytes sent of late, and how many of them were lost.
    sent: u64,
    lost: u64,
}

impl PathSigns {
    fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
        if self.sent >= LOSS_MEMORY {
            self.sent /= 2;
            self.lost /= 2;
        }
    }

    /// Returns whether the path looks full.
    fn is_congested(&self) -> bool {
        let queued = self
            .round_trip
            .is_none_or(|(least, smoothed)| smoothed > least + (least / QUEUE_SHARE).max(LEAST_QUEUE));
        queued || self.lost * TOLERATED_LOSS > self.sent.max(LOSS_MEMORY / 2)
    }
}

/// Divisor of the least round trip: round trips that are longer by more than this share mean that packets queue.
const QUEUE_SHARE: u32 = 4;
/// Growth of round trips that is put down to the peers themselves.
const LEAST_QUEUE: Duration = Duration::from_millis(2);
/// Divisor of the bytes sent: losses up to this share are tolerated.
const TOLERATED_LOSS: u64 = 50;
/// Number of bytes over which losses are counted: some 700 datagrams of an Ethernet.
const LOSS_MEMORY: u64 = 1 << 20;

impl Controller for Window {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet: u64) {
        self.path.sent(bytes);
        self.cubic.on_sent(now, bytes, last_packet);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.path.round_trip = Some((rtt.min(), rtt.get()));
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost_bytes: u64) {
        self.path.lost += lost_bytes;
        let marked = lost_bytes == 0;
        if marked || persistent || self.path.is_congested() {
            self.cubic.on_congestion_event(now, sent, persistent, lost_bytes);
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.cubic.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window().max(self.least)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.cubic.metrics();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { cubic: self.cubic.clone_box(), least: self.least, path: self.path })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window().max(self.least)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_shrink_the_window_to_the_floor_and_no_further() {
        let least = 20_000;
        let began = Instant::now();
        let mut window = Arc::new(SteadyCubic::new(least)).build(began, 1452);
        assert!(window.window() >= least);
        for second in 1..100 {
            let now = began + std::time::Duration::from_secs(second);
            window.on_congestion_event(now, now, second % 10 == 0, 1452);
            assert!(window.window() >= least);
        }
        assert_eq!(window.window(), least);
        assert_eq!(window.clone_box().window(), least);
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_few_losses_without_a_queue_are_noise() {
        let mut path = PathSigns { round_trip: Some((40 * MS, 45 * MS)), ..PathSigns::default() };
        for _ in 0..10_000 {
            (0..99).for_each(|_| path.sent(1452));
            path.sent(1452);
            path.lost += 1452;
            assert!(!path.is_congested(), "{path:?}");
        }
    }

    #[test]
    fn losses_while_round_trips_grow_are_congestion() {
        let queued = PathSigns { round_trip: Some((40 * MS, 51 * MS)), ..PathSigns::default() };
        assert!(queued.is_congested());
        assert!(PathSigns::default().is_congested(), "nothing is known of the path yet");
        let near = PathSigns { round_trip: Some((MS / 10, MS)), ..PathSigns::default() };
        assert!(!near.is_congested(), "peers of one host are late by their own doing");
    }

    #[test]
    fn more_losses_than_are_tolerated_are_congestion_even_without_a_queue() {
        let mut path = PathSigns { round_trip: Some((40 * MS, 40 * MS)), ..PathSigns::default() };
        for _ in 0..1_000 {
            (0..33).for_each(|_| path.sent(1452));
            path.lost += 1452;
        }
        assert!(path.is_congested(), "{path:?}");
        for _ in 0..10_000 {
            path.sent(1452);
        }
        assert!(!path.is_congested(), "old losses are forgotten: {path:?}");
    }

    #[test]
    fn noise_leaves_the_window_as_it_is() {
        let began = Instant::now();
        let path = PathSigns { round_trip: Some((40 * MS, 40 * MS)), ..PathSigns::default() };
        let cubic = Arc::new(CubicConfig::default()).build(began, 1452);
        let mut window = Window { cubic, least: 1, path };
        let before = window.window();
        window.on_congestion_event(began + MS, began, false, 1452);
        assert_eq!(window.window(), before);
        window.on_congestion_event(began + 2 * MS, began, false, 0);
        assert!(window.window() < before, "the path marked its congestion");
    }

    #[test]
    fn above_the_floor_cubic_rules_where_the_path_is_full() {
        let began = Instant::now();
        let mut floored = Arc::new(SteadyCubic::new(1)).build(began, 1452);
        let mut cubic = Arc::new(CubicConfig::default()).build(began, 1452);
        assert_eq!(floored.window(), cubic.window());
        for second in 1..20 {
            let now = began + std::time::Duration::from_secs(second);
            floored.on_congestion_event(now, now, false, 1452);
            cubic.on_congestion_event(now, now, false, 1452);
            assert_eq!(floored.window(), cubic.window());
        }
    }
}
