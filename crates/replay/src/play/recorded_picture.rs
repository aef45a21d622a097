//! Pictures of an env that does not draw itself, made from images that are part of the observation.

use rollhouse_core::{ColumnSpec, DType};
use rollhouse_env::{Image, ImageSize, RenderError};

/// The column of an observation that is an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordedPicture {
    pub(crate) column: usize,
    pub(crate) size: ImageSize,
    /// Bytes of a pixel: 3 for red, green and blue, 1 for grey.
    channels: usize,
}

impl RecordedPicture {
    /// Finds the first column that is an image: height, width and three bytes a pixel, or one.
    pub(crate) fn of(columns: &[ColumnSpec]) -> Option<Self> {
        columns.iter().enumerate().find_map(|(column, spec)| {
            let (height, width, channels) = match *spec.shape {
                [height, width] => (height, width, 1),
                [height, width, channels @ (1 | 3)] => (height, width, channels),
                _ => return None,
            };
            let size = ImageSize::new(width, height).ok().filter(|_| spec.dtype == DType::U8)?;
            Some(Self { column, size, channels })
        })
    }

    /// Describes a picture of three bytes a pixel that is no column.
    pub(crate) const fn rgb(size: ImageSize) -> Self {
        Self { column: 0, size, channels: 3 }
    }

    /// Returns an image of `size`; each of its pixels is the nearest one in a row of the column.
    pub(crate) fn scaled(&self, bytes: &[u8], size: ImageSize) -> Result<Image, RenderError> {
        let (from, channels) = (self.size, self.channels);
        let mut pixels = Vec::with_capacity(size.bytes());
        let columns: Vec<usize> = (0..size.width()).map(|x| x * from.width() / size.width()).collect();
        for y in 0..size.height() {
            let row = y * from.height() / size.height() * from.width();
            for x in &columns {
                let at = (row + x) * channels;
                match bytes.get(at..at + channels) {
                    Some(&[red, green, blue]) => pixels.extend([red, green, blue]),
                    Some(&[grey]) => pixels.extend([grey; 3]),
                    _ => pixels.extend([0; 3]),
                }
            }
        }
        Image::new(size, pixels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_images_are_scaled_to_the_nearest_pixel() {
        let size = |width, height| ImageSize::new(width, height).unwrap();
        let picture = |size, channels| RecordedPicture { column: 0, size, channels };
        let grey = picture(size(2, 2), 1).scaled(&[1, 2, 3, 4], size(4, 2)).unwrap();
        let firsts: Vec<u8> = grey.pixels().chunks(3).map(|pixel| pixel[0]).collect();
        assert_eq!(firsts, [1, 1, 2, 2, 3, 3, 4, 4]);
        let rgb = picture(size(2, 1), 3).scaled(&[1, 2, 3, 4, 5, 6], size(1, 1)).unwrap();
        assert_eq!(rgb.pixels(), [1, 2, 3]);
    }
}
