//! Quantities: bytes and times, which have a unit, and cores.

use std::fmt;
use std::time::Duration;

use crate::setting::{Given, Setting, SettingValue, text};

/// A number of bytes, written with a unit: `512 kB`, `64 MiB`, `20 GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A time, written with a unit: `250 ms`, `30 s`, `5 min`, `2 h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// A number of cores in thousandths, written as a number: `8`, `0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cores(pub u64);

impl Setting for Cores {
    fn wanted(&self) -> String {
        format!("a number of cores from 0 to {MAX_CORES}, as in 8 or 0.5")
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let cores = match given {
            Given::Word(word) => word.trim().parse::<f64>().ok(),
            Given::Integer(number) => Some(*number as f64),
            Given::Float(number) => Some(*number),
            _ => None,
        };
        let cores = cores.filter(|cores| (0.0..=MAX_CORES as f64).contains(cores)).ok_or_else(String::new)?;
        self.0 = (cores * 1000.0).round() as u64;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Thousandths(self.0)
    }
}

impl Setting for Bytes {
    fn wanted(&self) -> String {
        "bytes with a unit, as in \"512 kB\", \"64 MiB\" or \"20 GB\"".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let (number, unit) = parts(text(given)?)?;
        self.0 = scaled(number, unit, &BYTES)?;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.to_string())
    }
}

impl Setting for Time {
    fn wanted(&self) -> String {
        "a time with a unit, as in \"250 ms\", \"30 s\" or \"5 min\"".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let (number, unit) = parts(text(given)?)?;
        let ms = scaled(number, unit, &TIMES)?;
        if ms > MAX_TIME_MS {
            return Err("the longest is 1000 h".to_owned());
        }
        self.0 = Duration::from_millis(ms);
        Ok(())
    }

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.to_string())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, &BYTES, f)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No time that was set is longer than MAX_TIME_MS.
        show(self.0.as_millis() as u64, &TIMES, f)
    }
}

/// Prints the value in the largest unit that divides it.
fn show(value: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fits = units.iter().filter(|(_, size)| value >= *size && value.is_multiple_of(*size));
    let (name, size) = fits.max_by_key(|(_, size)| *size).copied().unwrap_or(units[0]);
    write!(f, "{} {name}", value / size)
}

/// Splits a text into the number and what follows it.
fn parts(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() { Err(String::new()) } else { Ok((number, unit.trim())) }
}

/// Converts the number to the smallest of the units.
fn scaled(number: &str, unit: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    if unit.is_empty() && number == "0" {
        return Ok(0);
    }
    let known = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let size = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, size)) => *size,
        None if unit.is_empty() => return Err(format!("the unit is missing; units are {}", known())),
        None => return Err(format!("`{unit}` is not a unit; units are {}", known())),
    };
    let whole = number.parse::<u64>().ok().and_then(|number| number.checked_mul(size));
    let fraction = || number.parse::<f64>().ok().map(|number| number * size as f64);
    // Fractions are rounded to the smallest unit; no sensible value has more digits than a double.
    let value = whole.or_else(|| fraction().filter(|v| *v < MAX_EXACT).map(|v| v.round() as u64));
    value.ok_or_else(|| format!("`{number}` is not a number in range"))
}

/// Units of bytes, the smallest first.
const BYTES: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// Units of time, the smallest first.
const TIMES: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)];

/// Maximum number of cores.
const MAX_CORES: u64 = 4096;

/// Longest time, 1000 h: longer ones are taken for mistakes.
const MAX_TIME_MS: u64 = 3_600_000_000;

/// Bound of whole numbers that are exact as doubles, 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Result<u64, String> {
        let mut value = Bytes(7);
        value.set(&Given::Text(text.to_owned())).map(|()| value.0)
    }

    #[test]
    fn quantities_need_a_unit_unless_they_are_nothing() {
        assert_eq!(bytes("20 GB"), Ok(20_000_000_000));
        assert_eq!(bytes("1.5 MiB"), Ok(1_572_864));
        assert_eq!(bytes("0"), Ok(0));
        assert!(bytes("20").unwrap_err().contains("the unit is missing"));
        assert!(bytes("20 Gb").unwrap_err().contains("`Gb` is not a unit"));
        for bad in ["", "GB", "-1 GB", "1e3 GB", "1.2.3 GB", "99999999999 TB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cores_are_numbers_to_the_thousandth() {
        let mut cores = Cores(7);
        for (given, milli) in [("8", 8_000), ("0.5", 500), ("0.0004", 0), ("4096", 4_096_000)] {
            cores.set(&Given::Word(given.to_owned())).unwrap();
            assert_eq!(cores.0, milli);
        }
        for wrong in ["", "-1", "4097", "NaN", "inf", "2 cores"] {
            assert!(cores.set(&Given::Word(wrong.to_owned())).is_err(), "{wrong}");
        }
        assert_eq!(cores.0, 4_096_000, "a refused value changes nothing");
        assert_eq!([8_000, 500, 1_250].map(|milli| Cores(milli).show().toml()), ["8", "0.5", "1.25"]);
    }

    #[test]
    fn a_time_is_at_most_a_thousand_hours() {
        let mut time = Time(Duration::ZERO);
        time.set(&Given::Word("1.5 s".to_owned())).unwrap();
        assert_eq!(time.0, Duration::from_millis(1500));
        assert!(time.set(&Given::Word("1001 h".to_owned())).is_err());
        assert_eq!(time.0, Duration::from_millis(1500), "a refused value changes nothing");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(value in 0..1_u64 << 53, ms in 0..MAX_TIME_MS) {
            prop_assert_eq!(bytes(&Bytes(value).to_string()), Ok(value));
            let mut time = Time(Duration::ZERO);
            time.set(&Given::Text(Time(Duration::from_millis(ms)).to_string())).unwrap();
            prop_assert_eq!(time.0, Duration::from_millis(ms));
        }
    }
}
