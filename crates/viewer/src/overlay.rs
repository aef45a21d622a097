//! What a person has put on a screen beside what it shows.

/// An overlay: help, a message, and how far the list of elements is scrolled.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub(crate) shows_help: bool,
    pub(crate) message: Option<String>,
    /// The first element that is shown.
    pub(crate) scrolled: usize,
}

impl Overlay {
    /// Shows one element further, of so many.
    pub(crate) fn scroll_on(&mut self, elements: usize) {
        self.scrolled = (self.scrolled + 1).min(elements.saturating_sub(1));
    }

    /// Shows one element before.
    pub(crate) const fn scroll_back(&mut self) {
        self.scrolled = self.scrolled.saturating_sub(1);
    }

    /// Shows a message in place of the keys.
    pub(crate) fn say(&mut self, message: impl Into<String>) {
        self.message = Some(message.into());
    }
}
