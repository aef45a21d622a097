//! The player of one episode: its position, and the effects of keys and time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{ColumnData, ColumnSpec, EnvSpec, Space};
use rollhouse_env::{Image, ImageSize, RenderError};
use rollhouse_replay::{Divergence, Envs, Episode, EpisodeInfo, PlayedStep, SeekBounds, Seeker, Timeline};

use crate::element::{Element, elements_of};
use crate::keys::{Event, Key};
use crate::marks::{Mark, MarkKind, marks_of};
use crate::numbers::{plain, real};
use crate::overlay::Overlay;
use crate::pace::Pace;
use crate::search::Condition;

/// A player of an episode, in which a person plays, pauses and seeks.
///
/// It knows nothing of a terminal: it is told [`Event`]s, and a screen is drawn from it. Between two events, call
/// [`Player::pass`] until it returns true.
#[derive(Debug)]
pub struct Player<'a> {
    info: EpisodeInfo,
    /// Seeker of the episode; else the reason why there is none.
    seeker: Result<Seeker<'a>, String>,
    elements: Vec<Element>,
    action: Actions,
    /// The last steps, the newest last.
    history: VecDeque<Moment>,
    step: Option<PlayedStep>,
    t: u64,
    pace: Pace,
    /// Prompt that is open, and the text typed so far.
    prompt: Option<(Prompt, String)>,
    overlay: Overlay,
    /// First step at which it differs from the episode that it is compared with.
    difference: Option<u64>,
    /// Whether more of it is being recorded.
    is_growing: bool,
    search: Search,
    /// Step of the episode that stands for step 0, if nothing before it is known.
    first_step: u64,
    /// Whether a frame of a lane that plays is shown.
    is_live: bool,
}

/// The searches for steps that meet a condition.
#[derive(Debug, Default)]
struct Search {
    /// Condition of a running search, and the step that the search has reached.
    running: Option<(Condition, u64)>,
    /// Condition of the last search.
    last: Option<Condition>,
}

/// The facts of a frame of a lane that plays, beside its state.
#[derive(Debug)]
pub(crate) struct LiveStep {
    pub(crate) action: Option<ColumnData>,
    pub(crate) reward: f64,
    pub(crate) ended: (bool, bool),
}

/// A prompt: the purpose of what is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// A step to go to.
    Step,
    /// A condition that the next step meets.
    Search,
}

/// Names of actions.
#[derive(Debug)]
pub(crate) enum Actions {
    /// These names, of which the first stands for that number; actions beyond them are shown by their number.
    Named(i64, Vec<String>),
    /// No names: actions are shown as numbers.
    Numbers(ColumnSpec),
}

/// The values of a step that the sparklines show.
#[derive(Debug)]
pub(crate) struct Moment {
    t: u64,
    pub(crate) reward: f64,
    pub(crate) values: Vec<f64>,
}

/// A request of a player to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// End the viewer.
    Quit,
    /// Go back to the list where the episode was chosen, if it was, else end.
    Leave,
    /// Play the next episode.
    Next,
    /// Play the one before.
    Previous,
}

impl<'a> Player<'a> {
    /// Makes a player at step `at`, or at the last step if there are fewer. It plays unless that is the last.
    pub fn new(envs: impl Into<Envs<'a>>, episode: Episode, at: u64, speed: i32) -> Self {
        let info = episode.info.clone();
        let spec = &info.run.spec;
        let action = Actions::of(spec);
        let has_infos = episode.steps.as_ref().is_none_or(|steps| !steps.infos.is_empty());
        let infos = if has_infos { &spec.info_channels[..] } else { &[] };
        let elements = elements_of(&spec.obs_columns(), infos);
        let first_step = episode.from.as_ref().map_or(0, |from| from.step);
        let seeker = Seeker::new(envs, Arc::new(episode), &SeekBounds::default());
        let t = at.min(info.length);
        let mut player = Self {
            seeker: seeker.map_err(|error| plain(&error.to_string())),
            elements,
            action,
            history: VecDeque::new(),
            step: None,
            t,
            pace: Pace::new(STEPS_PER_SECOND, speed),
            prompt: None,
            overlay: Overlay::default(),
            difference: None,
            is_growing: false,
            search: Search::default(),
            first_step,
            is_live: false,
            info,
        };
        player.pace.set_playing(t < player.info.length && player.seeker.is_ok());
        player.come_to(t);
        player
    }

