//! Reading an episode while a person waits for it, who may give up.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossterm::event;
use rollhouse_core::EpisodeName;
use rollhouse_replay::{Episode, LibraryEpisode, ReadError};

use crate::following::LOOK_EVERY;
use crate::input::{Input, input_of};
use crate::keys::Key;
use crate::numbers::said;
use crate::screen_guard::{READ_WAIT, ScreenGuard, wait_for_input};
use crate::signal::Signal;

/// A reader of episodes. It reads on threads of its own, because the disk or network of an episode may be away for
/// long.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Threads that may still be reading: the last one, and those that nobody waits for any more.
    threads: Vec<JoinHandle<()>>,
}

/// The outcome of a try to read an episode.
type Try = Result<Episode, ReadError>;

/// The end of a person's wait for an episode.
pub(crate) enum Waited {
    /// It was read.
    Read(Box<Episode>),
    /// It cannot be read; the text says why.
    Failed(String),
    /// The person gave up, or a signal asks the process to end.
    GaveUp,
    /// The person wants to end the viewer.
    Quit,
}

impl Reader {
    /// Reads an episode, again and again while its disk is away. If that takes a while, `draw` is told what to show.
    /// Blocks until it is read, cannot be, or the person gives up with q or Esc.
    ///
    /// # Errors
    /// If the terminal cannot be used, or no thread can be started.
    pub(crate) fn read(
        &mut self,
        found: &LibraryEpisode,
        (screen, signal): (&mut ScreenGuard, &Signal),
        mut draw: impl FnMut(&mut ScreenGuard, &str) -> io::Result<()>,
    ) -> io::Result<Waited> {
        let Some(tries) = self.start(found)? else {
            return Ok(Waited::Failed(format!("{MOST_READS} other episodes are still being read")));
        };
        let mut wait = SHOWN_AFTER;
        let mut why = None;
        while signal.caught().is_none() {
            match tries.recv_timeout(wait) {
                Ok(Err(error)) if is_away(&error) => why = Some(said(&error)),
                Ok(Err(error)) => return Ok(Waited::Failed(said(&error))),
                Ok(Ok(episode)) => return Ok(Waited::Read(Box::new(episode))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Waited::Failed(format!("reading {} panicked", found.info.name)));
                }
            }
            wait = LOOK;
            draw(screen, &note(found.info.name, why.as_deref()))?;
            wait_for_input(Duration::ZERO)?;
            while event::poll(READ_WAIT)? {
                match input_of(&event::read()?) {
                    Some(Input::Key(Key::Ctrl('c'))) => return Ok(Waited::Quit),
                    Some(Input::Key(Key::Escape | Key::Char('q'))) => return Ok(Waited::GaveUp),
                    _ => {}
                }
            }
        }
        Ok(Waited::GaveUp)
    }

    /// Starts to read an episode, unless [`MOST_READS`] are being read; what its tries come to is received.
    fn start(&mut self, found: &LibraryEpisode) -> io::Result<Option<Receiver<Try>>> {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() >= MOST_READS {
            return Ok(None);
        }
        let (send, tries) = sync_channel(1);
        let found = found.clone();
        // Task: reader of the viewer.
        let thread = thread::Builder::new().name("reader".into()).spawn(move || read(&found, &send))?;
        self.threads.push(thread);
        Ok(Some(tries))
    }
}

/// Reads an episode until it is there, cannot be read, or nobody waits for it.
fn read(found: &LibraryEpisode, tries: &SyncSender<Try>) {
    loop {
        let read = found.folder.load(&found.info);
        let again = read.as_ref().is_err_and(is_away);
        if tries.send(read).is_err() || !again {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Returns whether what could not be read may be there later: its disk or store is away, or fails.
fn is_away(error: &ReadError) -> bool {
    matches!(error, ReadError::Disk(error)
        if !matches!(error.source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied))
}

/// Returns the line that is shown while an episode is read; `why` is what the last try came to.
fn note(name: EpisodeName, why: Option<&str>) -> String {
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("reading {name} ..., Esc gives up{why}")
}

/// Time that reading takes before it is shown: what is read at once needs no line.
const SHOWN_AFTER: Duration = Duration::from_millis(50);
/// Time between two looks for keys while an episode is read.
const LOOK: Duration = Duration::from_millis(50);
/// Most episodes that are read at a time, those included that nobody waits for any more.
const MOST_READS: usize = 4;
