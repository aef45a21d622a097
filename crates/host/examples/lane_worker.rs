//! A worker with lanes whose numbers can be foretold, and which fail as they are told: for testing a host of late lanes.
//!
//! It takes the place of an interpreter and understands what `rollhouse/env_worker.py` does. An observation is the
//! lane's seed, how many steps its episode has, and a flag; a reward is the action; an episode ends after `length` steps.
//! The argument `fault` names what goes wrong when lane `lane` takes its step number `at`; with "draw" it draws itself. With `shift` it declares an option
//! of that name, which is added to the seed that is shown and may not be negative, and one that is a text.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use rollhouse_arena::SharedMemory;
use rollhouse_host::{Command, Link, LinkError};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Hello {
    kwargs: Arguments,
    lanes: usize,
    record: Option<Places>,
    options: Vec<Shift>,
    picture: bool,
}

/// Options of an episode.
#[derive(Deserialize)]
struct Shift {
    shift: f64,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    fault: String,
    #[serde(default)]
    lane: usize,
    #[serde(default)]
    at: u64,
    /// File that is made by the process of lane `lane` which dies by the fault "die", and keeps the next one from that. By
    /// the fault "leave" the process that is left behind lives for as long as the file is there; by the fault "connect late"
    /// the lane connects once the file is there.
    marker: Option<PathBuf>,
    length: u64,
    #[serde(default)]
    shift: bool,
}

#[derive(Deserialize)]
struct Places {
    first: usize,
    stride: usize,
    reward: usize,
    action: usize,
    observation: Vec<usize>,
}

#[derive(Deserialize)]
struct Called {
    lane: usize,
    method: String,
    payload: String,
}

#[derive(Deserialize)]
struct Drawn {
    lane: usize,
}

