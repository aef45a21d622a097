//! Pictures of lanes that cannot be drawn again, as they stand in a recording.

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;

use rollhouse_env::{Image, ImageSize, RenderError};

use crate::limits::{EPISODE_FRAMES_BYTES, MAX_FRAME_BYTES, MAX_FRAME_PIXELS};

/// A recorded picture: a PNG of 8-bit RGB. Clones share its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame(Arc<[u8]>);

/// An error: a picture is not recorded, or a recorded one cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The picture is too large to be recorded with every few steps.
    #[error("a picture of {width} x {height} pixels; at most {MAX_FRAME_PIXELS} are recorded")]
    TooLarge {
        /// Width in pixels.
        width: usize,
        /// Height in pixels.
        height: usize,
    },
    /// The packed picture has too many bytes: this many.
    #[error("a picture of {0} bytes as a file; at most {MAX_FRAME_BYTES} are recorded")]
    TooLong(usize),
    /// No image has that size.
    #[error(transparent)]
    Image(#[from] RenderError),
    /// The picture could not be packed.
    #[error("the picture could not be packed")]
    Pack(#[from] png::EncodingError),
    /// The recorded picture is damaged.
    #[error("the recorded picture cannot be unpacked")]
    Unpack(#[from] png::DecodingError),
    /// The recorded picture has another pixel format than recorders write.
    #[error("the recorded picture is not 8-bit RGB")]
    Kind,
}

type PngReader<'a> = png::Reader<Cursor<&'a [u8]>>;

impl Frame {
    /// Packs an image, without loss. A usual image takes 1 to 5 ms.
    ///
    /// # Errors
    /// If it has more than [`MAX_FRAME_PIXELS`] pixels.
    pub fn pack(image: &Image) -> Result<Self, FrameError> {
        let (width, height) = (image.width(), image.height());
        if width * height > MAX_FRAME_PIXELS {
            return Err(FrameError::TooLarge { width, height });
        }
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(image.pixels())?;
        writer.finish()?;
        Self::of_bytes(bytes)
    }

    /// Takes the bytes of a picture that was packed already; they are checked only when they are unpacked.
    ///
    /// # Errors
    /// If there are more than [`MAX_FRAME_BYTES`] bytes.
    pub fn of_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Self, FrameError> {
        let bytes = bytes.into();
        if bytes.len() > MAX_FRAME_BYTES { Err(FrameError::TooLong(bytes.len())) } else { Ok(Self(bytes)) }
    }

    /// Returns the bytes of the picture: a PNG file.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the size of the image.
    ///
    /// # Errors
    /// As [`Frame::unpack`].
    pub fn size(&self) -> Result<ImageSize, FrameError> {
        Ok(self.reader()?.1)
    }

    /// Unpacks the image.
    ///
    /// # Errors
    /// If its bytes are no such image, or one of more than [`MAX_FRAME_PIXELS`] pixels.
    pub fn unpack(&self) -> Result<Image, FrameError> {
        let (mut reader, size) = self.reader()?;
        let mut pixels = vec![0; size.bytes()];
        if reader.output_buffer_size() != Some(pixels.len()) {
            return Err(FrameError::Kind);
        }
        reader.next_frame(&mut pixels)?;
        Ok(Image::new(size, pixels)?)
    }

    fn reader(&self) -> Result<(PngReader<'_>, ImageSize), FrameError> {
        let limits = png::Limits { bytes: UNPACKING_BYTES };
        let reader = png::Decoder::new_with_limits(Cursor::new(&*self.0), limits).read_info()?;
        let (width, height) = (reader.info().width as usize, reader.info().height as usize);
        if width.saturating_mul(height) > MAX_FRAME_PIXELS {
            return Err(FrameError::TooLarge { width, height });
        }
        if reader.output_color_type() != (png::ColorType::Rgb, png::BitDepth::Eight) {
            return Err(FrameError::Kind);
        }
        Ok((reader, ImageSize::new(width, height)?))
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes, {:08x})", self.0.len(), crc32c::crc32c(&self.0))
    }
}

/// The recorded pictures of an episode, in the order of their steps. At most [`EPISODE_FRAMES_BYTES`] are held: if a
/// recording has more, only every second picture, every fourth, and so on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frames {
    frames: Vec<(u64, Frame)>,
    bytes: usize,
    /// Pictures that are left out after each one that is held.
    skips: u64,
    /// Number of pictures that were added.
    count: u64,
}

impl Frames {
    pub(crate) const fn new() -> Self {
        Self { frames: Vec::new(), bytes: 0, skips: 0, count: 0 }
    }

    /// Adds the picture of a step after all others'; a picture of an earlier step is left out.
    pub(crate) fn push(&mut self, step: u64, frame: Frame) {
        if self.frames.last().is_some_and(|&(last, _)| last >= step) {
            return;
        }
        let is_held = self.count.is_multiple_of(self.skips + 1);
        self.count += 1;
        if !is_held {
            return;
        }
        self.bytes += frame.0.len();
        self.frames.push((step, frame));
        while self.bytes > EPISODE_FRAMES_BYTES && self.frames.len() > 1 {
            self.thin();
        }
    }

