//! What a person sees on a terminal.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rollhouse_core::split_mix64;
use rollhouse_tests::{
    Cluster, Folder, Running, Service, binary, json_lines, rollhouse, run, succeed, workspace,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A terminal of so many columns: the side that a program writes to, and the side that shows what it wrote.
fn terminal(columns: u16) -> (File, File) {
    // A terminal is gone for a program only when no other program has been left with its other side.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let shown = openpt(flags).expect("a terminal can be made");
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

/// Symptom: what had just been played stood anywhere in a listing, by the drawn names of runs.
#[test]
fn a_listing_begins_with_the_newest_run_on_a_terminal_and_is_in_the_order_of_names_in_a_pipe() {
    let data = Folder::new();
    let lines = "rollout --env CartPole-v1 --lanes 1 --episodes 1 --json";
    let runs: Vec<String> = (0..6)
        .map(|_| {
            json_lines(data.path(), lines);
            let newest = json_lines(data.path(), "replay ls --json --sort -started --limit 1").remove(0);
            newest["id"].as_str().expect("a name").to_owned()
        })
        .collect();
    let (written, shown) = terminal(200);
    let mut child = rollhouse(data.path(), "replay ls").stdout(written).spawn().unwrap();
    let text = read_all(shown);
    assert!(child.wait().unwrap().success());
    let listed: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(listed, runs.iter().rev().map(String::as_str).collect::<Vec<_>>(), "{text}");
    let piped = succeed(data.path(), "replay ls");
    let piped: Vec<&str> = piped.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    let by_name = json_lines(data.path(), "replay ls --json");
    let by_name: Vec<&str> = by_name.iter().filter_map(|episode| episode["id"].as_str()).collect();
    assert_eq!(piped, by_name);
}

/// `rollhouse replay play` on a terminal of its own.
pub(crate) struct Viewer {
    child: Child,
    /// The program's side, which is kept so that its modes can be looked at in the end.
    written: File,
    shown: File,
    /// What has been written since keys were pressed last.
    text: Vec<u8>,
}

impl Viewer {
    /// On a terminal that takes no pictures of pixels.
    pub(crate) fn start(data: &Path, line: &str) -> Self {
        Self::start_on(data, line, "\x1b[?62;22c")
    }

    /// On a terminal that answers so when it is asked what it is.
    fn start_on(data: &Path, line: &str, answer: &str) -> Self {
        let mut viewer = Self::spawn(data, line);
        viewer.wait_for("\x1b[c");
        viewer.shown.write_all(answer.as_bytes()).expect("the terminal is there");
        viewer
    }

    fn spawn(data: &Path, line: &str) -> Self {
        Self::run(&format!("{line} --data {}", data.display()))
    }

    /// Runs a command line.
    pub(crate) fn run(line: &str) -> Self {
        let (written, shown) = terminal(100);
        let side = || Stdio::from(written.try_clone().expect("it is open"));
        // In a session of its own: the terminal that a person runs the tests on has another size.
        let mut command = Command::new("setsid");
        command.arg(binary()).args(line.split_whitespace());
        command.env("COLORTERM", "truecolor").env_remove("NO_COLOR").env_remove("ROLLHOUSE_CONNECT");
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("setsid starts");
        Self { child, written, shown, text: Vec::new() }
    }

    /// Reads until something is written. Only the cells that change are: a letter that stood in the same place before
    /// is not, and what is waited for must not lie over a name that has been made at random.
    ///
    /// # Panics
    /// If it is not written within [`PATIENCE`], which is a test that waits for what never comes.
    pub(crate) fn wait_for(&mut self, wanted: &str) {
        let (mut part, mut looked_at, began) = ([0; 4096], 0, Instant::now());
        while !self.text[looked_at..].windows(wanted.len()).any(|found| found == wanted.as_bytes()) {
            looked_at = self.text.len().saturating_sub(wanted.len());
            let left = Timespec::try_from(PATIENCE.saturating_sub(began.elapsed())).expect("it is short");
            let ready = poll(&mut [PollFd::new(&self.shown, PollFlags::IN)], Some(&left));
            assert!(ready.expect("the terminal is there") > 0, "{wanted:?} is not in {:?}", self.text());
            let read = self.shown.read(&mut part).expect("the terminal is there");
            self.text.extend_from_slice(&part[..read]);
        }
    }

    pub(crate) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }

    /// Presses keys, and waits for what they have shown.
    pub(crate) fn press(&mut self, keys: &str, wanted: &str) {
        self.text.clear();
        self.shown.write_all(keys.as_bytes()).expect("the terminal is there");
        self.wait_for(wanted);
    }

    /// How it ended; the terminal is as it was before.
    fn ended(mut self) -> ExitStatus {
        // The cursor is shown, and the first screen.
        self.wait_for("\x1b[?25h\x1b[?1049l");
        let status = self.child.wait().expect("it was started");
        let modes = tcgetattr(&self.written).expect("it is a terminal").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG), "{modes:?}");
        status
    }
}

