//! Formatting numbers, errors and foreign text for the screen.

use std::error::Error;

pub(crate) use rollhouse_core::plain;

/// Formats a whole number with its thousands separated.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a reward or another float, with as many decimals as help.
pub(crate) fn real(value: f64) -> String {
    match value {
        v if v == v.trunc() && v.abs() < 1e9 => format!("{v:.0}"),
        v if v.abs() >= 1e6 || (v != 0.0 && v.abs() < 1e-3) => format!("{v:.3e}"),
        v if v.abs() < 10.0 => format!("{v:.4}"),
        v => format!("{v:.2}"),
    }
}

/// Describes an error with its causes.
pub(crate) fn said(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    plain(&causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_as_many_decimals_as_help() {
        for (value, text) in [
            (500.0, "500"),
            (0.0123, "0.0123"),
            (1e-5, "1.000e-5"),
            (22.321, "22.32"),
            (3e7 + 0.5, "3.000e7"),
        ] {
            assert_eq!(real(value), text);
        }
        assert_eq!(count(1_234_567), "1,234,567");
    }
}
