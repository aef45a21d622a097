//! Makes text that others chose safe to print: on terminals, in logs, in JSON.

use std::fmt::Write as _;

/// Returns text in which every character that [`is_plain`] refuses is written out: `\u{1b}`. It stays on its line.
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if is_plain(char) {
            shown.push(char);
        } else {
            // Writing to a string cannot fail.
            let _written = write!(shown, "{}", char.escape_unicode());
        }
    }
    shown
}

/// Returns whether a character shows itself and does nothing else.
///
/// These do more: controls (C0, DEL, C1), which a terminal obeys; separators of lines and paragraphs; marks that turn
/// the direction of the text beside them; characters that take no place, by which two names look the same.
pub const fn is_plain(char: char) -> bool {
    !matches!(
        char,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Returns text of JSON in which characters that are not plain are written as escapes of JSON, so that the values stay
/// what they are. JSON itself asks that of C0 controls alone.
///
/// The text has no such characters outside strings: it is compact, as serialisers write it.
pub fn plain_json(text: String) -> String {
    if text.chars().all(is_plain) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_plain(char) {
            shown.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _written = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

/// Returns a message of one line, as [`plain`] writes it. Line breaks at its ends are its form and stay.
pub fn plain_line(text: &str) -> String {
    let rest = text.trim_start_matches('\n');
    let middle = rest.trim_end_matches('\n');
    let (before, after) = (text.len() - rest.len(), rest.len() - middle.len());
    format!("{}{}{}", &text[..before], plain(middle), &rest[rest.len() - after..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(plain("a\u{1b}[31mb\u{202e}"), "a\\u{1b}[31mb\\u{202e}");
        assert_eq!(plain("grün 緑"), "grün 緑");
        let others = "\0\r\n\t\u{7f}\u{9b}\u{61c}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{2066}\u{2069}\u{feff}\u{e0041}";
        for char in others.chars() {
            assert_eq!(plain(&char.to_string()), char.escape_unicode().to_string());
        }
    }

    #[test]
    fn json_keeps_its_values_and_has_no_character_that_is_not_plain() {
        let name = "a\u{1b}[2J\u{9b}\u{202e}\u{e0041}\u{2028}\n\"\\ü";
        let shown = plain_json(serde_json::to_string(name).unwrap());
        assert!(shown.chars().all(is_plain), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), name);
    }

    #[test]
    fn line_breaks_at_the_ends_of_a_message_stay_and_those_inside_are_written_out() {
        assert_eq!(plain_line("\na\nb\n\n"), "\na\\u{a}b\n\n");
        assert_eq!((plain_line("\n\n"), plain_line("")), ("\n\n".to_owned(), String::new()));
    }
}
