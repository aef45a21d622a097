//! The line on which a person types commands: methods of the env with their arguments.

use rollhouse_core::EnvSpec;

use crate::keys::Key;
use crate::numbers::plain;

/// A line for commands, which is open while something is typed.
#[derive(Debug)]
pub(crate) struct CommandLine {
    /// Names of the env's methods, those that change the lane first; without any there are no commands.
    methods: Vec<String>,
    typed: Option<String>,
    /// The last command, which a person mostly changes a little.
    last: String,
}

/// Most characters of a command.
const MAX_TYPED: usize = 256;

impl CommandLine {
    pub(crate) fn of(spec: &EnvSpec) -> Self {
        let mut methods: Vec<_> = spec.methods.iter().collect();
        // Those that do something stand first.
        methods.sort_by_key(|method| !method.changes);
        let methods = methods.into_iter().map(|method| plain(&method.name)).collect();
        Self { methods, typed: None, last: String::new() }
    }

    /// Returns the names of the methods.
    pub(crate) fn methods(&self) -> &[String] {
        &self.methods
    }

    /// Returns what is typed so far, while the line is open.
    pub(crate) fn typed(&self) -> Option<&str> {
        self.typed.as_deref()
    }

    /// Opens the line, if there are commands.
    pub(crate) fn open(&mut self) {
        if !self.methods.is_empty() {
            self.typed = Some(String::new());
        }
    }

    /// Handles a key while the line is open; returns whether a command was given.
    pub(crate) fn press(&mut self, key: Key) -> bool {
        let Some(typed) = &mut self.typed else { return false };
        match key {
            Key::Escape => self.typed = None,
            Key::Backspace => {
                typed.pop();
            }
            Key::Up => typed.clone_from(&self.last),
            Key::Tab => {
                if let Some(name) = self.methods.iter().find(|name| name.starts_with(typed.as_str())) {
                    *typed = format!("{name} ");
                }
            }
            Key::Char(char) if !char.is_control() && typed.chars().count() < MAX_TYPED => typed.push(char),
            Key::Enter => {
                let typed = self.typed.take().unwrap_or_default();
                if !typed.trim().is_empty() {
                    self.last = typed;
                    return true;
                }
            }
            _ => {}
        }
        false
    }

    /// Returns the command that was given last.
    pub(crate) fn last(&self) -> &str {
        &self.last
    }
}
