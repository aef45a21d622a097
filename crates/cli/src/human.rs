//! Numbers as people read them.

use std::fmt;
use std::time::Duration;

/// A whole number with separated thousands: `1,234,567`.
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A quantity with a decimal prefix and three digits: `3.12 M`.
pub struct Si(pub f64);

impl fmt::Display for Si {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digits, prefix) = scaled(self.0);
        f.pad(format!("{digits} {prefix}").trim_end())
    }
}

fn scaled(mut value: f64) -> (String, &'static str) {
    let mut prefix = "";
    for next in ["k", "M", "G", "T"] {
        // 999.5 would print as 1000.
        if value.abs() < 999.5 {
            break;
        }
        value /= 1000.0;
        prefix = next;
    }
    let decimals = match value.abs() {
        v if prefix.is_empty() && v == v.trunc() => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    (format!("{value:.decimals$}"), prefix)
}

/// A number of bytes: `23.4 kB`.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digits, prefix) = scaled(self.0 as f64);
        f.pad(&format!("{digits} {prefix}B"))
    }
}

/// A duration: `0.25 s`, `4 min 12 s`, `2 h 5 min`.
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        f.pad(&match seconds {
            0 if self.0 < Duration::from_millis(100) => format!("{:.1} ms", self.0.as_secs_f64() * 1e3),
            0..10 => format!("{:.2} s", self.0.as_secs_f64()),
            10..60 => format!("{:.1} s", self.0.as_secs_f64()),
            60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
            _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        })
    }
}

/// A reward or another float, with as many decimals as help: `500`, `22.3`, `-1273.44`.
pub struct Real(pub f64);

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self.0 {
            v if v == v.trunc() && v.abs() < 1e15 => format!("{v:.0}"),
            v if v.abs() >= 1e9 || (v != 0.0 && v.abs() < 1e-3) => format!("{v:.3e}"),
            v if v.abs() < 1.0 => format!("{v:.4}"),
            v => format!("{v:.2}"),
        })
    }
}

/// A moment, given in milliseconds since 1970, as UTC to the second: `2026-11-20 23:47:02`.
pub struct When(pub u64);

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        f.pad(&format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"))
    }
}

/// Writes such a moment in the form of RFC 3339, to the millisecond: `2026-11-20T23:47:02.125Z`.
pub fn rfc3339(ms: u64) -> String {
    format!("{}.{:03}Z", When(ms).to_string().replace(' ', "T"), ms % 1000)
}

/// Returns year, month and day of the Gregorian calendar from days since 1970 (Howard Hinnant's `civil_from_days`).
const fn date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March, so that the leap day is the last of its year.
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Writes a noun with its number: `1 episode`, `1,000 episodes`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", Count(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_parted() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(Count(count).to_string(), text);
        }
    }

    #[test]
    fn quantities_keep_three_digits() {
        let cases = [(0.0, "0"), (12.0, "12"), (0.5, "0.50"), (1234.0, "1.23 k"), (999_600.0, "1.00 M")];
        for (value, text) in cases.into_iter().chain([(312e6, "312 M"), (45.67e9, "45.7 G")]) {
            assert_eq!(Si(value).to_string(), text);
        }
        assert_eq!((Bytes(0).to_string(), Bytes(23_400).to_string()), ("0 B".into(), "23.4 kB".into()));
    }

    #[test]
    fn durations_choose_their_unit() {
        for (ms, text) in [(3, "3.0 ms"), (250, "0.25 s"), (12_340, "12.3 s"), (252_000, "4 min 12 s")] {
            assert_eq!(Time(Duration::from_millis(ms)).to_string(), text);
        }
        assert_eq!(Time(Duration::from_secs(7500)).to_string(), "2 h 5 min");
    }

    #[test]
    fn moments_are_read_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_218_422, "2026-11-20 23:47:02"),
        ] {
            assert_eq!(When(seconds * 1000).to_string(), text);
        }
        assert_eq!(rfc3339(1_795_218_422_125), "2026-11-20T23:47:02.125Z");
    }

    #[test]
    fn whole_rewards_have_no_decimals() {
        for (value, text) in
            [(500.0, "500"), (-0.0, "-0"), (22.321, "22.32"), (0.12345, "0.1235"), (1e-7, "1.000e-7")]
        {
            assert_eq!(Real(value).to_string(), text);
        }
    }
}