/// Time after which nothing that is waited for is still under way.
const PATIENCE: Duration = Duration::from_secs(300);

/// A folder with some episodes, and the name of the longest.
fn recorded() -> (Folder, String) {
    let data = Folder::new();
    succeed(data.path(), "rollout --env GridBreakout-v0 --lanes 4 --episodes 12 --seed 5");
    let longest = json_lines(data.path(), "replay ls --sort -length --limit 1 --json");
    let name = longest[0]["id"].as_str().expect("it has a name").to_owned();
    (data, name)
}

#[test]
fn keys_go_through_an_episode_and_the_terminal_is_as_before_when_it_is_left() {
    let (data, name) = recorded();
    let mut viewer = Viewer::start(data.path(), &format!("replay play {name} --at 2 --speed 1/16"));
    viewer.wait_for("\x1b[?1049h");
    viewer.wait_for(&name);
    // The picture: half cells in 24-bit colour.
    viewer.wait_for("▀▀▀▀");
    assert!(viewer.text().contains("\x1b[38;2;"), "{:?}", viewer.text());
    viewer.wait_for("playing");
    // What has not changed is not sent again: here the first letter of `paused`.
    viewer.press(" ", "aused");
    viewer.press("\x1b[F", "terminated");
    viewer.press("?", "go to a step");
    // The picture that the help lay on.
    viewer.press("q", "▀▀▀▀");
    viewer.press("q", "\x1b[?1049l");
    assert_eq!(viewer.ended().code(), Some(0));
}

/// What a terminal with each of the protocols answers, and what it is then sent.
const PROTOCOLS: [(&str, &str); 3] = [
    ("\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.40.0)\x1b\\\x1b[6;18;9t\x1b[?62;c", "\x1b_Ga=T,f=100,"),
    ("\x1bP>|iTerm2 3.5.10\x1b\\\x1b[?62;c", "\x1b]1337;File=inline=1;"),
    ("\x1bP>|XTerm(390)\x1b\\\x1b[?64;4c", "\x1bP0;1;0q\"1;1;"),
];

#[test]
fn a_terminal_that_says_that_it_takes_pictures_is_sent_the_envs_picture_as_one() {
    let (data, name) = recorded();
    for (answer, picture) in PROTOCOLS {
        let mut viewer = Viewer::start_on(data.path(), &format!("replay play {name} --speed 1/16"), answer);
        viewer.wait_for(picture);
        assert!(!viewer.text().contains("▀▀▀▀"), "{:?}", viewer.text());
        viewer.press(" ", "aused");
        viewer.press("\x1b[F", picture);
        viewer.press("?", "go to a step");
        viewer.press("q", picture);
        viewer.press("q", "\x1b[?1049l");
        assert_eq!(viewer.ended().code(), Some(0));
    }
}

#[test]
fn the_mouse_points_at_steps_and_episodes() {
    let (data, _) = recorded();
    let mut viewer = Viewer::start(data.path(), "replay play --speed 1/16");
    viewer.wait_for("\x1b[?1000h");
    viewer.wait_for("filter:");
    // The second row, and again; terminals count from 1.
    viewer.press("\x1b[<0;5;5M\x1b[<0;5;5m\x1b[<0;5;5M\x1b[<0;5;5m", "recorded");
    viewer.press("\x1b[<0;100;20M", "terminated");
    viewer.press("q", "\x1b[?1000l");
    assert_eq!(viewer.ended().code(), Some(0));
}

#[test]
fn a_terminal_that_is_not_to_be_asked_is_not() {
    let (data, name) = recorded();
    let mut viewer = Viewer::spawn(data.path(), &format!("replay play {name} --pictures kitty"));
    viewer.wait_for("\x1b_Ga=T");
    assert!(!viewer.text().contains("\x1b[c"), "{:?}", viewer.text());
    viewer.press("q", "\x1b[?1049l");
    assert_eq!(viewer.ended().code(), Some(0));
}

