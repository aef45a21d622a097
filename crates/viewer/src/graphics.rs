//! Pictures of pixels, on terminals that can show them.

use std::io::{self, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ratatui_core::layout::Rect;
use rollhouse_env::{Image, ImageSize};

use crate::sixel;

/// A protocol for showing pictures of pixels on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Kitty's graphics protocol, <https://sw.kovidgoyal.net/kitty/graphics-protocol/>.
    Kitty,
    /// iTerm2's inline images, <https://iterm2.com/documentation-images.html>.
    Iterm,
    /// Sixels.
    Sixel,
}

/// A terminal that takes pictures of pixels, and the picture that it shows.
#[derive(Debug)]
pub(crate) struct Graphics {
    protocol: Protocol,
    /// Width and height of a cell in pixels.
    cell: (usize, usize),
    shown: Option<(Rect, Image)>,
}

impl Graphics {
    /// Makes the graphics of a terminal, with no picture shown. `cell` is the width and height of a cell in pixels, if
    /// the terminal has told.
    pub(crate) fn new(protocol: Protocol, cell: Option<(usize, usize)>) -> Self {
        let cell = cell.filter(|&(width, height)| width > 0 && height > 0);
        Self { protocol, cell: cell.unwrap_or(USUAL_CELL), shown: None }
    }

    /// Returns the cells in the middle of `area` that a picture of the form of `natural` fills best, and the size to
    /// draw it in.
    pub(crate) fn fitted(&self, area: Rect, natural: ImageSize) -> Option<(Rect, ImageSize)> {
        let (cell_width, cell_height) = self.cell;
        let (width, height) = (usize::from(area.width) * cell_width, usize::from(area.height) * cell_height);
        let (form_width, form_height) = (natural.width(), natural.height());
        let width = width.min(height * form_width / form_height).min(MOST_PIXELS);
        let height = (width * form_height / form_width).min(MOST_PIXELS);
        let size = ImageSize::new(width, height).ok()?;
        let columns = area.width.min(width.div_ceil(cell_width) as u16);
        let rows = area.height.min(height.div_ceil(cell_height) as u16);
        let (x, y) = (area.x + (area.width - columns) / 2, area.y + (area.height - rows) / 2);
        Some((Rect::new(x, y, columns, rows), size))
    }

    /// Shows a picture in `cells`, which hold nothing else; a picture that is shown already is not sent again.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub(crate) fn show(&mut self, image: Image, cells: Rect, out: &mut dyn Write) -> io::Result<()> {
        if self.shown.as_ref().is_some_and(|(at, shown)| *at == cells && *shown == image) {
            return Ok(());
        }
        // The cursor goes to the first cell, whose number is 1 for terminals, and back.
        write!(out, "\x1b7\x1b[{};{}H", cells.y + 1, cells.x + 1)?;
        match self.protocol {
            Protocol::Kitty => write_kitty(&png(&image)?, cells, out)?,
            Protocol::Iterm => write_iterm(&png(&image)?, cells, out)?,
            Protocol::Sixel => sixel::write(&image, out)?,
        }
        out.write_all(b"\x1b8")?;
        self.shown = Some((cells, image));
        Ok(())
    }

    /// Returns whether something of the picture would be left on the screen if the next one, if there is one, were
    /// shown in `next`: then the screen has to be cleared.
    pub(crate) fn leaves_rest(&self, next: Option<Rect>) -> bool {
        let was = self.shown.as_ref().map(|(cells, _)| *cells);
        self.protocol != Protocol::Kitty && was.is_some() && was != next
    }

    /// Removes the picture, if one is shown and the terminal can remove it.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub(crate) fn hide(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match (self.shown.take(), self.protocol) {
            (Some(_), Protocol::Kitty) => write!(out, "\x1b_Ga=d,d=I,i={PICTURE},q=2;\x1b\\"),
            _ => Ok(()),
        }
    }

    /// Notes that the screen was cleared, and the picture with it.
    pub(crate) fn forget(&mut self) {
        self.shown = None;
    }
}

/// Encodes a picture as a PNG file.
fn png(image: &Image) -> io::Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, image.width() as u32, image.height() as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    encoder.write_header()?.write_image_data(image.pixels())?;
    Ok(file)
}

/// Shows a picture by kitty's protocol, in place of the one before it: a terminal holds one picture by that number.
fn write_kitty(file: &[u8], cells: Rect, out: &mut dyn Write) -> io::Result<()> {
    let text = BASE64_STANDARD.encode(file);
    let mut chunks = text.as_bytes().chunks(KITTY_CHUNK).peekable();
    let mut control =
        format!("a=T,f=100,i={PICTURE},p={PICTURE},c={},r={},C=1,q=2,", cells.width, cells.height);
    while let Some(chunk) = chunks.next() {
        let more = u8::from(chunks.peek().is_some());
        write!(out, "\x1b_G{control}m={more};")?;
        out.write_all(chunk)?;
        out.write_all(b"\x1b\\")?;
        control.clear();
    }
    Ok(())
}

