//! The form of a log line.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rollhouse_core::{plain, plain_json};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, FormatEvent, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::Withholding;
use crate::human::rfc3339;

/// Writes lines as text or JSON, as the flag says at that moment, except those that are withheld.
#[derive(Debug)]
pub(super) struct Lines {
    as_json: Arc<AtomicBool>,
    withholding: Withholding,
    json: Format<Json>,
}

impl Lines {
    pub(super) fn new(as_json: Arc<AtomicBool>, withholding: Withholding) -> Self {
        let json = tracing_subscriber::fmt::format().json();
        Self {
            as_json,
            withholding,
            json: json.flatten_event(true).with_current_span(true).with_span_list(false),
        }
    }
}

impl<S> FormatEvent<S, JsonFields> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !self.withholding.lets_through(event) {
            return Ok(());
        }
        if self.as_json.load(Ordering::Relaxed) {
            let mut line = String::new();
            self.json.format_event(context, Writer::new(&mut line), event)?;
            return writeln!(out, "{}", plain_json(line.trim_end().to_owned()));
        }
        let mut said = LineText::default();
        event.record(&mut said);
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<JsonFields>>() {
                said.add(fields);
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = rfc3339(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        writeln!(out, "{time} {} {said}", word(*event.metadata().level()))
    }
}

/// Returns the message of an event without its fields.
pub(super) fn message(event: &Event<'_>) -> String {
    let mut said = LineText::default();
    event.record(&mut said);
    said.message
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn ",
        Level::INFO => "info ",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// A sentence and further values. Values that stand in the sentence are not repeated.
#[derive(Debug, Default)]
struct LineText {
    message: String,
    fields: Vec<(String, String)>,
}

impl LineText {
    /// Adds the fields of a span, which are an object of JSON.
    fn add(&mut self, object: &str) {
        let fields = serde_json::from_str::<Map<String, Value>>(object).unwrap_or_default();
        self.fields.extend(fields.into_iter().map(|(name, value)| match value {
            Value::String(text) => (name, text),
            other => (name, other.to_string()),
        }));
    }

    fn put(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name.to_owned(), value)),
        }
    }
}

impl Visit for LineText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

impl fmt::Display for LineText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.message))?;
        for (name, value) in self.fields.iter().filter(|(_, value)| !self.message.contains(value)) {
            write!(f, " {name}={}", plain(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str, fields: &[(&str, &str)]) -> String {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        LineText { message: message.to_owned(), fields: fields.collect() }.to_string()
    }

    #[test]
    fn what_a_sentence_says_is_not_said_twice() {
        let fields = [("node", "node-1"), ("call", "k3f9q2tz")];
        assert_eq!(said("node node-1 has joined", &fields), "node node-1 has joined call=k3f9q2tz");
    }

    #[test]
    fn nothing_that_others_chose_begins_a_line_of_its_own_or_speaks_to_the_terminal() {
        let said = said("refused `a\n2026 error b`", &[("owner", "eve\u{1b}[2J\r\n")]);
        assert_eq!(said, "refused `a\\u{a}2026 error b` owner=eve\\u{1b}[2J\\u{d}\\u{a}");
    }

    #[test]
    fn fields_of_a_span_stand_behind_the_sentence() {
        let mut said = LineText { message: "opened".to_owned(), fields: Vec::new() };
        said.add(r#"{"call":"k3f9q2tz","lanes":3}"#);
        assert_eq!(said.to_string(), "opened call=k3f9q2tz lanes=3");
    }
}
