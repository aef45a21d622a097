//! Judges whether a node is fit for new sessions, by its own disk, recorder and certificate.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rollhouse_core::WhenFull;
use rollhouse_replay::Recorder;
use rollhouse_wire::{Identity, Takes, Unfit, UnfitReason, Validity};

use crate::Shipping;

/// The parts by which a node's fitness is judged; without any of them the node is always fit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fitness {
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) shipping: Option<Arc<Shipping>>,
    pub(crate) when_full: Option<WhenFull>,
}

/// The condition of a node's parts at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Condition {
    /// The certificate's validity, and the present time in seconds since 1970.
    certificate: Option<(Validity, i64)>,
    /// Why the recorder's disk takes nothing, if so.
    failing: Option<String>,
    /// Whether stepping waits for the disk then, instead of going on unrecorded.
    waits: bool,
    /// Whether the spool is full.
    held: bool,
    /// Why the store takes nothing of what the node records, if so.
    unshipped: Option<String>,
}

impl Fitness {
    /// Returns what keeps the node from taking sessions now. Looks at the metadata of the certificate's files at most
    /// once a second, as every handshake does.
    pub(crate) fn look(&self) -> Option<Unfit> {
        let validity = self.identity.as_ref().and_then(|identity| identity.validity());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let status = self.recorder.as_ref().map(|recorder| recorder.status());
        let failing = status.filter(|status| status.failing).and_then(|status| status.error);
        let shipping = self.shipping.as_ref().map(|shipping| shipping.figures());
        let condition = Condition {
            certificate: validity
                .map(|validity| (validity, i64::try_from(now.as_secs()).unwrap_or(i64::MAX))),
            failing: failing.map(|error| crate::owned::with_causes(&error)),
            waits: self.when_full == Some(WhenFull::BackPressure),
            held: shipping.as_ref().is_some_and(|shipping| shipping.held),
            unshipped: shipping.and_then(|shipping| shipping.failing).map(|why| why.to_string()),
        };
        condition.judge()
    }
}

impl Condition {
    fn judge(self) -> Option<Unfit> {
        if let Some((Validity { not_before, not_after }, now)) = self.certificate {
            let why = match now {
                now if now > not_after => format!("its certificate expired {} s ago", now - not_after),
                now if now < not_before => format!("its certificate holds in {} s only", not_before - now),
                _ => String::new(),
            };
            if !why.is_empty() {
                return Some(Unfit { takes: Takes::Nothing, reason: UnfitReason::Certificate, why });
            }
        }
        if let Some(why) = self.failing {
            let takes = if self.waits { Takes::Unrecorded } else { Takes::Last };
            return Some(Unfit { takes, reason: UnfitReason::Disk, why });
        }
        // Others are better, but what is slow is not broken.
        let last = |reason, why| Unfit { takes: Takes::Last, reason, why };
        if self.held {
            return Some(last(UnfitReason::SpoolFull, "its spool is full".to_owned()));
        }
        self.unshipped
            .map(|why| last(UnfitReason::Shipping, format!("it cannot ship what it records: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDS: Validity = Validity { not_before: 100, not_after: 200 };

    fn takes(condition: Condition) -> Option<(Takes, String)> {
        condition.judge().map(|unfit| (unfit.takes, unfit.why))
    }

    #[test]
    fn a_node_takes_nothing_before_and_after_its_certificate_holds() {
        let at = |now| takes(Condition { certificate: Some((HOLDS, now)), ..Condition::default() });
        assert_eq!([at(100), at(200)], [None, None]);
        assert_eq!(at(203), Some((Takes::Nothing, "its certificate expired 3 s ago".to_owned())));
        assert_eq!(at(90), Some((Takes::Nothing, "its certificate holds in 10 s only".to_owned())));
    }

    #[test]
    fn a_node_whose_disk_takes_nothing_records_nothing_or_comes_last_where_recordings_may_be_lost() {
        let failing = Some("no space left on the disk".to_owned());
        let condition =
            Condition { failing: failing.clone(), waits: true, held: true, ..Condition::default() };
        assert_eq!(takes(condition.clone()), failing.clone().map(|why| (Takes::Unrecorded, why)));
        let lossy = Condition { waits: false, ..condition };
        assert_eq!(takes(lossy), failing.map(|why| (Takes::Last, why)));
    }

    #[test]
    fn a_node_whose_spool_is_full_comes_last_and_one_of_which_nothing_is_known_is_fit() {
        let held = Condition { held: true, ..Condition::default() };
        assert_eq!(takes(held).map(|(takes, _)| takes), Some(Takes::Last));
        let unshipped = Condition { unshipped: Some("its disk is full".to_owned()), ..Condition::default() };
        let why = "it cannot ship what it records: its disk is full".to_owned();
        assert_eq!(takes(unshipped), Some((Takes::Last, why)));
        assert_eq!(takes(Condition::default()), None);
        assert_eq!(Fitness::default().look(), None);
    }
}
