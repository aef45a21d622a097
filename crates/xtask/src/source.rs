//! Rust source cut into code, comments and string literals.

/// A file that was cut.
pub(crate) struct Source {
    pieces: Vec<Piece>,
}

/// A piece of one kind, with the line on which it begins, counted from 1.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Code,
    Comment,
    /// A string literal without its quotes. Escapes stay as written, except that a line continuation is removed.
    Literal,
}

impl Source {
    /// Cuts a file that compiles; any other text gives some pieces, without a panic.
    pub(crate) fn cut(text: &str) -> Self {
        Cutter { rest: text, line: 1, pieces: Vec::new() }.cut()
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the code only, with empty literals, as (line number, text).
    pub(crate) fn code_lines(&self) -> Vec<(usize, String)> {
        let mut lines: Vec<(usize, String)> = Vec::new();
        for piece in self.pieces.iter().filter(|p| p.kind == Kind::Code) {
            for (offset, text) in piece.text.split('\n').enumerate() {
                let line = piece.line + offset;
                match lines.last_mut() {
                    Some((last, so_far)) if *last == line => so_far.push_str(text),
                    _ => lines.push((line, text.to_owned())),
                }
            }
        }
        lines
    }
}

struct Cutter<'a> {
    rest: &'a str,
    line: usize,
    pieces: Vec<Piece>,
}

impl Cutter<'_> {
    fn cut(mut self) -> Source {
        while !self.rest.is_empty() {
            let length = self.code_length();
            self.take(Kind::Code, length);
            if self.rest.starts_with("//") {
                let length = self.rest.find('\n').unwrap_or(self.rest.len());
                self.take(Kind::Comment, length);
            } else if self.rest.starts_with("/*") {
                let length = self.rest.find("*/").map_or(self.rest.len(), |end| end + 2);
                self.take(Kind::Comment, length);
            } else if !self.rest.is_empty() {
                self.literal();
            }
        }
        Source { pieces: self.pieces }
    }

    /// Returns the bytes up to the next comment or string literal. Character literals and lifetimes are code.
    fn code_length(&self) -> usize {
        let bytes = self.rest.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'/' if matches!(bytes.get(at + 1), Some(b'/' | b'*')) => break,
                b'"' => break,
                b'r' if raw_string(&self.rest[at..]).is_some() && !ends_in_word(&self.rest[..at]) => break,
                // A quote or slash as a character literal must not begin anything.
                b'\'' if bytes.get(at + 1) == Some(&b'\\') => at += 4,
                b'\'' if bytes.get(at + 2) == Some(&b'\'') => at += 3,
                _ => at += 1,
            }
        }
        // `at` may have jumped past the end or into a wide character after an odd escape.
        (at.min(bytes.len())..=bytes.len())
            .find(|&end| self.rest.is_char_boundary(end))
            .unwrap_or(bytes.len())
    }

    fn literal(&mut self) {
        if let Some(hashes) = raw_string(self.rest) {
            let close = format!("\"{}", "#".repeat(hashes));
            self.skip(1 + hashes + 1);
            let length = self.rest.find(&close).unwrap_or(self.rest.len());
            self.take(Kind::Literal, length);
            self.skip(close.len());
            return;
        }
        self.skip(1);
        let bytes = self.rest.as_bytes();
        let mut length = 0;
        while length < bytes.len() && bytes[length] != b'"' {
            length += if bytes[length] == b'\\' { 2 } else { 1 };
        }
        self.take(Kind::Literal, length.min(bytes.len()));
        if let Some(piece) = self.pieces.last_mut() {
            piece.text = without_continuations(&piece.text);
        }
        self.skip(1);
    }

    fn take(&mut self, kind: Kind, length: usize) {
        let (text, rest) = self.rest.split_at(length);
        self.pieces.push(Piece { kind, text: text.to_owned(), line: self.line });
        self.line += text.matches('\n').count();
        self.rest = rest;
    }

    fn skip(&mut self, length: usize) {
        let length = length.min(self.rest.len());
        self.line += self.rest[..length].matches('\n').count();
        self.rest = &self.rest[length..];
    }
}

/// Returns the number of hashes if a raw string begins here.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix('r')?;
    let hashes = after.bytes().take_while(|&b| b == b'#').count();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// Returns whether the text ends inside an identifier, so that an `r` after it belongs to the identifier; the `b` of a
/// byte string does not count.
fn ends_in_word(text: &str) -> bool {
    let text = text.strip_suffix('b').unwrap_or(text);
    text.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn without_continuations(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |sum, part| sum + part.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, String)> {
        let pieces = Source::cut(text).pieces;
        pieces.into_iter().filter(|p| !p.text.trim().is_empty()).map(|p| (p.kind, p.text)).collect()
    }

    #[test]
    fn comments_and_literals_are_told_from_code() {
        let found = kinds("let a = \"x // y\"; // unsafe\nlet b = r#\"q\"uote\"#;");
        let wanted = [
            (Kind::Code, "let a = "),
            (Kind::Literal, "x // y"),
            (Kind::Code, "; "),
            (Kind::Comment, "// unsafe"),
            (Kind::Code, "\nlet b = "),
            (Kind::Literal, "q\"uote"),
            (Kind::Code, ";"),
        ];
        assert_eq!(found, wanted.map(|(kind, text)| (kind, text.to_owned())));
    }

    #[test]
    fn quotes_as_characters_and_lifetimes_begin_nothing() {
        assert_eq!(kinds("f('\"', '\\'', b'/') // end").last().unwrap().0, Kind::Comment);
        assert_eq!(kinds("fn g<'a>(x: &'a str) {}").len(), 1);
    }

    #[test]
    fn a_continued_literal_is_one_text_on_its_first_line() {
        let source = Source::cut("\nf(\"one \\\n   two\")\ng()");
        let literal = source.pieces().iter().find(|p| p.kind == Kind::Literal).unwrap();
        assert_eq!((literal.text.as_str(), literal.line), ("one two", 2));
        assert!(source.code_lines().contains(&(4, "g()".to_owned())));
    }
}