#[test]
fn an_episode_is_chosen_from_a_list() {
    let (data, _) = recorded();
    let mut viewer = Viewer::start(data.path(), "replay play");
    viewer.wait_for("filter:");
    viewer.press("zz", "no env, outcome, result or run is like");
    viewer.press("\x7f\x7fgrid\r", "recorded");
    viewer.press("\x03", "\x1b[?1049l");
    assert_eq!(viewer.ended().code(), Some(0));
}

#[test]
fn the_samples_are_shown_as_the_readme_says() {
    let mut viewer = Viewer::start(&workspace().join("replays/samples"), "replay play");
    viewer.wait_for("GridBreakout-v0");
    viewer.press("cart\r", "recorded");
    viewer.press("q", "\x1b[?1049l");
    assert_eq!(viewer.ended().code(), Some(0));
}

#[test]
fn two_episodes_are_played_side_by_side() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 2 --episodes 2 --seed 5");
    succeed(data.path(), "rollout --env Pendulum-v1 --lanes 1 --episodes 1 --seed 5");
    let listed = json_lines(data.path(), "replay ls --json --sort name");
    let of = |env: &str| {
        let found = listed.iter().filter(|episode| episode["env"] == env);
        found.map(|episode| episode["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (poles, pendulum) = (of("CartPole-v1"), of("Pendulum-v1"));
    let mut viewer = Viewer::spawn(data.path(), &format!("replay play {} --compare {}", poles[0], poles[1]));
    viewer.wait_for("≠ they part at step 0: ");
    viewer.press("q", "\x1b[?1049l");
    assert_eq!(viewer.ended().code(), Some(0));
    let mut viewer =
        Viewer::spawn(data.path(), &format!("replay play {} --compare {}", poles[0], pendulum[0]));
    viewer.wait_for("observations or actions have different");
    assert_eq!(viewer.child.wait().expect("it was started").code(), Some(1));
}

/// Symptom: a viewer whose terminal was closed went on for ever, with a core of its own.
/// Cause: crossterm reads on at the end of its file; only a signal could end it, which not everybody is sent.
/// Fix: it is asked for keys only while the terminal is there.
#[test]
fn a_viewer_whose_terminal_is_closed_ends() {
    let (data, name) = recorded();
    for line in [format!("replay play {name}"), "replay play".to_owned()] {
        let mut viewer = Viewer::start(data.path(), &line);
        viewer.wait_for("\x1b[?1000h");
        let Viewer { mut child, written, shown, .. } = viewer;
        drop((written, shown));
        assert_eq!(child.wait().expect("it was started").code(), Some(1));
    }
}

#[test]
fn a_signal_ends_the_viewer_as_it_ends_any_program_and_the_terminal_is_as_before() {
    let (data, name) = recorded();
    for signal in [Signal::TERM, Signal::HUP] {
        let mut viewer = Viewer::start(data.path(), &format!("replay play {name}"));
        viewer.wait_for("? help");
        kill_process(Pid::from_child(&viewer.child), signal).expect("it runs");
        assert_eq!(viewer.ended().signal(), Some(signal.as_raw()));
    }
}

/// What is pressed at random: nothing of it ends the viewer.
const KEYS: [&str; 28] = [
    " ",
    "\x1b[A",
    "\x1b[B",
    "\x1b[C",
    "\x1b[D",
    "\x1b[H",
    "\x1b[F",
    "\x1b[5~",
    "\x1b[6~",
    "\r",
    "\t",
    "\x7f",
    "?",
    "/",
    "g",
    "m",
    "M",
    "n",
    "p",
    "+",
    "-",
    "0",
    "9",
    "%",
    "x",
    "\x1b[<0;40;20M",
    "\x1b[<0;3;22M",
    "\u{1F600}",
];

#[test]
fn whatever_is_pressed_on_a_terminal_of_whatever_size_it_is_as_before_in_the_end() {
    let (data, name) = recorded();
    for (seed, line) in [(1, format!("replay play {name}")), (2, "replay play".to_owned())] {
        let mut viewer = Viewer::start(data.path(), &line);
        viewer.wait_for("\x1b[?1000h");
        let Viewer { mut child, written, mut shown, .. } = viewer;
        let reader = shown.try_clone().expect("it is open");
        // Takes what is shown away, so that the viewer never waits for it to be read.
        let reading = std::thread::spawn(move || read_all(reader));
        for turn in 0..300 {
            let random = split_mix64(seed * 1000 + turn);
            let key = KEYS[(random % KEYS.len() as u64) as usize];
            shown.write_all(key.as_bytes()).expect("the terminal is there");
            if random >> 8 & 7 == 0 {
                let (ws_col, ws_row) = ((random >> 16) as u16 % 250, (random >> 32) as u16 % 80);
                let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
                tcsetwinsize(&shown, size).expect("it has a size");
                kill_process(Pid::from_child(&child), Signal::WINCH).expect("it runs");
            }
        }
        shown.write_all(b"\x03").expect("the terminal is there");
        let status = child.wait().expect("it was started");
        let modes = tcgetattr(&written).expect("it is a terminal").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG), "{modes:?}");
        drop((written, shown));
        let text = reading.join().expect("it reads");
        assert_eq!(status.code(), Some(0), "{text:?}");
        assert!(text.contains("\x1b[?25h\x1b[?1049l"), "{text:?}");
    }
}

