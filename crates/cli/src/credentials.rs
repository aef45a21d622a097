//! Log lines about a service's certificate, authority and tokens: each change is logged once.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rollhouse_wire::{Identity, TokenStore, Validity};
use tracing::{Level, info};

use crate::failure::{Failure, Status};

/// The state that was logged last.
#[derive(Debug, Default)]
pub(crate) struct CredentialsWatch {
    expiry: Expiry,
    /// Whether the process renews its certificate: then only a certificate that should have been renewed is logged.
    renews: bool,
    files: [Option<String>; 2],
}

/// The distance of a certificate's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expiry {
    #[default]
    Far,
    /// It ends within [`SOON`].
    Soon,
    /// It ends within [`PRESSING`].
    Pressing,
    Over,
}

impl CredentialsWatch {
    /// Makes the watch of a node, which has its certificate renewed if `renews` says so.
    pub(crate) fn of_node(renews: bool) -> Self {
        Self { renews, ..Self::default() }
    }

    /// Returns the changes, in sentences. Reads the metadata of the files.
    pub(crate) fn look(&mut self, identity: &Identity, tokens: Option<&TokenStore>) -> Vec<(Level, String)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let expiry = identity.validity().and_then(|validity| self.expire(validity, now));
        let words = |error: &dyn Error| Failure::of(Status::Failed, error).message().to_owned();
        let troubles = [
            identity.trouble().map(|error| words(&*error)),
            tokens.and_then(TokenStore::trouble).map(|error| words(&*error)),
        ];
        let files = ["certificate", "tokens"].into_iter().zip(troubles).zip(&mut self.files);
        let files = files.filter_map(|((of, trouble), said)| Self::reread(of, trouble, said));
        expiry.into_iter().chain(files).collect()
    }

    /// Reads the files again now and logs what is in force of them. [`CredentialsWatch::look`] reports their faults.
    pub(crate) fn read_again(identity: &Identity, tokens: Option<&TokenStore>) {
        identity.look_again();
        if let Some(validity) = identity.validity() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let days = validity.left(now).as_secs() / 86_400;
            info!("certificate, key and authority read again: the certificate holds for {days} more days");
        }
        if let Some(tokens) = tokens {
            info!("tokens read again: there are {}", tokens.list().len());
        }
    }

    /// Returns the sentence about a certificate that holds for that long.
    fn expire(&mut self, validity: Validity, now: Duration) -> Option<(Level, String)> {
        let left = validity.left(now);
        let (mut soon, mut pressing) = (SOON, PRESSING);
        if self.renews {
            // The next one was asked for when a third was left.
            let all = validity.not_after.saturating_sub(validity.not_before);
            let all = Duration::from_secs(u64::try_from(all).unwrap_or(0));
            (soon, pressing) = (soon.min(all / 4), pressing.min(all / 12));
        }
        let expiry = match left {
            Duration::ZERO => Expiry::Over,
            left if left < pressing => Expiry::Pressing,
            left if left < soon => Expiry::Soon,
            _ => Expiry::Far,
        };
        let before = std::mem::replace(&mut self.expiry, expiry);
        let advice = match self.renews {
            true => "the coordinator has not renewed it; after its end a join token is needed",
            false => "`rollhouse certs issue` into the same folder replaces it while this runs",
        };
        match expiry {
            now if now == before => None,
            Expiry::Far => Some((Level::INFO, "the certificate holds for long again".to_owned())),
            Expiry::Over => {
                let what = format!("the certificate has expired: nobody believes it any more; {advice}");
                Some((Level::ERROR, what))
            }
            Expiry::Soon | Expiry::Pressing => {
                let hours = left.as_secs() / 3600;
                let (days, hours) = (hours / 24, hours % 24);
                let what = format!("the certificate expires in {days} days and {hours} hours; {advice}");
                Some((Level::WARN, what))
            }
        }
    }

    /// Returns the sentence about files that were read again.
    fn reread(of: &str, trouble: Option<String>, said: &mut Option<String>) -> Option<(Level, String)> {
        if trouble == *said {
            return None;
        }
        said.clone_from(&trouble);
        Some(match trouble {
            Some(why) => {
                let what = "cannot be read again, what was read before stays in force";
                (Level::WARN, format!("the {of} {what}: {why}"))
            }
            None => (Level::INFO, format!("the {of} can be read again")),
        })
    }
}

/// Time before a certificate's end at which it is first logged.
const SOON: Duration = Duration::from_secs(30 * 86_400);
/// Time before a certificate's end at which it is logged again.
const PRESSING: Duration = Duration::from_secs(7 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_told_a_month_and_a_week_before_and_when_it_is_there() {
        let validity = Validity { not_before: 0, not_after: 100 * 86_400 };
        let mut watch = CredentialsWatch::default();
        let mut told = Vec::new();
        for hour in 0..101 * 24 {
            told.extend(
                watch.expire(validity, Duration::from_secs(hour * 3600)).map(|(_, line)| (hour / 24, line)),
            );
        }
        let days: Vec<u64> = told.iter().map(|(day, _)| *day).collect();
        assert_eq!(days, [70, 93, 100]);
        assert!(told[1].1.contains("expires in 6 days and 23 hours"), "{told:?}");
        assert!(told[2].1.contains("has expired"), "{told:?}");
        let new = Validity { not_after: 400 * 86_400, ..validity };
        assert!(watch.expire(new, Duration::from_secs(101 * 86_400)).is_some(), "a new one is told of");
    }

    #[test]
    fn of_a_certificate_that_is_renewed_only_what_should_have_been_is_told_of() {
        let validity = Validity { not_before: 0, not_after: 30 * 86_400 };
        let mut watch = CredentialsWatch::of_node(true);
        let told: Vec<u64> = (0..30 * 24)
            .filter(|hour| watch.expire(validity, Duration::from_secs(hour * 3600)).is_some())
            .collect();
        assert_eq!(told, [22 * 24 + 13, 27 * 24 + 13], "a quarter and a twelfth are left");
    }

    #[test]
    fn files_that_cannot_be_read_again_are_told_of_once_with_the_reason_and_so_is_their_being_mended() {
        let mut said = None;
        let why = || Some("tokens.json cannot be read: permission denied".to_owned());
        let (_, line) = CredentialsWatch::reread("tokens", why(), &mut said).unwrap();
        assert!(line.contains("stays in force: tokens.json cannot be read: permission denied"), "{line}");
        assert_eq!(CredentialsWatch::reread("tokens", why(), &mut said), None);
        assert!(CredentialsWatch::reread("tokens", None, &mut said).is_some());
        assert_eq!(CredentialsWatch::reread("tokens", None, &mut said), None);
    }
}
