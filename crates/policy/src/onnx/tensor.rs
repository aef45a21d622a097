//! Tensors of a file, and the types of their elements.

use super::OnnxError;
use super::errors::shown;
use super::wire::{Field, Fields, Message};

/// Type of the elements of an input, an output or a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementType {
    F32,
    U8,
    I8,
    I32,
    I64,
    Bool,
    F16,
    F64,
}

impl ElementType {
    const ALL: [(Self, i64, usize); 8] = [
        (Self::F32, 1, 4),
        (Self::U8, 2, 1),
        (Self::I8, 3, 1),
        (Self::I32, 6, 4),
        (Self::I64, 7, 8),
        (Self::Bool, 9, 1),
        (Self::F16, 10, 2),
        (Self::F64, 11, 8),
    ];

    /// Returns the type of a number of the format's.
    pub(super) fn of_number(number: i64) -> Option<Self> {
        Self::ALL.iter().find(|(_, of, _)| *of == number).map(|(of, _, _)| *of)
    }

    /// Returns the format's number of the type.
    pub(super) fn number(self) -> i64 {
        Self::ALL.iter().find(|(of, _, _)| *of == self).map_or(0, |(_, number, _)| *number)
    }

    /// Returns whether the elements are quantities.
    pub(super) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::F64)
    }

    /// Returns the bytes of an element.
    fn size(self) -> usize {
        Self::ALL.iter().find(|(of, _, _)| *of == self).map_or(0, |(_, _, size)| *size)
    }
}

/// A tensor that was checked.
#[derive(Debug, Clone, Default)]
pub(super) struct Tensor {
    pub(super) name: String,
    /// Its message.
    bytes: Vec<u8>,
    /// Its numbers, if it is a short list of whole ones, as of extents.
    extents: Vec<i64>,
}

/// Shape and numbers of a tensor of singles.
#[derive(Debug, Clone)]
pub(super) struct Singles {
    shape: Vec<usize>,
    numbers: Vec<f32>,
}

impl Singles {
    /// Returns shape and numbers.
    pub(super) fn parts(self) -> (Vec<usize>, Vec<f32>) {
        (self.shape, self.numbers)
    }

    /// Returns the numbers, if they lie along one axis.
    pub(super) fn flat(self) -> Option<Vec<f32>> {
        (self.shape == [self.numbers.len()]).then_some(self.numbers)
    }
}

impl Tensor {
    /// Returns the message of the tensor.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns shape and numbers, if these are singles.
    pub(super) fn singles(&self) -> Option<Singles> {
        let (mut dims, mut numbers) = (Vec::new(), Vec::new());
        let mut fields = Fields::new(&self.bytes);
        while let Some((number, field)) = fields.next().ok()? {
            match (number, field) {
                (1, field) => field.numbers(&mut dims).ok()?,
                (2, field) if field.number().ok()? != ElementType::F32.number() => return None,
                (4, Field::Fixed32(bytes)) => numbers.push(f32::from_le_bytes(bytes)),
                (4 | 9, Field::Bytes(bytes)) => {
                    numbers.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                }
                _ => {}
            }
        }
        let shape: Vec<usize> = dims.iter().map(|dim| usize::try_from(*dim).ok()).collect::<Option<_>>()?;
        Some(Singles { shape, numbers })
    }

    /// Returns the message of the tensor as the shape to which something is brought, with any extent where it has one: the first or
    /// the last of those at its beginning. `None` if it has none, or says another extent to be any.
    pub(super) fn freed(&self, last: bool) -> Option<Vec<u8>> {
        let ones = self.extents.iter().take_while(|extent| **extent == 1).count();
        if ones == 0 || self.extents.iter().any(|extent| *extent < 1) {
            return None;
        }
        let mut extents = self.extents.clone();
        extents[if last { ones - 1 } else { 0 }] = -1;
        let mut message = Message::default();
        message.number(1, extents.len() as i64);
        message.number(2, ElementType::I64.number());
        message.bytes(8, self.name.as_bytes());
        message.bytes(9, &extents.iter().flat_map(|extent| extent.to_le_bytes()).collect::<Vec<u8>>());
        Some(message.into_bytes())
    }
}

