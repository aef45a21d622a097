//! Lanes that are watched while they are played.

use std::time::Duration;

use rollhouse_core::ColumnData;
use rollhouse_replay::{Envs, Episode};
use rollhouse_wire::ReplayStanding;

use crate::keys::{Event, Key};
use crate::numbers::{count, plain};
use crate::player::{Ask, LiveStep, Player};
use crate::replayed::{self, ReplayMove};

/// A source of lanes that are watched. Lanes are numbered over everything that is watched.
pub trait LiveSource {
    /// Returns the number of lanes, at least 1.
    fn lanes(&self) -> u32;

    /// Returns the name of a lane, for its screen's title.
    fn name(&self, lane: u32) -> String;

    /// Returns the newest frame of a lane that was not returned yet; blocks for at most `wait`, and the time of an
    /// answer.
    ///
    /// # Errors
    /// If there is no frame; the error is one sentence that says why. A later call may succeed.
    fn look(&mut self, lane: u32, wait: Duration) -> Result<Option<LiveFrame>, String>;

    /// Returns a lane's episode as far as it has come. Blocks until it is here.
    ///
    /// # Errors
    /// If it cannot be had; the error is one sentence that says why.
    fn so_far(&mut self, lane: u32) -> Result<Episode, String>;

    /// Returns the position of a lane when it was last asked for, if it is a recorded episode. Keys then move the
    /// episode, instead of going back in it.
    fn standing(&self, _lane: u32) -> Option<ReplayStanding> {
        None
    }

    /// Moves a recorded episode for everyone who watches it. Blocks until it has moved.
    ///
    /// # Errors
    /// If it does not move; the error is one sentence that says why.
    fn go(&mut self, _lane: u32, _to: ReplayMove) -> Result<(), String> {
        Err("lanes that are stepped do not move for those who watch".to_owned())
    }
}

/// A frame: the state of a lane now.
#[derive(Debug, Clone)]
pub struct LiveFrame {
    /// The lane's state as an episode without steps.
    pub episode: Episode,
    /// Action that led to this state; `None` at a reset.
    pub action: Option<ColumnData>,
    /// Reward of that action.
    pub reward: f64,
    /// Whether the episode is terminated, and whether it is truncated.
    pub ended: (bool, bool),
}

/// A view of lanes that are played: it shows the newest frame of one lane, or the lane's episode so far, in which a
/// person goes back and forward while the lane plays on. It knows nothing of a terminal or a cluster.
#[derive(Debug)]
pub struct Live<'a> {
    envs: Envs<'a>,
    lane: u32,
    lanes: u32,
    name: String,
    /// Player of the newest frame of the lane.
    now: Option<Player<'a>>,
    /// Player of the lane's episode, as it was when the person went back.
    back: Option<Player<'a>>,
    message: Option<String>,
    frames: u64,
    /// Position of the lane, if it is a recorded episode.
    standing: Option<ReplayStanding>,
}

/// A request of a [`Live`] to its caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LiveAsk {
    /// End the viewer.
    Quit,
    /// Fetch the lane's episode so far, and show it with [`Live::go_back`], so many steps from its end.
    SoFar(u64),
    /// Note that another lane is shown now.
    Turned,
    /// Move the recorded episode that is shown.
    Go(ReplayMove),
}

impl<'a> Live<'a> {
    /// Makes a view of one of the lanes of `source`.
    pub fn new(envs: impl Into<Envs<'a>>, source: &dyn LiveSource, lane: u32) -> Self {
        let lanes = source.lanes().max(1);
        let lane = lane.min(lanes - 1);
        let name = source.name(lane);
        let standing = source.standing(lane);
        Self {
            envs: envs.into(),
            lane,
            lanes,
            name,
            now: None,
            back: None,
            message: None,
            frames: 0,
            standing,
        }
    }

    /// Returns the lane that is shown.
    pub const fn lane(&self) -> u32 {
        self.lane
    }

    /// Returns whether the lane is shown as it is now.
    pub const fn is_live(&self) -> bool {
        self.back.is_none()
    }

    /// Takes the newest frame.
    pub fn take(&mut self, frame: LiveFrame) {
        self.frames += 1;
        let LiveFrame { episode, action, reward, ended } = frame;
        let mut player = Player::new(self.envs, episode, 0, 0);
        player.show_live(LiveStep { action, reward, ended }, self.now.take());
        self.message = None;
        self.now = Some(player);
    }

