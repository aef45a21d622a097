//! Images an env shows of itself.

use std::fmt;

/// An RGB image of one lane: `height x width x 3` bytes, row-major, top row first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    height: usize,
    width: usize,
    pixels: Vec<u8>,
}

impl Image {
    /// An image of `height * width * 3` bytes.
    ///
    /// # Errors
    /// Another number of bytes, or a side of 0 or more than [`MAX_IMAGE_SIDE`].
    pub fn new(height: usize, width: usize, pixels: Vec<u8>) -> Result<Self, RenderError> {
        let sides = 1..=MAX_IMAGE_SIDE;
        if !sides.contains(&height) || !sides.contains(&width) || pixels.len() != height * width * 3 {
            return Err(RenderError::Size { height, width, bytes: pixels.len() });
        }
        Ok(Self { height, width, pixels })
    }

    /// Rows.
    pub const fn height(&self) -> usize {
        self.height
    }

    /// Columns.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// The bytes: red, green, blue of each pixel.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The bytes alone.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }
}

/// Pixels of the longest side of an [`Image`].
pub const MAX_IMAGE_SIDE: usize = 4096;

/// Why an env has no image of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderError {
    /// The env does not draw itself.
    Unsupported,
    /// The lane is lost.
    Lost,
    /// Height, width and bytes do not belong together, or a side is out of bounds.
    Size {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// Bytes given.
        bytes: usize,
    },
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the env does not draw itself"),
            Self::Lost => f.write_str("the lane is lost"),
            Self::Size { height, width, bytes } => write!(
                f,
                "{bytes} bytes are no RGB image of {height} x {width} pixels, each side 1 to {MAX_IMAGE_SIDE}"
            ),
        }
    }
}

impl std::error::Error for RenderError {}

/// Draws an [`Image`].
pub(crate) struct Painter {
    image: Image,
}

impl Painter {
    /// An image of one colour.
    ///
    /// # Panics
    /// If a side is 0 or more than [`MAX_IMAGE_SIDE`].
    pub(crate) fn new(height: usize, width: usize, colour: [u8; 3]) -> Self {
        assert!((1..=MAX_IMAGE_SIDE).contains(&height) && (1..=MAX_IMAGE_SIDE).contains(&width));
        let pixels = colour.iter().copied().cycle().take(height * width * 3).collect();
        Self { image: Image { height, width, pixels } }
    }

    /// Fills a rectangle; what lies outside the image is left out.
    pub(crate) fn rectangle(
        &mut self,
        left: usize,
        top: usize,
        width: usize,
        height: usize,
        colour: [u8; 3],
    ) {
        let Image { height: rows, width: columns, pixels } = &mut self.image;
        for row in top..(top + height).min(*rows) {
            let (start, end) = (left.min(*columns), (left + width).min(*columns));
            for pixel in pixels[(row * *columns + start) * 3..(row * *columns + end) * 3].chunks_exact_mut(3)
            {
                pixel.copy_from_slice(&colour);
            }
        }
    }

    pub(crate) fn finish(self) -> Image {
        self.image
    }
}
