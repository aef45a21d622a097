//! The time in which a certificate holds, read from its DER bytes.
//!
//! Only the parts before the two dates are read: `Certificate` and `TBSCertificate` are sequences whose first parts are
//! version, serial number, algorithm and issuer; `Validity` follows (RFC 5280, 4.1).

use std::time::Duration;

use rustls::pki_types::UnixTime;

use super::der::{Der, INTEGER, SEQUENCE};

/// The time in which a certificate holds, both ends included, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

impl Validity {
    /// Reads the validity of a DER certificate; `None` if it is malformed.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let mut outer = Der(certificate);
        let mut certificate = Der(outer.take(SEQUENCE)?);
        let mut body = Der(certificate.take(SEQUENCE)?);
        if body.0.first() == Some(&VERSION) {
            body.take(VERSION)?;
        }
        body.take(INTEGER)?;
        body.take(SEQUENCE)?;
        body.take(SEQUENCE)?;
        let mut dates = Der(body.take(SEQUENCE)?);
        Some(Self { not_before: dates.time()?, not_after: dates.time()? })
    }

    pub(crate) fn holds(self, now: UnixTime) -> bool {
        i64::try_from(now.as_secs()).is_ok_and(|now| (self.not_before..=self.not_after).contains(&now))
    }

    /// Returns the time in which both hold.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            not_before: self.not_before.max(other.not_before),
            not_after: self.not_after.min(other.not_after),
        }
    }

    /// Returns how long it still holds; zero if it no longer does.
    pub fn left(self, now: Duration) -> Duration {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        Duration::from_secs(u64::try_from(self.not_after.saturating_sub(now)).unwrap_or(0))
    }
}

impl Der<'_> {
    /// Reads the next value as a time: `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
    fn time(&mut self) -> Option<i64> {
        let long = self.0.first() == Some(&GENERALIZED_TIME);
        let text = self.take(if long { GENERALIZED_TIME } else { UTC_TIME })?;
        let digits = text.strip_suffix(b"Z")?;
        if digits.len() != if long { 14 } else { 12 } || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number = |part: &[u8]| part.iter().fold(0, |sum, &digit| sum * 10 + i64::from(digit - b'0'));
        let (year, rest) = digits.split_at(digits.len() - 10);
        // Two digits mean 1950 to 2049.
        let year = match number(year) {
            short if !long && short < 50 => 2000 + short,
            short if !long => 1900 + short,
            full => full,
        };
        let part = |index: usize| number(&rest[index * 2..index * 2 + 2]);
        let days = days_since_1970(year, part(0), part(1));
        Some(((days * 24 + part(2)) * 60 + part(3)) * 60 + part(4))
    }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar, counting years from March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 2, 29), 11_016);
        assert_eq!(days_since_1970(2026, 11, 21), 20_778);
    }

    #[test]
    fn both_spellings_of_a_time_are_read() {
        let short = [&[UTC_TIME, 13][..], b"491231235959Z"].concat();
        let long = [&[GENERALIZED_TIME, 15][..], b"20491231235959Z"].concat();
        assert_eq!(Der(&short).time(), Some(2_524_607_999));
        assert_eq!(Der(&long).time(), Some(2_524_607_999));
        assert_eq!(Der(&short[..10]).time(), None);
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_are_never_read_past_their_end(bytes: Vec<u8>) {
            let _read = Validity::of(&bytes);
        }
    }
}
