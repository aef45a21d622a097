//! Reads msgpack for serde, in little code for each type that is read.
//!
//! `rmp_serde` reads markers and numbers in generic functions, which were compiled again for each of the hundreds of types
//! that occur in messages: 36 % of the code of crate wire. Here they are read by one function that is compiled once, and
//! what is generic hands the value on.

use std::fmt;

use rmp::Marker;
use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use crate::limits::MAX_CONTROL_DEPTH;

/// The reason for which bytes are not the message that is read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MalformedError(String);

impl Error for MalformedError {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

/// A value without the values inside of it.
enum Item<'a> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Text(&'a [u8]),
    /// Bytes, or those of an extension.
    Bytes(&'a [u8]),
    /// As many values follow.
    List(u32),
    /// As many keys follow, each with its value.
    Map(u32),
}

/// What is left to read of a message.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// Number of lists and maps that may still be opened inside of each other.
    depth: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, depth: MAX_CONTROL_DEPTH }
    }

    /// Returns the number of bytes that nothing has read.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], MalformedError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or_else(cut_short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(cut_short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// Reads an unsigned number of `N` bytes.
    fn unsigned<const N: usize>(&mut self) -> Result<u64, MalformedError> {
        Ok(self.array::<N>()?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Reads a signed number of `N` bytes.
    fn signed<const N: usize>(&mut self) -> Result<i64, MalformedError> {
        let unused = 64 - 8 * N as u32;
        Ok((self.unsigned::<N>()? << unused).cast_signed() >> unused)
    }

    /// Reads a length of `N` bytes.
    fn length<const N: usize>(&mut self) -> Result<u32, MalformedError> {
        Ok(self.unsigned::<N>()? as u32)
    }

    /// Reads the bytes whose number stands before them in `N` bytes.
    fn counted<const N: usize>(&mut self) -> Result<&'a [u8], MalformedError> {
        let bytes = self.length::<N>()?;
        self.take(bytes as usize)
    }

    /// Reads the bytes of an extension, and its kind before them.
    fn extension(&mut self, bytes: u32) -> Result<Item<'a>, MalformedError> {
        self.take(1)?;
        self.take(bytes as usize).map(Item::Bytes)
    }

    fn item(&mut self) -> Result<Item<'a>, MalformedError> {
        let [marker] = self.array()?;
        Ok(match Marker::from_u8(marker) {
            Marker::Null => Item::Nil,
            Marker::True => Item::Bool(true),
            Marker::False => Item::Bool(false),
            Marker::FixPos(number) => Item::Unsigned(number.into()),
            Marker::U8 => Item::Unsigned(self.unsigned::<1>()?),
            Marker::U16 => Item::Unsigned(self.unsigned::<2>()?),
            Marker::U32 => Item::Unsigned(self.unsigned::<4>()?),
            Marker::U64 => Item::Unsigned(self.unsigned::<8>()?),
            Marker::FixNeg(number) => Item::Signed(number.into()),
            Marker::I8 => Item::Signed(self.signed::<1>()?),
            Marker::I16 => Item::Signed(self.signed::<2>()?),
            Marker::I32 => Item::Signed(self.signed::<4>()?),
            Marker::I64 => Item::Signed(self.signed::<8>()?),
            Marker::F32 => Item::F32(f32::from_be_bytes(self.array()?)),
            Marker::F64 => Item::F64(f64::from_be_bytes(self.array()?)),
            Marker::FixStr(bytes) => Item::Text(self.take(bytes.into())?),
            Marker::Str8 => Item::Text(self.counted::<1>()?),
            Marker::Str16 => Item::Text(self.counted::<2>()?),
            Marker::Str32 => Item::Text(self.counted::<4>()?),
            Marker::Bin8 => Item::Bytes(self.counted::<1>()?),
            Marker::Bin16 => Item::Bytes(self.counted::<2>()?),
            Marker::Bin32 => Item::Bytes(self.counted::<4>()?),
            Marker::FixArray(values) => Item::List(values.into()),
            Marker::Array16 => Item::List(self.length::<2>()?),
            Marker::Array32 => Item::List(self.length::<4>()?),
            Marker::FixMap(keys) => Item::Map(keys.into()),
            Marker::Map16 => Item::Map(self.length::<2>()?),
            Marker::Map32 => Item::Map(self.length::<4>()?),
            Marker::FixExt1 => self.extension(1)?,
            Marker::FixExt2 => self.extension(2)?,
            Marker::FixExt4 => self.extension(4)?,
            Marker::FixExt8 => self.extension(8)?,
            Marker::FixExt16 => self.extension(16)?,
            Marker::Ext8 => self.length::<1>().and_then(|bytes| self.extension(bytes))?,
            Marker::Ext16 => self.length::<2>().and_then(|bytes| self.extension(bytes))?,
            Marker::Ext32 => self.length::<4>().and_then(|bytes| self.extension(bytes))?,
            Marker::Reserved => return Err(MalformedError(format!("{marker:#04x} begins no value"))),
        })
    }

    /// Begins to read the values inside of a list or a map.
    fn open(&mut self, values: u32) -> Result<Inside<'_, 'a>, MalformedError> {
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(MalformedError(format!("lists and maps are nested deeper than {MAX_CONTROL_DEPTH}")));
        };
        self.depth = depth;
        Ok(Inside { reader: self, left: values })
    }
}

