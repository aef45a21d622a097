//! Limits on the certificates that are given: pure decisions.
//!
//! Each holder of a join token and each node has a pace, and all together have one that is twice as fast, so that none
//! keeps others out. A name that was just given belongs for a while to the key that it was given to. A machine that did
//! not hear the answer asks again and gets it again without a further use of its token, and nobody else gets that name.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_wire::Refusal;

use crate::cluster::Cluster;
use crate::limits::{
    ENROL_BURST, ENROL_EVERY, MAX_ENROLLED_NAMES, MAX_ENROLLERS, NAME_KEPT_FOR, RETRY_AFTER,
};

/// The names that were given a short time ago. `now` is any clock that only goes forward.
#[derive(Debug, Default)]
pub(crate) struct Enrolments {
    all: Pace,
    askers: BTreeMap<String, Pace>,
    names: BTreeMap<String, Given>,
}

/// The key to which a name was given, or is being given.
#[derive(Debug)]
struct Given {
    /// SHA-256 of the key.
    key: [u8; 32],
    at: Duration,
    /// Whether the token has counted it.
    is_counted: bool,
}

/// The permission to give a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Whether the token has counted it already, because the machine asks again.
    pub(crate) is_counted: bool,
}

impl Enrolments {
    /// Decides whether the holder of a join token may have the name for that key.
    ///
    /// # Errors
    /// `Busy` if the name was given to another key a short time ago.
    pub(crate) fn join(&mut self, now: Duration, node: &str, key: [u8; 32]) -> Result<Admitted, Refusal> {
        self.names.retain(|_, given| now.saturating_sub(given.at) < NAME_KEPT_FOR);
        let kept = self.names.len();
        match self.names.get_mut(node) {
            Some(given) if given.key == key => {
                given.at = now;
                Ok(Admitted { is_counted: given.is_counted })
            }
            Some(given) => {
                let wait = (given.at + NAME_KEPT_FOR).saturating_sub(now);
                Err(busy(format!("the name `{node}` was given to another machine a short time ago"), wait))
            }
            None if kept >= MAX_ENROLLED_NAMES => {
                Err(busy(format!("{MAX_ENROLLED_NAMES} names were given a short time ago"), RETRY_AFTER))
            }
            None => {
                self.names.insert(node.to_owned(), Given { key, at: now, is_counted: false });
                Ok(Admitted { is_counted: false })
            }
        }
    }

    /// Notes that a token has counted that the name was given to that key.
    pub(crate) fn counted(&mut self, node: &str, key: [u8; 32]) {
        if let Some(given) = self.names.get_mut(node).filter(|given| given.key == key) {
            given.is_counted = true;
        }
    }

    /// Notes that the node is there and so has its name.
    pub(crate) fn registers(&mut self, node: &str) {
        self.names.remove(node);
    }

    /// Notes that nothing was given in the end: another key may have the name, if no token has counted it.
    pub(crate) fn failed(&mut self, node: &str, key: [u8; 32]) {
        if self.names.get(node).is_some_and(|given| given.key == key && !given.is_counted) {
            self.names.remove(node);
        }
    }

    /// Checks whether a request for a certificate is looked at now.
    ///
    /// # Errors
    /// `Busy` if too many ask.
    pub(crate) fn ask(&mut self, now: Duration, asker: &str) -> Result<(), Refusal> {
        let many = |wait| busy("more ask for certificates than are made at a time".to_owned(), wait);
        self.askers.retain(|_, pace| pace.0 > now);
        let known = self.askers.contains_key(asker);
        if !known && self.askers.len() >= MAX_ENROLLERS {
            return Err(many(RETRY_AFTER));
        }
        let mut own = self.askers.get(asker).copied().unwrap_or_default();
        let mut all = self.all;
        own.take(now, ENROL_EVERY, ENROL_BURST).map_err(many)?;
        all.take(now, ENROL_EVERY / 2, 2 * ENROL_BURST).map_err(many)?;
        self.all = all;
        self.askers.insert(asker.to_owned(), own);
        Ok(())
    }
}

/// Lets a burst through at once, and then one at a time. Holds the time when all that were let through will be paid
/// for.
#[derive(Debug, Clone, Copy, Default)]
struct Pace(Duration);

impl Pace {
    /// Lets one through, if no more than `burst` are ahead.
    ///
    /// # Errors
    /// The time to wait.
    fn take(&mut self, now: Duration, every: Duration, burst: u32) -> Result<(), Duration> {
        let paid = self.0.max(now) + every;
        let ahead = paid - now;
        let most = every * burst;
        if ahead > most {
            return Err(ahead - most);
        }
        self.0 = paid;
        Ok(())
    }
}