    fn thin(&mut self) {
        let mut index = 0;
        self.frames.retain(|_| {
            index += 1;
            index % 2 == 1
        });
        self.skips = self.skips * 2 + 1;
        self.bytes = self.frames.iter().map(|(_, frame)| frame.0.len()).sum();
    }

    /// Returns whether there are no pictures.
    pub const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the pictures, each with its step.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &Frame)> {
        self.frames.iter().map(|(step, frame)| (*step, frame))
    }

    /// Returns the last picture at or before a step, with its own step; before all pictures it is the first.
    pub fn at(&self, step: u64) -> Option<(u64, &Frame)> {
        let behind = self.frames.partition_point(|&(at, _)| at <= step);
        self.frames.get(behind.saturating_sub(1)).map(|(at, frame)| (*at, frame))
    }

    /// Returns the picture of exactly that step.
    pub(crate) fn of(&self, step: u64) -> Option<&Frame> {
        self.at(step).filter(|&(at, _)| at == step).map(|(_, frame)| frame)
    }
}

impl FromIterator<(u64, Frame)> for Frames {
    /// Gathers pictures in the order of their steps.
    fn from_iter<I: IntoIterator<Item = (u64, Frame)>>(pictures: I) -> Self {
        let mut frames = Self::new();
        pictures.into_iter().for_each(|(step, frame)| frames.push(step, frame));
        frames
    }
}

/// Bytes of memory that unpacking a picture may take beside its pixels.
const UNPACKING_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: usize) -> Frame {
        Frame::of_bytes(vec![7; len]).unwrap()
    }

    fn image(width: usize, height: usize) -> Image {
        let size = ImageSize::new(width, height).unwrap();
        Image::new(size, (0..size.bytes()).map(|at| (at * 7 % 251) as u8).collect()).unwrap()
    }

    #[test]
    fn an_image_comes_back_as_it_was() {
        for (width, height) in [(1, 1), (37, 5), (600, 400)] {
            let image = image(width, height);
            let packed = Frame::pack(&image).unwrap();
            assert_eq!(packed.unpack().unwrap(), image);
            assert_eq!(packed.size().unwrap(), image.size());
        }
    }

    #[test]
    fn what_is_too_large_is_refused_with_the_limit() {
        let error = Frame::pack(&image(2048, 1024)).unwrap_err().to_string();
        assert!(error.contains("2048 x 1024") && error.contains(&MAX_FRAME_PIXELS.to_string()), "{error}");
        let error = Frame::of_bytes(vec![0; MAX_FRAME_BYTES + 1]).unwrap_err().to_string();
        assert!(error.contains(&MAX_FRAME_BYTES.to_string()), "{error}");
    }

    #[test]
    fn damaged_bytes_and_pictures_of_another_kind_are_errors() {
        let whole = Frame::pack(&image(40, 30)).unwrap();
        // The last 16 bytes are the checksum of the pixels and the mark of the end.
        for cut in 0..whole.bytes().len() - 16 {
            assert!(Frame::of_bytes(&whole.bytes()[..cut]).unwrap().unpack().is_err(), "cut at {cut}");
        }
        let mut bytes = Vec::new();
        png::Encoder::new(&mut bytes, 2, 2).write_header().unwrap().write_image_data(&[1, 2, 3, 4]).unwrap();
        let grey = Frame::of_bytes(bytes).unwrap();
        assert!(matches!(grey.unpack(), Err(FrameError::Kind)));
        let mut bytes = Vec::new();
        // A file of few bytes that says it has billions of pixels.
        png::Encoder::new(&mut bytes, 1 << 20, 1 << 20).write_header().unwrap();
        assert!(Frame::of_bytes(bytes).unwrap().unpack().is_err());
    }

    #[test]
    fn the_picture_of_a_step_is_the_last_one_before_it() {
        let mut frames = Frames::default();
        assert_eq!(frames.at(5), None);
        for step in [0, 4, 8, 9, 9, 3] {
            frames.push(step, frame(step as usize + 1));
        }
        let found = |step| frames.at(step).map(|(at, frame)| (at, frame.bytes().len()));
        assert_eq!(found(0), Some((0, 1)));
        assert_eq!(found(3), Some((0, 1)));
        assert_eq!(found(4), Some((4, 5)));
        assert_eq!(found(u64::MAX), Some((9, 10)));
        assert_eq!((frames.of(8).is_some(), frames.of(7).is_some()), (true, false));
    }

    #[test]
    fn of_pictures_that_take_too_much_every_second_is_held() {
        let mut frames = Frames::default();
        let one = frame(1 << 20);
        let most = (EPISODE_FRAMES_BYTES >> 20) as u64;
        for step in 0..3 * most {
            frames.push(step * 5, one.clone());
        }
        assert!(frames.bytes <= EPISODE_FRAMES_BYTES && frames.iter().len() as u64 > most / 2);
        let steps: Vec<u64> = frames.iter().map(|(step, _)| step).collect();
        assert!(steps.iter().enumerate().all(|(index, &step)| step == index as u64 * 20), "{steps:?}");
    }
}
