//! What a service's log says, and how it looks.

use std::collections::BTreeMap;
use std::fmt;

use crate::setting::{Given, Setting, Shown, text};

/// How a service speaks of itself on stderr. All of it may change while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    /// The least that is said. Default `info`: what changes, and what somebody has to look after.
    pub level: LogLevels,
    /// What a line is. Default `auto`: people read terminals, programs everything else.
    pub format: LogFormat,
}

/// How much a line matters, from the most to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogLevel {
    /// No lines at all.
    Off,
    /// What somebody has to look after.
    Error,
    /// What may go on by itself.
    Warn,
    /// What asks nothing of whoever reads it.
    #[default]
    Info,
    /// Each thing that is done.
    Debug,
    /// Whatever helps to find a bug.
    Trace,
}

/// The least level of all lines, and of those of single parts: `info`, or `info,node=debug`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogLevels {
    /// Of parts that are not named.
    pub all: LogLevel,
    /// Of each of [`LogLevels::PARTS`] that is named.
    pub parts: BTreeMap<&'static str, LogLevel>,
}

/// What a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// [`LogFormat::Text`] where stderr is a terminal, else [`LogFormat::Json`].
    #[default]
    Auto,
    /// A sentence with its time, its level and what else is known of it.
    Text,
    /// An object of JSON.
    Json,
}

impl Log {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![("log.level", &mut self.level), ("log.format", &mut self.format)]
    }
}

impl LogLevel {
    const ALL: [Self; 6] = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// The word in settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    fn of(word: &str) -> Result<Self, String> {
        let level = Self::ALL.into_iter().find(|level| level.word() == word.trim());
        level.ok_or_else(|| format!("`{}` is no level", Given::Word(word.to_owned()).quoted()))
    }
}

impl LogLevels {
    /// Parts of a service that have a level of their own: the service itself, what it is made of, and its transport.
    pub const PARTS: [&'static str; 4] = ["cli", "coordinator", "node", "quinn"];
}

impl Setting for LogLevels {
    fn wanted(&self) -> String {
        let levels = LogLevel::ALL.map(LogLevel::word).join(", ");
        let parts = Self::PARTS.join(", ");
        format!("one of {levels}, and with commas levels of {parts}, as in \"info,node=debug\"")
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let mut levels = Self::default();
        for (index, word) in text(given)?.split(',').enumerate() {
            match word.split_once('=') {
                None if index == 0 => levels.all = LogLevel::of(word)?,
                None => return Err("the level of all stands first, and once".to_owned()),
                Some((part, level)) => {
                    let part = part.trim();
                    let known = Self::PARTS.into_iter().find(|known| *known == part);
                    let known = known.ok_or_else(|| {
                        format!("`{}` has no level of its own", Given::Word(part.to_owned()).quoted())
                    })?;
                    if levels.parts.insert(known, LogLevel::of(level)?).is_some() {
                        return Err(format!("`{known}` is given twice"));
                    }
                }
            }
        }
        *self = levels;
        Ok(())
    }

    fn show(&self) -> Shown {
        Shown::Text(self.to_string())
    }
}

impl fmt::Display for LogLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.all.word())?;
        self.parts.iter().try_for_each(|(part, level)| write!(f, ",{part}={}", level.word()))
    }
}

impl Setting for LogFormat {
    fn wanted(&self) -> String {
        "\"auto\", \"text\" or \"json\"".to_owned()
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        *self = match text(given)? {
            "auto" => Self::Auto,
            "text" => Self::Text,
            "json" => Self::Json,
            _ => return Err(String::new()),
        };
        Ok(())
    }

    fn show(&self) -> Shown {
        Shown::Text(match self {
            Self::Auto => "auto".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Json => "json".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(text: &str) -> Result<LogLevels, String> {
        let mut levels = LogLevels::default();
        levels.set(&Given::Word(text.to_owned())).map(|()| levels)
    }

    #[test]
    fn levels_are_those_of_all_and_of_single_parts() {
        let read = levels("warn, node=debug,quinn=off").unwrap();
        assert_eq!(read.all, LogLevel::Warn);
        assert_eq!(read.parts, BTreeMap::from([("node", LogLevel::Debug), ("quinn", LogLevel::Off)]));
        assert_eq!(read.to_string(), "warn,node=debug,quinn=off");
        assert_eq!(levels("node=trace").unwrap().to_string(), "info,node=trace", "of others as by default");
    }

    #[test]
    fn levels_that_are_none_say_what_is_wrong_with_them() {
        for (text, why) in [
            ("loud", "`loud` is no level"),
            ("", "`` is no level"),
            ("info,debug", "stands first"),
            ("info,engine=debug", "`engine` has no level of its own"),
            ("node=debug,node=info", "`node` is given twice"),
            ("node=", "`` is no level"),
        ] {
            assert!(levels(text).is_err_and(|said| said.contains(why)), "{text}: {:?}", levels(text));
        }
    }

    #[test]
    fn levels_that_are_refused_leave_those_before() {
        let mut read = levels("error").unwrap();
        assert!(read.set(&Given::Integer(3)).is_err() && read.set(&Given::Word("x=1".to_owned())).is_err());
        assert_eq!(read, levels("error").unwrap());
    }
}
