//! Reads lists and texts without trusting how long they are.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Reads a list of at most `MOST` elements and refuses a longer one without reading on. It is meant for fields whose
/// elements take more memory than bytes in the message: `#[serde(deserialize_with = "bounded_list::<_, MOST, _>")]`.
///
/// # Errors
/// If there are more, or one of them cannot be read.
pub fn bounded_list<'de, T, const MOST: usize, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    from.deserialize_seq(Bounded::<T, MOST>(PhantomData))
}

/// Reads a text of at most `MOST` bytes and refuses a longer one:
/// `#[serde(deserialize_with = "bounded_text::<MOST, _>")]`.
///
/// # Errors
/// If it is longer, or is none.
pub fn bounded_text<'de, const MOST: usize, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    match text.len() {
        bytes if bytes > MOST => {
            Err(D::Error::custom(format_args!("a text of {bytes} bytes, at most {MOST} allowed")))
        }
        _ => Ok(text),
    }
}

/// Reads a text that may be absent as [`bounded_text`] does.
///
/// # Errors
/// If it is longer, or is none.
pub fn bounded_text_or_none<'de, const MOST: usize, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<String>, D::Error> {
    match Option::<String>::deserialize(from)? {
        Some(text) if text.len() > MOST => {
            let bytes = text.len();
            Err(D::Error::custom(format_args!("a text of {bytes} bytes, at most {MOST} allowed")))
        }
        text => Ok(text),
    }
}

/// Reads a sentence for people, of which at most `MOST` bytes are kept, as [`cut_text`] does.
///
/// # Errors
/// If it is no text.
pub fn cut_sentence<'de, const MOST: usize, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(cut_text(String::deserialize(from)?, MOST))
}

/// Returns at most `most` bytes of a text: its beginning and its end, of which the one says what it is about and the other
/// mostly why.
pub fn cut_text(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let half = most.saturating_sub(CUT.len()) / 2;
    let (head, tail) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    format!("{}{CUT}{}", &text[..head], &text[tail..])
}

/// What stands in place of the middle of a text.
const CUT: &str = " ... ";

struct Bounded<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Bounded<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        // A length that is told is no proof: the list grows with what comes.
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::custom(format_args!("more than {MOST} elements")));
            }
            list.push(element);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end_within_the_bound() {
        assert_eq!(cut_text("short".to_owned(), 5), "short");
        assert_eq!(cut_text("0123456789abcdefghij".to_owned(), 15), "01234 ... fghij");
        for most in 0..40 {
            let cut = cut_text("\u{e4}".repeat(50), most);
            assert!(cut.len() <= most.max(CUT.len()), "{most}: {cut}");
        }
    }
}
