//! The method that draws a lane.

use std::fmt;

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_zlib_with_limit};
use rollhouse_core::messages;
use rollhouse_env::{Image, ImageSize, RenderError};
use serde::{Deserialize, Serialize};

use crate::command::{CommandError, CommandLanes, Effect, Method};
use crate::error::StepError;

/// Method that draws a lane.
#[derive(Debug, Clone, Copy)]
pub struct Render;

/// Params of [`Render`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RenderParams {
    /// Lane to draw.
    pub lane: u32,
    /// Columns and rows of the image; the env's own size if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<(u32, u32)>,
    /// True if the caller reads [packed](RenderAnswer::packed) pixels.
    #[serde(default, skip_serializing_if = "is_false")]
    pub packed: bool,
}

/// Answer of [`Render`], an RGB image.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderAnswer {
    /// Number of rows.
    pub height: u32,
    /// Number of columns.
    pub width: u32,
    /// Pixels as `height x width x 3` bytes, row-major, top row first.
    #[serde(with = "serde_bytes")]
    pub pixels: Vec<u8>,
    /// True if `pixels` are those bytes compressed, as a zlib stream (RFC 1950).
    #[serde(default, skip_serializing_if = "is_false")]
    pub packed: bool,
}

impl Method for Render {
    const NAME: &'static str = "render";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::None;
    type Params = RenderParams;
    type Answer = RenderAnswer;

    fn run(lanes: &mut CommandLanes<'_>, params: RenderParams) -> Result<RenderAnswer, CommandError> {
        let RenderParams { lane, size, packed } = params;
        let lane = lane as usize;
        let size = size.map(|(width, height)| ImageSize::new(width as usize, height as usize)).transpose();
        let size = size.map_err(|source| StepError::Render { lane, source })?;
        let answer = RenderAnswer::of(lanes.engine.render(lane, size)?);
        Ok(if packed { answer.pack() } else { answer })
    }
}

impl RenderAnswer {
    fn of(image: Image) -> Self {
        let (height, width) = (image.height() as u32, image.width() as u32);
        Self { height, width, pixels: image.into_pixels(), packed: false }
    }

    fn pack(self) -> Self {
        Self { pixels: compress_to_vec_zlib(&self.pixels, LEVEL), packed: true, ..self }
    }

    /// Returns the image, unpacked if it is packed. It never allocates more bytes than an image of the stated size has.
    ///
    /// # Errors
    /// If no image has that size, or the pixels do not fill it.
    pub fn image(self) -> Result<Image, UnpackError> {
        let size = ImageSize::new(self.width as usize, self.height as usize).map_err(UnpackError::Image)?;
        let pixels = match self.packed {
            true => decompress_to_vec_zlib_with_limit(&self.pixels, size.bytes())
                .map_err(|error| UnpackError::Packed(error.status))?,
            false => self.pixels,
        };
        Image::new(size, pixels).map_err(UnpackError::Image)
    }
}

impl fmt::Debug for RenderAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { height, width, pixels, packed } = self;
        let mut shown = f.debug_struct("RenderAnswer");
        shown.field("height", height).field("width", width).field("bytes", &pixels.len());
        shown.field("packed", packed).finish()
    }
}

/// Reason for which an answer is no image.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// No image has the answer's size, or that number of bytes.
    #[error(transparent)]
    Image(RenderError),
    /// The pixels are no zlib stream, or one of more bytes than the image has.
    #[error("packed pixels are no zlib stream of an image of that size: {0:?}")]
    Packed(TINFLStatus),
}

/// Level of zlib's compression, the fastest one: drawings have few colours, and pack to about a hundredth.
const LEVEL: u8 = 1;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

messages!(RenderAnswer, RenderParams);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(width: u32, height: u32, pixels: Vec<u8>, packed: bool) -> RenderAnswer {
        RenderAnswer { height, width, pixels, packed }
    }

    #[test]
    fn a_packed_image_is_the_same_image() {
        let pixels: Vec<u8> = (0..64 * 48 * 3).map(|at| (at / 1000) as u8).collect();
        let packed = answer(64, 48, pixels.clone(), false).pack();
        assert!(packed.packed && packed.pixels.len() < pixels.len() / 10);
        assert_eq!(packed.image().unwrap().into_pixels(), pixels);
    }

    #[test]
    fn what_is_no_image_of_its_size_is_refused_before_more_is_allocated() {
        // A thousandth of what it says it is unpacked to.
        let bomb = compress_to_vec_zlib(&vec![0; 16 << 20], 6);
        assert!(matches!(answer(64, 48, bomb, true).image(), Err(UnpackError::Packed(_))));
        let short = compress_to_vec_zlib(&[0; 12], 6);
        assert!(matches!(answer(64, 48, short, true).image(), Err(UnpackError::Image(_))));
        assert!(matches!(answer(2, 2, vec![1, 2, 3], true).image(), Err(UnpackError::Packed(_))));
        assert!(matches!(answer(2, 2, vec![0; 11], false).image(), Err(UnpackError::Image(_))));
        for (width, height) in [(0, 1), (1, 0), (u32::MAX, u32::MAX)] {
            assert!(matches!(answer(width, height, Vec::new(), true).image(), Err(UnpackError::Image(_))));
        }
    }
}
