//! What a person does at a terminal, apart from how terminals say it.

use std::time::Duration;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// A step was pointed at.
    Point(u64),
    /// So much time has passed since the last one.
    Tick(Duration),
}

/// A key, with what is held down beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the keys of these names")]
pub enum Key {
    Char(char),
    /// With Ctrl held down.
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
