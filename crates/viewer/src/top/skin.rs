//! The terminal around a screen of a cluster, and the thread that asks the coordinator.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event;

use crate::input::{Input, input_of};
use crate::keys::Key;
use crate::look::Look;
use crate::screen_guard::{Pictures, READ_WAIT, ScreenGuard, wait_for_input};
use crate::signal::Signal;
use crate::top::screen::rows_of;
use crate::top::{Sample, Top, TopAsk, draw_top};

/// A way to ask a coordinator. Every method blocks until it has answered, or is known not to answer.
pub trait Asker: Send {
    /// Asks for the state of the cluster; `at` is the current time.
    ///
    /// # Errors
    /// If the coordinator could not be heard; the error says why.
    fn look(&mut self, at: Duration) -> Result<Sample, String>;

    /// Drains a node, or takes that back.
    ///
    /// # Errors
    /// If the node was not; the error says why.
    fn drain(&mut self, node: &str, drains: bool) -> Result<(), String>;
}

/// An answer that the asking thread has heard.
enum Heard {
    Looked(Result<Box<Sample>, (String, Duration)>),
    Drained { node: String, drains: bool, result: Result<(), String> },
}

/// Shows a cluster, which is called `place`, until the person or a signal ends it.
///
/// Blocks, and takes the terminal on stdout for as long; it is as before when this returns. A SIGTERM, SIGHUP or SIGINT
/// restores it and then does what it does by default: the process ends. If the coordinator does not answer, the screen
/// says so, and it is asked again. The thread that asks may outlive this by its last question.
///
/// # Errors
/// If the terminal cannot be used.
pub fn watch_cluster(asker: impl Asker + 'static, place: &str, look: Look) -> io::Result<()> {
    let signal = Signal::catch()?;
    let (ask, asked) = sync_channel(MAX_ASKED);
    let (told, hear) = sync_channel(MAX_ASKED);
    // Task: asker.
    thread::Builder::new().name("asker".into()).spawn(move || run(asker, &asked, &told))?;
    let mut screen = ScreenGuard::take(Pictures::Cells)?;
    let done = show(&mut screen, &signal, Top::new(place), look, &ask, &hear);
    drop(screen);
    signal.obey();
    done
}

/// Asks for a sample every second, carries out requests meanwhile, and ends when nobody listens any more.
fn run(mut asker: impl Asker, asked: &Receiver<(String, bool)>, told: &SyncSender<Heard>) {
    let begun = Instant::now();
    loop {
        let at = begun.elapsed();
        let looked = asker.look(at).map(Box::new).map_err(|why| (why, at));
        if told.send(Heard::Looked(looked)).is_err() {
            return;
        }
        match asked.recv_timeout(ASK_EVERY) {
            Ok((node, drains)) => {
                let result = asker.drain(&node, drains);
                if told.send(Heard::Drained { node, drains, result }).is_err() {
                    return;
                }
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn show(
    screen: &mut ScreenGuard,
    signal: &Signal,
    mut top: Top,
    look: Look,
    ask: &SyncSender<(String, bool)>,
    hear: &Receiver<Heard>,
) -> io::Result<()> {
    let mut has_changed = true;
    while signal.caught().is_none() {
        if std::mem::take(&mut has_changed) {
            top.set_height(rows_of(screen.size()?.height));
            screen.draw(|_, buffer| {
                draw_top(&top, look, buffer);
                None
            })?;
        }
        wait_for_input(IDLE)?;
        while event::poll(READ_WAIT)? {
            has_changed = true;
            let key = match input_of(&event::read()?) {
                Some(Input::Key(key)) => key,
                Some(Input::Wheel { back: true }) => Key::Up,
                Some(Input::Wheel { back: false }) => Key::Down,
                Some(Input::Point(_) | Input::Drag(_)) | None => continue,
            };
            match top.on(key) {
                Some(TopAsk::Quit) => return Ok(()),
                Some(TopAsk::Drain(node)) => send(&mut top, ask, node, true),
                Some(TopAsk::Undrain(node)) => send(&mut top, ask, node, false),
                None => {}
            }
        }
        while let Ok(heard) = hear.try_recv() {
            has_changed = true;
            match heard {
                Heard::Looked(Ok(sample)) => top.take(*sample),
                Heard::Looked(Err((why, at))) => top.lost(&why, at),
                Heard::Drained { node, drains, result } => top.say(&match result {
                    Ok(()) if drains => format!("{node} drains"),
                    Ok(()) => format!("{node} takes new sessions again"),
                    Err(why) => format!("{node} was not asked: {why}"),
                }),
            }
        }
    }
    Ok(())
}

fn send(top: &mut Top, ask: &SyncSender<(String, bool)>, node: String, drains: bool) {
    match ask.try_send((node, drains)) {
        Ok(()) => top.say("asking the coordinator …"),
        Err(TrySendError::Full(_)) => top.say("the coordinator has not answered yet"),
        Err(TrySendError::Disconnected(_)) => top.say("nobody asks the coordinator any more"),
    }
}

/// Most questions, and answers, that wait at a time.
const MAX_ASKED: usize = 4;
/// Time between two questions to the coordinator.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for a key: an answer or a signal is noticed after it at the latest.
const IDLE: Duration = Duration::from_millis(100);