    /// Passes at most `most` steps for the first time, which fills the timeline; returns true once there are no more.
    ///
    /// While a search runs, it searches as many steps instead.
    pub fn pass(&mut self, most: u64) -> bool {
        if self.search.running.is_some() {
            self.look_for(most);
            return false;
        }
        self.seeker.as_mut().is_ok_and(|seeker| seeker.pass(most)) || self.seeker.is_err()
    }

    /// Searches at most `most` further steps for one that meets the condition.
    fn look_for(&mut self, most: u64) {
        let Some((condition, mut at)) = self.search.running.take() else { return };
        let length = self.info.length;
        for _ in 0..most {
            if at >= length {
                self.overlay.say(format!("no later step has {condition}"));
                // The picture is that of the step it stands at.
                let _there = self.seeker.as_mut().map(|seeker| seeker.seek(self.t));
                return;
            }
            at += 1;
            let Ok(seeker) = &mut self.seeker else { return };
            match seeker.seek(at) {
                Ok(step) if condition.meets(&step) => return self.jump(at),
                Ok(_) => {}
                Err(error) => {
                    self.overlay.say(plain(&error.to_string()));
                    return;
                }
            }
        }
        self.search.running = Some((condition, at));
    }

    /// Sets whether more of the episode is being recorded, or it has ended.
    pub const fn set_growing(&mut self, is_growing: bool) {
        self.is_growing = is_growing;
    }

    /// Returns whether more of the episode is being recorded, as far as is known.
    pub const fn is_growing(&self) -> bool {
        self.is_growing
    }

    /// Takes more of the episode that is played, which was recorded since. A player that stood at its end and played
    /// goes on.
    pub fn extend(&mut self, episode: Episode) {
        let info = episode.info.clone();
        if let Ok(seeker) = &mut self.seeker
            && seeker.extend(Arc::new(episode))
        {
            self.info = info;
        }
    }

    /// Handles an event; the caller carries out what it returns.
    pub fn on(&mut self, event: Event) -> Option<Ask> {
        match event {
            Event::Tick(passed) => self.tick(passed),
            Event::Point(t) => self.jump(t),
            Event::Key(key) => {
                self.overlay.message = None;
                return self.key(key);
            }
        }
        None
    }

    fn tick(&mut self, passed: Duration) {
        let due = self.pace.let_pass(passed);
        if due == 0 {
            return;
        }
        self.pace.take(due);
        self.come_to(self.t.saturating_add(due).min(self.info.length));
        // At the end of what there is of one that is being recorded it waits for more.
        if self.t >= self.info.length && !self.is_growing {
            self.pace.pause();
        }
    }

    fn key(&mut self, key: Key) -> Option<Ask> {
        if key == Key::Ctrl('c') {
            return Some(Ask::Quit);
        }
        if self.prompt.is_some() {
            self.type_in(key);
            return None;
        }
        if self.search.running.take().is_some() && key == Key::Escape {
            self.come_to(self.t);
            return None;
        }
        if std::mem::take(&mut self.overlay.shows_help) && matches!(key, Key::Escape | Key::Char('?' | 'q')) {
            return None;
        }
        let length = self.info.length;
        match key {
            Key::Char('q') => return Some(Ask::Quit),
            Key::Escape => return Some(Ask::Leave),
            Key::Char('n') => return Some(Ask::Next),
            Key::Char('p') => return Some(Ask::Previous),
            Key::Char('?') => self.overlay.shows_help = true,
            Key::Char(' ') => self.play_or_pause(),
            Key::Char('+' | '=') => self.pace.go_faster(),
            Key::Char('-') => self.pace.go_slower(),
            Key::Char('g' | ':') => self.prompt = Some((Prompt::Step, String::new())),
            Key::Char('/') => self.prompt = Some((Prompt::Search, String::new())),
            Key::Right | Key::Char('l') => self.jump(self.t.saturating_add(1)),
            Key::Left | Key::Char('h') => self.jump(self.t.saturating_sub(1)),
            Key::PageDown => self.jump(self.t.saturating_add((length / 10).max(1))),
            Key::PageUp => self.jump(self.t.saturating_sub((length / 10).max(1))),
            Key::Home => self.jump(0),
            Key::End => self.jump(length),
            Key::Char(']') => self.jump_to_mark(self.marks().iter().find(|mark| mark.at > self.t).cloned()),
            Key::Char('[') => {
                self.jump_to_mark(self.marks().iter().rev().find(|mark| mark.at < self.t).cloned());
            }
            Key::Char('d') => {
                let differs = self.marks().iter().find(|mark| mark.kind == MarkKind::Divergence).cloned();
                match differs {
                    Some(mark) => self.jump(mark.at),
                    None => self.overlay.say("nothing that was passed differs"),
                }
            }
            Key::Down => self.overlay.scroll_on(self.elements.len()),
            Key::Up => self.overlay.scroll_back(),
            _ => {}
        }
        None
    }