/// Checks a tensor: its numbers are here, as many as its shape calls for, and none is no number. Infinite
/// is at most one that stands alone, as the bound of a cut or what takes the place of what is masked.
pub(super) fn check(message: &[u8]) -> Result<Tensor, OnnxError> {
    let (mut name, mut dims, mut of) = ("", Vec::new(), None);
    let (mut raw, mut external) = (None, false);
    let mut numbers = Numbers::default();
    let mut fields = Fields::new(message);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => field.numbers(&mut dims)?,
            2 => of = Some(field.number()?),
            4 => numbers.singles(field)?,
            5 | 7 => numbers.wholes(field)?,
            8 => name = field.text()?,
            9 => raw = Some(field.bytes()?),
            10 => numbers.doubles(field)?,
            13 => external = true,
            14 => external |= field.number()? != 0,
            _ => {}
        }
    }
    if external {
        return Err(OnnxError::External { name: shown(name) });
    }
    let given = of.unwrap_or(0);
    let of = ElementType::of_number(given).ok_or_else(|| OnnxError::Type { name: shown(name), given })?;
    let elements =
        dims.iter().try_fold(1usize, |product, dim| product.checked_mul(usize::try_from(*dim).ok()?));
    let here = match raw {
        Some(raw) if numbers.count == 0 && raw.len().is_multiple_of(of.size()) => {
            numbers.raw(raw, of);
            Some(raw.len() / of.size())
        }
        Some(_) => None,
        None => Some(numbers.count),
    };
    if elements.is_none() || here != elements || dims.len() > MOST_DIMS {
        return Err(OnnxError::Tensor { name: shown(name), shape: dims, here: here.unwrap_or(0) });
    }
    match numbers.wrong {
        Some((index, given)) if given.is_nan() || numbers.count > 1 => {
            Err(OnnxError::NotFinite { name: shown(name), index, given })
        }
        _ => {
            let is_list = of == ElementType::I64 && dims.len() == 1 && numbers.count <= MOST_DIMS;
            let extents = if is_list { numbers.wholes } else { Vec::new() };
            Ok(Tensor { name: name.to_owned(), bytes: message.to_vec(), extents })
        }
    }
}

/// Numbers of a tensor that were looked at.
#[derive(Default)]
struct Numbers {
    count: usize,
    /// Place and value of the first that is none, else of the first that is infinite.
    wrong: Option<(usize, f64)>,
    /// The first whole numbers of 64 bits.
    wholes: Vec<i64>,
}

impl Numbers {
    fn look(&mut self, number: f64) {
        let is_worse = |(_, before): (usize, f64)| number.is_nan() && !before.is_nan();
        if !number.is_finite() && self.wrong.is_none_or(is_worse) {
            self.wrong = Some((self.count, number));
        }
        self.count += 1;
    }

    fn singles(&mut self, field: Field<'_>) -> Result<(), OnnxError> {
        match field {
            Field::Fixed32(bytes) => self.look(f32::from_le_bytes(bytes).into()),
            Field::Bytes(bytes) if bytes.len().is_multiple_of(4) => self.raw(bytes, ElementType::F32),
            _ => return Err(OnnxError::Format),
        }
        Ok(())
    }

    fn doubles(&mut self, field: Field<'_>) -> Result<(), OnnxError> {
        match field {
            Field::Fixed64(bytes) => self.look(f64::from_le_bytes(bytes)),
            Field::Bytes(bytes) if bytes.len().is_multiple_of(8) => self.raw(bytes, ElementType::F64),
            _ => return Err(OnnxError::Format),
        }
        Ok(())
    }

    fn wholes(&mut self, field: Field<'_>) -> Result<(), OnnxError> {
        let mut wholes = Vec::new();
        field.numbers(&mut wholes)?;
        self.count += wholes.len();
        self.wholes.extend(wholes.into_iter().take(MOST_DIMS));
        Ok(())
    }

    fn raw(&mut self, bytes: &[u8], of: ElementType) {
        match of {
            ElementType::F32 => {
                bytes.as_chunks().0.iter().for_each(|bytes| self.look(f32::from_le_bytes(*bytes).into()));
            }
            ElementType::F64 => {
                bytes.as_chunks().0.iter().for_each(|bytes| self.look(f64::from_le_bytes(*bytes)));
            }
            ElementType::F16 => {
                for bytes in bytes.as_chunks().0 {
                    let bits = u16::from_le_bytes(*bytes);
                    self.look(match (bits & 0x7c00, bits & 0x3ff) {
                        (0x7c00, 0) => f64::INFINITY,
                        (0x7c00, _) => f64::NAN,
                        _ => 0.0,
                    });
                }
            }
            _ => {
                let wholes =
                    bytes.as_chunks().0.iter().take(if of == ElementType::I64 { MOST_DIMS } else { 0 });
                self.wholes.extend(wholes.map(|bytes| i64::from_le_bytes(*bytes)));
                self.count += bytes.len() / of.size();
            }
        }
    }
}

/// The most axes of a tensor.
const MOST_DIMS: usize = 8;
