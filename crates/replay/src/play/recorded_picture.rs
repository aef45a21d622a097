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

    /// Returns an image of `size`, made of a row of the column.
    pub(crate) fn scaled(&self, bytes: &[u8], size: ImageSize) -> Result<Image, RenderError> {
        let pixels = match self.channels {
            1 => bytes.iter().flat_map(|&grey| [grey; 3]).collect(),
            _ => bytes.to_vec(),
        };
        Image::new(self.size, pixels)?.scaled(size)
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
