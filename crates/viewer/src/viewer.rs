//! The viewer: one thread that reads keys, lets time pass, and draws.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event as TerminalEvent, KeyCode, KeyEventKind, KeyModifiers};
use rollhouse_env::Registry;
use rollhouse_replay::{Episode, EpisodeInfo, Library, LibraryEpisode, Query, ReadError, Sort, SortKey};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::browser::{Browser, Choice};
use crate::keys::{Event, Key};
use crate::list_screen::{draw_list, rows_of};
use crate::look::Look;
use crate::numbers::plain;
use crate::player::{Ask, Player};
use crate::screen;
use crate::screen_guard::{self, ScreenGuard};

/// How episodes are shown.
pub struct Viewing<'a> {
    /// Where episodes are read from.
    pub library: &'a Library,
    /// What to call that.
    pub place: &'a str,
    /// The envs that they are recomputed with.
    pub registry: &'a Registry,
    /// What the terminal can show.
    pub look: Look,
    /// How a moment in milliseconds since 1970 is shown.
    pub when: &'a dyn Fn(u64) -> String,
    /// The step at which the first episode is shown first.
    pub at: u64,
    /// The speed at first: powers of two.
    pub speed: i32,
}

/// Why nothing is shown any more.
#[derive(Debug)]
pub enum ViewError {
    /// The terminal could not be taken, read or written to.
    Terminal(io::Error),
    /// An episode could not be read.
    Read(ReadError),
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
            (Some(Player::new(viewing.registry, episode, viewing.at, viewing.speed)), None)
        }
        None => {
            let stats = viewing.library.stats().map_err(ViewError::Read)?;
            let envs: BTreeSet<String> = stats.episodes.into_keys().map(|(env, _)| env).collect();
            (None, Some(Browser::new(envs.into_iter().collect())))
        }
    };
    let screen = ScreenGuard::take().map_err(ViewError::Terminal)?;
    let mut viewer = Viewer { viewing, browser, screen, signal };
    let done = viewer.run(player).map_err(ViewError::Terminal);
    let Viewer { screen, signal, .. } = viewer;
    drop(screen);
    signal.obey();
    done
}

/// A terminal with what it shows.
struct Viewer<'a, 'v> {
    viewing: &'v Viewing<'a>,
    /// The list that episodes are chosen from, if it was asked for one.
    browser: Option<Browser>,
    screen: ScreenGuard,
    signal: Signal,
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
            match self.show(shown)? {
                Some(Ask::Leave) if self.browser.is_some() => player = None,
                None | Some(Ask::Quit | Ask::Leave) => return Ok(()),
                Some(Ask::Next) => self.turn(shown, false),
                Some(Ask::Previous) => self.turn(shown, true),
            }
        }
    }

    /// Shows the list until an episode is chosen; `None` if it is to end.
    fn choose(&mut self) -> io::Result<Option<Player<'a>>> {
        let Self { viewing, browser: Some(browser), screen, signal } = self else { return Ok(None) };
        while signal.caught().is_none() {
            browser.set_height(rows_of(screen.height()?));
            browser.fill(viewing.library);
            screen.draw(|buffer| draw_list(browser, viewing.place, viewing.look, viewing.when, buffer))?;
            let mut wait = IDLE;
            while event::poll(wait)? {
                match key_of(&event::read()?).and_then(|key| browser.on(key)) {
                    None => {}
                    Some(Choice::Quit) => return Ok(None),
                    Some(Choice::Show) => match browser.chosen().map(load) {
                        Some(Ok(episode)) => {
                            let (at, speed) = (viewing.at, viewing.speed);
                            return Ok(Some(Player::new(viewing.registry, episode, at, speed)));
                        }
                        Some(Err(error)) => browser.complain(plain(&error.to_string())),
                        None => {}
                    },
                }
                wait = Duration::ZERO;
            }
        }
        Ok(None)
    }

    /// Shows an episode until it asks for something; `None` after a signal.
    fn show(&mut self, player: &mut Player<'_>) -> io::Result<Option<Ask>> {
        let Self { viewing, screen, signal, .. } = self;
        let mut last = Instant::now();
        let mut has_changed = true;
        while signal.caught().is_none() {
            if has_changed {
                screen.draw(|buffer| screen::draw(player, viewing.look, viewing.when, buffer))?;
            }
            let begun = Instant::now();
            let mut has_passed = player.pass(0);
            has_changed = !has_passed;
            while !has_passed && begun.elapsed() < PASS_SLICE {
                has_passed = player.pass(PASS_STEPS);
            }
            let moves = player.is_playing() || has_changed;
            let mut wait = if moves { FRAME.saturating_sub(last.elapsed()) } else { IDLE };
            // Everything that is waiting is taken before it is drawn again.
            while event::poll(wait)? {
                has_changed = true;
                let asked = key_of(&event::read()?).and_then(|key| player.on(Event::Key(key)));
                if asked.is_some() {
                    return Ok(asked);
                }
                wait = Duration::ZERO;
            }
            let now = Instant::now();
            has_changed |= player.is_playing();
            let _never = player.on(Event::Tick(now - last));
            last = now;
        }
        Ok(None)
    }

    /// Goes on to the next episode of the list, else of the order of names, or to the one before; where there is none,
    /// it says so.
    fn turn(&mut self, player: &mut Player<'a>, back: bool) {
        let (viewing, speed) = (self.viewing, player.speed());
        let found = match &mut self.browser {
            Some(browser) => {
                let there_is = if back { browser.go_back() } else { browser.go_on() };
                browser.fill(viewing.library);
                Ok(browser.chosen().filter(|_| there_is).cloned())
            }
            None => neighbour(viewing.library, player.info(), back),
        };
        match found.and_then(|found| found.as_ref().map(load).transpose()) {
            Ok(Some(episode)) => *player = Player::new(viewing.registry, episode, 0, speed),
            Ok(None) if back => player.say("this is the first episode"),
            Ok(None) => player.say("this is the last episode"),
            Err(error) => player.say(plain(&error.to_string())),
        }
    }
}

