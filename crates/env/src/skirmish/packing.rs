//! Fields of a state packed into doubles, and read out of them, by the same code.

use crate::StateError;

/// Goes through the fields of a state one by one: writes each, or reads it into its place.
pub(super) struct Fields<'a> {
    way: Way<'a>,
    /// Bits of the number under way: of those read that are left, and of those written.
    bits: u64,
    count: u32,
}

enum Way<'a> {
    Write(Vec<f64>),
    Read { numbers: &'a [f64], place: usize },
}

/// Bits of a number. A double has all integers of so many.
pub(super) const NUMBER_BITS: u32 = 48;

type Done = Result<(), StateError>;

impl<'a> Fields<'a> {
    pub(super) const fn write() -> Self {
        Self { way: Way::Write(Vec::new()), bits: 0, count: 0 }
    }

    pub(super) const fn read(numbers: &'a [f64]) -> Self {
        Self { way: Way::Read { numbers, place: 0 }, bits: 0, count: 0 }
    }

    /// Returns what was written, and zeros behind it: so many numbers.
    ///
    /// # Errors
    /// If it is more than that.
    pub(super) fn written(self, numbers: usize) -> Result<Vec<f64>, StateError> {
        let Way::Write(mut written) = self.way else { return Err(StateError::Unsupported) };
        if self.count > 0 {
            written.push(self.bits as f64);
        }
        if written.len() > numbers {
            return Err(StateError::Length { given: written.len(), wanted: numbers });
        }
        written.resize(numbers, 0.0);
        Ok(written)
    }

    /// Checks that nothing but zeros is left to be read.
    pub(super) fn end(&self) -> Done {
        let Way::Read { numbers, place } = self.way else { return Ok(()) };
        match numbers.iter().skip(place).position(|&number| number != 0.0) {
            None if self.bits == 0 => Ok(()),
            None => self.refuse(),
            Some(behind) => Err(StateError::Value { index: place + behind, given: numbers[place + behind] }),
        }
    }

    pub(super) const fn is_reading(&self) -> bool {
        matches!(self.way, Way::Read { .. })
    }

    /// Refuses the number that was read last.
    pub(super) fn refuse(&self) -> Done {
        match self.way {
            Way::Read { numbers, place } => {
                let index = place.saturating_sub(1);
                Err(StateError::Value { index, given: numbers.get(index).copied().unwrap_or_default() })
            }
            Way::Write(_) => Err(StateError::Unsupported),
        }
    }

    /// Takes an integer from 0 to `most`, which is below 2^32.
    pub(super) fn integer<T>(&mut self, value: &mut T, most: u64) -> Done
    where
        T: Copy + TryInto<u64> + TryFrom<u64>,
    {
        let width = u64::BITS - most.leading_zeros();
        if !self.is_reading() {
            let known = (*value).try_into().unwrap_or(u64::MAX);
            debug_assert!(known <= most, "a state has {known}, at most {most}");
            self.put(known.min(most), width);
            return Ok(());
        }
        let read = self.take(width)?;
        match T::try_from(read) {
            Ok(read_value) if read <= most => *value = read_value,
            _ => return self.refuse(),
        }
        Ok(())
    }

    pub(super) fn flag(&mut self, value: &mut bool) -> Done {
        let mut bit = u8::from(*value);
        self.integer(&mut bit, 1)?;
        *value = bit == 1;
        Ok(())
    }

    pub(super) fn word(&mut self, value: &mut u64) -> Done {
        let (mut low, mut high) = (*value & LOW_HALF, *value >> 32);
        self.integer(&mut low, LOW_HALF)?;
        self.integer(&mut high, LOW_HALF)?;
        *value = high << 32 | low;
        Ok(())
    }

    /// Takes whether something is there, and `each` of its fields; where it is read, they begin as those of `empty`.
    pub(super) fn option<T>(
        &mut self,
        value: &mut Option<T>,
        empty: impl FnOnce() -> T,
        each: impl FnOnce(&mut Self, &mut T) -> Done,
    ) -> Done {
        let mut is_there = value.is_some();
        self.flag(&mut is_there)?;
        if !is_there {
            *value = None;
            return Ok(());
        }
        each(self, value.get_or_insert_with(empty))
    }

    fn put(&mut self, value: u64, width: u32) {
        let Way::Write(numbers) = &mut self.way else { return };
        // The count is below 48 and the width at most 32.
        let bits = u128::from(self.bits) | u128::from(value) << self.count;
        self.count += width;
        self.bits = bits as u64;
        if self.count >= NUMBER_BITS {
            numbers.push((bits as u64 & NUMBER) as f64);
            self.count -= NUMBER_BITS;
            self.bits = (bits >> NUMBER_BITS) as u64;
        }
    }

    fn take(&mut self, width: u32) -> Result<u64, StateError> {
        let Way::Read { numbers, place } = &mut self.way else { return Err(StateError::Unsupported) };
        let mut bits = u128::from(self.bits);
        if self.count < width {
            let Some(&given) = numbers.get(*place) else {
                return Err(StateError::Length { given: numbers.len(), wanted: numbers.len() + 1 });
            };
            let is_whole = given.fract() == 0.0 && (0.0..=NUMBER as f64).contains(&given);
            if !is_whole {
                return Err(StateError::Value { index: *place, given });
            }
            *place += 1;
            bits |= u128::from(given as u64) << self.count;
            self.count += NUMBER_BITS;
        }
        let value = bits as u64 & ((1 << width) - 1);
        (self.bits, self.count) = ((bits >> width) as u64, self.count - width);
        Ok(value)
    }
}

const LOW_HALF: u64 = u32::MAX as u64;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
