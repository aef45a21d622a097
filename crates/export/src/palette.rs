//! Palettes: the few colours that stand for all colours of a film.

use std::collections::HashMap;

use rollhouse_env::Image;

/// A colour: red, green, blue.
pub(crate) type Rgb = [u8; 3];

/// At most [`MAX_COLOURS`] colours, with the nearest of them to any other colour.
#[derive(Debug)]
pub(crate) struct Palette {
    colours: Vec<Rgb>,
    /// The nearest colours that were looked up, each at a place that follows from its colour.
    known: Vec<Option<(Rgb, u8)>>,
}

/// Number of colours of a palette; the number after the last stands for "as before".
pub(crate) const MAX_COLOURS: usize = 255;

/// Counts of the colours in some pictures of a film.
#[derive(Debug, Default)]
pub(crate) struct Census {
    counts: HashMap<Rgb, u64>,
}

impl Census {
    /// Counts a picture's colours. In pictures with very many colours those that come late are left out.
    pub(crate) fn add(&mut self, image: &Image) {
        let pixels = image.pixels().as_chunks::<3>().0;
        for run in pixels.chunk_by(|a, b| a == b) {
            let is_full = self.counts.len() >= MAX_COUNTED;
            match self.counts.get_mut(&run[0]) {
                Some(count) => *count += run.len() as u64,
                None if is_full => {}
                None => {
                    self.counts.insert(run[0], run.len() as u64);
                }
            }
        }
    }

    /// Returns the palette for the counted colours: each colour itself if they are few; else the most frequent ones,
    /// and for the others the means of groups that lie close together.
    pub(crate) fn palette(self) -> Palette {
        let mut counts: Vec<(Rgb, u64)> = self.counts.into_iter().collect();
        counts.sort_unstable_by_key(|&(colour, count)| (std::cmp::Reverse(count), colour));
        let mut colours: Vec<Rgb> = if counts.len() <= MAX_COLOURS {
            counts.iter().map(|&(colour, _)| colour).collect()
        } else {
            let (often, others) = counts.split_at_mut(KEPT_COLOURS);
            let often = often.iter().map(|&(colour, _)| colour);
            often.chain(middles(others, MAX_COLOURS - KEPT_COLOURS)).collect()
        };
        if colours.is_empty() {
            colours.push([0; 3]);
        }
        Palette { colours, known: vec![None; KNOWN] }
    }
}

/// Number of colours that are counted: enough for a picture whose every pixel has another one.
const MAX_COUNTED: usize = 1 << 20;

/// Number of colours that are kept as they are because they are frequent: in drawings, those of all shapes.
const KEPT_COLOURS: usize = 96;

impl Palette {
    /// Returns the colours by number.
    pub(crate) fn colours(&self) -> &[Rgb] {
        &self.colours
    }

    /// Finds the number of each pixel's nearest colour.
    pub(crate) fn indices(&mut self, image: &Image, out: &mut Vec<u8>) {
        out.clear();
        for run in image.pixels().as_chunks::<3>().0.chunk_by(|a, b| a == b) {
            let index = self.nearest(run[0]);
            out.resize(out.len() + run.len(), index);
        }
    }

    fn nearest(&mut self, colour: Rgb) -> u8 {
        let [red, green, blue] = colour.map(u32::from);
        let place =
            (red << 16 | green << 8 | blue).wrapping_mul(0x9e37_79b1) as usize >> (32 - KNOWN.ilog2());
        match self.known[place] {
            Some((known, index)) if known == colour => index,
            _ => {
                let distances = self.colours.iter().map(|&other| distance(colour, other));
                let (_, index) = distances.zip(0u8..).min().unwrap_or_default();
                self.known[place] = Some((colour, index));
                index
            }
        }
    }
}

/// Number of colours whose nearest one is remembered.
const KNOWN: usize = 1 << 13;

/// Returns how far two colours are apart for the eye, roughly: it sees green best and blue least.
fn distance(a: Rgb, b: Rgb) -> u32 {
    let of = |channel: usize| u32::from(a[channel].abs_diff(b[channel])).pow(2);
    3 * of(0) + 6 * of(1) + of(2)
}

/// Splits colours into `count` groups, always the widest one at its middle, and returns each group's mean.
fn middles(colours: &mut [(Rgb, u64)], count: usize) -> Vec<Rgb> {
    let mut groups = vec![colours];
    while groups.len() < count {
        let widths = groups.iter().map(|group| widest_channel(group));
        let Some((at, (width, channel))) = widths.enumerate().max_by_key(|&(_, (width, _))| width) else {
            break;
        };
        if width == 0 {
            break;
        }
        let group = groups.swap_remove(at);
        group.sort_unstable_by_key(|&(colour, _)| (colour[channel], colour));
        let (low, high) = group.split_at_mut(group.len() / 2);
        groups.extend([low, high]);
    }
    groups.into_iter().filter(|group| !group.is_empty()).map(|group| mean(group)).collect()
}

/// Returns the channel in which a group's colours lie furthest apart, and that distance.
fn widest_channel(group: &[(Rgb, u64)]) -> (u8, usize) {
    let width = |channel: usize| {
        let values = group.iter().map(|(colour, _)| colour[channel]);
        values.clone().max().unwrap_or(0) - values.min().unwrap_or(0)
    };
    (0..3).map(|channel| (width(channel), channel)).max().unwrap_or_default()
}

fn mean(group: &[(Rgb, u64)]) -> Rgb {
    let all: u64 = group.iter().map(|(_, count)| count).sum();
    [0, 1, 2].map(|channel| {
        let sum: u64 = group.iter().map(|(colour, count)| u64::from(colour[channel]) * count).sum();
        (sum / all.max(1)) as u8
    })
}

#[cfg(test)]
mod tests {
    use rollhouse_env::ImageSize;

    use super::*;

    fn image(pixels: &[Rgb]) -> Image {
        Image::new(ImageSize::new(pixels.len(), 1).unwrap(), pixels.concat()).unwrap()
    }

    #[test]
    fn few_colours_stay_as_they_are() {
        let pixels = [[1, 2, 3], [1, 2, 3], [250, 0, 9]];
        let mut census = Census::default();
        census.add(&image(&pixels));
        let mut palette = census.palette();
        assert_eq!(palette.colours(), [[1, 2, 3], [250, 0, 9]]);
        let mut indices = Vec::new();
        palette.indices(&image(&pixels), &mut indices);
        assert_eq!(indices, [0, 0, 1]);
        // What was not counted becomes what is nearest.
        palette.indices(&image(&[[2, 2, 2], [255, 255, 255]]), &mut indices);
        assert_eq!(indices, [0, 1]);
    }

    #[test]
    fn of_many_colours_frequent_ones_stay_and_the_others_move_little() {
        let ramp =
            (0..4096u32).map(|i| [(i / 256 * 16) as u8, (i / 16 % 16 * 16) as u8, (i % 16 * 16) as u8]);
        let flat = std::iter::repeat_n([7, 7, 7], 5000);
        let mut census = Census::default();
        for pixels in [ramp.clone().collect::<Vec<_>>(), flat.take(4000).collect()] {
            census.add(&image(&pixels));
        }
        let mut palette = census.palette();
        assert!(palette.colours().len() <= MAX_COLOURS && palette.colours().contains(&[7, 7, 7]));
        // What is the nearest is said by the eye's measure, in which blue alone may be further off.
        let little = distance([0; 3], [40; 3]);
        for colour in ramp {
            let near = palette.nearest(colour);
            let near = palette.colours()[usize::from(near)];
            assert!(distance(colour, near) <= little, "{colour:?} {near:?}");
        }
    }
}
