//! Which strangers' handshakes are begun: a pure decision.

use std::time::Duration;

/// What to do with a stranger's first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Begin the handshake.
    Begin,
    /// Make him prove his address first; costs no state here.
    Prove,
    /// Say no.
    Refuse,
    /// Say nothing; he will send again.
    Drop,
}

/// Admits handshakes at a bounded rate and number. Time is what the caller says since any fixed start.
#[derive(Debug)]
pub(crate) struct Gate {
    max_pending: usize,
    max_connections: usize,
    per_second: f64,
    /// Handshakes that may begin at once.
    credit: f64,
    updated: Duration,
}

impl Gate {
    pub(crate) fn new(max_pending: usize, max_connections: usize, per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { max_pending, max_connections, per_second, credit: per_second, updated: Duration::ZERO }
    }

    /// `pending` handshakes are under way beside `connections` that are open; `proven` says whether the stranger
    /// has shown that he receives what is sent to his address.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        pending: usize,
        connections: usize,
        proven: bool,
    ) -> Admission {
        let passed = now.saturating_sub(self.updated).as_secs_f64();
        self.updated = self.updated.max(now);
        self.credit = (self.credit + passed * self.per_second).min(self.per_second);
        if pending >= self.max_pending || connections >= self.max_connections {
            return Admission::Refuse;
        }
        let busy = pending >= self.max_pending / 4 || self.credit < self.per_second / 2.0;
        if busy && !proven {
            return Admission::Prove;
        }
        if self.credit < 1.0 {
            return Admission::Drop;
        }
        self.credit -= 1.0;
        Admission::Begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_first_stranger_need_not_prove_his_address() {
        let mut gate = Gate::new(8, 100, 10);
        assert_eq!(gate.admit(Duration::ZERO, 0, 0, false), Admission::Begin);
    }

    #[test]
    fn under_load_addresses_are_proven_before_anything_is_kept() {
        let mut gate = Gate::new(8, 100, 10);
        assert_eq!(gate.admit(Duration::ZERO, 2, 0, false), Admission::Prove);
        assert_eq!(gate.admit(Duration::ZERO, 2, 0, true), Admission::Begin);
        assert_eq!(gate.admit(Duration::ZERO, 8, 0, true), Admission::Refuse);
        assert_eq!(gate.admit(Duration::ZERO, 0, 100, true), Admission::Refuse);
    }

    #[test]
    fn silence_restores_the_credit() {
        let mut gate = Gate::new(1000, 1000, 10);
        let begun = |gate: &mut Gate, now| {
            (0..100).filter(|_| gate.admit(now, 0, 0, true) == Admission::Begin).count()
        };
        assert_eq!(begun(&mut gate, Duration::ZERO), 10);
        assert_eq!(begun(&mut gate, Duration::from_millis(500)), 5);
        assert_eq!(begun(&mut gate, Duration::from_secs(60)), 10);
    }

    proptest! {
        /// However strangers come, no more begin in a span than the rate allows for it and one burst.
        #[test]
        fn the_rate_holds_over_any_span(
            gaps in proptest::collection::vec(0u64..5_000, 1..400),
            per_second in 1u32..1000,
        ) {
            let mut gate = Gate::new(usize::MAX, usize::MAX, per_second);
            let (mut now, mut begun) = (Duration::ZERO, 0.0);
            for gap in gaps {
                now += Duration::from_micros(gap);
                begun += f64::from(u8::from(gate.admit(now, 0, 0, true) == Admission::Begin));
            }
            prop_assert!(begun <= f64::from(per_second) * (1.0 + now.as_secs_f64()) + 1e-6);
        }
    }
}
