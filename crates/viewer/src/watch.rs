//! Watching lanes on a terminal: one thread that asks for frames, reads keys and draws.

use std::io;
use std::time::{Duration, Instant};

use crossterm::event;
use rollhouse_replay::Envs;

use crate::input::{Input, input_of};
use crate::keys::{Event, Key};
use crate::live::{Live, LiveAsk, LiveSource};
use crate::live_screen::draw_live_for;
use crate::look::Look;
use crate::screen_guard::{Pictures, READ_WAIT, ScreenGuard, wait_for_input};
use crate::signal::Signal;
use crate::viewer::{FRAME, PASS_SLICE, PASS_STEPS, ViewError};

/// Shows lanes while they are played, until the person or a signal ends it. Blocks, and takes the terminal on stdout for
/// as long; it is as before when this returns.
///
/// # Errors
/// If the terminal cannot be used. Errors of `source` are shown on the screen.
pub fn watch<'a>(
    envs: impl Into<Envs<'a>>,
    source: &mut dyn LiveSource,
    lane: u32,
    look: Look,
    pictures: Pictures,
) -> Result<(), ViewError> {
    let signal = Signal::catch().map_err(ViewError::Terminal)?;
    let mut screen = ScreenGuard::take(pictures).map_err(ViewError::Terminal)?;
    let mut live = Live::new(envs, source, lane);
    let done = run(&mut live, source, look, &mut screen, &signal).map_err(ViewError::Terminal);
    drop(screen);
    signal.obey();
    done
}

fn run(
    live: &mut Live<'_>,
    source: &mut dyn LiveSource,
    look: Look,
    screen: &mut ScreenGuard,
    signal: &Signal,
) -> io::Result<()> {
    let (mut last, mut asked) = (Instant::now(), Instant::now());
    while signal.caught().is_none() {
        screen.draw(|graphics, buffer| draw_live_for(live, look, graphics, buffer))?;
        if live.is_live() {
            asked = Instant::now();
            match source.look(live.lane(), FRAME) {
                Ok(Some(frame)) => live.take(frame),
                Ok(None) => {}
                Err(why) => {
                    live.say(&why);
                    wait_for_input(AFTER_ERROR)?;
                }
            }
            live.stands(source.standing(live.lane()));
            wait_for_input(FRAME.saturating_sub(last.elapsed()))?;
        } else {
            pass(live);
            if asked.elapsed() >= STILL_HERE {
                asked = Instant::now();
                // What is gone is said when the lane is looked at again.
                drop(source.look(live.lane(), Duration::ZERO));
            }
            wait_for_input(FRAME.saturating_sub(last.elapsed()))?;
        }
        while event::poll(READ_WAIT)? {
            let event = match input_of(&event::read()?) {
                Some(Input::Key(key)) => Event::Key(key),
                Some(Input::Wheel { back: true }) => Event::Key(Key::Left),
                Some(Input::Wheel { back: false }) => Event::Key(Key::Right),
                Some(Input::Point(_) | Input::Drag(_)) | None => continue,
            };
            match live.on(event, source) {
                Some(LiveAsk::Quit) => return Ok(()),
                Some(LiveAsk::SoFar(before)) => match source.so_far(live.lane()) {
                    Ok(episode) => live.go_back(episode, before),
                    Err(why) => live.say(&why),
                },
                Some(LiveAsk::Go(to)) => match source.go(live.lane(), to) {
                    Ok(()) => live.stands(source.standing(live.lane())),
                    Err(why) => live.say(&why),
                },
                Some(LiveAsk::Turned) | None => {}
            }
        }
        let now = Instant::now();
        let _never = live.on(Event::Tick(now - last), source);
        last = now;
    }
    Ok(())
}

/// Passes steps of the episode so far for a part of a frame's time.
fn pass(live: &mut Live<'_>) {
    let begun = Instant::now();
    while !live.pass(PASS_STEPS) && begun.elapsed() < PASS_SLICE {}
}

/// Wait before a source that gave an error is asked again.
const AFTER_ERROR: Duration = Duration::from_millis(500);
/// Time between two questions to a source while nothing of it is shown: a node sends silent watchers away.
const STILL_HERE: Duration = Duration::from_secs(4);