    /// Takes the position of a recorded episode.
    pub const fn stands(&mut self, standing: Option<ReplayStanding>) {
        self.standing = standing;
    }

    /// Shows a message until there is something newer to show.
    pub fn say(&mut self, message: &str) {
        self.message = Some(plain(message));
    }

    /// Shows the lane's episode as far as it had come, paused `before` steps from its end.
    pub fn go_back(&mut self, episode: Episode, before: u64) {
        let at = episode.info.length.saturating_sub(before);
        let mut player = Player::new(self.envs, episode, at, 0);
        player.pause();
        self.message = None;
        self.back = Some(player);
    }

    /// Passes at most `most` further steps of the episode so far; returns true once there are no more.
    pub fn pass(&mut self, most: u64) -> bool {
        self.back.as_mut().is_none_or(|player| player.pass(most))
    }

    /// Handles an event; returns what the caller should do.
    pub fn on(&mut self, event: Event, source: &dyn LiveSource) -> Option<LiveAsk> {
        if let Event::Key(key) = event {
            match key {
                Key::Char('q') | Key::Ctrl('c') => return Some(LiveAsk::Quit),
                Key::Char('n') => return self.turn(source, (self.lane + 1) % self.lanes),
                Key::Char('p') => return self.turn(source, (self.lane + self.lanes - 1) % self.lanes),
                _ => {}
            }
        }
        if let (Event::Key(key), Some(standing)) = (event, self.standing)
            && let Some(to) = replayed::move_for(key, standing)
        {
            return Some(LiveAsk::Go(to));
        }
        let Some(player) = &mut self.back else { return self.on_live(event) };
        if let Event::Key(key) = event {
            let at_end = player.at() == player.info().length;
            let forward = matches!(key, Key::Right | Key::Char('l' | ' ')) && at_end && !player.is_asking();
            if forward || key == Key::Char('f') {
                self.back = None;
                return None;
            }
        }
        if player.on(event) == Some(Ask::Leave) {
            self.back = None;
        }
        None
    }

    fn on_live(&mut self, event: Event) -> Option<LiveAsk> {
        match event {
            Event::Key(Key::Escape) if !self.player().is_some_and(Player::shows_help) => Some(LiveAsk::Quit),
            Event::Key(Key::Char(' ')) => Some(LiveAsk::SoFar(0)),
            Event::Key(Key::Left | Key::Char('h')) => Some(LiveAsk::SoFar(1)),
            Event::Key(Key::Home) => Some(LiveAsk::SoFar(u64::MAX)),
            Event::Key(key @ (Key::Up | Key::Down | Key::Char('?') | Key::Escape)) => {
                let _never = self.now.as_mut().and_then(|player| player.on(Event::Key(key)));
                None
            }
            _ => None,
        }
    }

    fn turn(&mut self, source: &dyn LiveSource, lane: u32) -> Option<LiveAsk> {
        (self.now, self.back, self.message) = (None, None, None);
        self.lane = lane;
        self.standing = source.standing(lane);
        self.name = source.name(lane);
        Some(LiveAsk::Turned)
    }

    /// Returns the player that is drawn, if there is anything yet.
    pub(crate) fn player(&self) -> Option<&Player<'a>> {
        self.back.as_ref().or(self.now.as_ref())
    }

    /// Returns whether it is a recorded episode that a node shows.
    pub(crate) const fn is_recorded(&self) -> bool {
        self.standing.is_some()
    }

    /// Returns the title of the screen.
    pub(crate) fn title(&self) -> String {
        format!("{}  lane {} of {}", plain(&self.name), self.lane + 1, count(self.lanes.into()))
    }

    /// Returns the text of the bar at the bottom.
    pub(crate) fn status(&self) -> String {
        if let Some(standing) = self.standing {
            let sign = replayed::sign(standing);
            return format!(" {sign}{}", self.message.as_deref().unwrap_or(replayed::KEYS));
        }
        let (sign, keys) = match &self.back {
            None => ("● live   ", "? help  q quit  space pause  ← back  n p lane"),
            Some(player) if player.is_playing() => {
                ("▶ back   ", "? help  q quit  f live  space pause  ←→ step  n p lane")
            }
            Some(_) => ("‖ paused ", "? help  q quit  f live  space play  ←→ step  Home first  n p lane"),
        };
        let said = self.message.as_deref().or_else(|| self.back.as_ref()?.message());
        format!(" {sign} {}", said.unwrap_or(keys))
    }

    /// Returns the number of frames that were taken.
    pub const fn frames(&self) -> u64 {
        self.frames
    }
}
