//! The list in which an episode is chosen.

use rollhouse_replay::{
    EpisodeInfo, EpisodeKey, Label, Labels, Library, LibraryEpisode, Query, Rank, Sort, SortKey,
};

use crate::filter::narrow;
use crate::keys::Key;
use crate::numbers::said;

/// A list of episodes in some order, narrowed by what is typed. It holds one screen of episodes in memory, and for each
/// page before it the place where that begins.
#[derive(Debug, Default)]
pub struct Browser {
    typed: String,
    sort: Sort,
    envs: Vec<String>,
    labels: Labels,
    /// Rows of a page.
    height: usize,
    rows: Vec<LibraryEpisode>,
    /// The place after which each page begins, up to the page that is shown; `None` is the beginning.
    starts: Vec<Option<Rank>>,
    /// Whether there is a page after this one.
    has_more: bool,
    chosen: usize,
    /// Whether the rows are not those of the page that should be shown.
    is_stale: bool,
    /// The reason why there are no rows.
    complaint: Option<String>,
    /// Line that is shown in place of the keys.
    note: Option<String>,
}

/// A request of a list to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// End the viewer.
    Quit,
    /// Show the chosen episode.
    Show,
}

impl Browser {
    /// Makes a list that shows the newest episodes first, of a library with episodes of these envs.
    pub fn new(envs: Vec<String>) -> Self {
        let sort = Sort { key: SortKey::Started, descending: true };
        Self { sort, envs, starts: vec![None], is_stale: true, ..Self::default() }
    }

    /// Sets the labels of the episodes.
    #[must_use]
    pub fn with_labels(self, labels: Labels) -> Self {
        Self { labels, ..self }
    }

    /// Returns the label of an episode, if it has one.
    pub(crate) fn label(&self, info: &EpisodeInfo) -> Option<&Label> {
        self.labels.of(&EpisodeKey::of(info))
    }

    /// Sets how many rows fit, which changes what a page is.
    pub fn set_height(&mut self, height: usize) {
        let height = height.max(1);
        if self.height == height {
            return;
        }
        self.height = height;
        self.chosen = self.chosen.min(height - 1);
        self.is_stale = true;
    }

    /// Makes the next [`Browser::fill`] read the page anew, though nothing was typed.
    pub(crate) const fn read_again(&mut self) {
        self.is_stale = true;
    }

