//! What a service says on stderr: lines of `tracing`, as text or JSON, from a level on, and not the same without end.
//!
//! Commands that end print; services, which have an operator, log. Levels and format may change while it runs.

mod lines;
mod repeats;

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rollhouse_config::{Log, LogFormat, LogLevel, LogLevels};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, error, info, warn};
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::{Layer, reload};

use crate::failure::{Failure, Status};
use lines::{Lines, message};
use repeats::Repeats;

/// The log of this process.
#[derive(Debug)]
pub(crate) struct Logging {
    levels: reload::Handle<Targets, Registry>,
    as_json: Arc<AtomicBool>,
    withholding: Withholding,
}

impl Logging {
    /// Has everything from here on said as `log` wants it. Once in a process.
    pub(crate) fn begin(log: &Log) -> Result<Self, Failure> {
        let (levels, handle) = reload::Layer::new(targets(&log.level));
        let as_json = Arc::new(AtomicBool::new(wants_json(log.format)));
        let withholding = Withholding::default();
        let lines = tracing_subscriber::fmt::layer()
            .fmt_fields(JsonFields::new())
            .event_format(Lines::new(Arc::clone(&as_json)))
            .with_writer(io::stderr)
            .with_filter(levels.and(withholding.clone()));
        let begun = tracing::subscriber::set_global_default(Registry::default().with(lines));
        begun.map_err(|error| Failure::of(Status::Failed, &error))?;
        Ok(Self { levels: handle, as_json, withholding })
    }

    /// Goes on as `log` wants it.
    pub(crate) fn change(&self, log: &Log) {
        self.as_json.store(wants_json(log.format), Ordering::Relaxed);
        // Gone only with the process.
        let _changed = self.levels.reload(targets(&log.level));
    }

    /// Says how the service ended, if it failed, and what has been withheld. Where lines are JSON, the failure is one.
    pub(crate) fn end(&self, ended: Result<Status, Failure>) -> Result<Status, Failure> {
        self.look();
        match ended {
            Err(failure) if self.as_json.load(Ordering::Relaxed) => Err(failure.log()),
            ended => ended,
        }
    }

    /// Says of which lines there were too many, once it is over. To be called now and then.
    pub(crate) fn look(&self) {
        for (like, withheld) in self.withholding.over() {
            warn!(withheld, "{withheld} more lines like `{like}` were not shown");
        }
    }
}

/// A line whose level is known only when it is said.
pub(crate) fn line(level: Level, what: &str) {
    match level {
        Level::ERROR => error!("{what}"),
        Level::WARN => warn!("{what}"),
        _ => info!("{what}"),
    }
}

/// Lets so many lines of a kind through as [`Repeats`] says; a kind is a place in the program.
#[derive(Debug, Clone)]
struct Withholding {
    began: Instant,
    repeats: Arc<Mutex<Repeats>>,
}

impl Withholding {
    fn over(&self) -> Vec<(String, u64)> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner).over(self.began.elapsed())
    }
}

impl Default for Withholding {
    fn default() -> Self {
        Self { began: Instant::now(), repeats: Arc::default() }
    }
}

impl<S: Subscriber> Filter<S> for Withholding {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        repeats.note(self.began.elapsed(), event.metadata().callsite(), || message(event))
    }
}

/// What is said of which crate. Of what others have made, only what goes wrong is of interest unless more is asked for.
fn targets(levels: &LogLevels) -> Targets {
    let others = levels.all.min(LogLevel::Warn);
    let targets = Targets::new().with_default(filter(others)).with_target("rollhouse", filter(levels.all));
    targets.with_targets(levels.parts.iter().map(|(part, level)| {
        let name = if *part == "quinn" { (*part).to_owned() } else { format!("rollhouse_{part}") };
        (name, filter(*level))
    }))
}

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn wants_json(format: LogFormat) -> bool {
    match format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_level_and_what_others_made_is_heard_only_when_it_goes_wrong() {
        let levels = LogLevels { all: LogLevel::Info, parts: [("node", LogLevel::Debug)].into() };
        let targets = targets(&levels);
        for (target, level, heard) in [
            ("rollhouse_node::link", Level::DEBUG, true),
            ("rollhouse_node", Level::TRACE, false),
            ("rollhouse_coordinator", Level::INFO, true),
            ("rollhouse_coordinator", Level::DEBUG, false),
            ("quinn_proto::connection", Level::WARN, true),
            ("quinn_proto::connection", Level::INFO, false),
        ] {
            assert_eq!(targets.would_enable(target, &level), heard, "{target} {level}");
        }
    }
}
