//! Pictures as sixels: bands of six rows of pixels, one colour after the other.
//!
//! After the VT330/VT340 Programmer Reference Manual, volume 2, chapter 14 (Digital, 1988).

use std::collections::HashMap;
use std::io::{self, Write};

use rollhouse_env::Image;

/// Writes a picture where the cursor stands.
///
/// # Errors
/// If `out` cannot be written to.
pub(crate) fn write(image: &Image, out: &mut dyn Write) -> io::Result<()> {
    let (width, height) = (image.width(), image.height());
    let Indexed { colours, pixels } = Indexed::of(image);
    write!(out, "\x1bP0;1;0q\"1;1;{width};{height}")?;
    for (number, colour) in colours.iter().enumerate() {
        let [red, green, blue] = colour.map(|part| (u32::from(part) * 100 + 127) / 255);
        write!(out, "#{number};2;{red};{green};{blue}")?;
    }
    for band in pixels.chunks(width * BAND) {
        let mut used = [false; MAX_COLOURS];
        band.iter().for_each(|&index| used[usize::from(index)] = true);
        for (number, _) in used.iter().enumerate().filter(|(_, is_used)| **is_used) {
            write!(out, "#{number}")?;
            let sixels = (0..width).map(|x| {
                let column = band[x..].iter().step_by(width).enumerate();
                column.fold(0, |bits, (y, &index)| bits | u8::from(usize::from(index) == number) << y)
            });
            write_runs(sixels, out)?;
            out.write_all(b"$")?;
        }
        out.write_all(b"-")?;
    }
    out.write_all(b"\x1b\\")
}

/// Writes sixels of one colour, equal ones as a count; empty ones at the end are left out.
fn write_runs(sixels: impl Iterator<Item = u8>, out: &mut dyn Write) -> io::Result<()> {
    let mut run: Option<(u8, usize)> = None;
    for sixel in sixels {
        match &mut run {
            Some((last, count)) if *last == sixel => *count += 1,
            _ => {
                if let Some(done) = run.replace((sixel, 1)) {
                    write_run(done, out)?;
                }
            }
        }
    }
    match run {
        Some(last) if last.0 != 0 => write_run(last, out),
        _ => Ok(()),
    }
}

fn write_run((sixel, count): (u8, usize), out: &mut dyn Write) -> io::Result<()> {
    let sign = char::from(sixel + b'?');
    match count {
        1..=3 => (0..count).try_for_each(|_| write!(out, "{sign}")),
        _ => write!(out, "!{count}{sign}"),
    }
}

/// A picture of few colours.
struct Indexed {
    colours: Vec<[u8; 3]>,
    /// Each pixel's place in `colours`.
    pixels: Vec<u8>,
}

impl Indexed {
    /// Indexes the picture: with its own colours if they are few, else with coarser ones until they are.
    fn of(image: &Image) -> Self {
        (0..u8::BITS)
            .find_map(|dropped| Self::with(image, dropped))
            .expect("of one bit a part there are eight colours")
    }

    /// Indexes the picture by colours without their lowest bits; `None` if they are too many.
    fn with(image: &Image, dropped: u32) -> Option<Self> {
        let mut numbers = HashMap::new();
        let mut colours = Vec::new();
        let mut last = ([0; 3], None);
        let pixels = image.pixels().as_chunks::<3>().0.iter().map(|&pixel| {
            if let (seen, Some(number)) = last
                && seen == pixel
            {
                return Some(number);
            }
            let number = *numbers.entry(pixel.map(|part| part >> dropped)).or_insert_with(|| {
                colours.push(pixel);
                colours.len() - 1
            });
            let number = u8::try_from(number).ok()?;
            last = (pixel, Some(number));
            Some(number)
        });
        let pixels = pixels.collect::<Option<_>>()?;
        Some(Self { colours, pixels })
    }
}

/// Rows of pixels in a band.
const BAND: usize = 6;
/// Most colours of a picture: those of a terminal with sixels.
const MAX_COLOURS: usize = 256;

#[cfg(test)]
mod tests {
    use rollhouse_env::ImageSize;
    use sixel_image::{SixelColor, SixelImage};

    use super::*;

    /// Returns a picture, and the same read back from its sixels: its parts of colours as percentages.
    fn shown(
        width: usize,
        height: usize,
        pixel: impl Fn(usize, usize) -> [u8; 3],
    ) -> (Vec<[u8; 3]>, Vec<[u8; 3]>) {
        let pixels: Vec<_> =
            (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect();
        let image = Image::new(ImageSize::new(width, height).unwrap(), pixels.concat()).unwrap();
        let mut bytes = Vec::new();
        write(&image, &mut bytes).unwrap();
        let read = SixelImage::new(&bytes).unwrap();
        let colour = |number| match read.color_registers[&number] {
            SixelColor::Rgb(red, green, blue) => [red, green, blue],
            SixelColor::Hsl(..) => panic!("no colour is written so"),
        };
        let rows = read.pixels.iter().take(height);
        let found = rows.flat_map(|row| row.iter().take(width)).map(|pixel| {
            assert!(pixel.on, "every pixel is drawn");
            colour(pixel.color)
        });
        (pixels, found.collect())
    }

    fn percent(part: u8) -> u8 {
        ((u32::from(part) * 100 + 127) / 255) as u8
    }

    #[test]
    fn a_picture_of_few_colours_is_shown_as_it_is() {
        for (width, height) in [(1, 1), (7, 6), (40, 13), (300, 25)] {
            let (wanted, found) = shown(width, height, |x, y| match (x / 5 + y / 2) % 3 {
                0 => [255, 255, 255],
                1 => [12, 130, 200],
                _ => [(x % 4) as u8 * 60, (y % 7) as u8 * 30, 0],
            });
            assert_eq!(
                wanted.iter().map(|pixel| pixel.map(percent)).collect::<Vec<_>>(),
                found,
                "{width}x{height}"
            );
        }
    }

    #[test]
    fn a_picture_of_many_colours_is_shown_in_those_near_by() {
        let (wanted, found) = shown(128, 128, |x, y| [2 * x as u8, 2 * y as u8, (x + y) as u8]);
        for (wanted, found) in wanted.iter().zip(&found) {
            let far = wanted.map(percent).iter().zip(found).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(far <= 25, "{wanted:?} is shown as {found:?}");
        }
    }
}