    fn play_or_pause(&mut self) {
        self.pace.set_playing(!self.pace.is_playing() && self.seeker.is_ok());
        if self.pace.is_playing() && !self.is_growing && self.t == self.info.length {
            self.come_to(0);
        }
    }

    /// Moves to a step and pauses there.
    fn jump(&mut self, t: u64) {
        self.pace.pause();
        self.come_to(t.min(self.info.length));
    }

    fn jump_to_mark(&mut self, mark: Option<Mark>) {
        match mark {
            Some(mark) => self.jump(mark.at),
            None => self.overlay.say("no further mark in that direction"),
        }
    }

    /// Handles a key while something is typed.
    fn type_in(&mut self, key: Key) {
        let Some((prompt, typed)) = &mut self.prompt else { return };
        let takes = |char: char| match prompt {
            Prompt::Step => char.is_ascii_digit() || ".,%".contains(char),
            Prompt::Search => !char.is_control(),
        };
        match key {
            Key::Escape => self.prompt = None,
            Key::Backspace => {
                typed.pop();
            }
            Key::Char(char) if typed.chars().count() < MAX_TYPED && takes(char) => typed.push(char),
            Key::Enter => {
                let (prompt, typed) = (*prompt, std::mem::take(typed));
                self.prompt = None;
                match prompt {
                    Prompt::Step => self.go_to(&typed),
                    Prompt::Search => self.search_for(&typed),
                }
            }
            _ => {}
        }
    }

    fn go_to(&mut self, typed: &str) {
        match place_of(typed, self.info.length) {
            Some(t) => self.jump(t),
            None if typed.is_empty() => {}
            None => self.overlay.say(format!("`{typed}` is neither a step nor a percentage")),
        }
    }

    /// Begins to search for the next step that meets the typed condition, or the last one again if nothing was typed.
    fn search_for(&mut self, typed: &str) {
        let parsed = match (typed.trim(), &self.search.last) {
            ("", Some(last)) => Ok(last.clone()),
            (typed, _) => Condition::parse(typed, &self.elements),
        };
        match parsed {
            Ok(condition) => {
                self.pace.pause();
                self.search.last = Some(condition.clone());
                self.search.running = Some((condition, self.t));
            }
            Err(why) => self.overlay.say(why),
        }
    }

    /// Moves to a step that exists, and fetches what the sparklines show of the steps before it.
    fn come_to(&mut self, t: u64) {
        let Ok(seeker) = &mut self.seeker else { return };
        let first = t.saturating_sub(HISTORY - 1);
        let goes_on = self.history.back().map(|last| last.t + 1).filter(|next| (first..=t).contains(next));
        if goes_on.is_none() {
            self.history.clear();
        }
        for at in goes_on.unwrap_or(first)..=t {
            match seeker.seek(at) {
                Ok(step) => {
                    let values = self.elements.iter().map(|element| element.value(&step)).collect();
                    let reward = step.reward.unwrap_or(f64::NAN);
                    if self.history.len() as u64 >= HISTORY {
                        self.history.pop_front();
                    }
                    self.history.push_back(Moment { t: at, reward, values });
                    (self.t, self.step) = (at, Some(step));
                }
                Err(error) => {
                    self.overlay.say(plain(&error.to_string()));
                    self.pace.pause();
                    break;
                }
            }
        }
        // Where it could not come, what is shown is still what it shows.
        if let (Some(step), Some(last)) = (&self.step, self.history.back())
            && last.t != step.t
        {
            self.history.clear();
        }
        self.t = self.step.as_ref().map_or(0, |step| step.t);
    }