fn cut_short() -> MalformedError {
    MalformedError("the message ends too early".to_owned())
}

/// The values of a list, or the keys of a map with their values.
struct Inside<'r, 'a> {
    reader: &'r mut Reader<'a>,
    left: u32,
}

impl Inside<'_, '_> {
    /// Returns whether one more is to be read, which counts as read from now on.
    fn next(&mut self) -> bool {
        let more = self.left > 0;
        self.left -= u32::from(more);
        more
    }

    fn size_hint(&self) -> Option<usize> {
        // Each takes a byte at least.
        Some(self.reader.left().min(self.left as usize))
    }

    /// Checks that nothing is left inside.
    fn close(self) -> Result<(), MalformedError> {
        self.reader.depth += 1;
        match self.left {
            0 => Ok(()),
            left => Err(MalformedError(format!("{left} more values than expected in a list or map"))),
        }
    }
}

impl<'a> Deserializer<'a> for &mut Reader<'a> {
    type Error = MalformedError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, MalformedError> {
        match self.item()? {
            Item::Nil => visitor.visit_unit(),
            Item::Bool(value) => visitor.visit_bool(value),
            Item::Unsigned(number) => visitor.visit_u64(number),
            Item::Signed(number) => visitor.visit_i64(number),
            Item::F32(number) => visitor.visit_f32(number),
            Item::F64(number) => visitor.visit_f64(number),
            Item::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => visitor.visit_borrowed_str(text),
                Err(_) => visitor.visit_borrowed_bytes(text),
            },
            Item::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Item::List(values) => {
                let mut inside = self.open(values)?;
                let list = visitor.visit_seq(&mut inside)?;
                inside.close().map(|()| list)
            }
            Item::Map(keys) => {
                let mut inside = self.open(keys)?;
                let map = visitor.visit_map(&mut inside)?;
                inside.close().map(|()| map)
            }
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, MalformedError> {
        match self.bytes.split_first() {
            Some((&NIL, rest)) => {
                self.bytes = rest;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    /// Reads a struct without fields, which is written as an empty list.
    fn deserialize_unit_struct<V: Visitor<'a>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, MalformedError> {
        match self.item()? {
            Item::Nil | Item::List(0) => visitor.visit_unit(),
            _ => Err(MalformedError("a struct without fields has some".to_owned())),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, MalformedError> {
        visitor.visit_newtype_struct(self)
    }

    /// Reads a variant: its name alone, or a map of its name to what it has.
    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, MalformedError> {
        let before = self.bytes;
        match self.item()? {
            Item::Map(1) => {
                // Its name and its value are read one after the other, not counted.
                let inside = self.open(0)?;
                let value =
                    visitor.visit_enum(Variant { reader: &mut *inside.reader, is_name_alone: false })?;
                inside.close().map(|()| value)
            }
            Item::Map(_) | Item::List(_) => {
                Err(MalformedError("a variant is its name, or a map of it to its value".to_owned()))
            }
            _ => {
                self.bytes = before;
                visitor.visit_enum(Variant { reader: self, is_name_alone: true })
            }
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        <W: Visitor<'a>>
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

const NIL: u8 = 0xc0;

impl<'a> SeqAccess<'a> for &mut Inside<'_, 'a> {
    type Error = MalformedError;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, MalformedError> {
        if self.next() { seed.deserialize(&mut *self.reader).map(Some) } else { Ok(None) }
    }

    fn size_hint(&self) -> Option<usize> {
        Inside::size_hint(self)
    }
}

impl<'a> MapAccess<'a> for &mut Inside<'_, 'a> {
    type Error = MalformedError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, MalformedError> {
        if self.next() { seed.deserialize(&mut *self.reader).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, MalformedError> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Inside::size_hint(self)
    }
}

/// A variant of an enum, of which the name comes next.
struct Variant<'r, 'a> {
    reader: &'r mut Reader<'a>,
    is_name_alone: bool,
}

impl<'r, 'a> Variant<'r, 'a> {
    /// Returns the reader of what the variant has.
    fn value(self) -> Result<&'r mut Reader<'a>, MalformedError> {
        if self.is_name_alone {
            Err(MalformedError("a variant lacks its value".to_owned()))
        } else {
            Ok(self.reader)
        }
    }
}

impl<'a> EnumAccess<'a> for Variant<'_, 'a> {
    type Error = MalformedError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), MalformedError> {
        Ok((seed.deserialize(&mut *self.reader)?, self))
    }
}

impl<'a> VariantAccess<'a> for Variant<'_, 'a> {
    type Error = MalformedError;

    fn unit_variant(self) -> Result<(), MalformedError> {
        if self.is_name_alone {
            return Ok(());
        }
        match self.reader.item()? {
            Item::Nil => Ok(()),
            _ => Err(MalformedError("a variant has a value that none was expected of".to_owned())),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, MalformedError> {
        seed.deserialize(self.value()?)
    }

    fn tuple_variant<V: Visitor<'a>>(self, _len: usize, visitor: V) -> Result<V::Value, MalformedError> {
        self.value()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, MalformedError> {
        self.value()?.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::de::IgnoredAny;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::msgpack::decode;

    /// All that serde can say of a type.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Everything {
        flag: bool,
        numbers: (u8, u64, i8, i64),
        fractions: (f32, f64),
        text: String,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        maybe: Option<u16>,
        list: Vec<Kind>,
        map: BTreeMap<String, i32>,
        letter: char,
        nothing: (),
        empty: Empty,
        wrapped: Wrapped,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Alone,
        Of(u32),
        Two(i16, String),
        Named { a: Option<u8>, b: Vec<u16> },
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Empty;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Wrapped(u16);

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::Alone),
            any::<u32>().prop_map(Kind::Of),
            (any::<i16>(), any::<String>()).prop_map(|(number, text)| Kind::Two(number, text)),
            (any::<Option<u8>>(), any::<Vec<u16>>()).prop_map(|(a, b)| Kind::Named { a, b }),
        ]
    }

    prop_compose! {
        fn everything()(
            (flag, numbers, fractions) in any::<(bool, (u8, u64, i8, i64), (i16, i32))>(),
            (text, bytes, maybe) in any::<(String, Vec<u8>, Option<u16>)>(),
            list in prop::collection::vec(kind(), 0..40),
            (map, letter, wrapped) in any::<(BTreeMap<String, i32>, char, u16)>(),
        ) -> Everything {
            let fractions = (f32::from(fractions.0) / 8.0, f64::from(fractions.1) / 8.0);
            let wrapped = Wrapped(wrapped);
            Everything {
                flag, numbers, fractions, text, bytes, maybe, list, map, letter, nothing: (), empty: Empty, wrapped,
            }
        }
    }

    proptest! {
        #[test]
        fn what_rmp_serde_writes_is_read_and_cut_anywhere_is_refused(value in everything(), cut in any::<prop::sample::Index>()) {
            for bytes in [rmp_serde::to_vec_named(&value).unwrap(), rmp_serde::to_vec(&value).unwrap()] {
                prop_assert_eq!(&decode::<Everything>(&bytes, bytes.len()).unwrap(), &value);
                let cut = cut.index(bytes.len());
                prop_assert!(decode::<Everything>(&bytes[..cut], cut).is_err());
                prop_assert!(decode::<IgnoredAny>(&bytes, bytes.len()).is_ok());
            }
        }

        #[test]
        fn any_bytes_are_taken_or_refused_as_rmp_serde_does(bytes in prop::collection::vec(any::<u8>(), 0..48)) {
            let mut theirs = rmp_serde::Deserializer::new(&bytes[..]);
            let taken = IgnoredAny::deserialize(&mut theirs).is_ok();
            let mut ours = Reader::new(&bytes);
            prop_assert_eq!(IgnoredAny::deserialize(&mut ours).is_ok(), taken);
            if taken {
                prop_assert_eq!(ours.left(), theirs.get_ref().len());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _either = decode::<Everything>(&bytes, bytes.len());
            let _either = decode::<Kind>(&bytes, bytes.len());
        }
    }

    #[test]
    fn variants_with_too_little_and_too_much_are_refused() {
        let read = |bytes: &[u8]| decode::<Kind>(bytes, 64).map_err(|error| error.to_string());
        assert_eq!(read(b"\x81\xa5Alone\xc0").unwrap(), Kind::Alone);
        assert!(read(b"\x81\xa5Alone\x01").unwrap_err().contains("none was expected"));
        assert!(read(b"\xa2Of").unwrap_err().contains("lacks its value"));
        assert!(read(b"\x82\xa2Of\x01\xa2Of\x01").unwrap_err().contains("a variant is its name"));
        assert!(read(b"\x81\xa3Two\x93\x01\xa1a\x02").unwrap_err().contains("1 more values"));
    }
}
