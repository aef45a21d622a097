//! The viewer: one thread that reads keys, lets time pass, and draws.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use crossterm::event;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use rollhouse_env::Image;
use rollhouse_replay::{
    CompareError, Comparison, Envs, EpisodeInfo, Labels, Library, LibraryEpisode, Query, ReadError, Sort,
    SortKey,
};

use crate::browser::{Browser, Choice};
use crate::following::{Following, LOOK_EVERY};
use crate::graphics::Graphics;
use crate::input::{Input, input_of};
use crate::keys::{Event, Key};
use crate::list_screen::{draw_list, row_at, rows_of};
use crate::look::Look;
use crate::numbers::said;
use crate::pair::{Pair, draw_pair};
use crate::player::{Ask, Player};
use crate::reading::{Reader, Waited};
use crate::screen;
use crate::screen_guard::{Pictures, READ_WAIT, ScreenGuard, wait_for_input};
use crate::signal::Signal;

/// The settings with which episodes are shown.
pub struct Viewing<'a> {
    /// Library from which episodes are read.
    pub library: &'a Library,
    /// Name of the library on the screen.
    pub place: &'a str,
    /// Labels of the episodes: a list marks those that are pinned.
    pub labels: &'a Labels,
    /// Envs with which episodes are recomputed.
    pub envs: Envs<'a>,
    /// Look of the screen: what the terminal can show.
    pub look: Look,
    /// Function that formats a moment in milliseconds since 1970.
    pub when: &'a dyn Fn(u64) -> String,
    /// Choice of what pictures are made of.
    pub pictures: Pictures,
    /// Step at which the first episode is shown first.
    pub at: u64,
    /// Speed at first, as a power of two.
    pub speed: i32,
    /// Whether the first episode is still being recorded, so that new steps of it are read.
    pub is_growing: bool,
}

/// An error that ended the viewer.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The terminal could not be taken, read or written to.
    #[error("the terminal cannot be used")]
    Terminal(#[source] io::Error),
    /// An episode could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// Two episodes could not be compared.
    #[error(transparent)]
    Compare(CompareError),
}

/// Shows an episode, or a list to choose one from, and others from there, until the person or a signal ends it.
///
/// Blocks, and takes the terminal on stdout for as long; it is as before when this returns. A SIGTERM, SIGHUP or
/// SIGINT restores it and then does what it does by default: the process ends.
///
/// # Errors
/// If the first episode or what there is to choose from cannot be read, or the terminal cannot be used.
pub fn view(viewing: &Viewing<'_>, first: Option<&LibraryEpisode>) -> Result<(), ViewError> {
    let signal = Signal::catch().map_err(ViewError::Terminal)?;
    let (player, browser) = match first {
        Some(first) => {
            let episode = first.folder.load(&first.info).map_err(ViewError::Read)?;
            let mut player = Player::new(viewing.envs, episode, viewing.at, viewing.speed);
            player.set_growing(viewing.is_growing);
            (Some(player), None)
        }
        None => {
            let stats = viewing.library.stats().map_err(ViewError::Read)?;
            let envs: BTreeSet<String> = stats.episodes.into_keys().map(|(env, _)| env).collect();
            let browser = Browser::new(envs.into_iter().collect()).with_labels(viewing.labels.clone());
            (None, Some(browser))
        }
    };
    let screen = ScreenGuard::take(viewing.pictures).map_err(ViewError::Terminal)?;
    let following = viewing.is_growing.then(|| Following::new(viewing.library));
    let reader = Reader::default();
    let mut viewer = Viewer { viewing, browser, screen, signal, reader, following };
    let done = viewer.run(player).map_err(ViewError::Terminal);
    let Viewer { screen, signal, .. } = viewer;
    drop(screen);
    signal.obey();
    done
}

/// Shows two episodes side by side, until the person or a signal ends it. Blocks and takes the terminal as [`view`]
/// does, after it has found their first difference.
///
/// # Errors
/// If one of them cannot be read, they cannot be compared, or the terminal cannot be used.
pub fn view_pair(viewing: &Viewing<'_>, episodes: [&LibraryEpisode; 2]) -> Result<(), ViewError> {
    let signal = Signal::catch().map_err(ViewError::Terminal)?;
    let [left, right] = episodes.map(|found| found.folder.load(&found.info));
    let (left, right) = (left.map_err(ViewError::Read)?, right.map_err(ViewError::Read)?);
    let difference = Comparison::new(viewing.envs, &left, &right)
        .and_then(|mut both| both.first_difference())
        .map_err(ViewError::Compare)?;
    let player = |episode| Player::new(viewing.envs, episode, viewing.at, viewing.speed);
    let mut pair = Pair::new(player(left), player(right), difference);
    let screen = ScreenGuard::take(Pictures::Cells).map_err(ViewError::Terminal)?;
    let reader = Reader::default();
    let mut viewer = Viewer { viewing, browser: None, screen, signal, reader, following: None };
    let done = viewer.show(&mut pair).map(|_| ()).map_err(ViewError::Terminal);
    let Viewer { screen, signal, .. } = viewer;
    drop(screen);
    signal.obey();
    done
}