/// Symptom: the viewer took no key any more and used a whole core, after much was typed while it was busy.
/// Cause: what reads the terminal took 1,024 bytes at a time and waited for news of the rest, which never came.
/// Fix: it asks whether there is anything left to read.
#[test]
fn more_keys_than_are_read_at_a_time_are_all_taken() {
    let (data, name) = recorded();
    for line in [format!("replay play {name}"), "replay play".to_owned()] {
        let mut viewer = Viewer::start(data.path(), &line);
        viewer.wait_for("\x1b[?1000h");
        let Viewer { mut child, written, mut shown, .. } = viewer;
        let reader = shown.try_clone().expect("it is open");
        let reading = std::thread::spawn(move || read_all(reader));
        let typed = "\x1b[B\x1b[A".repeat(400) + "\x03";
        shown.write_all(typed.as_bytes()).expect("the terminal is there");
        let status = child.wait().expect("it was started");
        drop((written, shown));
        let text = reading.join().expect("it reads");
        assert_eq!(status.code(), Some(0), "{text:?}");
    }
}

#[test]
fn without_a_terminal_the_viewer_names_what_shows_an_episode_as_text() {
    let (data, name) = recorded();
    let done = run(data.path(), &format!("replay play {name}"));
    assert_eq!((done.code, &*done.stdout), (Some(2), ""));
    assert!(done.stderr.contains("`rollhouse replay show NAME`"), "{}", done.stderr);
}

#[test]
fn a_name_that_no_episode_has_is_refused_before_the_terminal_is_taken() {
    let (data, _) = recorded();
    let mut viewer = Viewer::spawn(data.path(), "replay play k3f9q2tz-17-203");
    viewer.wait_for("k3f9q2tz-17-203");
    assert_eq!(viewer.child.wait().expect("it was started").code(), Some(2));
    assert!(!viewer.text().contains("\x1b[?1049h"), "{}", viewer.text());
}

/// What a person has typed and seen until a game was over, and what was printed then.
fn finished(mut game: Viewer) -> (ExitStatus, String) {
    game.wait_for("\x1b[?25h\x1b[?1049l");
    let status = game.child.wait().expect("it was started");
    let text = game.text().split("\x1b[?1049l").last().unwrap_or_default().to_owned();
    drop(game.written);
    (status, text + &read_all(game.shown))
}

#[test]
fn an_env_is_played_with_the_keyboard_and_recorded() {
    let data = Folder::new();
    let mut game = Viewer::start(data.path(), "play MountainCar-v0 --seed 7");
    game.wait_for("played by hand, seed 7");
    game.wait_for("▀▀▀▀");
    game.wait_for("right");
    // Paused, each key is a step: left, then right twice, and once more. Then time goes on, as fast as it can be told to,
    // to the time limit.
    game.press("\x1b[D\x1b[C\x1b[C.++++++ ", "truncated");
    game.press("r", "? help");
    game.press("?", "Tab,");
    game.press("qq", "\x1b[?1049l");
    let (status, printed) = finished(game);
    assert_eq!(status.code(), Some(0), "{printed}");
    let listed = json_lines(data.path(), "replay ls --json");
    assert_eq!(listed.len(), 2);
    let name = listed[0]["id"].as_str().expect("it has a name");
    assert!(printed.contains(name) && printed.contains("rollhouse replay play "), "{printed}");
    assert_eq!((&listed[0]["length"], &listed[0]["policy"]), (&200.into(), &"hand".into()));
    assert_eq!((&listed[1]["length"], &listed[1]["outcome"]), (&0.into(), &"cancelled".into()));
    let actions: Vec<i64> = json_lines(data.path(), &format!("replay export {name} --format jsonl"))[1..]
        .iter()
        .map(|step| step["action"].as_i64().expect("it is a number"))
        .collect();
    assert_eq!(actions[..5], [0, 2, 2, 2, 2]);
    succeed(data.path(), "replay verify");
}