fn write_iterm(file: &[u8], cells: Rect, out: &mut dyn Write) -> io::Result<()> {
    let (width, height, text) = (cells.width, cells.height, BASE64_STANDARD.encode(file));
    write!(
        out,
        "\x1b]1337;File=inline=1;size={};width={width};height={height};preserveAspectRatio=0;doNotMoveCursor=1:{text}\x07",
        file.len()
    )
}

/// Width and height of a cell in pixels where the terminal does not tell.
const USUAL_CELL: (usize, usize) = (10, 20);
/// Most pixels of a picture in width and height: it is sent anew with every step.
const MOST_PIXELS: usize = 640;
/// Number of the viewer's picture among those of a terminal.
const PICTURE: u32 = 1;
/// Most bytes that kitty's protocol takes at once.
const KITTY_CHUNK: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn image(width: usize, height: usize) -> Image {
        let pixels = (0..width * height).flat_map(|at| [at as u8, (at / width * 9) as u8, (at * at) as u8]);
        Image::new(ImageSize::new(width, height).unwrap(), pixels.collect()).unwrap()
    }

    fn read_png(file: &[u8]) -> Vec<u8> {
        let mut reader = png::Decoder::new(io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        pixels
    }

    fn sent(protocol: Protocol, image: &Image, cells: Rect) -> String {
        let mut out = Vec::new();
        Graphics::new(protocol, None).show(image.clone(), cells, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn kitty_is_sent_the_picture_in_chunks_of_the_size_that_it_takes() {
        let image = image(200, 90);
        let sent = sent(Protocol::Kitty, &image, Rect::new(3, 4, 20, 9));
        let (chunks, mut text) = (sent.split("\x1b_G").skip(1), String::new());
        let count = chunks.clone().count();
        for (number, chunk) in chunks.enumerate() {
            let (control, part) = chunk.split_once("\x1b\\").unwrap().0.split_once(';').unwrap();
            assert_eq!(
                control.contains("a=T,f=100,") && control.contains("c=20,r=9,"),
                number == 0,
                "{control}"
            );
            assert!(control.ends_with(if number + 1 == count { "m=0" } else { "m=1" }), "{control}");
            assert!(part.len() <= 4096);
            text.push_str(part);
        }
        assert!(count > 1 && sent.starts_with("\x1b7\x1b[5;4H"), "{count}");
        assert!(read_png(&BASE64_STANDARD.decode(text).unwrap()) == image.pixels());
    }

    #[test]
    fn iterm_is_sent_a_file_and_the_cells_that_it_is_to_fill() {
        let image = image(50, 30);
        let sent = sent(Protocol::Iterm, &image, Rect::new(0, 0, 5, 2));
        let (_, rest) = sent.split_once("\x1b]1337;File=").unwrap();
        let (arguments, text) = rest.split_once('\x07').unwrap().0.split_once(':').unwrap();
        let file = BASE64_STANDARD.decode(text).unwrap();
        assert!(arguments.contains(&format!("size={};width=5;height=2;", file.len())), "{arguments}");
        assert!(read_png(&file) == image.pixels());
    }

    #[test]
    fn what_is_shown_already_is_not_sent_again() {
        let (image, cells) = (image(8, 8), Rect::new(1, 1, 2, 1));
        for protocol in [Protocol::Kitty, Protocol::Iterm, Protocol::Sixel] {
            let mut graphics = Graphics::new(protocol, None);
            let bytes = |graphics: &mut Graphics| {
                let mut out = Vec::new();
                graphics.show(image.clone(), cells, &mut out).unwrap();
                out.len()
            };
            assert!(bytes(&mut graphics) > 0 && bytes(&mut graphics) == 0);
            graphics.forget();
            assert!(bytes(&mut graphics) > 0);
        }
    }

    #[test]
    fn a_picture_keeps_its_form_and_stays_in_its_cells() {
        let form = ImageSize::new(600, 400).unwrap();
        for cell in [None, Some((9, 18)), Some((1, 1)), Some((200, 400))] {
            let graphics = Graphics::new(Protocol::Kitty, cell);
            for (width, height) in [(1, 1), (48, 20), (300, 12), (20, 90), (400, 200)] {
                let area = Rect::new(2, 3, width, height);
                let Some((cells, size)) = graphics.fitted(area, form) else { continue };
                assert_eq!(cells.intersection(area), cells, "{cell:?} {area}");
                assert!(size.width() <= usize::from(cells.width) * graphics.cell.0, "{cell:?} {area}");
                let form = size.width() as f64 / size.height() as f64;
                assert!(size.height() < 20 || (form - 1.5).abs() < 0.1, "{cell:?} {area}: {size:?}");
            }
            assert_eq!(graphics.fitted(Rect::new(0, 0, 0, 5), form), None);
        }
    }
}