    /// Returns the episode as listings show it.
    pub const fn info(&self) -> &EpisodeInfo {
        &self.info
    }

    /// Returns the current step.
    pub const fn at(&self) -> u64 {
        self.t
    }

    /// Returns the speed as a power of two; 0 is 30 steps per second.
    pub const fn speed(&self) -> i32 {
        self.pace.speed()
    }

    /// Shows a message until the next key.
    pub fn say(&mut self, message: impl Into<String>) {
        self.overlay.say(message.into());
    }

    /// Pauses at the current step.
    pub(crate) const fn pause(&mut self) {
        self.pace.pause();
    }

    /// Returns whether a step is being typed, or help is shown: keys then mean something else.
    pub(crate) const fn is_asking(&self) -> bool {
        self.prompt.is_some() || self.overlay.shows_help
    }

    /// Shows a frame of a lane that plays, with the action that led to it, and with what the player `before` has seen.
    pub(crate) fn show_live(&mut self, live: LiveStep, before: Option<Self>) {
        self.is_live = true;
        let LiveStep { action, reward, ended: (terminated, truncated) } = live;
        if let Some(step) = &mut self.step {
            (step.reward, step.terminated, step.truncated) =
                (action.is_some().then_some(reward), terminated, truncated);
            step.action = action;
        }
        if let (Some(before), Some(mut now)) = (before, self.history.pop_back()) {
            now.reward = reward;
            self.history = before.history;
            (self.overlay.scrolled, self.overlay.shows_help) =
                (before.overlay.scrolled, before.overlay.shows_help);
            if self.history.len() as u64 >= HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(now);
        }
    }

    /// Returns the step of the episode that stands for step 0.
    pub(crate) const fn first_step(&self) -> u64 {
        self.first_step
    }

    pub(crate) const fn is_live(&self) -> bool {
        self.is_live
    }

    pub(crate) const fn pace(&self) -> &Pace {
        &self.pace
    }

    pub(crate) const fn is_playing(&self) -> bool {
        self.pace.is_playing()
    }

    pub(crate) const fn step(&self) -> Option<&PlayedStep> {
        self.step.as_ref()
    }

    pub(crate) const fn elements(&self) -> &Vec<Element> {
        &self.elements
    }

    pub(crate) const fn scrolled(&self) -> usize {
        self.overlay.scrolled
    }

    pub(crate) const fn history(&self) -> &VecDeque<Moment> {
        &self.history
    }

    pub(crate) const fn shows_help(&self) -> bool {
        self.overlay.shows_help
    }

    pub(crate) fn prompt(&self) -> Option<(Prompt, &str)> {
        self.prompt.as_ref().map(|(prompt, typed)| (*prompt, typed.as_str()))
    }

    /// Returns the condition of the running search, and the step that it has reached.
    pub(crate) fn search(&self) -> Option<(&Condition, u64)> {
        self.search.running.as_ref().map(|(condition, at)| (condition, *at))
    }

    pub(crate) fn message(&self) -> Option<&str> {
        self.overlay.message.as_deref()
    }

    /// Returns the reason why the episode is not recomputed: then there is no picture, and maybe nothing at all.
    pub(crate) fn refused(&self) -> Option<String> {
        match &self.seeker {
            Ok(seeker) => seeker.refused().map(|error| plain(&error.to_string())),
            Err(error) => Some(error.clone()),
        }
    }

    pub(crate) fn timeline(&self) -> Option<&Timeline> {
        self.seeker.as_ref().ok().map(Seeker::timeline)
    }

    /// Returns the number of steps that were passed, if those are not all.
    pub(crate) fn passing(&self) -> Option<u64> {
        let seeker = self.seeker.as_ref().ok()?;
        (!seeker.has_passed_all()).then(|| seeker.passed())
    }