#[test]
fn an_env_is_played_by_hand_with_options_that_are_recorded() {
    let data = Folder::new();
    let sticky = "--option sticky_action_probability";
    let mut game = Viewer::start(data.path(), &format!("play GridBreakout-v0 --seed 7 {sticky}=0.5"));
    game.wait_for("? help");
    game.press("..?", "Tab,");
    game.press("qq", "\x1b[?1049l");
    assert_eq!(finished(game).0.code(), Some(0));
    assert_eq!(json_lines(data.path(), &format!("replay ls --json {sticky}=0.5")).len(), 1);
    assert_eq!(json_lines(data.path(), &format!("replay ls --json {sticky}=0.1")).len(), 0);
    succeed(data.path(), "replay verify");
    let done = run(data.path(), "play GridBreakout-v0 --option stick=1");
    assert!(done.code == Some(2) && done.stderr.contains("stick"), "{}", done.stderr);
}

#[test]
fn a_fork_is_played_by_hand_from_its_step_on() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env Pendulum-v1 --lanes 1 --episodes 1 --seed 5");
    let parent = json_lines(data.path(), "replay ls --json")[0]["id"].as_str().expect("a name").to_owned();
    let mut game = Viewer::start(data.path(), &format!("replay fork {parent} --at 20 --by-hand"));
    game.wait_for(&format!("fork of {parent} at step 20, played by hand"));
    game.wait_for("torque");
    game.press("\x1b[C\x1b[C.r", "there");
    game.press("q", "\x1b[?1049l");
    assert_eq!(finished(game).0.code(), Some(0));
    let listed = json_lines(data.path(), "replay ls --json");
    let fork = listed.iter().find(|listed| listed["policy"] == "hand").expect("it is recorded");
    assert_eq!(fork["parent"], serde_json::json!({"id": parent, "step": 20}));
    assert_eq!(fork["length"], 21);
    let steps =
        json_lines(data.path(), &format!("replay export {} --format jsonl", fork["id"].as_str().unwrap()));
    assert_eq!(steps[21]["action"], serde_json::json!([0.4]));
    succeed(data.path(), "replay verify");
}

#[test]
fn a_signal_ends_a_game_as_it_ends_any_program_and_what_was_played_has_its_end() {
    for signal in [Signal::TERM, Signal::HUP] {
        let data = Folder::new();
        let mut game = Viewer::start(data.path(), "play CartPole-v1 --seed 7");
        game.wait_for("? help");
        // Help comes when the keys before it have done what they do.
        game.press("\x1b[D\x1b[C?", "Tab,");
        kill_process(Pid::from_child(&game.child), signal).expect("it runs");
        assert_eq!(game.ended().signal(), Some(signal.as_raw()));
        let listed = json_lines(data.path(), "replay ls --json");
        assert_eq!((&listed[0]["length"], &listed[0]["outcome"]), (&2.into(), &"cancelled".into()));
        assert_eq!(listed[0]["return"], 2.0);
    }
}

#[test]
fn a_game_whose_terminal_is_closed_ends_and_is_recorded() {
    let data = Folder::new();
    let mut game = Viewer::start(data.path(), "play CartPole-v1 --seed 7");
    game.wait_for("? help");
    game.press("\x1b[D?", "Tab,");
    let Viewer { mut child, written, shown, .. } = game;
    drop((written, shown));
    assert_eq!(child.wait().expect("it was started").code(), Some(1));
    assert_eq!(json_lines(data.path(), "replay ls --json")[0]["length"], 1);
}

#[test]
fn what_is_no_terminal_or_too_small_a_one_is_refused_before_anything_is_recorded() {
    let data = Folder::new();
    let done = run(data.path(), "play CartPole-v1");
    assert_eq!((done.code, &*done.stdout), (Some(2), ""));
    assert!(done.stderr.contains("stdout is not one"), "{}", done.stderr);
    let done = run(data.path(), "play CartPol-v1");
    assert!(done.code == Some(2) && done.stderr.contains("nearest are CartPole-v1"), "{}", done.stderr);
    let (written, shown) = terminal(79);
    let side = || Stdio::from(written.try_clone().expect("it is open"));
    let mut command = rollhouse(data.path(), "play CartPole-v1");
    let mut child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("the binary starts");
    assert_eq!(child.wait().expect("it was started").code(), Some(2));
    drop((command, written));
    let said = read_all(shown);
    assert!(said.contains("79 columns and 24 rows, 80 and 24 are wanted"), "{said}");
    assert!(!data.path().join("segments").exists());
}

