//! The exit codes of commands, and the messages of those that fail.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;

use tracing::{error, info};

use crate::output::complain;

/// The exit codes. They are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The command did what it was asked to.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The arguments or the configuration make no sense.
    Usage = 2,
    /// The command looked, and found a difference or damage.
    Found = 3,
    /// The request was refused, because others have a claim.
    Refused = 4,
    /// Something that has to answer does not.
    Unavailable = 5,
    /// The command ended early because of Ctrl-C, as shells expect it: 128 + SIGINT.
    Interrupted = 130,
}

impl Status {
    /// All statuses, in the order of their codes.
    #[cfg(test)]
    const ALL: [Self; 7] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Found,
        Self::Refused,
        Self::Unavailable,
        Self::Interrupted,
    ];
}

/// The reason why a command did not do what it was asked to.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    message: String,
    /// Sentences below the message: what the user can do or should know.
    hints: Vec<String>,
}

impl Failure {
    /// Makes a failure that prints `message` and ends the command with `status`.
    pub fn new(status: Status, message: impl fmt::Display) -> Self {
        Self { status, message: message.to_string(), hints: Vec::new() }
    }

    /// Makes a failure of an error with its causes.
    pub fn of(status: Status, error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            // Some errors show their cause in their own message already.
            let text = error.to_string();
            if !message.ends_with(&text) {
                // Writing to a string cannot fail.
                let _written = write!(message, ": {text}");
            }
            cause = error.source();
        }
        Self { status, message, hints: Vec::new() }
    }

    /// Returns the message without its hints.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the exit code.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Adds one more hint.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hints.push(hint.to_string());
        self
    }

    /// Adds an option to the commands below `rollhouse GROUP` that hints name as they stand, so that they ask the same place as
    /// the command that failed. Those that name a place themselves, or stand for something, stay as they are.
    pub fn with_option_of(mut self, group: &str, option: &str) -> Self {
        let begins = format!("rollhouse {group} ");
        for hint in &mut self.hints {
            let parts = hint.split('`').enumerate().map(|(place, part)| {
                let is_whole = place % 2 == 1 && part.starts_with(&begins) && !part.contains(" --");
                let stands_for =
                    part.split(' ').any(|word| word.len() > 1 && word.chars().all(char::is_uppercase));
                if is_whole && !stands_for { format!("{part}{option}") } else { part.to_owned() }
            });
            *hint = parts.collect::<Vec<_>>().join("`");
        }
        self
    }

    /// Writes the failure to the log, so that nothing is left to be printed.
    pub fn log(self) -> Self {
        let Self { status, message, hints } = self;
        if !message.is_empty() {
            error!("{message}");
        }
        hints.iter().for_each(|hint| info!("{hint}"));
        Self { status, message: String::new(), hints: Vec::new() }
    }

    /// Prints it, cleaned of what others may have put into it, and returns its status.
    pub fn report(&self) -> Status {
        if !self.message.is_empty() {
            complain(&self.message, &self.hints, Some(self.status as u8));
        }
        self.status
    }
}

/// Makes a failure of an error in writing to stdout. A reader that has seen enough (`| head`) is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::new(Status::Done, "")
        } else {
            Self::new(Status::Failed, format_args!("writing to stdout failed: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_hints_ask_the_same_place_and_those_that_name_one_or_stand_for_something_are_left_alone() {
        let hint = "`rollhouse replay ls` or `rollhouse replay show NAME`, `rollhouse replay ls --data x`, `rollhouse up`";
        let failure = Failure::new(Status::Usage, "no").hint(hint).with_option_of("replay", " --data y");
        assert_eq!(failure.hints, [hint.replacen("replay ls`", "replay ls --data y`", 1)]);
    }

    #[test]
    fn the_table_of_exit_codes_has_each_code_in_its_order() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
        let page = std::fs::read_to_string(path).unwrap();
        let table = page.split("## Exit codes").nth(1).unwrap().split("\n## ").next().unwrap();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok());
        let by_signal = 128 + signal_hook::consts::SIGTERM;
        let codes = Status::ALL.map(|status| status as i32).into_iter().chain([by_signal]);
        assert_eq!(rows.collect::<Vec<i32>>(), codes.collect::<Vec<_>>());
    }
}
