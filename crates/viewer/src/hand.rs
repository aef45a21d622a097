//! An env that is played by hand: the effects of keys and time.

use std::collections::VecDeque;
use std::time::Duration;

use rollhouse_core::{ColumnData, EnvSpec, EpisodeName, Interruption, Outcome};
use rollhouse_env::ImageSize;
use rollhouse_replay::PlayedStep;

use crate::command_line::CommandLine;
use crate::controls::{Controls, Pressed};
use crate::element::{Element, elements_of};
use crate::keys::{Event, Key};
use crate::numbers::{count, plain};
use crate::overlay::Overlay;
use crate::pace::Pace;
use crate::player::Actions;

/// The current state of a game.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Name of the current episode.
    pub name: EpisodeName,
    /// Step that the episode has reached.
    pub step: PlayedStep,
    /// Outcome of the episode; `None` while it goes on.
    pub outcome: Option<Outcome>,
}

/// A game in the hands of a person.
///
/// It knows nothing of a terminal or of the env: it is told [`Event`]s and the state of the game, says what should be
/// done to the game, and a screen is drawn from it.
#[derive(Debug)]
pub struct Hand {
    env: String,
    /// A line about what is played and where it is recorded.
    about: String,
    form: Option<ImageSize>,
    controls: Controls,
    actions: Actions,
    elements: Vec<Element>,
    stands: Standing,
    /// Rewards and observations of the last steps, the newest last.
    history: VecDeque<(f64, Vec<f64>)>,
    pace: Pace,
    can_begin_anew: bool,
    commands: CommandLine,
    overlay: Overlay,
}

/// A deed: what the caller should do to the game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Take a step with [`Hand::action`].
    Step,
    /// Carry out [`Hand::command`], and have the answer told by [`Hand::hear`].
    Command,
    /// End the episode and begin the next one.
    BeginAnew,
    /// End the game.
    Quit,
}

/// A description of what is played, for [`Hand::new`].
#[derive(Debug)]
pub struct Table<'a> {
    /// Spec of the env.
    pub spec: &'a EnvSpec,
    /// Form of the env's pictures; `None` if it does not draw itself.
    pub form: Option<ImageSize>,
    /// A line about what is played and where it is recorded.
    pub about: &'a str,
    /// Steps per second at speed 1x.
    pub steps_per_second: f64,
    /// Whether there can be another episode after this one.
    pub can_begin_anew: bool,
}

impl Hand {
    /// Makes a hand that is paused at the game's current state.
    pub fn new(table: &Table<'_>, stands: Standing) -> Self {
        let Table { spec, form, about, steps_per_second, can_begin_anew } = *table;
        let mut hand = Self {
            env: plain(&spec.id),
            about: plain(about),
            form,
            controls: Controls::new(&spec.action_space, &spec.action_names),
            actions: Actions::of(spec),
            elements: elements_of(&spec.obs_columns(), &[]),
            stands: stands.clone(),
            history: VecDeque::new(),
            pace: Pace::new(steps_per_second, 0),
            can_begin_anew,
            commands: CommandLine::of(spec),
            overlay: Overlay::default(),
        };
        hand.come_to(stands);
        hand
    }

    /// Takes the state of the game after a deed.
    pub fn come_to(&mut self, stands: Standing) {
        if stands.step.t == 0 {
            self.history.clear();
        }
        let values = self.elements.iter().map(|element| element.value(&stands.step)).collect();
        if self.history.len() >= HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((stands.step.reward.unwrap_or(f64::NAN), values));
        if let Some(outcome) = stands.outcome {
            self.pace.pause();
            let how = match outcome {
                Outcome::Interrupted(Interruption::Crashed) => "the env failed".to_owned(),
                outcome => format!("over: {}", outcome.word()),
            };
            let next = if self.can_begin_anew { "r next episode, q ends" } else { "q ends" };
            self.overlay.say(format!("{how} after {} steps; {next}", count(stands.step.t)));
        }
        self.stands = stands;
    }

    /// Handles an event; returns what should be done to the game.
    pub fn on(&mut self, event: Event) -> Option<Deed> {
        match event {
            Event::Tick(passed) => self.tick(passed),
            Event::Key(key) => self.key(key),
            Event::Point(_) => None,
        }
    }

    /// Lets time pass, in which now and then a step is due. Time in which no step could be taken is not made up for.
    fn tick(&mut self, passed: Duration) -> Option<Deed> {
        if self.pace.let_pass(passed) == 0 {
            return None;
        }
        self.pace.take_one();
        Some(Deed::Step)
    }

