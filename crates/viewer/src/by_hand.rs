//! Playing by hand on a terminal: one thread that reads keys, lets time pass, has steps taken, and draws.

use std::cell::RefCell;
use std::io;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event as TerminalEvent};

use crate::drawn::Played;
use crate::game::{Game, GameError};
use crate::hand::{Deed, Hand};
use crate::hand_screen::draw_hand_for;
use crate::input::key_of;
use crate::keys::Event;
use crate::look::Look;
use crate::screen::LEAST;
use crate::screen_guard::{Pictures, READ_WAIT, ScreenGuard, wait_for_input};
use crate::signal::Signal;
use crate::viewer::IDLE;

/// An error that ended [`play_by_hand`].
#[derive(Debug, thiserror::Error)]
pub enum HandError {
    /// The terminal could not be taken, read or written to.
    #[error("the terminal cannot be used")]
    Terminal(#[source] io::Error),
    /// The game cannot go on.
    #[error("the game cannot go on")]
    Game(#[source] GameError),
}

/// Lets a person play a game on the terminal on stdout, until the person or a signal ends it. It is paused at first.
///
/// Blocks, and takes the terminal for as long; it is as before when this returns. A SIGTERM, SIGHUP or SIGINT restores it,
/// closes the game and then does what it does by default: the process ends.
///
/// # Errors
/// If the terminal cannot be used, or the game cannot go on. The game is closed then too.
pub fn play_by_hand(
    mut hand: Hand,
    game: &mut dyn Game,
    look: Look,
    pictures: Pictures,
) -> Result<(), HandError> {
    let signal = Signal::catch().map_err(HandError::Terminal)?;
    let done = ScreenGuard::take(pictures)
        .map_err(HandError::Terminal)
        .and_then(|mut screen| go_on(&mut hand, game, look, &mut screen, &signal));
    game.close();
    signal.obey();
    done
}

fn go_on(
    hand: &mut Hand,
    game: &mut dyn Game,
    look: Look,
    screen: &mut ScreenGuard,
    signal: &Signal,
) -> Result<(), HandError> {
    let (mut last, mut has_changed) = (Instant::now(), true);
    let mut drawn: Option<Instant> = None;
    while signal.caught().is_none() {
        let rest = drawn.map_or(Duration::ZERO, |drawn| FRAME.saturating_sub(drawn.elapsed()));
        if has_changed && (rest.is_zero() || !hand.is_playing()) {
            draw(hand, game, look, screen).map_err(HandError::Terminal)?;
            (drawn, has_changed) = (Some(Instant::now()), false);
        }
        let step = hand.wait().map_or(IDLE, |wait| wait.saturating_sub(last.elapsed()));
        wait_for_input(if has_changed { step.min(rest) } else { step.min(IDLE) })
            .map_err(HandError::Terminal)?;
        // Everything that is waiting is taken before time goes on.
        while event::poll(READ_WAIT).map_err(HandError::Terminal)? {
            has_changed = true;
            let TerminalEvent::Key(key) = event::read().map_err(HandError::Terminal)? else { continue };
            let deed = key_of(&key).and_then(|key| hand.on(Event::Key(key)));
            if !carry_out(deed, hand, game)? {
                return Ok(());
            }
        }
        let now = Instant::now();
        let deed = hand.on(Event::Tick(now - last));
        last = now;
        has_changed |= deed.is_some();
        carry_out(deed, hand, game)?;
    }
    Ok(())
}

/// Carries out a deed; returns false if it ends the game.
fn carry_out(deed: Option<Deed>, hand: &mut Hand, game: &mut dyn Game) -> Result<bool, HandError> {
    let stands = match deed {
        None => return Ok(true),
        Some(Deed::Quit) => return Ok(false),
        Some(Deed::Command) => {
            let answer = game.command(hand.command()).unwrap_or_else(|error| error.to_string());
            hand.hear(&answer);
            return Ok(true);
        }
        Some(Deed::Step) => game.step(&hand.action()),
        Some(Deed::BeginAnew) => game.begin_anew(),
    };
    hand.come_to(stands.map_err(HandError::Game)?);
    Ok(true)
}

fn draw(hand: &mut Hand, game: &mut dyn Game, look: Look, screen: &mut ScreenGuard) -> io::Result<()> {
    let size = screen.size()?;
    if size.width < LEAST.0 || size.height < LEAST.1 {
        // Nothing is seen of what would go on.
        hand.pause();
    }
    let played = Played { hand, game: RefCell::new(game) };
    screen.draw(|graphics, buffer| draw_hand_for(&played, look, graphics, buffer))
}

/// Least time between two drawings of moving things.
const FRAME: Duration = Duration::from_millis(15);
