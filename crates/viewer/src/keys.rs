//! Events and keys of a person at a terminal, independent of how terminals report them.

use std::time::Duration;

/// An event at the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// A step was pointed at.
    Point(u64),
    /// So much time has passed since the last tick.
    Tick(Duration),
}

/// A key, with a modifier that is held down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the keys of these names")]
pub enum Key {
    Char(char),
    /// A character with Ctrl held down.
    Ctrl(char),
    Left,
    Right,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
}
