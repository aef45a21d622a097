//! Whole numbers as people type them: `1000000`, `1_000_000` and `1e6`.

/// Reads a whole number between two bounds, both included.
///
/// Digits may be parted by `_`, and an exponent of ten may follow, as long as the number is whole: `2.5e3` is 2500.
///
/// # Errors
/// One sentence that says what is taken.
pub(crate) fn whole<N: TryFrom<u64>, const LEAST: u64, const MOST: u64>(text: &str) -> Result<N, String> {
    let number = read(text).filter(|number| (LEAST..=MOST).contains(number));
    number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| match (LEAST, MOST) {
        (0, WIDEST) => format!("a whole number is wanted, {FORMS}"),
        (least, WIDEST) => format!("a whole number of at least {least} is wanted, {FORMS}"),
        (least, most) => format!("a whole number from {least} to {most} is wanted"),
    })
}

/// Reads any whole number that the type holds.
pub(crate) fn any<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    whole::<N, 0, WIDEST>(text)
}

/// Reads any whole number but 0 that the type holds.
pub(crate) fn positive<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    whole::<N, 1, WIDEST>(text)
}

/// Returns the number that the text stands for; `None` if it is none, is not whole, or does not fit.
pub(super) fn read(text: &str) -> Option<u64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.strip_prefix('+').unwrap_or(exponent)),
        None => (text, "0"),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let grouped = before.split('_').all(|group| !group.is_empty());
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let before = before.replace('_', "");
    // An exponent without a digit, or of a number that is not written with one, is none.
    if !grouped || !digits(&before) || !digits(after) || mantissa.ends_with('.') || !digits(exponent) {
        return None;
    }
    let after = after.trim_end_matches('0');
    let zeros = exponent.parse::<u32>().ok()?.checked_sub(after.len() as u32)?;
    let number = format!("{before}{after}").parse::<u64>().ok()?;
    if number == 0 { Some(0) } else { number.checked_mul(10_u64.checked_pow(zeros)?) }
}

/// The bound that is none.
const WIDEST: u64 = u64::MAX;
/// The forms in which a number is taken, for messages.
const FORMS: &str = "as in 1000000, 1_000_000 or 1e6";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_in_each_form_in_which_people_write_it() {
        for (text, number) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1e6", 1_000_000),
            ("1E+6", 1_000_000),
            ("2.5e3", 2500),
            ("1.50e1", 15),
            ("3.0", 3),
            ("0e99", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(any::<u64>(text), Ok(number), "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_number_or_does_not_fit_is_refused() {
        for text in [
            "",
            "_",
            "_1",
            "1_",
            "1__0",
            "-1",
            "+1",
            "1,000",
            "1.5",
            "2.55e1",
            "1e",
            "e6",
            "1e-3",
            ".5e1",
            "1.",
            "1.e3",
            "1e20",
            "1e9999999999",
            "18446744073709551616",
            "nan",
            "0x10",
            "1 000",
            "١",
        ] {
            assert!(any::<u64>(text).is_err(), "{text}");
        }
        assert!(any::<u32>("4294967296").is_err());
        assert!(positive::<u64>("0").is_err_and(|why| why.contains("at least 1")));
        assert_eq!(whole::<u32, 1, 50>("51"), Err("a whole number from 1 to 50 is wanted".to_owned()));
    }
}
