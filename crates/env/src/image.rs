//! Images that an env draws of itself.

use std::fmt;

/// An RGB image of one lane: `height x width x 3` bytes, row-major, top row first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    size: ImageSize,
    pixels: Vec<u8>,
}

impl Image {
    /// Makes an image of three bytes a pixel.
    ///
    /// # Errors
    /// [`RenderError::Bytes`] of another number of bytes.
    pub fn new(size: ImageSize, pixels: Vec<u8>) -> Result<Self, RenderError> {
        match pixels.len() == size.bytes() {
            true => Ok(Self { size, pixels }),
            false => Err(RenderError::Bytes { size, bytes: pixels.len() }),
        }
    }

    /// Returns the size in pixels.
    pub const fn size(&self) -> ImageSize {
        self.size
    }

    /// Returns the number of rows.
    pub const fn height(&self) -> usize {
        self.size.height
    }

    /// Returns the number of columns.
    pub const fn width(&self) -> usize {
        self.size.width
    }

    /// Returns the image in another size; each of its pixels is the one on which its upper left corner falls.
    ///
    /// # Errors
    /// None of a size that was checked.
    pub fn scaled(self, size: ImageSize) -> Result<Self, RenderError> {
        if size == self.size {
            return Ok(self);
        }
        let from = self.size;
        let mut pixels = Vec::with_capacity(size.bytes());
        let columns: Vec<usize> = (0..size.width).map(|x| x * from.width / size.width).collect();
        for y in 0..size.height {
            let row = y * from.height / size.height * from.width;
            for x in &columns {
                pixels.extend(&self.pixels[(row + x) * 3..][..3]);
            }
        }
        Self::new(size, pixels)
    }

    /// Returns the bytes: red, green and blue of each pixel.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Returns the bytes alone.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }
}

/// Size that an [`Image`] may have: each side is 1 to [`MAX_IMAGE_SIDE`] pixels, and there are at most
/// [`MAX_RENDER_PIXELS`] pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageSize {
    width: usize,
    height: usize,
}

/// Maximum number of pixels on a side of an [`Image`].
pub const MAX_IMAGE_SIDE: usize = 4096;

/// Maximum number of pixels in an [`Image`]: a little more than 3840 x 2160. Such an image takes 24 MiB, and 32 MiB
/// more while it is drawn.
pub const MAX_RENDER_PIXELS: usize = 8 << 20;

impl ImageSize {
    /// Checks a size in pixels.
    ///
    /// # Errors
    /// [`RenderError::Size`] of one that is out of bounds.
    pub const fn new(width: usize, height: usize) -> Result<Self, RenderError> {
        match is_side(width) && is_side(height) && width * height <= MAX_RENDER_PIXELS {
            true => Ok(Self { width, height }),
            false => Err(RenderError::Size { width, height }),
        }
    }

    /// Returns the number of columns.
    pub const fn width(self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub const fn height(self) -> usize {
        self.height
    }

    /// Returns the number of bytes in an image of that size.
    pub const fn bytes(self) -> usize {
        self.width * self.height * 3
    }
}

const fn is_side(pixels: usize) -> bool {
    1 <= pixels && pixels <= MAX_IMAGE_SIDE
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// Reason for which an env has no image of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The env does not draw itself.
    #[error("the env does not draw itself")]
    Unsupported,
    /// The lane is lost, and has no state until it is revived.
    #[error("the lane is lost")]
    Lost,
    /// No image has that size.
    #[error(
        "an image cannot have {width} x {height} pixels: a side has 1 to {MAX_IMAGE_SIDE}, the whole at most \
         {MAX_RENDER_PIXELS}"
    )]
    Size {
        /// Number of columns that were asked for.
        width: usize,
        /// Number of rows that were asked for.
        height: usize,
    },
    /// The image has another number of bytes than its size takes.
    #[error("{bytes} bytes given for an RGB image of {size} pixels, which takes {wanted}", wanted = .size.bytes())]
    Bytes {
        /// Size of the image.
        size: ImageSize,
        /// Number of bytes that were given.
        bytes: usize,
    },
}