fn busy(message: String, wait: Duration) -> Refusal {
    Refusal::busy(message, u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1))
}

impl Cluster {
    /// Checks whether a machine that joins may have that name.
    ///
    /// # Errors
    /// `Busy` while a node with that name is there, or may be: names are unique, and a killed node is known to have
    /// ended before long.
    pub(crate) fn name_is_free(&self, now: Duration, name: &str) -> Result<(), Refusal> {
        if let Some(settles) = self.settles(now) {
            return Err(settles);
        }
        match self.members.get(name).filter(|member| !member.is_lost()) {
            Some(_) => {
                Err(busy(format!("a node `{name}` is registered and alive: names are unique"), RETRY_AFTER))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_asks_again_with_the_same_key_is_given_the_name_again_and_nobody_else_for_a_while() {
        let mut given = Enrolments::default();
        assert_eq!(given.join(SECOND, "n", [1; 32]).unwrap(), Admitted { is_counted: false });
        assert_eq!(given.join(SECOND, "n", [1; 32]).unwrap(), Admitted { is_counted: false });
        given.counted("n", [1; 32]);
        given.counted("n", [2; 32]);
        assert_eq!(given.join(2 * SECOND, "n", [1; 32]).unwrap(), Admitted { is_counted: true });
        let refused = given.join(3 * SECOND, "n", [2; 32]).unwrap_err();
        assert_eq!(refused.retry_after_ms, Some((NAME_KEPT_FOR - SECOND).as_millis() as u64));
        let later = 2 * SECOND + NAME_KEPT_FOR;
        assert_eq!(given.join(later, "n", [2; 32]).unwrap(), Admitted { is_counted: false });
    }

    #[test]
    fn a_name_for_which_nothing_was_given_is_free_at_once_unless_it_was_counted() {
        let mut given = Enrolments::default();
        given.join(SECOND, "n", [1; 32]).unwrap();
        given.failed("n", [2; 32]);
        assert!(given.join(SECOND, "n", [2; 32]).is_err());
        given.failed("n", [1; 32]);
        given.join(SECOND, "n", [2; 32]).unwrap();
        given.counted("n", [2; 32]);
        given.failed("n", [2; 32]);
        assert!(given.join(SECOND, "n", [1; 32]).is_err());
        given.registers("n");
        assert!(given.join(SECOND, "n", [1; 32]).is_ok());
    }

    #[test]
    fn one_asker_leaves_half_of_the_pace_to_others_and_is_told_when_to_ask_again() {
        let mut given = Enrolments::default();
        let burst = |given: &mut Enrolments, who: &str| {
            (0..10 * ENROL_BURST).filter(|_| given.ask(SECOND, who).is_ok()).count() as u32
        };
        assert_eq!(burst(&mut given, "a"), ENROL_BURST);
        let wait = given.ask(SECOND, "a").unwrap_err().retry_after_ms.unwrap();
        assert!(given.ask(SECOND + Duration::from_millis(wait), "a").is_ok());
        assert!(burst(&mut given, "b") >= ENROL_BURST - 1);
    }

    proptest! {
        /// However many ask for whatever, no more are let through than the paces say, and what is kept is bounded.
        #[test]
        fn nobody_is_let_through_faster_than_the_pace(
            asks in prop::collection::vec((0u64..200, 0u8..4, 0u8..6, 0u8..3), 1..400)
        ) {
            let mut given = Enrolments::default();
            let (mut now, mut through) = (Duration::ZERO, BTreeMap::<u8, u32>::new());
            let mut keys = BTreeMap::<u8, (u8, Duration)>::new();
            for (wait, asker, name, key) in asks {
                now += Duration::from_millis(wait);
                if given.ask(now, &asker.to_string()).is_err() {
                    continue;
                }
                *through.entry(asker).or_default() += 1;
                let asked = given.join(now, &name.to_string(), [key; 32]);
                let busy_name = keys.get(&name).is_some_and(|(k, at)| *k != key && now - *at < NAME_KEPT_FOR);
                prop_assert!(!(busy_name && asked.is_ok()), "a name has one key at a time");
                if asked.is_ok() {
                    keys.insert(name, (key, now));
                }
                let most = |every: Duration, burst| burst + (now.as_nanos() / every.as_nanos()) as u32;
                prop_assert!(through.values().all(|&count| count <= most(ENROL_EVERY, ENROL_BURST)));
                prop_assert!(through.values().sum::<u32>() <= most(ENROL_EVERY / 2, 2 * ENROL_BURST));
                prop_assert!(given.askers.len() <= 4 && given.names.len() <= 6);
            }
        }
    }
}
