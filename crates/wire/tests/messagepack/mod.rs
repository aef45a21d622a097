//! Msgpack as a tree that can be printed: what a reader of the golden files needs, and a second opinion on them.

use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// All of `bytes` as one value; `None` if it is none, or one we never write.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<Self> {
        let value = one(&mut bytes, 0)?;
        bytes.is_empty().then_some(value)
    }

    /// In the shortest form of each part, which is what we write.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.push(0xc0),
            Self::Bool(value) => out.push(0xc2 + u8::from(*value)),
            Self::Unsigned(value) => match *value {
                small @ 0..=0x7f => out.push(small as u8),
                small @ 0..=0xff => out.extend([0xcc, small as u8]),
                small @ 0..=0xffff => {
                    out.push(0xcd);
                    out.extend((small as u16).to_be_bytes());
                }
                small @ 0..=0xffff_ffff => {
                    out.push(0xce);
                    out.extend((small as u32).to_be_bytes());
                }
                large => {
                    out.push(0xcf);
                    out.extend(large.to_be_bytes());
                }
            },
            Self::Signed(value) => match i8::try_from(*value) {
                Ok(small) if small >= -32 => out.push(small as u8),
                _ => {
                    out.push(0xd3);
                    out.extend(value.to_be_bytes());
                }
            },
            Self::Float(value) => {
                out.push(0xcb);
                out.extend(value.to_be_bytes());
            }
            Self::Text(text) => {
                match text.len() {
                    short @ 0..32 => out.push(0xa0 | short as u8),
                    longer => out.extend([0xd9, longer as u8]),
                }
                out.extend(text.as_bytes());
            }
            Self::Bytes(bytes) => {
                out.extend([0xc4, bytes.len() as u8]);
                out.extend(bytes);
            }
            Self::List(values) => {
                assert!(values.len() < 16);
                out.push(0x90 | values.len() as u8);
                values.iter().for_each(|value| value.put(out));
            }
            Self::Map(fields) => {
                match fields.len() {
                    short @ 0..16 => out.push(0x80 | short as u8),
                    longer => {
                        out.push(0xde);
                        out.extend((longer as u16).to_be_bytes());
                    }
                }
                for (key, value) in fields {
                    key.put(out);
                    value.put(out);
                }
            }
        }
    }
}

fn one(bytes: &mut &[u8], depth: usize) -> Option<Value> {
    let (&tag, rest) = bytes.split_first()?;
    *bytes = rest;
    if depth > 32 {
        return None;
    }
    let list =
        |bytes: &mut &[u8], n: usize| (0..n).map(|_| one(bytes, depth + 1)).collect::<Option<Vec<_>>>();
    let map = |bytes: &mut &[u8], n: usize| {
        let field = |bytes: &mut &[u8]| Some((one(bytes, depth + 1)?, one(bytes, depth + 1)?));
        (0..n).map(|_| field(bytes)).collect::<Option<Vec<_>>>()
    };
    Some(match tag {
        0..=0x7f => Value::Unsigned(u64::from(tag)),
        0x80..=0x8f => Value::Map(map(bytes, usize::from(tag & 15))?),
        0x90..=0x9f => Value::List(list(bytes, usize::from(tag & 15))?),
        0xa0..=0xbf => text(bytes, usize::from(tag & 31))?,
        0xc0 => Value::Nil,
        0xc2 | 0xc3 => Value::Bool(tag == 0xc3),
        0xc4 => {
            let n = number(bytes, 1)? as usize;
            Value::Bytes(take(bytes, n)?.to_vec())
        }
        0xcb => Value::Float(f64::from_bits(number(bytes, 8)?)),
        0xcc..=0xcf => Value::Unsigned(number(bytes, 1 << (tag - 0xcc))?),
        0xd3 => Value::Signed(number(bytes, 8)? as i64),
        0xd9 => {
            let n = number(bytes, 1)? as usize;
            text(bytes, n)?
        }
        0xde => {
            let n = number(bytes, 2)? as usize;
            Value::Map(map(bytes, n)?)
        }
        0xe0..=0xff => Value::Signed(i64::from(tag as i8)),
        _ => return None,
    })
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &mut &[u8], n: usize) -> Option<u64> {
    Some(take(bytes, n)?.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

fn text(bytes: &mut &[u8], n: usize) -> Option<Value> {
    Some(Value::Text(String::from_utf8(take(bytes, n)?.to_vec()).ok()?))
}

/// As JSON with bytes in `h'..'`; `{:#}` gives each field of the outermost maps a line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self, f, if f.alternate() { Some(0) } else { None })
    }
}

fn show(value: &Value, f: &mut fmt::Formatter<'_>, indent: Option<usize>) -> fmt::Result {
    match value {
        Value::Nil => f.write_str("null"),
        Value::Bool(value) => write!(f, "{value}"),
        Value::Unsigned(value) => write!(f, "{value}"),
        Value::Signed(value) => write!(f, "{value}"),
        Value::Float(value) => write!(f, "{value:?}"),
        Value::Text(text) => write!(f, "{text:?}"),
        Value::Bytes(bytes) => {
            f.write_str("h'")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str("'")
        }
        Value::List(values) => {
            f.write_str("[")?;
            for (index, value) in values.iter().enumerate() {
                f.write_str(if index > 0 { ", " } else { "" })?;
                show(value, f, indent)?;
            }
            f.write_str("]")
        }
        Value::Map(fields) => {
            f.write_str("{")?;
            let inner = indent.map(|indent| indent + 2).filter(|&inner| inner <= 6 && fields.len() > 1);
            for (index, (key, value)) in fields.iter().enumerate() {
                f.write_str(if index > 0 { "," } else { "" })?;
                match inner {
                    Some(inner) => write!(f, "\n{:inner$}", "")?,
                    None => f.write_str(if index > 0 { " " } else { "" })?,
                }
                show(key, f, indent)?;
                f.write_str(": ")?;
                show(value, f, inner.or(indent))?;
            }
            match (inner, indent) {
                (Some(_), Some(indent)) => write!(f, "\n{:indent$}}}", ""),
                _ => f.write_str("}"),
            }
        }
    }
}