    /// Reads the page that should be shown, if it is not there. If it cannot be read, the error is shown in its place.
    pub fn fill(&mut self, library: &Library) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let after = self.starts.last().copied().flatten();
        let query = Query { sort: self.sort, all_outcomes: true, after, ..Query::default() };
        // One more tells whether there is a next page.
        let query = narrow(query, &self.typed, &self.envs)
            .map(|query| Query { limit: Some(self.height + 1), ..query });
        match query.and_then(|query| library.list(&query).map_err(|error| said(&error))) {
            Ok(mut rows) => {
                self.has_more = rows.len() > self.height;
                rows.truncate(self.height);
                (self.rows, self.complaint) = (rows, None);
            }
            Err(complaint) => {
                (self.rows, self.has_more) = (Vec::new(), false);
                self.complaint = Some(complaint);
            }
        }
        self.chosen = self.chosen.min(self.rows.len().saturating_sub(1));
    }

    /// Handles a key; the caller carries out what it returns. Call [`Browser::fill`] after it.
    pub fn on(&mut self, key: Key) -> Option<Choice> {
        match key {
            Key::Ctrl('c') => return Some(Choice::Quit),
            Key::Escape if self.typed.is_empty() => return Some(Choice::Quit),
            Key::Enter if !self.is_stale && self.chosen().is_some() => return Some(Choice::Show),
            Key::Escape => self.retype(String::clear),
            Key::Backspace => self.retype(|typed| {
                typed.pop();
            }),
            Key::Char(char) if !char.is_control() && self.typed.chars().count() < MAX_TYPED => {
                self.retype(|typed| typed.push(char));
            }
            Key::Tab => {
                let at = ORDERS.iter().position(|order| *order == self.sort.key).unwrap_or(0);
                self.sort.key = ORDERS[(at + 1) % ORDERS.len()];
                self.retype(|_| {});
            }
            Key::BackTab => {
                self.sort.descending = !self.sort.descending;
                self.retype(|_| {});
            }
            Key::Down => _ = self.go_on(),
            Key::Up => _ = self.go_back(),
            Key::PageDown => self.turn_on(),
            Key::PageUp => self.turn_back(),
            Key::Home => self.retype(|_| {}),
            _ => {}
        }
        None
    }

    /// Changes the typed text and begins from the first page.
    fn retype(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.typed);
        self.starts = vec![None];
        (self.chosen, self.is_stale) = (0, true);
    }

    /// Chooses the next row; returns false if there is none. Call [`Browser::fill`] after it.
    pub fn go_on(&mut self) -> bool {
        if self.is_stale {
            return false;
        }
        if self.chosen + 1 < self.rows.len() {
            self.chosen += 1;
            return true;
        }
        let has_more = self.has_more;
        self.turn_on();
        has_more
    }

    /// Chooses the row before; returns false if there is none. Call [`Browser::fill`] after it.
    pub fn go_back(&mut self) -> bool {
        if self.is_stale {
            return false;
        }
        if self.chosen > 0 {
            self.chosen -= 1;
            return true;
        }
        let has_less = self.starts.len() > 1;
        self.turn_back();
        // Where it was first, it is last.
        self.chosen = if has_less { self.height - 1 } else { 0 };
        has_less
    }

    /// Chooses a row that is pointed at; a row that is chosen already is shown.
    pub fn point(&mut self, row: usize) -> Option<Choice> {
        if self.is_stale || row >= self.rows.len() {
            return None;
        }
        let is_chosen = std::mem::replace(&mut self.chosen, row) == row;
        is_chosen.then_some(Choice::Show)
    }

    fn turn_on(&mut self) {
        if let Some(last) = self.rows.last().filter(|_| self.has_more && !self.is_stale) {
            self.starts.push(Some(self.sort.rank_of(&last.info)));
            (self.chosen, self.is_stale) = (0, true);
        } else {
            self.chosen = self.rows.len().saturating_sub(1);
        }
    }

    fn turn_back(&mut self) {
        self.chosen = 0;
        if self.starts.len() > 1 {
            self.starts.pop();
            self.is_stale = true;
        }
    }

    /// Returns the row that is chosen.
    pub fn chosen(&self) -> Option<&LibraryEpisode> {
        self.rows.get(self.chosen)
    }

    /// Shows a complaint in place of the rows until they are read anew.
    pub(crate) fn complain(&mut self, complaint: String) {
        (self.rows, self.has_more) = (Vec::new(), false);
        self.complaint = Some(complaint);
    }

    /// Shows a line in place of the keys, or the keys again.
    pub(crate) fn set_note(&mut self, note: Option<String>) {
        self.note = note;
    }

    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    pub(crate) fn rows(&self) -> (&[LibraryEpisode], usize) {
        (&self.rows, self.chosen)
    }

    pub(crate) fn typed(&self) -> &str {
        &self.typed
    }

    pub(crate) const fn sort(&self) -> Sort {
        self.sort
    }

    /// Returns the number of the page, from 1, and whether there is one after it.
    pub(crate) const fn page(&self) -> (usize, bool) {
        (self.starts.len(), self.has_more)
    }

    pub(crate) fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }
}

/// Orders of the list, in which a key goes from one to the next.
const ORDERS: [SortKey; 4] = [SortKey::Started, SortKey::Return, SortKey::Length, SortKey::Name];
/// Most characters that can be typed.
const MAX_TYPED: usize = 64;