#[test]
fn an_episode_that_is_still_being_recorded_is_played() {
    let data = Folder::new();
    let mut running =
        Running::start(data.path(), "rollout --env Acrobot-v1 --lanes 64 --steps 1000000000000");
    running.until_written(data.path(), 100_000);
    let mut viewer = Viewer::start(data.path(), "replay play --live --speed 64");
    viewer.wait_for("being recorded");
    // It has ended by now, and that is found out.
    viewer.wait_for("ated");
    viewer.press("q", "\x1b[?1049l");
    assert_eq!(viewer.ended().code(), Some(0));
    running.kill();
    let none = Folder::new();
    succeed(none.path(), "rollout --env CartPole-v1 --lanes 1 --episodes 1");
    // Where nobody records there is none.
    let mut viewer = Viewer::spawn(none.path(), "replay play --live");
    viewer.wait_for("no episode is being recorded");
    assert_eq!(viewer.child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_cluster_is_watched_also_over_an_absence_of_its_coordinator_and_only_an_admin_drains() {
    let cluster = Cluster::new(&["one"]);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    let connect = cluster.connection("viewer", &address);
    let refused = run(cluster.folder(), &format!("top --connect {connect}"));
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("status --json"), "{}", refused.stderr);
    let mut top = Viewer::run(&format!("top --connect {connect}"));
    top.wait_for("alive");
    top.press("d", "drain one");
    top.press("y", "one was not asked");
    coordinator.kill();
    top.wait_for("is away");
    let (_coordinator, _) = cluster.coordinator(&address);
    top.wait_for("is back");
    top.press("q", "\x1b[?1049l");
    assert_eq!(top.ended().code(), Some(0));
}

/// A cluster with one node, and the connections of a viewer and an admin.
fn served() -> (Cluster, [Service; 2], String, [String; 2]) {
    let cluster = Cluster::new(&["one"]);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let node = cluster.node("one", &address);
    let connections = ["viewer", "admin"].map(|role| cluster.connection(role, &address));
    (cluster, [coordinator, node], address, connections)
}

#[test]
fn a_lane_of_a_cluster_is_watched_live_gone_back_in_and_watched_live_again() {
    let (cluster, _services, _, [viewer, admin]) = served();
    let rollout = "rollout --env MountainCar-v0 --lanes 2 --steps 100000000000 --record none --detach";
    succeed(cluster.folder(), &format!("{rollout} --connect {admin}"));
    let mut watch = Viewer::run(&format!("watch one --pictures cells --connect {viewer}"));
    watch.wait_for("● live");
    watch.wait_for("▀▀▀▀");
    for (back, live) in [("\x1b[D", "f"), (" ", "\x1b"), ("\x1b[H", "f")] {
        watch.press(back, "paused");
        // The bar is drawn last, and nothing moves while it is paused: pictures behind it are of the lane as it is now.
        watch.press(live, "live");
        watch.press("", "▀");
    }
    watch.press("n", "2");
    watch.press("q", "\x1b[?1049l");
    assert_eq!(watch.ended().code(), Some(0));
}

#[test]
fn an_episode_that_is_chosen_while_the_store_is_away_is_played_once_it_is_back() {
    let (cluster, [coordinator, _node], address, [viewer, admin]) = served();
    succeed(cluster.folder(), &format!("rollout --env CartPole-v1 --lanes 2 --episodes 6 --connect {admin}"));
    let mut list = Viewer::run(&format!("replay play --pictures cells --connect {viewer}"));
    list.wait_for("CartPole-v1");
    coordinator.kill();
    // What is known of the list is put into another order without the store; its episodes are read from there.
    list.press("\t", "RETURN↓");
    // Its reading is said and can be given up, and begun again.
    list.press("\r", "reading ");
    // Not the whole bar: its fourth word lies where the name of an episode began.
    list.press("\x1b", "Enter");
    list.press("\r", "reading ");
    let (_coordinator, _) = cluster.coordinator(&address);
    list.wait_for("recorded");
    list.press("q", "\x1b[?1049l");
    assert_eq!(list.ended().code(), Some(0));
}
