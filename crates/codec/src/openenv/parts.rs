//! An object that is taken apart into the texts of its fields.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::fault::{BadBody, Fault, shown};

/// The texts of the known fields of an object, and the name of the first other one.
#[derive(Debug)]
pub(crate) struct Parts<'a, const N: usize> {
    pub(crate) values: [Option<&'a RawValue>; N],
    pub(crate) unknown: Option<String>,
}

impl<'a, const N: usize> Parts<'a, N> {
    /// Takes an object with fields of these names apart. Of a field that is there twice the last one is taken.
    pub(crate) fn of(text: &'a str, names: [&'static str; N]) -> Result<Self, BadBody> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = Names(names).deserialize(&mut reader).and_then(|parts| reader.end().map(|()| parts));
        read.map_err(|error| match error.classify() {
            Category::Data => Fault::new("dict_type", "Input should be a valid dictionary").into(),
            _ => BadBody::Json(error.to_string()),
        })
    }

    /// Refuses fields of other names.
    pub(crate) fn only(self) -> Result<[Option<&'a RawValue>; N], BadBody> {
        match self.unknown {
            Some(name) => Err(Fault::extra(&name).into()),
            None => Ok(self.values),
        }
    }
}

struct Names<const N: usize>([&'static str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Names<N> {
    type Value = Parts<'de, N>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Names<N> {
    type Value = Parts<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut parts = Parts { values: [None; N], unknown: None };
        while let Some(name) = map.next_key::<String>()? {
            match self.0.iter().position(|known| *known == name) {
                Some(place) => parts.values[place] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                    parts.unknown.get_or_insert_with(|| shown(&name));
                }
            }
        }
        Ok(parts)
    }
}
