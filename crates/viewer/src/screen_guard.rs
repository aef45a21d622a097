//! The terminal while it is drawn on: taken, and given back whatever happens.

use std::io::{self, Stdout, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Mutex, PoisonError};

use crossterm::cursor::{Hide, Show};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{execute, queue};
use ratatui_core::buffer::Buffer;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;

/// The terminal on stdout, in raw mode and on its other screen until this is dropped: at the end, after an error, and
/// when a panic unwinds. What panics say meanwhile is kept off the screen; what ends the program says it afterwards.
pub(crate) struct ScreenGuard {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// What the last panic said.
    said: Arc<Mutex<Option<String>>>,
    hook: Option<Box<Hook>>,
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync + 'static;

impl ScreenGuard {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If it cannot be put into raw mode or written to; it is as before then.
    pub(crate) fn take() -> io::Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let said = Arc::new(Mutex::new(None));
        let hook = panic::take_hook();
        let heard = Arc::clone(&said);
        panic::set_hook(Box::new(move |panic| {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic.to_string());
        }));
        // From here on dropping it undoes what has been done.
        let guard = Self { terminal, said, hook: Some(hook) };
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(guard)
    }

    /// Rows of the terminal as it is now.
    ///
    /// # Errors
    /// If it does not say.
    pub(crate) fn height(&self) -> io::Result<u16> {
        self.terminal.size().map(|size| size.height)
    }

    /// Draws a frame, of which only what has changed is sent.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut())).map(|_| ())
    }
}

/// Leaves the terminal as it was before.
pub(crate) fn give_back() {
    let mut out = io::stdout();
    // A terminal that is gone needs nothing.
    let _left = queue!(out, Show, LeaveAlternateScreen).and_then(|()| out.flush());
    let _cooked = disable_raw_mode();
}

impl Drop for ScreenGuard {
    fn drop(&mut self) {
        give_back();
        if std::thread::panicking() {
            // A hook cannot be changed while unwinding; the process ends.
            if let Some(said) = &*self.said.lock().unwrap_or_else(PoisonError::into_inner) {
                let _said = writeln!(io::stderr(), "{said}");
            }
        } else if let Some(hook) = self.hook.take() {
            panic::set_hook(hook);
        }
    }
}
