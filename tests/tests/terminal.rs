//! What a person sees on a terminal.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use rollhouse_tests::{Folder, rollhouse};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A terminal of so many columns: the side that a program writes to, and the side that shows what it wrote.
fn terminal(columns: u16) -> (File, File) {
    let shown = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal can be made");
    grantpt(&shown).and_then(|()| unlockpt(&shown)).expect("it is ours");
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&shown, size).expect("it has a size");
    let name = ptsname(&shown, Vec::new()).expect("it has a name");
    let written = OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(name.as_bytes()));
    (written.expect("it can be opened"), File::from(shown))
}

/// Everything that was shown until the terminal was hung up, which an error tells.
fn read_all(mut shown: File) -> String {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(read) = shown.read(&mut part)
        && read > 0
    {
        bytes.extend_from_slice(&part[..read]);
    }
    String::from_utf8(bytes).expect("what is shown is UTF-8")
}

/// Symptom: on a terminal of 110 columns a rollout printed a new line ten times a second.
/// Cause: the progress line was longer than the terminal, which broke it in two; only the second half was erased.
/// Fix: the line always has less columns than the terminal.
#[test]
fn progress_stays_on_one_line_of_terminals_of_any_width() {
    for columns in [24, 60, 80, 110] {
        let data = Folder::new();
        let (written, shown) = terminal(columns);
        let line = "rollout --env Acrobot-v1 --lanes 8 --episodes 20000 --threads 1 --record none";
        let mut child = rollhouse(data.path(), line).stdout(Stdio::null()).stderr(written).spawn().unwrap();
        let text = read_all(shown);
        assert!(child.wait().unwrap().success());
        let drawn: Vec<&str> = text.split("\r\x1b[K").filter(|line| line.contains('%')).collect();
        assert!(!drawn.is_empty(), "nothing was drawn: {text:?}");
        for line in drawn {
            assert!(
                line.chars().count() < usize::from(columns) && !line.contains('\n'),
                "{columns}: {line:?}"
            );
        }
    }
}
