//! `rollhouse play`: an env that is played at the terminal by hand.

use std::io::{self, IsTerminal};
use std::path::Path;

use rollhouse_core::{ColumnData, EnvSpec, SeedSchedule};
use rollhouse_engine::{EngineConfig, StepError};
use rollhouse_env::{EnvEntry, Image, ImageSize, RenderError};
use rollhouse_host::ConnectWatch;
use rollhouse_replay::Recorder;
use rollhouse_viewer::{
    Game, GameError, Hand, HandError, LEAST, Look, Pictures, Standing, Table, play_by_hand,
};
use rustix::termios::tcgetwinsize;

use crate::args::{HandArgs, PlayEnvArgs, data_option};
use crate::failure::{Failure, Status};
use crate::human::{Count, Real, counted};
use crate::one_lane::{OneLane, PlayedEpisode};
use crate::output::Output;
use crate::python_envs;
use crate::recording::{header_of, open_recorder, record_failure, refuse_store};
use crate::rollout::{checked_options, seed_or_drawn};
use crate::table::{self, Align};

pub(crate) fn run(args: &PlayEnvArgs, out: &mut Output) -> Result<Status, Failure> {
    let connecting = ConnectWatch::default();
    let entry = python_envs::of_id(&args.env, &args.plugins, &args.python, true, &connecting)?;
    let options = checked_options(&entry, &args.env_options)?;
    refuse_terminal()?;
    let (dir, seed) = (args.folder(), seed_or_drawn(args.seed));
    let way_out = "--data DIR records into another folder";
    refuse_store(&dir, way_out)?;
    let recorder = open_recorder(&dir, "--data", way_out)?;
    let schedule = SeedSchedule::PerEpisode { run_seed: seed };
    let config = EngineConfig { schedule, options: vec![options], ..OneLane::config() };
    let header = header_of(&entry, config.clone(), BY_HAND, None);
    let run = header.run;
    let recording = recorder.begin_run(header).map_err(|error| Failure::of(Status::Failed, &error))?;
    let mut lane =
        OneLane::new(&entry, config, recording, run).map_err(|error| Failure::of(Status::Failed, &error))?;
    lane.begin().map_err(|error| Failure::of(Status::Failed, &error))?;
    let about = format!("played by hand, seed {seed}, recorded in {}", dir.display());
    let sitting = GameSetup { entry: &entry, spec: entry.spec(), about: &about, can_begin_anew: true };
    let (count, played) = sitting.play(lane, recorder, &args.hand)?;
    print(&played, count, &format!("{}, seed {seed}", entry.spec().id), &dir, out)?;
    Ok(Status::Done)
}

/// Refuses a terminal on which no game can be shown, before anything is recorded.
pub(crate) fn refuse_terminal() -> Result<(), Failure> {
    let refused = |message: String| Err(Failure::new(Status::Usage, message));
    if !io::stdout().is_terminal() {
        return refused("playing by hand needs a terminal, and stdout is not one".into());
    }
    if !io::stdin().is_terminal() {
        return refused("playing by hand needs a keyboard, and stdin is not a terminal".into());
    }
    let (width, height) = LEAST;
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col < width || size.ws_row < height => refused(format!(
            "the terminal has {} columns and {} rows, {width} and {height} are wanted",
            size.ws_col, size.ws_row
        )),
        // Its first frame tells.
        _ => Ok(()),
    }
}

/// A game that is about to be played.
pub(crate) struct GameSetup<'a> {
    pub(crate) entry: &'a EnvEntry,
    pub(crate) spec: &'a EnvSpec,
    /// The line about the game on the screen.
    pub(crate) about: &'a str,
    pub(crate) can_begin_anew: bool,
}

impl GameSetup<'_> {
    /// Plays the game to its end, and returns how many episodes that were, and the last of them.
    pub(crate) fn play(
        &self,
        mut lane: OneLane,
        recorder: Recorder,
        args: &HandArgs,
    ) -> Result<(u64, Vec<PlayedEpisode>), Failure> {
        let failed = |error: &dyn std::error::Error| Failure::of(Status::Failed, error);
        let usual = self.entry.render_fps().map_or(USUAL_STEPS_PER_SECOND, f64::from);
        let table = Table {
            spec: self.spec,
            form: self.entry.render_size(),
            about: self.about,
            steps_per_second: args.fps.unwrap_or(usual),
            can_begin_anew: self.can_begin_anew,
        };
        let hand = Hand::new(&table, standing(&mut lane).map_err(|error| failed(&error))?);
        let variable = |name: &str| std::env::var(name).ok();
        let minds_colour = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        let pictures = match args.pictures {
            Pictures::Asked if minds_colour => Pictures::Cells,
            pictures => pictures,
        };
        let mut game = Recorded { open: Some((lane, recorder)), played: Vec::new(), count: 0, error: None };
        let done = play_by_hand(hand, &mut game, Look::of(variable), pictures);
        // Where the terminal could not be taken.
        game.close();
        match (done, game.error) {
            (Err(error @ (HandError::Terminal(_) | HandError::Game(_))), _) => Err(failed(&error)),
            (Ok(()), Some(error)) => Err(error),
            (Ok(()), None) => Ok((game.count, game.played)),
        }
    }
}

