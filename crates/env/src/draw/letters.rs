//! Letters and digits of 3 x 5 dots, for labels in pictures.

use super::canvas::{Canvas, Colour, Point};

/// Dots of a letter, five rows of three, the upper left one in the highest of 15 bits.
const fn dots(letter: u8) -> u16 {
    match letter {
        b'0' => 0b111_101_101_101_111,
        b'1' => 0b010_110_010_010_111,
        b'2' => 0b111_001_111_100_111,
        b'3' => 0b111_001_111_001_111,
        b'4' => 0b101_101_111_001_001,
        b'5' => 0b111_100_111_001_111,
        b'6' => 0b111_100_111_101_111,
        b'7' => 0b111_001_001_010_010,
        b'8' => 0b111_101_111_101_111,
        b'9' => 0b111_101_111_001_111,
        b'A' => 0b010_101_111_101_101,
        b'B' => 0b110_101_110_101_110,
        b'C' => 0b011_100_100_100_011,
        b'D' => 0b110_101_101_101_110,
        b'E' => 0b111_100_110_100_111,
        b'F' => 0b111_100_110_100_100,
        b'G' => 0b011_100_101_101_011,
        b'H' => 0b101_101_111_101_101,
        b'I' => 0b111_010_010_010_111,
        b'K' => 0b101_101_110_101_101,
        b'L' => 0b100_100_100_100_111,
        b'M' => 0b101_111_111_101_101,
        b'N' => 0b110_101_101_101_101,
        b'O' => 0b010_101_101_101_010,
        b'P' => 0b110_101_110_100_100,
        b'R' => 0b110_101_110_101_101,
        b'S' => 0b011_100_010_001_110,
        b'T' => 0b111_010_010_010_010,
        b'U' => 0b101_101_101_101_111,
        b'V' => 0b101_101_101_101_010,
        b'W' => 0b101_101_111_111_101,
        b'X' => 0b101_101_010_101_101,
        b'Y' => 0b101_101_010_010_010,
        b'/' => 0b001_001_010_100_100,
        b'-' => 0b000_000_111_000_000,
        b'%' => 0b101_001_010_100_101,
        _ => 0,
    }
}

/// Writes text from its upper left corner on, in capitals; a dot is `dot` wide. Letters that there are not stay blank.
pub(super) fn write(canvas: &mut Canvas, text: &str, (left, top): Point, dot: f64, colour: Colour) {
    for (place, letter) in text.bytes().enumerate() {
        let dots = dots(letter.to_ascii_uppercase());
        for at in (0..15).filter(|at| dots >> (14 - at) & 1 == 1) {
            let x = left + (place as f64 * 4.0 + f64::from(at % 3)) * dot;
            let y = top - f64::from(at / 3) * dot;
            canvas.rectangle((x, y - dot), (x + dot, y), colour);
        }
    }
}
