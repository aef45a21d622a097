//! The guard of the terminal while it is drawn on: it is given back whatever happens.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::mem::ManuallyDrop;
use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::event;
use crossterm::style::Print;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{execute, queue};
use parking_lot::Mutex;
use ratatui_core::backend::Backend;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Rect, Size};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use rollhouse_env::Image;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::asked::{QUESTION, graphics_of, read_answers};
use crate::graphics::{Graphics, Protocol};

/// The terminal on stdout, in raw mode and on its other screen until this is dropped: at the end, after an error, and
/// when a panic unwinds. Messages of panics are kept off the screen meanwhile; if a panic ends the program, its message
/// is printed afterwards.
pub(crate) struct ScreenGuard {
    /// The terminal is never dropped, because that would panic where it is gone: dropping shows the cursor and says on
    /// stderr that it cannot. It holds two screens of cells, once in a program.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// Graphics of the terminal, if it takes pictures of pixels.
    graphics: Option<Graphics>,
    /// The screen that was drawn last.
    area: Rect,
    /// Message of the last panic.
    said: Arc<Mutex<Option<String>>>,
    hook: Option<Box<Hook>>,
}

/// A choice of what pictures are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pictures {
    /// Pixels, if the terminal says that it takes them, else cells.
    Asked,
    /// Cells: half blocks or characters.
    Cells,
    /// Pixels, without asking.
    Pixels(Protocol),
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync + 'static;

impl ScreenGuard {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If it cannot be put into raw mode or written to; it is as before then.
    pub(crate) fn take(pictures: Pictures) -> io::Result<Self> {
        let terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(io::stdout()))?);
        let said = Arc::new(Mutex::new(None));
        let hook = panic::take_hook();
        let heard = Arc::clone(&said);
        panic::set_hook(Box::new(move |panic| {
            *heard.lock() = Some(panic.to_string());
        }));
        // From here on dropping it undoes what has been done.
        let mut guard = Self { terminal, graphics: None, area: Rect::ZERO, said, hook: Some(hook) };
        enable_raw_mode()?;
        guard.graphics = match pictures {
            Pictures::Asked => ask()?,
            Pictures::Cells => None,
            Pictures::Pixels(protocol) => Some(Graphics::new(protocol, None)),
        };
        execute!(io::stdout(), EnterAlternateScreen, Hide, Print(MOUSE))?;
        Ok(guard)
    }

    /// Returns the columns and rows of the terminal as it is now.
    ///
    /// # Errors
    /// If the terminal does not say.
    pub(crate) fn size(&self) -> io::Result<Size> {
        self.terminal.size()
    }

    /// Draws a frame; only changed cells are sent. Where the terminal takes pictures of pixels, `draw` is told so, and
    /// may return one to show in cells that it has left empty.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub(crate) fn draw(
        &mut self,
        draw: impl Fn(Option<&Graphics>, &mut Buffer) -> Option<(Image, Rect)>,
    ) -> io::Result<()> {
        let Self { terminal, graphics, area, .. } = self;
        let mut picture = None;
        let was = *area;
        terminal.draw(|frame| {
            *area = frame.area();
            picture = draw(graphics.as_ref(), frame.buffer_mut());
        })?;
        let Some(graphics) = graphics else { return Ok(()) };
        if *area != was {
            // It was cleared.
            graphics.forget();
        }
        if graphics.leaves_rest(picture.as_ref().map(|(_, cells)| *cells)) {
            graphics.forget();
            // `Terminal::clear` would ask the terminal where the cursor is, and wait for its answer.
            terminal.backend_mut().clear()?;
            terminal.swap_buffers();
            terminal.draw(|frame| picture = draw(Some(graphics), frame.buffer_mut()))?;
        }
        let mut out = BufWriter::new(io::stdout());
        match picture {
            Some((image, cells)) => graphics.show(image, cells, &mut out)?,
            None => graphics.hide(&mut out)?,
        }
        out.flush()
    }
}

/// Time for which what was typed is read on: with none at all crossterm reads nothing. It is short beside the time
/// between two looks, since an episode is not passed on meanwhile.
pub(crate) const READ_WAIT: Duration = Duration::from_micros(100);

/// Waits until something may have been typed, for at most `wait`.
///
/// # Errors
/// If the terminal is gone: crossterm, which reads what is typed, would wait for it for ever.
pub(crate) fn wait_for_input(wait: Duration) -> io::Result<()> {
    // Asked once: a terminal that was closed says that it is none.
    static IS_TERMINAL: OnceLock<bool> = OnceLock::new();
    let terminal = io::stdin();
    if !IS_TERMINAL.get_or_init(|| terminal.is_terminal()) {
        // Then it reads from another file; that it waits is enough.
        return event::poll(wait).map(|_| ());
    }
    let mut polled = [PollFd::new(&terminal, PollFlags::IN)];
    let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&wait)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    match polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed")),
        false => Ok(()),
    }
}

/// Asks the terminal on stdin and stdout, which is in raw mode, what pictures of pixels it takes.
fn ask() -> io::Result<Option<Graphics>> {
    let (mut out, terminal) = (io::stdout(), io::stdin());
    if !terminal.is_terminal() {
        return Ok(None);
    }
    out.write_all(QUESTION)?;
    out.flush()?;
    Ok(graphics_of(&read_answers(terminal)?))
}

/// Leaves the terminal as it was before.
pub(crate) fn give_back() {
    let mut out = io::stdout();
    // A terminal that is gone needs nothing.
    let _left = queue!(out, Print(NO_MOUSE), Show, LeaveAlternateScreen).and_then(|()| out.flush());
    let _cooked = disable_raw_mode();
}

impl Drop for ScreenGuard {
    fn drop(&mut self) {
        give_back();
        if std::thread::panicking() {
            // A hook cannot be changed while unwinding; the process ends.
            if let Some(said) = &*self.said.lock() {
                let _said = writeln!(io::stderr(), "{said}");
            }
        } else if let Some(hook) = self.hook.take() {
            panic::set_hook(hook);
        }
    }
}

/// Codes that make the terminal report the mouse's buttons and wheel, but not each of its moves.
const MOUSE: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
const NO_MOUSE: &str = "\x1b[?1006l\x1b[?1002l\x1b[?1000l";