fn load(found: &LibraryEpisode) -> Result<Episode, ReadError> {
    found.folder.load(&found.info)
}

/// The episode that comes after another in the order of names, or before it.
fn neighbour(library: &Library, info: &EpisodeInfo, back: bool) -> Result<Option<LibraryEpisode>, ReadError> {
    let sort = Sort { key: SortKey::Name, descending: back };
    let query = Query { sort, limit: Some(1), after: Some(sort.rank_of(info)), ..Query::default() };
    Ok(library.list(&query)?.pop())
}

/// What a terminal's event means here; what is drawn anew anyway means nothing.
fn key_of(event: &TerminalEvent) -> Option<Key> {
    let TerminalEvent::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char(char) if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Ctrl(char),
        KeyCode::Char(char) => Key::Char(char),
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        _ => return None,
    })
}

/// A signal that asks the process to end.
struct Signal {
    /// Its number; 0 while there is none.
    number: Arc<AtomicI32>,
    catching: Handle,
}

impl Signal {
    fn catch() -> io::Result<Self> {
        let number = Arc::new(AtomicI32::new(0));
        let caught = Arc::clone(&number);
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let catching = signals.handle();
        // Task: signals of the viewer.
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in &mut signals {
                caught.store(signal, Ordering::Relaxed);
                // The other thread obeys, unless it reads for ever from a terminal that is gone: crossterm does.
                thread::sleep(GRACE);
                screen_guard::give_back();
                let _ended = emulate_default_handler(signal);
            }
        })?;
        Ok(Self { number, catching })
    }

    fn caught(&self) -> Option<i32> {
        Some(self.number.load(Ordering::Relaxed)).filter(|&number| number > 0)
    }

    /// Ends the process as the signal does that was caught, if one was.
    fn obey(&self) {
        if let Some(signal) = self.caught() {
            // It does not return for these.
            let _ended = emulate_default_handler(signal);
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.catching.close();
    }
}

/// How long after a signal the process ends at the latest.
const GRACE: Duration = Duration::from_secs(1);
/// Between two frames of what moves.
const FRAME: Duration = Duration::from_millis(33);
/// How long it is waited for a key where nothing moves: the latest that a signal is noticed.
const IDLE: Duration = Duration::from_millis(100);
/// For how long steps are passed for the first time between two frames.
const PASS_SLICE: Duration = Duration::from_millis(20);
/// Steps that are passed between two looks at the clock.
const PASS_STEPS: u64 = 64;

impl std::fmt::Display for ViewError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Terminal(_) => f.write_str("the terminal cannot be used"),
            Self::Read(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ViewError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Terminal(error) => Some(error),
            Self::Read(error) => error.source(),
        }
    }
}
