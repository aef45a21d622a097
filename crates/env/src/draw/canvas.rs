//! A canvas on which a scene draws shapes in its own units, by means of `tiny-skia`.
//!
//! Pixels are the same on every machine: `tiny-skia` is built without its vector code and works in singles and
//! integers, by operations that IEEE 754 fixes. The functions that it computes by a libm (rotations, gammas, cubics)
//! are not used here, and scenes take sines from this crate.

use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, Transform,
};

use crate::{Image, ImageSize};

/// Red, green and blue of an opaque colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Colour(pub(crate) u8, pub(crate) u8, pub(crate) u8);

/// A point of a scene: x to the right, y up.
pub(crate) type Point = (f64, f64);

/// Part of a scene, as a rectangle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) left: f64,
    pub(crate) bottom: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
}

/// A picture of a part of a scene. Shapes outside of that part, or with a coordinate that is no number, are left out.
pub(crate) struct Canvas {
    pixmap: Pixmap,
    size: ImageSize,
    /// Number of pixels that a unit of the scene takes.
    scale: f64,
    /// Point of the scene in the middle of the picture.
    middle: Point,
}

/// Distance in pixels outside of the picture beyond which a point's shape is left out. No scene has a shape that
/// reaches in from there, and singles tell pixels apart up to here.
const FAR: f64 = 1e5;

impl Canvas {
    /// Makes a picture of one colour that shows at least `view`, in its middle and as large as possible.
    pub(crate) fn new(size: ImageSize, view: View, background: Colour) -> Self {
        let (width, height) = (size.width() as f64, size.height() as f64);
        let scale = (width / (view.right - view.left)).min(height / (view.top - view.bottom));
        let middle = ((view.left + view.right) / 2.0, (view.bottom + view.top) / 2.0);
        let pixmap = Pixmap::new(size.width() as u32, size.height() as u32);
        let mut pixmap = pixmap.expect("an image has at least one pixel and far fewer than 2^31");
        pixmap.fill(Color::from_rgba8(background.0, background.1, background.2, u8::MAX));
        Self { pixmap, size, scale, middle }
    }

    /// Returns the part of the scene that the picture shows. It is more than was asked for where that has other
    /// proportions.
    pub(crate) fn view(&self) -> View {
        let (x, y) = self.middle;
        let half = |side: usize| side as f64 / (2.0 * self.scale);
        let (width, height) = (half(self.size.width()), half(self.size.height()));
        View { left: x - width, bottom: y - height, right: x + width, top: y + height }
    }

    /// Returns the larger of a length of the scene and a number of pixels, as a length of the scene: small pictures
    /// show small things larger than they are.
    pub(crate) fn at_least(&self, length: f64, pixels: f64) -> f64 {
        length.max(pixels / self.scale)
    }

    /// Returns the place of a point in the picture, from its upper left corner; None far outside.
    fn place(&self, (x, y): Point) -> Option<(f32, f32)> {
        let x = (x - self.middle.0) * self.scale + self.size.width() as f64 / 2.0;
        let y = (self.middle.1 - y) * self.scale + self.size.height() as f64 / 2.0;
        (x.abs() < FAR && y.abs() < FAR).then_some((x as f32, y as f32))
    }

    /// Draws a disc around `centre`.
    pub(crate) fn disc(&mut self, centre: Point, radius: f64, colour: Colour) {
        let Some((x, y)) = self.place(centre) else { return };
        self.fill(PathBuilder::from_circle(x, y, (radius * self.scale) as f32), colour);
    }

    /// Draws a circle around `centre` with a pen of that width.
    pub(crate) fn circle(&mut self, centre: Point, radius: f64, width: f64, colour: Colour) {
        let Some((x, y)) = self.place(centre) else { return };
        self.stroke(PathBuilder::from_circle(x, y, (radius * self.scale) as f32), width, colour);
    }

    /// Draws a line through points with a round pen of that width.
    pub(crate) fn line(&mut self, points: &[Point], width: f64, colour: Colour) {
        let path = self.path(points, false);
        self.stroke(path, width, colour);
    }

    /// Fills a polygon.
    pub(crate) fn polygon(&mut self, points: &[Point], colour: Colour) {
        let path = self.path(points, true);
        self.fill(path, colour);
    }

    /// Fills a rectangle whose edges lie on those of pixels, at least one pixel each way.
    pub(crate) fn rectangle(&mut self, (left, bottom): Point, (right, top): Point, colour: Colour) {
        let (Some(from), Some(to)) = (self.place((left, top)), self.place((right, bottom))) else { return };
        let (x, y) = (from.0.round(), from.1.round());
        let (width, height) = ((to.0.round() - x).max(1.0), (to.1.round() - y).max(1.0));
        if let Some(rect) = Rect::from_xywh(x, y, width, height) {
            self.pixmap.fill_rect(rect, &paint(colour, false), Transform::identity(), None);
        }
    }

    /// Fills a rectangle with round corners.
    pub(crate) fn rounded(
        &mut self,
        (left, bottom): Point,
        (right, top): Point,
        radius: f64,
        colour: Colour,
    ) {
        let inner = ((left + radius).min(right), (right - radius).max(left));
        let (low, high) = ((bottom + radius).min(top), (top - radius).max(bottom));
        for corner in [(inner.0, low), (inner.0, high), (inner.1, low), (inner.1, high)] {
            self.disc(corner, radius, colour);
        }
        self.polygon(&[(left, low), (left, high), (right, high), (right, low)], colour);
        self.polygon(&[(inner.0, bottom), (inner.0, top), (inner.1, top), (inner.1, bottom)], colour);
    }

    /// Returns the finished picture.
    pub(crate) fn finish(self) -> Image {
        let mut pixels = vec![0; self.size.bytes()];
        let drawn = self.pixmap.data().as_chunks::<4>().0;
        for (pixel, &[red, green, blue, _]) in pixels.as_chunks_mut().0.iter_mut().zip(drawn) {
            *pixel = [red, green, blue];
        }
        Image::new(self.size, pixels).expect("the pixmap was made in that size")
    }

    /// Returns the path through the points; None if a point is far outside or all points are the same.
    fn path(&self, points: &[Point], closed: bool) -> Option<Path> {
        let mut path = PathBuilder::with_capacity(points.len() + 1, points.len());
        for (index, &point) in points.iter().enumerate() {
            let (x, y) = self.place(point)?;
            if index == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
        }
        if closed {
            path.close();
        }
        path.finish()
    }

    fn fill(&mut self, path: Option<Path>, colour: Colour) {
        let Some(path) = path else { return };
        self.pixmap.fill_path(&path, &paint(colour, true), FillRule::Winding, Transform::identity(), None);
    }

    fn stroke(&mut self, path: Option<Path>, width: f64, colour: Colour) {
        let Some(path) = path else { return };
        let width = (width * self.scale) as f32;
        let stroke =
            Stroke { width, line_cap: LineCap::Round, line_join: LineJoin::Round, ..Stroke::default() };
        self.pixmap.stroke_path(&path, &paint(colour, true), &stroke, Transform::identity(), None);
    }
}

fn paint(colour: Colour, anti_alias: bool) -> Paint<'static> {
    let mut paint = Paint { anti_alias, ..Paint::default() };
    paint.set_color_rgba8(colour.0, colour.1, colour.2, u8::MAX);
    paint
}
