//! Making text from recordings safe to send to a terminal.

use std::fmt::Write as _;

/// Returns text in which everything that a terminal could take for a command is written out: `\u{1b}`.
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() || is_direction(char) {
            // Writing to a string cannot fail.
            let _written = write!(shown, "{}", char.escape_unicode());
        } else {
            shown.push(char);
        }
    }
    shown
}

/// Returns whether a character changes the direction of the text beside it.
const fn is_direction(char: char) -> bool {
    matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(plain("a\u{1b}[31mb\u{202e}"), "a\\u{1b}[31mb\\u{202e}");
        assert_eq!(plain("grün 緑"), "grün 緑");
    }
}
