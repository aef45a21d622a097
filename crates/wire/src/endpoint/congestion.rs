//! Cubic with a floor.
//!
//! Owners wait for an answer before they ask again, so a connection sends little and in bursts of one answer per
//! session. Cubic takes a lost packet for a full path and shrinks its window by 0.7; with 1 % of random loss it
//! ends near 12 datagrams whatever the path carries, which is less than the answers of eight sessions of 64
//! lanes, and then each waits for another one's round trip. As many TCP connections would have a window each.
//! So the window never falls below a floor; above it Cubic rules (RFC 9438).

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

/// Makes windows that Cubic rules and that never fall below `least` bytes.
#[derive(Debug)]
pub(super) struct FlooredCubic {
    least: u64,
    cubic: Arc<CubicConfig>,
}

impl FlooredCubic {
    pub(super) fn new(least: u64) -> Self {
        Self { least, cubic: Arc::new(CubicConfig::default()) }
    }
}

impl ControllerFactory for FlooredCubic {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let cubic = self.cubic.clone().build(now, mtu);
        Box::new(Window { cubic, least: self.least })
    }
}

struct Window {
    cubic: Box<dyn Controller>,
    least: u64,
}

impl Controller for Window {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet: u64) {
        self.cubic.on_sent(now, bytes, last_packet);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost_bytes: u64) {
        self.cubic.on_congestion_event(now, sent, persistent, lost_bytes);
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
        Box::new(Self { cubic: self.cubic.clone_box(), least: self.least })
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
        let mut window = Arc::new(FlooredCubic::new(least)).build(began, 1452);
        assert!(window.window() >= least);
        for second in 1..100 {
            let now = began + std::time::Duration::from_secs(second);
            window.on_congestion_event(now, now, second % 10 == 0, 1452);
            assert!(window.window() >= least);
        }
        assert_eq!(window.window(), least);
        assert_eq!(window.clone_box().window(), least);
    }

    #[test]
    fn above_the_floor_cubic_rules() {
        let began = Instant::now();
        let mut floored = Arc::new(FlooredCubic::new(1)).build(began, 1452);
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
