//! The settings of a service's log.

use std::collections::BTreeMap;
use std::fmt;

use crate::setting::{Given, Setting, SettingValue, text};

/// Settings of a service's log on stderr. All of them may change while the service runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    /// Least important level that is logged. Default `info`: changes, and what somebody has to look after.
    pub level: LogLevels,
    /// Form of a line. Default `auto`: people read terminals, programs everything else.
    pub format: LogFormat,
}

/// Level of a line, from the most to the least important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogLevel {
    /// No lines are logged at all.
    Off,
    /// The line tells of something that somebody has to look after.
    Error,
    /// The line tells of something that may pass by itself.
    Warn,
    /// The line needs no action of its reader.
    #[default]
    Info,
    /// The line tells of a single thing that is done.
    Debug,
    /// The line helps to find a bug.
    Trace,
}

/// Least important level of all lines, and of those of single parts: `info`, or `info,node=debug`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogLevels {
    /// Level of parts that are not named.
    pub all: LogLevel,
    /// Level of each of [`LogLevels::PARTS`] that is named.
    pub parts: BTreeMap<&'static str, LogLevel>,
}

/// Form of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// The lines are [`LogFormat::Text`] where stderr is a terminal, else [`LogFormat::Json`].
    #[default]
    Auto,
    /// A line is a sentence with its time, its level and its fields.
    Text,
    /// A line is an object of JSON.
    Json,
}

impl Log {
    pub(crate) fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        vec![("log.level", &mut self.level), ("log.format", &mut self.format)]
    }
}

impl LogLevel {
    const ALL: [Self; 6] = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// Returns the word in settings.
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
        level.ok_or_else(|| format!("`{}` is not a level", Given::Word(word.to_owned()).quoted()))
    }
}

impl LogLevels {
    /// Parts of a service that have a level of their own: the service itself, the coordinator and the node in it, and
    /// its transport.
    pub const PARTS: [&'static str; 4] = ["cli", "coordinator", "node", "quinn"];
}

impl Setting for LogLevels {
    fn wanted(&self) -> String {
        let levels = LogLevel::ALL.map(LogLevel::word).join(", ");
        let parts = Self::PARTS.join(", ");
        format!(
            "one of {levels}, optionally followed by levels of {parts}, separated by commas, as in \"info,node=debug\""
        )
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let mut levels = Self::default();
        for (index, word) in text(given)?.split(',').enumerate() {
            match word.split_once('=') {
                None if index == 0 => levels.all = LogLevel::of(word)?,
                None => return Err("the level of all parts must come first, and only once".to_owned()),
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

    fn show(&self) -> SettingValue {
        SettingValue::Text(self.to_string())
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

    fn show(&self) -> SettingValue {
        SettingValue::Text(match self {
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
            ("loud", "`loud` is not a level"),
            ("", "`` is not a level"),
            ("info,debug", "must come first"),
            ("info,engine=debug", "`engine` has no level of its own"),
            ("node=debug,node=info", "`node` is given twice"),
            ("node=", "`` is not a level"),
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