    fn key(&mut self, key: Key) -> Option<Deed> {
        if matches!(key, Key::Ctrl('c')) {
            return Some(Deed::Quit);
        }
        if std::mem::take(&mut self.overlay.shows_help) {
            return None;
        }
        if self.commands.typed().is_some() {
            return self.commands.press(key).then_some(Deed::Command);
        }
        if self.stands.outcome.is_none() {
            self.overlay.message = None;
        }
        match key {
            Key::Char('q') | Key::Escape => return Some(Deed::Quit),
            Key::Char('?') => {
                self.overlay.shows_help = true;
                self.pace.pause();
            }
            Key::Char('r') if self.can_begin_anew => {
                self.pace.set_playing(false);
                self.overlay.message = None;
                return Some(Deed::BeginAnew);
            }
            Key::Char('r') => self.overlay.say("there is one episode in a fork; q ends"),
            Key::Char(':') => self.commands.open(),
            Key::Char('+' | '=') => self.pace.go_faster(),
            Key::Char('-') => self.pace.go_slower(),
            Key::PageDown => self.overlay.scroll_on(self.elements.len()),
            Key::PageUp => self.overlay.scroll_back(),
            Key::Char(' ') if self.stands.outcome.is_none() => {
                self.pace.set_playing(!self.pace.is_playing());
            }
            Key::Char('.') | Key::Enter => {
                self.pace.pause();
                return self.step();
            }
            key => match self.controls.press(key) {
                // While time stands still, a key is a step.
                Pressed::Chosen if !self.pace.is_playing() => return self.step(),
                Pressed::Chosen | Pressed::Moved | Pressed::No => {}
            },
        }
        None
    }

    fn step(&self) -> Option<Deed> {
        self.stands.outcome.is_none().then_some(Deed::Step)
    }

    /// Returns the command that was given last: the name of a method and its arguments, as they were typed.
    pub fn command(&self) -> &str {
        self.commands.last()
    }

    /// Takes the answer to a command, or why it came to nothing.
    pub fn hear(&mut self, answer: &str) {
        self.overlay.say(plain(answer));
    }

    /// Stops time.
    pub fn pause(&mut self) {
        self.pace.pause();
    }

    /// Returns the action that is chosen: one row of the action column.
    pub fn action(&self) -> ColumnData {
        self.controls.action()
    }

    /// Returns the time until a step is due; `None` while time stands still.
    pub fn wait(&self) -> Option<Duration> {
        let left = self.pace.seconds_left();
        self.pace.is_playing().then(|| Duration::from_secs_f64(left.min(MAX_WAIT)))
    }

    /// Returns the current state of the game.
    pub const fn stands(&self) -> &Standing {
        &self.stands
    }

    /// Returns whether time passes.
    pub const fn is_playing(&self) -> bool {
        self.pace.is_playing()
    }

    pub(crate) fn env(&self) -> &str {
        &self.env
    }

    pub(crate) fn about(&self) -> &str {
        &self.about
    }

    pub(crate) const fn form(&self) -> Option<ImageSize> {
        self.form
    }

    pub(crate) const fn commands(&self) -> &CommandLine {
        &self.commands
    }

    pub(crate) const fn controls(&self) -> &Controls {
        &self.controls
    }

    pub(crate) const fn shows_help(&self) -> bool {
        self.overlay.shows_help
    }

    pub(crate) fn message(&self) -> Option<&str> {
        self.overlay.message.as_deref()
    }

    pub(crate) const fn pace(&self) -> &Pace {
        &self.pace
    }

    pub(crate) const fn can_begin_anew(&self) -> bool {
        self.can_begin_anew
    }

    /// Returns the action that led to the current step, as text.
    pub(crate) fn last_action(&self) -> String {
        self.stands.step.action.as_ref().map_or_else(|| "-".into(), |action| self.actions.name(action))
    }

    pub(crate) fn elements(&self) -> &[Element] {
        &self.elements
    }

    pub(crate) const fn scrolled(&self) -> usize {
        self.overlay.scrolled
    }

    pub(crate) const fn history(&self) -> &VecDeque<(f64, Vec<f64>)> {
        &self.history
    }
}

/// Steps that sparklines show.
const HISTORY: usize = 64;
/// The longest pause between two steps, in seconds.
const MAX_WAIT: f64 = 3600.0;