    pub(crate) fn divergence(&self) -> Option<&Divergence> {
        self.seeker.as_ref().ok()?.divergence()
    }

    pub(crate) fn marks(&self) -> Vec<Mark> {
        let versions =
            self.seeker.as_ref().map_or(&[][..], |seeker| seeker.episode().policy_versions.changes());
        marks_of(&self.info, self.is_growing, versions, self.divergence(), self.difference)
    }

    /// Marks the first step at which it differs from the episode that it is compared with.
    pub(crate) const fn mark_difference(&mut self, step: Option<u64>) {
        self.difference = step;
    }

    /// Moves to step `t`, at which another player stands, or to the last step if there are fewer.
    pub(crate) fn follow(&mut self, t: u64) {
        let t = t.min(self.info.length);
        if t != self.t {
            self.jump(t);
        }
    }

    /// Returns the form of the env's picture, if there is one.
    pub(crate) fn form(&self) -> Option<ImageSize> {
        self.seeker.as_ref().ok()?.picture_size()
    }

    /// Returns the step of the picture, if it is an earlier one than is shown: not all steps have a recorded picture.
    pub(crate) fn earlier_picture(&self) -> Option<u64> {
        let shown = self.seeker.as_ref().ok()?.picture_step()?;
        (shown < self.t).then_some(shown)
    }

    pub(crate) fn render(&self, size: ImageSize) -> Result<Image, RenderError> {
        self.seeker.as_ref().map_or(Err(RenderError::Unsupported), |seeker| seeker.render(size))
    }

    pub(crate) fn text(&self, columns: usize) -> Result<String, RenderError> {
        self.seeker.as_ref().map_or(Err(RenderError::Unsupported), |seeker| seeker.text(columns))
    }

    /// Returns the action that led to the current step, as text.
    pub(crate) fn action(&self) -> String {
        let Some(action) = self.step.as_ref().and_then(|step| step.action.as_ref()) else {
            return "-".into();
        };
        self.action.name(action)
    }
}

impl Actions {
    pub(crate) fn of(spec: &EnvSpec) -> Self {
        match &spec.action_space {
            Space::Discrete(space) if !spec.action_names.is_empty() => {
                Self::Named(space.start, spec.action_names.iter().map(|name| plain(name)).collect())
            }
            _ => Self::Numbers(spec.action_column()),
        }
    }

    /// Returns the name of an action.
    pub(crate) fn name(&self, action: &ColumnData) -> String {
        match self {
            Self::Named(start, names) => {
                let number = action.number(0);
                let named = usize::try_from(number as i64 - start).ok().and_then(|index| names.get(index));
                named.map_or_else(|| real(number), |name| format!("{number} {name}"))
            }
            Self::Numbers(column) => {
                let elements = column.elements();
                let mut shown: Vec<String> =
                    (0..elements.min(MAX_ACTION)).map(|at| real(action.number(at))).collect();
                if elements > MAX_ACTION {
                    shown.push(format!("… {} more", elements - MAX_ACTION));
                }
                shown.join(" ")
            }
        }
    }
}

/// Returns the step that is meant by a number, or by a percentage of the episode.
fn place_of(typed: &str, length: u64) -> Option<u64> {
    match typed.strip_suffix('%') {
        Some(percent) => {
            let part = percent.parse::<f64>().ok().filter(|part| (0.0..=100.0).contains(part))?;
            Some((length as f64 * part / 100.0).round() as u64)
        }
        None => typed.replace(',', "").parse().ok(),
    }
}

/// Steps per second at speed 1x; recordings do not say how long a step takes.
pub(crate) const STEPS_PER_SECOND: f64 = 30.0;
/// Steps that sparklines show.
const HISTORY: u64 = 64;
/// Most elements of an action that are shown.
const MAX_ACTION: usize = 8;
/// Most characters that can be typed.
const MAX_TYPED: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_step_or_a_percentage() {
        let cases = [("12", Some(12)), ("1,000", Some(1000)), ("50%", Some(100)), ("0.5%", Some(1))];
        for (typed, wanted) in
            cases.into_iter().chain([("", None), ("%", None), ("101%", None), ("1.5", None)])
        {
            assert_eq!(place_of(typed, 200), wanted, "{typed}");
        }
    }
}
