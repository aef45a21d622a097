//! Reads lists without trusting the length that they announce.

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