/// A view that a person looks at: one episode or a pair.
trait View {
    /// Passes at most `most` steps for the first time; returns true once there are no more.
    fn pass(&mut self, most: u64) -> bool;
    fn on(&mut self, event: Event) -> Option<Ask>;
    /// Takes the new steps of an episode that is being recorded; returns whether there were any.
    fn follow(&mut self, following: &mut Following<'_>) -> bool;
    /// Returns the player whose timeline is on the screen.
    fn leader(&self) -> &Player<'_>;
    fn draw(
        &self,
        viewing: &Viewing<'_>,
        graphics: Option<&Graphics>,
        buffer: &mut Buffer,
    ) -> Option<(Image, Rect)>;
}

impl View for Player<'_> {
    fn pass(&mut self, most: u64) -> bool {
        self.pass(most)
    }

    fn on(&mut self, event: Event) -> Option<Ask> {
        self.on(event)
    }

    fn follow(&mut self, following: &mut Following<'_>) -> bool {
        following.look(self)
    }

    fn leader(&self) -> &Player<'_> {
        self
    }

    fn draw(
        &self,
        viewing: &Viewing<'_>,
        graphics: Option<&Graphics>,
        buffer: &mut Buffer,
    ) -> Option<(Image, Rect)> {
        screen::draw_for(self, viewing.look, viewing.when, graphics, buffer)
    }
}

impl View for Pair<'_> {
    fn pass(&mut self, most: u64) -> bool {
        self.pass(most)
    }

    fn on(&mut self, event: Event) -> Option<Ask> {
        self.on(event)
    }

    fn follow(&mut self, _: &mut Following<'_>) -> bool {
        false
    }

    fn leader(&self) -> &Player<'_> {
        self.longer()
    }

    fn draw(
        &self,
        viewing: &Viewing<'_>,
        _: Option<&Graphics>,
        buffer: &mut Buffer,
    ) -> Option<(Image, Rect)> {
        draw_pair(self, viewing.look, viewing.when, buffer);
        None
    }
}

/// A terminal with what it shows.
struct Viewer<'a, 'v> {
    viewing: &'v Viewing<'a>,
    /// List from which episodes are chosen, if it was asked for one.
    browser: Option<Browser>,
    screen: ScreenGuard,
    signal: Signal,
    reader: Reader,
    /// Reader of the new steps of an episode that is being recorded.
    following: Option<Following<'v>>,
}

