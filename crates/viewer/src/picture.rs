//! Drawing a picture in the cells of a terminal.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Color;
use rollhouse_env::{Image, ImageSize};

use crate::look::Look;

/// Returns the pixels of `area`, two to a cell, that a picture of the form of `natural` fills best.
pub(crate) fn fitted(area: Rect, natural: ImageSize) -> Option<ImageSize> {
    let (width, height) = (usize::from(area.width), usize::from(area.height) * 2);
    let (form_width, form_height) = (natural.width(), natural.height());
    let wide = (width, (width * form_height / form_width).max(2));
    let (width, height) =
        if wide.1 <= height { wide } else { ((height * form_width / form_height).max(1), height) };
    ImageSize::new(width * FINER, height / 2 * 2 * FINER).ok()
}

/// Draws a picture of a size that [`fitted`] gave, in the middle of `area`.
pub(crate) fn draw(image: &Image, area: Rect, look: Look, buffer: &mut Buffer) {
    let (width, rows) = (image.width() / FINER, image.height() / FINER / 2);
    let left = area.x + area.width.saturating_sub(width as u16) / 2;
    let top = area.y + area.height.saturating_sub(rows as u16) / 2;
    let ground = pixel(image, 0, 0);
    for row in 0..rows {
        for column in 0..width {
            let place = (left + column as u16, top + row as u16);
            let Some(cell) = buffer.cell_mut(place).filter(|_| area.contains(place.into())) else { continue };
            let (upper, lower) = (pixel(image, column, row * 2), pixel(image, column, row * 2 + 1));
            match look {
                Look::Colour => {
                    cell.set_symbol("▀").set_fg(rgb(upper)).set_bg(rgb(lower));
                }
                Look::Plain => {
                    let far = distance(upper, ground).max(distance(lower, ground));
                    let level = (far * (SHADES.len() - 1)).div_ceil(FARTHEST).min(SHADES.len() - 1);
                    cell.set_symbol(SHADES[level]);
                }
            }
        }
    }
}

/// Returns the mean colour of the finer pixels of one pixel.
fn pixel(image: &Image, column: usize, row: usize) -> [u8; 3] {
    let mut sums = [0_usize; 3];
    for y in row * FINER..(row + 1) * FINER {
        let start = (y * image.width() + column * FINER) * 3;
        let line = image.pixels().get(start..start + FINER * 3).unwrap_or_default();
        for pixel in line.chunks_exact(3) {
            sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += usize::from(*value));
        }
    }
    sums.map(|sum| (sum / (FINER * FINER)) as u8)
}

const fn rgb([red, green, blue]: [u8; 3]) -> Color {
    Color::Rgb(red, green, blue)
}

fn distance(a: [u8; 3], b: [u8; 3]) -> usize {
    a.iter().zip(b).map(|(a, b)| usize::from(a.abs_diff(b))).sum()
}

/// Pixels of the env's picture that make one pixel, in each direction: their mean has softer edges.
const FINER: usize = 2;
/// The greatest distance of two colours.
const FARTHEST: usize = 255 * 3;
/// Characters from the background's colour to the colour farthest from it.
const SHADES: [&str; 6] = [" ", "·", "+", "o", "#", "@"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_keeps_its_form_and_fills_one_side() {
        let area = Rect::new(0, 0, 60, 15);
        for (natural, wanted) in [((600, 400), (45, 30)), ((160, 160), (30, 30)), ((400, 100), (60, 14))] {
            let size = fitted(area, ImageSize::new(natural.0, natural.1).unwrap()).unwrap();
            assert_eq!((size.width() / FINER, size.height() / FINER), wanted);
        }
    }

    #[test]
    fn each_cell_has_its_upper_and_its_lower_pixel() {
        let size = ImageSize::new(2 * FINER, 2 * FINER).unwrap();
        let mut pixels = vec![0; size.bytes()];
        // The upper right pixel is red.
        for (x, y) in [(2, 0), (3, 0), (2, 1), (3, 1)] {
            pixels[(y * 4 + x) * 3] = 255;
        }
        let image = Image::new(size, pixels).unwrap();
        let area = Rect::new(0, 0, 2, 1);
        let mut buffer = Buffer::empty(area);
        draw(&image, area, Look::Colour, &mut buffer);
        assert_eq!((buffer[(1, 0)].fg, buffer[(1, 0)].bg), (Color::Rgb(255, 0, 0), Color::Rgb(0, 0, 0)));
        assert_eq!(buffer[(0, 0)].fg, Color::Rgb(0, 0, 0));
        let mut buffer = Buffer::empty(area);
        draw(&image, area, Look::Plain, &mut buffer);
        assert_eq!((buffer[(0, 0)].symbol(), buffer[(1, 0)].symbol()), (" ", "+"));
    }
}