/// A lane whose episodes are recorded.
struct Recorded {
    /// The lane and its recorder, until they are closed.
    open: Option<(OneLane, Recorder)>,
    count: u64,
    played: Vec<PlayedEpisode>,
    /// The failure at its end, if there was one.
    error: Option<Failure>,
}

impl Recorded {
    fn lane(&mut self) -> Result<&mut OneLane, GameError> {
        self.open.as_mut().map(|(lane, _)| lane).ok_or_else(|| "it is closed".into())
    }
}

impl Game for Recorded {
    fn step(&mut self, action: &ColumnData) -> Result<Standing, GameError> {
        let lane = self.lane()?;
        lane.step(action.as_ref())?;
        Ok(standing(lane)?)
    }

    fn begin_anew(&mut self) -> Result<Standing, GameError> {
        let lane = self.lane()?;
        lane.begin_next()?;
        Ok(standing(lane)?)
    }

    fn command(&mut self, line: &str) -> Result<String, GameError> {
        let (method, arguments) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let payload = payload_of(arguments.trim());
        Ok(self.lane()?.engine().call(0, method, &payload)?)
    }

    fn render(&mut self, size: ImageSize) -> Result<Image, RenderError> {
        let lane = self.lane().map_err(|_| RenderError::Lost)?;
        lane.engine().render(0, Some(size)).map_err(render_error)
    }

    fn text(&mut self, columns: usize) -> Result<String, RenderError> {
        let lane = self.lane().map_err(|_| RenderError::Lost)?;
        lane.engine().text(0, columns).map_err(render_error)
    }

    fn close(&mut self) {
        let Some((mut lane, recorder)) = self.open.take() else { return };
        let closed = lane.close();
        let (count, played) = lane.all_played();
        (self.count, self.played) = (count, played.collect());
        drop(lane);
        let recorded = recorder.finish();
        self.error = match (closed, recorded) {
            (_, Err(error)) => Some(record_failure(&error)),
            (Err(error), _) => Some(Failure::of(Status::Failed, &error)),
            (Ok(()), Ok(_)) => None,
        };
    }
}

fn standing(lane: &mut OneLane) -> Result<Standing, StepError> {
    Ok(Standing { name: lane.name(), step: lane.shown()?, outcome: lane.outcome() })
}

/// Returns the payload of arguments that were typed: JSON as it is, else a list of the words, of which integers, `true` and
/// `false` are what they are and others texts.
fn payload_of(arguments: &str) -> String {
    if arguments.is_empty() || arguments.starts_with(['{', '[', '"']) {
        return arguments.to_owned();
    }
    let value = |word: &str| match (word.parse::<i64>(), word.parse::<bool>()) {
        (Ok(number), _) => serde_json::json!(number),
        (_, Ok(flag)) => serde_json::json!(flag),
        _ => serde_json::json!(word),
    };
    serde_json::Value::Array(arguments.split_whitespace().map(value).collect()).to_string()
}

fn render_error(error: StepError) -> RenderError {
    match error {
        StepError::Render { source, .. } => source,
        _ => RenderError::Lost,
    }
}

/// Prints what was played and how to watch it.
pub(crate) fn print(
    played: &[PlayedEpisode],
    count: u64,
    what: &str,
    dir: &Path,
    out: &mut Output,
) -> io::Result<()> {
    writeln!(out, "{what}: {} recorded in {}\n", counted(count, "episode"), dir.display())?;
    let columns = [
        ("EPISODE", Align::Left),
        ("RETURN", Align::Right),
        ("STEPS", Align::Right),
        ("OUTCOME", Align::Left),
    ];
    let mut table = table::Table::new(&columns);
    for PlayedEpisode { name, steps, total_reward, outcome } in played {
        let (total, steps) = (Real(*total_reward).to_string(), Count(*steps).to_string());
        table.row(vec![name.to_string(), total, steps, outcome.word().to_owned()]);
    }
    table.write(out)?;
    let earlier = count.saturating_sub(played.len() as u64);
    if earlier > 0 {
        writeln!(out, "and {} before them", Count(earlier))?;
    }
    let Some(last) = played.iter().rev().find(|played| played.steps > 0) else { return Ok(()) };
    writeln!(out, "\nWatch one: rollhouse replay play {}{}", last.name, data_option(dir))
}

/// The name that is recorded as the policy of a person.
pub(crate) const BY_HAND: &str = "hand";
/// Steps a second of an env that does not say how it is usually shown.
const USUAL_STEPS_PER_SECOND: f64 = 30.0;