#[derive(Clone, Default)]
struct Lane {
    seed: u64,
    shift: f64,
    steps: u64,
    /// Steps since the env was made.
    all_steps: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [_, scribbles, marker] = &arguments[..]
        && scribbles == SCRIBBLES
    {
        return scribble(marker.as_ref()).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    match work() {
        Ok(code) => code,
        Err(error) => panic!("{error}"),
    }
}

fn work() -> Result<ExitCode, LinkError> {
    let host = std::env::args().next_back().and_then(|id| id.parse().ok());
    let mut link = Link::open(host.ok_or(LinkError::Protocol("no process id of the host"))?)?;
    let hello: Hello = serde_json::from_slice(link.hello()).map_err(|_| LinkError::Protocol("a hello"))?;
    let Hello { kwargs, lanes, record, options, picture } = hello;
    let first = record.as_ref().map_or(0, |record| record.first);
    if record.is_some() && first == kwargs.lane && dies(&kwargs)? {
        return Ok(ExitCode::from(3));
    }
    let fault = if options.iter().any(|options| options.shift < 0.0) { "options" } else { &kwargs.fault };
    let drawing = (fault == "draw").then_some(picture);
    link.ready(answer(fault, first, kwargs.shift, drawing).as_bytes())?;
    let Some(places) = record else { return Ok(ExitCode::SUCCESS) };
    let mut states = vec![Lane::default(); lanes];
    loop {
        let Command { code, payload } = link.receive()?;
        if code & 0xff == 5 {
            link.reply(1, called(&payload).as_bytes())?;
            continue;
        }
        if code & 0xff == 6 {
            link.reply(1, &drawn(&payload))?;
            continue;
        }
        if code & 0xff != 1 {
            link.reply(0, &[])?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut options = &payload[lanes * 9..];
        while let Some((head, rest)) = options.split_first_chunk::<8>() {
            let [lane, bytes] =
                [0, 4].map(|at| head[at..].first_chunk().copied().map_or(0, u32::from_le_bytes));
            let (json, rest) = rest.split_at(bytes as usize);
            let of_lane: Shift = serde_json::from_slice(json).map_err(|_| LinkError::Protocol("options"))?;
            states[lane as usize].shift = of_lane.shift;
            options = rest;
        }
        for (lane, state) in states.iter_mut().enumerate() {
            let at = lanes + lane * 8;
            let seed = payload[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let mut flags = 0;
            match payload[lane] {
                0 => continue,
                1 => (state.steps, state.all_steps) = (state.steps + 1, state.all_steps + 1),
                2 => state.steps = 0,
                _ => *state = Lane { seed, shift: state.shift, ..Lane::default() },
            }
            let fails = payload[lane] == 1 && first + lane == kwargs.lane && state.all_steps == kwargs.at;
            let fault = if fails { kwargs.fault.as_str() } else { "" };
            flags |= u64::from(state.steps == kwargs.length);
            match fault {
                "exit" => {
                    std::io::stderr().write_all(b"it had enough\n")?;
                    return Ok(ExitCode::SUCCESS);
                }
                "connect" => {
                    link.connecting(1)?;
                    loop {
                        std::thread::park();
                    }
                }
                "connect late" => {
                    link.connecting(1)?;
                    while !kwargs.marker.as_ref().is_some_and(|marker| marker.exists()) {
                        std::thread::yield_now();
                    }
                    link.connecting(0)?;
                }
                "hang" => loop {
                    std::thread::park();
                },
                "noise" => std::io::stdout().write_all(&vec![b'x'; 1 << 20])?,
                "fill and end" => {
                    fill()?;
                    return Ok(ExitCode::from(5));
                }
                "fill and hang" => {
                    fill()?;
                    loop {
                        std::thread::park();
                    }
                }
                "fill and go on" => fill()?,
                "leave" => {
                    leave_behind(&link, &kwargs)?;
                    return Ok(ExitCode::from(6));
                }
                "silence" => continue,
                "raise" => flags = 4,
                "flags" => flags = 9,
                _ => {}
            }
            write(&link, &places, lane, state, fault);
            link.publish(lane * places.stride, code >> 8 << 8 | flags)?;
            if fault == "connect late" {
                loop {
                    std::thread::park();
                }
            }
        }
        link.reply(0, &[])?;
    }
}

/// Returns the answer to a call, which is what the method is named after.
#[allow(clippy::disallowed_methods, reason = "it ends as an env may end it, from wherever it is")]
fn called(payload: &[u8]) -> String {
    let Ok(Called { lane, method, payload }) = serde_json::from_slice(payload) else { return String::new() };
    match method.as_str() {
        "say" => json!({ "answer": format!("{lane} {payload}") }).to_string(),
        "refuse" => json!({ "refused": payload }).to_string(),
        "fail" => json!({ "lost": payload }).to_string(),
        "exit" => std::process::exit(0),
        _ => "nonsense".to_owned(),
    }
}

/// Returns the picture of a lane: the second one's has fewer pixels than it says, the third's is none.
#[allow(clippy::disallowed_methods, reason = "it ends as an env may end it, from wherever it is")]
fn drawn(payload: &[u8]) -> Vec<u8> {
    let Ok(Drawn { lane }) = serde_json::from_slice(payload) else { return Vec::new() };
    let width = match lane {
        0 => 2_u32,
        1 => 4096,
        2 => return b"no picture here".to_vec(),
        _ => std::process::exit(0),
    };
    [&width.to_le_bytes()[..], &1_u32.to_le_bytes(), &[1, 2, 3, 4, 5, 6]].concat()
}

/// Returns whether the process is to end before it is ready, and marks that it has.
fn dies(kwargs: &Arguments) -> Result<bool, LinkError> {
    if kwargs.fault != "die" || kwargs.marker.as_ref().is_some_and(|marker| marker.exists()) {
        return Ok(false);
    }
    if let Some(marker) = &kwargs.marker {
        std::fs::write(marker, [])?;
    }
    std::io::stderr().write_all(b"it fell over\n")?;
    Ok(true)
}

/// Writes ones over all shared memory that the process reaches, by its mappings and by its descriptors.
fn fill() -> io::Result<()> {
    let memory = File::options().write(true).open("/proc/self/mem")?;
    for line in fs::read_to_string("/proc/self/maps")?.lines().filter(|line| line.contains(MEMFD)) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let [start, end] = range.map_or([0; 2], |(start, end)| {
            [start, end].map(|address| u64::from_str_radix(address, 16).unwrap_or_default())
        });
        memory.write_all_at(&vec![0xff; (end - start) as usize], start)?;
    }
    for descriptor in fs::read_dir("/proc/self/fd")?.flatten() {
        let path = descriptor.path();
        let is_memory = fs::read_link(&path).is_ok_and(|file| file.to_string_lossy().contains(MEMFD));
        // One that is sealed cannot be written.
        if is_memory && let Ok(file) = File::options().write(true).open(&path) {
            let _sealed = file.write_all_at(&vec![0xff; file.metadata()?.len() as usize], 0);
        }
    }
    Ok(())
}

/// Starts a process that outlives this one and its group, and writes over its memory again and again.
fn leave_behind(link: &Link, kwargs: &Arguments) -> Result<(), LinkError> {
    let (memory, _) = link.memory().ok_or(LinkError::Protocol("no memory"))?;
    let mut child = std::process::Command::new(std::env::current_exe()?);
    child.arg(SCRIBBLES).arg(kwargs.marker.as_deref().unwrap_or("/nowhere".as_ref())).process_group(0);
    let mut child = child.stdin(memory.as_fd().try_clone_to_owned()?).stdout(Stdio::piped()).spawn()?;
    // It is at it once it says so.
    if let Some(said) = &mut child.stdout {
        said.read_exact(&mut [0])?;
    }
    Ok(())
}

/// Writes ones over the memory that is its standard input, for as long as the file is there and at most a minute.
fn scribble(marker: &Path) -> io::Result<()> {
    let memory = SharedMemory::attach(io::stdin().as_fd().try_clone_to_owned()?)?;
    let (ones, until) = (vec![0xff; memory.len()], Instant::now() + Duration::from_secs(60));
    memory.write(0, &ones);
    io::stdout().write_all(b"x")?;
    io::stdout().flush()?;
    while marker.exists() && Instant::now() < until {
        memory.write(0, &ones);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

/// Argument by which the program writes over a memory and does nothing else.
const SCRIBBLES: &str = "scribbles";
/// How memfds are named in /proc.
const MEMFD: &str = "/memfd:rollhouse";

fn write(link: &Link, places: &Places, lane: usize, state: &Lane, fault: &str) {
    let Some((memory, offset)) = link.memory() else { return };
    let at = offset + lane * places.stride;
    let action =
        memory.read(at + places.action, 8).first_chunk().map_or(0, |bytes| i64::from_ne_bytes(*bytes));
    let reward = match fault {
        "reward" => f64::NAN,
        _ if state.steps == 0 => 0.0,
        _ => action as f64,
    };
    memory.write(at + places.reward, &reward.to_ne_bytes());
    let pair: Vec<u8> = [(state.seed as f64 + state.shift) as f32, state.steps as f32]
        .iter()
        .flat_map(|v| v.to_ne_bytes())
        .collect();
    memory.write(at + places.observation[0], &pair);
    memory.write(at + places.observation[1], &[if fault == "boolean" { 2 } else { 1 }]);
}

fn answer(fault: &str, first: usize, shift: bool, drawing: Option<bool>) -> String {
    if fault == "options" {
        return r#"{"refused":{"kind":"options_refused","message":"shift is below 0"}}"#.to_owned();
    }
    let options = match shift {
        true => {
            r#"{"name":"shift","default":0.5,"summary":"added"},{"name":"text","default":"","summary":""}"#
        }
        false => "",
    };
    if fault == "refuse" {
        return r#"{"refused":{"kind":"not_allowed","message":"package `lanes` is not in the list"}}"#
            .to_owned();
    }
    if fault == "lie" {
        return "{}".to_owned();
    }
    let drawing = match drawing {
        Some(false) => r#","render_mode":"rgb_array""#,
        Some(true) => r#","render_mode":"rgb_array","picture":{"width":2,"height":1,"fps":7}"#,
        None => "",
    };
    let high = if fault == "differ" && first > 0 { 2 } else { 1 };
    format!(
        r#"{{"made":{{"observation":{{"kind":"dict","names":["a","b"],"spaces":[
            {{"kind":"box","low":["-inf"],"high":["inf"],"shape":[2],"dtype":"float32"}},
            {{"kind":"box","low":[0],"high":[{high}],"shape":[],"dtype":"bool"}}]}},
            "action":{{"kind":"discrete","n":10,"starts":[0]}},"max_episode_steps":null,"gymnasium":"none",
            "options":[{options}]{drawing}}}}}"#
    )
}
