//! Asking a terminal which pictures it takes, and reading its answers.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::graphics::{Graphics, Protocol};

/// The question: it asks for kitty's graphics (by a picture of one pixel that is not shown), for the terminal's name,
/// for the pixels of a cell, and last for its attributes, which every terminal answers.
pub(crate) const QUESTION: &[u8] = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[>q\x1b[16t\x1b[c";

/// Reads from a terminal in raw mode until it has answered [`QUESTION`], for at most [`PATIENCE`] in all.
///
/// # Errors
/// If the terminal cannot be read.
pub(crate) fn read_answers(terminal: impl AsFd) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let (mut answers, mut part) = (Vec::new(), [0; 256]);
    while attributes(&answers).is_none() && answers.len() < MAX_ANSWERS {
        let left = until.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(&terminal, PollFlags::IN)];
        let wait = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&wait)) {
            Ok(0) => break,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(&terminal, &mut part)? {
            0 => break,
            read => answers.extend_from_slice(&part[..read]),
        }
    }
    Ok(answers)
}

/// Returns the graphics that the answers promise; `None` if the terminal takes no pictures.
pub(crate) fn graphics_of(answers: &[u8]) -> Option<Graphics> {
    let text = String::from_utf8_lossy(answers);
    let has_sixels = || attributes(answers).is_some_and(|found| found.contains(&SIXELS));
    let protocol = if text.contains("\x1b_Gi=31;OK") {
        Protocol::Kitty
    } else if text
        .split_once("\x1bP>|")
        .is_some_and(|(_, name)| name.starts_with("iTerm2") || name.starts_with("WezTerm"))
    {
        Protocol::Iterm
    } else if has_sixels() {
        Protocol::Sixel
    } else {
        return None;
    };
    let cell = text.split("\x1b[6;").skip(1).find_map(|rest| {
        let (height, width) = rest.split_once('t')?.0.split_once(';')?;
        Some((width.parse().ok()?, height.parse().ok()?))
    });
    Some(Graphics::new(protocol, cell))
}

/// Returns the numbers in `ESC [ ? ... c`, once it is whole.
fn attributes(answers: &[u8]) -> Option<Vec<u16>> {
    let text = String::from_utf8_lossy(answers);
    text.split("\x1b[?").skip(1).find_map(|rest| {
        let (numbers, _) = rest.split_once('c')?;
        numbers.split(';').map(|number| number.parse().ok()).collect()
    })
}

/// The attribute of terminals that take sixels.
const SIXELS: u16 = 4;
/// Time that a terminal may take to answer. Terminals far away answer within it; one that never answers is asked only
/// once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most bytes that are read from a terminal that says anything but an answer.
const MAX_ANSWERS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(answers: &str) -> Option<String> {
        graphics_of(answers.as_bytes()).map(|graphics| format!("{graphics:?}"))
    }

    #[test]
    fn the_best_protocol_that_a_terminal_says_it_has_is_taken() {
        let cases = [
            ("\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.36)\x1b\\\x1b[6;18;9t\x1b[?62;c", "Kitty, cell: (9, 18)"),
            ("\x1bP>|iTerm2 3.5.1\x1b\\\x1b[6;17;8t\x1b[?1;2;4c", "Iterm, cell: (8, 17)"),
            ("\x1bP>|XTerm(390)\x1b\\\x1b[?64;1;4;22c", "Sixel, cell: (10, 20)"),
        ];
        for (answers, wanted) in cases {
            assert!(shown(answers).is_some_and(|found| found.contains(wanted)), "{answers:?}");
        }
    }

    #[test]
    fn a_terminal_that_takes_none_or_answers_nonsense_is_given_none() {
        for answers in
            ["", "\x1b[?62;22c", "\x1b_Gi=31;ENOTSUP\x1b\\\x1b[?1;2c", "\x1b[6;t\x1b[?4;xc", "q\x1b[6;0;0t"]
        {
            assert_eq!(shown(answers), None, "{answers:?}");
        }
        assert!(shown("\x1b[6;0;0t\x1b[?4c").is_some_and(|found| found.contains("(10, 20)")));
    }
}
