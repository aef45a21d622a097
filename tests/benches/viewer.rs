//! `rollhouse replay play` on a terminal of its own: how soon its list is there, what playing costs, what is sent.
//!
//! `cargo bench -p rollhouse-tests --bench viewer -- [--episodes N] [--seconds S]`
//!
//! Records N episodes of CartPole (1,000,000), opens the list of them, and waits for its rows. Then plays an episode of
//! MountainCarContinuous for S seconds (5) in each form of picture, on a terminal of 120x40 cells of 9x18 pixels, which has
//! room for a picture of 600x400, and prints the pictures a second, the share of a core, and the bytes that were sent.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "it is a program for measuring, not for users")]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rollhouse_tests::{Folder, binary, json_lines, succeed};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        let value = at.and_then(|at| arguments.get(at + 1));
        value.map_or(default, |text| text.parse().expect("a whole number"))
    };
    let (episodes, seconds) = (number("--episodes", 1_000_000), number("--seconds", 5));
    let data = Folder::new();
    succeed(data.path(), &format!("rollout --env CartPole-v1 --lanes 1024 --episodes {episodes} --seed 1"));
    let mut times: Vec<_> = (0..REPEATS).map(|_| list(data.path())).collect();
    times.sort_unstable();
    println!(
        "list of {episodes} episodes: rows after {:.0} ms (median of {REPEATS}, worst {:.0}), start of the process included",
        millis(times[REPEATS / 2]),
        millis(times[REPEATS - 1])
    );
    let data = Folder::new();
    let line = "rollout --env MountainCarContinuous-v0 --lanes 1 --episodes 1 --seed 1";
    succeed(data.path(), line);
    let listed = json_lines(data.path(), "replay ls --limit 1 --json");
    let name = listed[0]["id"].as_str().expect("it has a name");
    println!("\n{:<8} {:>11} {:>8} {:>10}", "form", "pictures/s", "% core", "kB/s");
    for (form, answer, mark) in FORMS {
        // 999 steps, 60 of them a second.
        played(data.path(), name, form, answer, mark, Duration::from_secs(seconds));
    }
}

/// Forms of pictures, what a terminal with each answers when it is asked, and what each picture begins with if that is
/// certain.
const FORMS: [(&str, &str, &[u8]); 4] = [
    ("cells", "\x1b[?62;22c", b""),
    ("kitty", "\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.40.0)\x1b\\\x1b[6;18;9t\x1b[?62;c", b"\x1b_Ga=T,f=100,"),
    ("iterm", "\x1bP>|iTerm2 3.5.10\x1b\\\x1b[6;18;9t\x1b[?62;c", b"\x1b]1337;File=inline=1;"),
    ("sixel", "\x1bP>|XTerm(390)\x1b\\\x1b[6;18;9t\x1b[?64;4c", b"\x1bP0;1;0q"),
];

const REPEATS: usize = 7;

/// A viewer on a terminal.
struct Viewer {
    child: Child,
    shown: File,
    text: Vec<u8>,
}

impl Viewer {
    fn start(data: &Path, line: &str, answer: &str) -> Self {
        let shown = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal can be made");
        grantpt(&shown).and_then(|()| unlockpt(&shown)).expect("it is ours");
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 1080, ws_ypixel: 720 };
        tcsetwinsize(&shown, size).expect("it has a size");
        let name = ptsname(&shown, Vec::new()).expect("it has a name");
        let written = OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(name.as_bytes()));
        let written = written.expect("it can be opened");
        let side = || Stdio::from(written.try_clone().expect("it is open"));
        let mut command = Command::new(binary());
        command.args(line.split_whitespace()).arg("--data").arg(data);
        command.env("COLORTERM", "truecolor").env_remove("NO_COLOR").env_remove("ROLLHOUSE_CONNECT");
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("it starts");
        let mut viewer = Self { child, shown: File::from(shown), text: Vec::new() };
        viewer.wait_for(b"\x1b[c");
        viewer.press(answer);
        viewer
    }

    fn press(&mut self, keys: &str) {
        self.shown.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Reads until something is shown.
    fn wait_for(&mut self, wanted: &[u8]) {
        let mut part = [0; 1 << 16];
        while !self.text.windows(wanted.len()).any(|found| found == wanted) {
            let read = self.shown.read(&mut part).expect("the terminal is there");
            self.text.extend_from_slice(&part[..read]);
        }
    }

    /// Processor time that it has taken.
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().map(|&at: &usize| fields[at].parse::<u64>().expect("ticks")).sum();
        // A hundredth of a second each, as Linux tells everyone.
        Duration::from_millis(ticks * 10)
    }

    fn end(mut self) {
        self.press("\x03");
        self.text.clear();
        self.wait_for(b"\x1b[?1049l");
        self.child.wait().expect("it was started");
    }
}

/// How long it takes until rows of the list are shown.
fn list(data: &Path) -> Duration {
    let begun = Instant::now();
    let mut viewer = Viewer::start(data, "replay play", FORMS[0].1);
    viewer.wait_for(b"CartPole-v1");
    let took = begun.elapsed();
    viewer.end();
    took
}

fn played(data: &Path, name: &str, form: &str, answer: &str, mark: &[u8], time: Duration) {
    let mut viewer = Viewer::start(data, &format!("replay play {name} --speed 2"), answer);
    viewer.wait_for(b"playing");
    viewer.text.clear();
    let (begun, before) = (Instant::now(), viewer.cpu());
    let mut part = [0; 1 << 16];
    while begun.elapsed() < time {
        let read = viewer.shown.read(&mut part).expect("the terminal is there");
        viewer.text.extend_from_slice(&part[..read]);
    }
    let (took, cpu) = (begun.elapsed().as_secs_f64(), viewer.cpu().saturating_sub(before).as_secs_f64());
    // What is drawn in cells has no beginning.
    let pictures = match mark {
        [] => "-".to_owned(),
        _ => {
            let count = viewer.text.windows(mark.len()).filter(|found| found == &mark).count();
            format!("{:.1}", count as f64 / took)
        }
    };
    println!(
        "{form:<8} {pictures:>11} {:>8.1} {:>10.1}",
        100.0 * cpu / took,
        viewer.text.len() as f64 / took / 1e3
    );
    viewer.end();
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
