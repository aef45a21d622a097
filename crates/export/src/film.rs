//! Films: pictures that follow each other, each stored as the change from the one before.

use rollhouse_env::{Image, ImageSize};

use crate::error::ExportError;
use crate::palette::{Census, Palette};
use crate::pictures::Pictures;

/// Pictures in the colours of one palette.
#[derive(Debug)]
pub(crate) struct Film {
    palette: Palette,
    size: ImageSize,
    now: Vec<u8>,
    /// The last picture; empty before the first.
    before: Vec<u8>,
}

/// The part of a picture that has changed: a rectangle with a colour's number for each of its pixels, [`SAME`] for
/// those that stayed as they were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pixels: Vec<u8>,
}

/// The number for a pixel that stayed as it was.
pub(crate) const SAME: u8 = u8::MAX;

impl Film {
    /// Makes a film with a palette of the colours in some of the episode's pictures.
    ///
    /// # Errors
    /// If one of the pictures cannot be made.
    pub(crate) fn of(pictures: &mut Pictures<'_>, length: u64) -> Result<Self, ExportError> {
        let mut census = Census::default();
        let mut last = None;
        for sample in 0..=SAMPLES {
            let t = (u128::from(length) * u128::from(sample) / u128::from(SAMPLES)) as u64;
            if last.replace(t) != Some(t) {
                census.add(&pictures.at(t)?.1);
            }
        }
        Ok(Self { palette: census.palette(), size: pictures.size(), now: Vec::new(), before: Vec::new() })
    }

    /// Returns its palette.
    pub(crate) const fn palette(&self) -> &Palette {
        &self.palette
    }

    /// Returns the size of its pictures.
    pub(crate) const fn size(&self) -> ImageSize {
        self.size
    }

    /// Makes the next picture come as a whole.
    pub(crate) fn forget(&mut self) {
        self.before.clear();
    }

    /// Adds a picture; `None` if nothing has changed.
    pub(crate) fn add(&mut self, image: &Image) -> Option<Change> {
        self.palette.indices(image, &mut self.now);
        let change = match self.before.is_empty() {
            true => Some(Change {
                left: 0,
                top: 0,
                width: self.size.width(),
                height: self.size.height(),
                pixels: self.now.clone(),
            }),
            false => changed(&self.before, &self.now, self.size.width()),
        };
        std::mem::swap(&mut self.before, &mut self.now);
        change
    }
}

/// Number of pictures whose colours are counted: a longer film has hardly any others.
const SAMPLES: u64 = 24;

/// Returns the smallest rectangle that holds all differences; `None` if there are none.
fn changed(before: &[u8], now: &[u8], width: usize) -> Option<Change> {
    let rows = || before.chunks_exact(width).zip(now.chunks_exact(width)).enumerate();
    let differs = |&(_, (before, now)): &(usize, (&[u8], &[u8]))| before != now;
    let (top, _) = rows().find(differs)?;
    let (bottom, _) = rows().rfind(differs)?;
    let (mut left, mut right) = (width, 0);
    for (_, (before, now)) in rows().skip(top).take(bottom + 1 - top) {
        let pairs = || before.iter().zip(now);
        left = pairs().take(left).position(|(a, b)| a != b).unwrap_or(left);
        let from_right = pairs().rev().take(width - right).position(|(a, b)| a != b);
        right = from_right.map_or(right, |from_right| width - from_right);
    }
    let mut pixels = Vec::with_capacity((right - left) * (bottom + 1 - top));
    for (_, (before, now)) in rows().skip(top).take(bottom + 1 - top) {
        let pairs = before[left..right].iter().zip(&now[left..right]);
        pixels.extend(pairs.map(|(before, now)| if before == now { SAME } else { *now }));
    }
    Some(Change { left, top, width: right - left, height: bottom + 1 - top, pixels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_the_smallest_rectangle_with_what_stayed_left_out() {
        let before = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(changed(&before, &before, 4), None);
        let now = [0, 0, 0, 0, 0, 1, 7, 0, 0, 5, 0, 0];
        let wanted = Change { left: 1, top: 1, width: 2, height: 2, pixels: vec![SAME, 7, 5, SAME] };
        assert_eq!(changed(&before, &now, 4), Some(wanted));
        let all: Vec<u8> = before.iter().map(|pixel| pixel + 1).collect();
        let wanted = Change { left: 0, top: 0, width: 4, height: 3, pixels: all.clone() };
        assert_eq!(changed(&before, &all, 4), Some(wanted));
    }
}
