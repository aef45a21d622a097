//! What a person does at a terminal, out of the events that terminals report.

use crossterm::event::{
    Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent,
    MouseEventKind,
};
use ratatui_core::layout::Position;

use crate::keys::Key;

/// An input of a person.
pub(crate) enum Input {
    Key(Key),
    /// A button of the mouse was pressed at that place.
    Point(Position),
    /// The mouse is at that place with its button held.
    Drag(Position),
    /// The wheel was turned.
    Wheel {
        back: bool,
    },
}

/// Returns the input that a terminal's event stands for; `None` for events after which the screen is drawn anew anyway.
pub(crate) fn input_of(event: &TerminalEvent) -> Option<Input> {
    match event {
        TerminalEvent::Key(key) => key_of(key).map(Input::Key),
        TerminalEvent::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => Some(Input::Point(place_of(mouse))),
            MouseEventKind::Drag(MouseButton::Left) => Some(Input::Drag(place_of(mouse))),
            MouseEventKind::ScrollUp => Some(Input::Wheel { back: true }),
            MouseEventKind::ScrollDown => Some(Input::Wheel { back: false }),
            _ => None,
        },
        _ => None,
    }
}

const fn place_of(mouse: &MouseEvent) -> Position {
    Position::new(mouse.column, mouse.row)
}

pub(crate) fn key_of(key: &KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char(char) if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Ctrl(char),
        KeyCode::Char(char) => Key::Char(char),
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        _ => return None,
    })
}