impl<'a> Viewer<'a, '_> {
    fn run(&mut self, mut player: Option<Player<'a>>) -> io::Result<()> {
        loop {
            let Some(shown) = &mut player else {
                match self.choose()? {
                    Some(found) => player = Some(found),
                    None => return Ok(()),
                }
                continue;
            };
            let goes_on = match self.show(shown)? {
                Some(Ask::Leave) if self.browser.is_some() => {
                    player = None;
                    true
                }
                None | Some(Ask::Quit | Ask::Leave) => false,
                Some(Ask::Next) => self.turn(shown, false)?,
                Some(Ask::Previous) => self.turn(shown, true)?,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Shows the list until an episode is chosen; `None` if the viewer should end.
    fn choose(&mut self) -> io::Result<Option<Player<'a>>> {
        let Self { viewing, browser: Some(browser), screen, signal, reader, .. } = self else {
            return Ok(None);
        };
        let mut has_changed = true;
        let mut read = Instant::now();
        while signal.caught().is_none() {
            if browser.complaint().is_some() && read.elapsed() >= LOOK_EVERY {
                // What was away may be back.
                browser.read_again();
                has_changed = true;
            }
            if std::mem::take(&mut has_changed) {
                read = Instant::now();
                browser.set_height(rows_of(screen.size()?.height));
                browser.fill(viewing.library);
                show_list(viewing, browser, screen)?;
            }
            wait_for_input(IDLE)?;
            while event::poll(READ_WAIT)? {
                has_changed = true;
                let choice = choice_of(input_of(&event::read()?), browser, viewing.library);
                let chosen = match choice {
                    None => continue,
                    Some(Choice::Quit) => return Ok(None),
                    Some(Choice::Show) => browser.chosen().cloned(),
                };
                let Some(chosen) = chosen else { continue };
                let waited = reader.read(&chosen, (screen, signal), |screen, note| {
                    browser.set_note(Some(note.to_owned()));
                    show_list(viewing, browser, screen)
                })?;
                browser.set_note(None);
                match waited {
                    Waited::Read(episode) => {
                        return Ok(Some(Player::new(viewing.envs, *episode, viewing.at, viewing.speed)));
                    }
                    Waited::Failed(why) => {
                        browser.complain(why);
                        // Reading may have taken long; what it came to is shown for a while all the same.
                        read = Instant::now();
                    }
                    Waited::GaveUp => {}
                    Waited::Quit => return Ok(None),
                }
            }
        }
        Ok(None)
    }

    /// Shows an episode, or two, until it asks for something; `None` after a signal.
    fn show(&mut self, shown: &mut impl View) -> io::Result<Option<Ask>> {
        let Self { viewing, screen, signal, following, .. } = self;
        let mut last = Instant::now();
        let mut has_changed = true;
        while signal.caught().is_none() {
            if has_changed {
                screen.draw(|graphics, buffer| shown.draw(viewing, graphics, buffer))?;
            }
            let begun = Instant::now();
            let mut has_passed = shown.pass(0);
            has_changed = !has_passed;
            while !has_passed && begun.elapsed() < PASS_SLICE {
                has_passed = shown.pass(PASS_STEPS);
            }
            let moves = shown.leader().is_playing() || has_changed;
            wait_for_input(if moves { FRAME.saturating_sub(last.elapsed()) } else { IDLE })?;
            // Everything that is waiting is taken before it is drawn again.
            while event::poll(READ_WAIT)? {
                has_changed = true;
                let event = match input_of(&event::read()?) {
                    Some(Input::Key(key)) => Some(Event::Key(key)),
                    Some(Input::Point(place) | Input::Drag(place)) => {
                        screen::step_at(screen.size()?, shown.leader().info().length, place).map(Event::Point)
                    }
                    Some(Input::Wheel { back: true }) => Some(Event::Key(Key::Left)),
                    Some(Input::Wheel { back: false }) => Some(Event::Key(Key::Right)),
                    None => None,
                };
                let asked = event.and_then(|event| shown.on(event));
                if asked.is_some() {
                    return Ok(asked);
                }
            }
            if let Some(following) = following.as_mut().filter(|following| following.is_due()) {
                has_changed |= shown.follow(following);
            }
            let now = Instant::now();
            has_changed |= shown.leader().is_playing();
            let _never = shown.on(Event::Tick(now - last));
            last = now;
        }
        Ok(None)
    }

    /// Goes on to the next episode of the list, else of the order of names, or to the one before; where there is none,
    /// the screen says so. Returns false if the viewer should end.
    fn turn(&mut self, player: &mut Player<'a>, back: bool) -> io::Result<bool> {
        let (viewing, speed) = (self.viewing, player.speed());
        let found = match &mut self.browser {
            Some(browser) => {
                // A page that could not be read is read again, as the one that was gone on to.
                let there_is =
                    browser.complaint().is_some() || if back { browser.go_back() } else { browser.go_on() };
                browser.fill(viewing.library);
                if let Some(complaint) = browser.complaint() {
                    player.say(complaint);
                    browser.read_again();
                    return Ok(true);
                }
                Ok(browser.chosen().filter(|_| there_is).cloned())
            }
            None => neighbour(viewing.library, player.info(), back),
        };
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                player.say(if back { "this is the first episode" } else { "this is the last episode" });
                return Ok(true);
            }
            Err(error) => {
                player.say(said(&error));
                return Ok(true);
            }
        };
        let Self { screen, signal, reader, .. } = self;
        let waited = reader.read(&found, (screen, signal), |screen, note| {
            player.say(note);
            screen.draw(|graphics, buffer| player.draw(viewing, graphics, buffer))
        })?;
        match waited {
            Waited::Read(episode) => *player = Player::new(viewing.envs, *episode, 0, speed),
            Waited::Failed(why) => player.say(why),
            Waited::GaveUp => player.say("not read; n and p try again"),
            Waited::Quit => return Ok(false),
        }
        Ok(true)
    }
}

/// Draws the list.
fn show_list(viewing: &Viewing<'_>, browser: &Browser, screen: &mut ScreenGuard) -> io::Result<()> {
    screen.draw(|_, buffer| {
        draw_list(browser, viewing.place, viewing.look, viewing.when, buffer);
        None
    })
}

/// Hands an input to the list; returns what it wants done.
fn choice_of(input: Option<Input>, browser: &mut Browser, library: &Library) -> Option<Choice> {
    if !matches!(input, Some(Input::Key(Key::Char(_) | Key::Backspace))) {
        // It is done to what was typed before it; between letters nothing has to be read.
        browser.fill(library);
    }
    match input? {
        Input::Key(key) => browser.on(key),
        Input::Point(place) => row_at(place.y).and_then(|row| browser.point(row)),
        Input::Wheel { back: true } => browser.on(Key::Up),
        Input::Wheel { back: false } => browser.on(Key::Down),
        Input::Drag(_) => None,
    }
}

/// Returns the episode that comes after another in the order of names, or before it.
fn neighbour(library: &Library, info: &EpisodeInfo, back: bool) -> Result<Option<LibraryEpisode>, ReadError> {
    let sort = Sort { key: SortKey::Name, descending: back };
    let query = Query { sort, limit: Some(1), after: Some(sort.rank_of(info)), ..Query::default() };
    Ok(library.list(&query)?.pop())
}

/// Time between two frames of moving things.
pub(crate) const FRAME: Duration = Duration::from_micros(16_667);
/// Longest wait for a key where nothing moves: a signal is noticed after it at the latest.
pub(crate) const IDLE: Duration = Duration::from_millis(100);
/// Time for which steps are passed for the first time between two frames.
pub(crate) const PASS_SLICE: Duration = Duration::from_millis(20);
/// Steps that are passed between two looks at the clock.
pub(crate) const PASS_STEPS: u64 = 64;
