//! The log of a service on stderr: lines of `tracing`, as text or JSON, from a level on, with a limit on repeated
//! lines.
//!
//! Commands that end print; services, which have an operator, log. Levels and format may change while it runs.

mod lines;
mod repeats;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_config::{Log, LogFormat, LogLevel, LogLevels, Traces};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Subscriber, error, info, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::{Layer, reload};

use crate::failure::{Failure, Status};
use crate::output::messages_are_json;
use crate::traces::Tracer;
use lines::{Lines, message};
use repeats::Repeats;

/// The filter of wanted lines, which may change.
type Levels = reload::Layer<Targets, Registry>;

/// The log of this process.
#[derive(Debug)]
pub(crate) struct Logging {
    levels: reload::Handle<Targets, Registry>,
    as_json: Arc<AtomicBool>,
    withholding: Withholding,
    tracer: Option<Tracer>,
}

impl Logging {
    /// Sends everything that is logged from here on to stderr as `log` wants it, and calls to the collector as `traces`
    /// wants it, in the name of `service`. May be called once in a process.
    pub(crate) fn begin(service: &'static str, log: &Log, traces: &Traces) -> Result<Self, Failure> {
        let tracer = Tracer::new(service, &traces.endpoint)?;
        let (levels, handle) = reload::Layer::new(targets(&log.level));
        let as_json = Arc::new(AtomicBool::new(wants_json(log.format)));
        let withholding = Withholding::default();
        let lines = Lines::new(Arc::clone(&as_json), withholding.clone());
        let subscriber = subscriber(levels, lines, io::stderr);
        let begun = match &tracer {
            Some(tracer) => set_global_default(subscriber.with(tracer.layer())),
            None => set_global_default(subscriber),
        };
        begun.map_err(|error| Failure::of(Status::Failed, &error))?;
        Ok(Self { levels: handle, as_json, withholding, tracer })
    }

    /// Shows warnings and errors from here on, as messages are shown, in a command that is no service.
    pub(crate) fn begin_warnings(name: &'static str) -> Result<Self, Failure> {
        let level = LogLevels { all: LogLevel::Warn, parts: BTreeMap::new() };
        let format = if messages_are_json() { LogFormat::Json } else { LogFormat::Text };
        Self::begin(name, &Log { level, format }, &Traces::default())
    }

    /// Applies changed settings.
    pub(crate) fn change(&self, log: &Log) {
        self.as_json.store(wants_json(log.format), Ordering::Relaxed);
        // Gone only with the process.
        let _changed = self.levels.reload(targets(&log.level));
    }

    /// Logs the end of the service, if it failed, and the lines that were withheld. In JSON the failure is a line, too.
    pub(crate) fn end(&self, ended: Result<Status, Failure>) -> Result<Status, Failure> {
        self.look();
        if let Some(tracer) = &self.tracer {
            tracer.end();
        }
        match ended {
            Err(failure) if self.as_json.load(Ordering::Relaxed) => Err(failure.log()),
            ended => ended,
        }
    }

    /// Logs how many lines were withheld, once a window is over. To be called now and then.
    pub(crate) fn look(&self) {
        for (like, withheld) in self.withholding.over() {
            warn!(withheld, "{withheld} more lines like `{like}` were not shown");
        }
    }
}

/// Logs a line whose level is known only at that moment.
pub(crate) fn line(level: Level, what: &str) {
    match level {
        Level::ERROR => error!("{what}"),
        Level::WARN => warn!("{what}"),
        _ => info!("{what}"),
    }
}

/// Makes the subscriber that writes lines of those levels.
fn subscriber<W>(
    levels: Levels,
    lines: Lines,
    writer: W,
) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(JsonFields::new())
        .event_format(lines)
        // It would be told on stderr, where nobody may be any more.
        .log_internal_errors(false)
        .with_writer(writer)
        .with_filter(levels);
    Registry::default().with(lines)
}

/// Limits the lines of a kind as [`Repeats`] says; a kind is a place in the program.
#[derive(Debug, Clone)]
struct Withholding {
    began: Instant,
    repeats: Arc<Mutex<Repeats>>,
}

impl Withholding {
    /// Returns whether the line is to be written.
    fn lets_through(&self, event: &Event<'_>) -> bool {
        self.repeats().note(self.began.elapsed(), event.metadata().callsite(), || message(event))
    }

    fn over(&self) -> Vec<(String, u64)> {
        self.repeats().over(self.began.elapsed())
    }

    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.repeats.lock()
    }
}

impl Default for Withholding {
    fn default() -> Self {
        Self { began: Instant::now(), repeats: Arc::default() }
    }
}

/// Returns the levels by crate. Of other people's crates only warnings and errors are logged unless more is asked for.
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
    use std::io::Write;

    /// What was written.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Symptom: after the hundredth line of a place within ten seconds the thread that had said it panicked (in a release
    /// build its next line was lost), and a coordinator served nobody any more. Cause: a layer's filter withheld lines,
    /// which tracing-subscriber takes back only where another layer wants them. Fix: what writes them withholds them.
    #[test]
    fn a_line_that_is_withheld_costs_no_other_line() {
        let (page, withholding) = (Page::default(), Withholding::default());
        let (levels, _levels) = reload::Layer::new(targets(&Log::default().level));
        let lines = Lines::new(Arc::default(), withholding.clone());
        let written = page.clone();
        tracing::subscriber::with_default(subscriber(levels, lines, move || written.clone()), || {
            for number in 0..300 {
                info!(target: "rollhouse_cli", "line {number}");
            }
            info!(target: "rollhouse_cli", "another");
        });
        let said = String::from_utf8(page.0.lock().clone()).unwrap();
        let ends: Vec<&str> = said.lines().map(|line| line.rsplit("info  ").next().unwrap()).collect();
        assert_eq!((ends.len(), ends[99], ends[100]), (101, "line 99", "another"));
    }

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
