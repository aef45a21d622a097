//! Judges whether a node is fit for new sessions, by its own disk, recorder and certificate.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rollhouse_core::WhenFull;
use rollhouse_replay::{DiskRoom, Recorder};
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
    /// What is nearly full, if anything.
    short: Option<String>,
}

impl Fitness {
    /// Returns what keeps the node from taking sessions now. Looks at the metadata of the certificate's files at most
    /// once a second, as every handshake does.
    pub(crate) fn look(&self) -> Option<Unfit> {
        let validity = self.identity.as_ref().and_then(|identity| identity.validity());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let status = self.recorder.as_ref().map(|recorder| recorder.status());
        let room = status.as_ref().and_then(|status| status.room).filter(|room| room.is_short());
        let failing = status.filter(|status| status.failing).and_then(|status| status.error);
        let shipping = self.shipping.as_ref().map(|shipping| shipping.figures());
        let spool = shipping.as_ref().map(|shipping| (shipping.unshipped_bytes, shipping.limit));
        let condition = Condition {
            certificate: validity
                .map(|validity| (validity, i64::try_from(now.as_secs()).unwrap_or(i64::MAX))),
            failing: failing.map(|error| crate::causes::with_causes(&error)),
            waits: self.when_full == Some(WhenFull::BackPressure),
            held: shipping.as_ref().is_some_and(|shipping| shipping.held),
            unshipped: shipping.and_then(|shipping| shipping.failing).map(|why| why.to_string()),
            short: short(room, spool),
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
        let unshipped = self.unshipped.map(|why| format!("it cannot ship what it records: {why}"));
        // That has a cause, which comes first.
        unshipped
            .map(|why| last(UnfitReason::Shipping, why))
            .or_else(|| self.short.map(|why| last(UnfitReason::Room, why)))
    }
}

/// Returns what is nearly full: the disk, if its `room` is short, or the spool, of which bytes and limit are given.
fn short(room: Option<DiskRoom>, spool: Option<(u64, u64)>) -> Option<String> {
    if room.is_some() {
        return Some("its disk is nearly full".to_owned());
    }
    let (_, limit) = spool.filter(|&(bytes, limit)| bytes >= limit - limit / NEARLY_FULL)?;
    // Without what changes each second: whoever reports it reports changes.
    Some(format!("its spool is nearly full: it has over four fifths of spool.limit = {limit} bytes"))
}

/// The part of its limit, one in so many, below which what is left makes a spool nearly full.
const NEARLY_FULL: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_disk_or_spool_is_nearly_full_comes_last_and_says_which() {
        let room = DiskRoom { free: 3, total: 100 };
        let judged = |short| Condition { short, ..Condition::default() }.judge();
        let unfit = judged(short(Some(room), Some((0, 100)))).unwrap();
        assert_eq!((unfit.takes, unfit.reason), (Takes::Last, UnfitReason::Room));
        assert_eq!(unfit.why, "its disk is nearly full");
        let unfit = judged(short(None, Some((80, 100)))).unwrap();
        assert!(unfit.why.starts_with("its spool is nearly full: "), "{}", unfit.why);
        assert_eq!(judged(short(None, Some((79, 100)))), None);
        assert_eq!(judged(short(None, None)), None);
    }

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
