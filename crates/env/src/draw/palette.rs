//! The colours of all scenes.
//!
//! Colours that are to be told apart also differ in lightness, and hues are those of Okabe and Ito's palette, a little
//! muted: people who see colours differently, and prints in grey, keep the difference.

use super::canvas::Colour;

pub(super) const PAPER: Colour = Colour(0xf7, 0xf6, 0xf2);
pub(super) const SHADE: Colour = Colour(0xe3, 0xe1, 0xd9);
pub(super) const LINE: Colour = Colour(0xb4, 0xb2, 0xaa);
pub(super) const INK: Colour = Colour(0x2b, 0x30, 0x3a);
pub(super) const BLUE: Colour = Colour(0x1f, 0x6f, 0xb2);
pub(super) const SKY: Colour = Colour(0x6d, 0xb7, 0xe3);
pub(super) const OCHRE: Colour = Colour(0xe0, 0xa1, 0x3a);
/// Colour of something that has gone wrong.
pub(super) const RED: Colour = Colour(0xcc, 0x4f, 0x21);
/// Colour of a goal that is reached.
pub(super) const GREEN: Colour = Colour(0x1a, 0x94, 0x70);

pub(super) const NIGHT: Colour = Colour(0x12, 0x15, 0x1b);
pub(super) const BOARD: Colour = Colour(0x1d, 0x22, 0x2b);
pub(super) const DUSK: Colour = Colour(0x56, 0x5f, 0x6e);
pub(super) const CREAM: Colour = Colour(0xf6, 0xf0, 0xdd);
