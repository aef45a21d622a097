//! Calls as spans of OpenTelemetry, sent by OTLP over HTTP: protobuf, in batches, by a thread of the SDK.
//!
//! The work of a process for a call is a span of `tracing` named `call`, which has the call's id. All work for a call,
//! in all processes, is one trace. Each process computes the trace's id from that of the call, so that nothing more
//! travels. The id of the client's own span is computed as well; that span is the parent of the others. Log lines
//! inside a span are its events. Nothing waits for a collector: spans that do not fit in the queue are dropped. The SDK
//! logs this once, and at the end how many there were.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Event as SpanEvent, SpanContext, SpanId, SpanKind, Status as SpanStatus, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator as _, RandomIdGenerator, SpanData, SpanEvents,
    SpanLinks, SpanProcessor,
};
use rollhouse_config::Endpoint;
use rollhouse_core::split_mix64;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::failure::{Failure, Status};

/// Sends spans of this process's calls to the collector.
#[derive(Debug)]
pub(crate) struct Tracer {
    processor: Arc<BatchSpanProcessor>,
}

impl Tracer {
    /// Makes a tracer to that collector in the name of `service`; `None` if there is no collector. It is not checked
    /// whether the collector answers: it may come later.
    pub(crate) fn new(service: &'static str, endpoint: &Endpoint) -> Result<Option<Self>, Failure> {
        let Some(endpoint) = &endpoint.0 else { return Ok(None) };
        // Another part of the process may have chosen before; it chose the same.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .with_timeout(SEND_WITHIN)
            .build()
            .map_err(|error| Failure::of(Status::Usage, &error))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_WAITING_SPANS)
            .with_max_export_batch_size(MAX_BATCH_SPANS)
            .with_scheduled_delay(SEND_EVERY)
            .build();
        let mut processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        processor.set_resource(&resource(service));
        Ok(Some(Self { processor: Arc::new(processor) }))
    }

    /// Returns the layer that receives calls.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let calls = Calls { processor: Arc::clone(&self.processor), ids: RandomIdGenerator::default() };
        // What is said at lower levels does not belong into traces: it may be much.
        calls.with_filter(Targets::new().with_target("rollhouse", LevelFilter::INFO))
    }

    /// Begins to trace calls, in a process that logs nothing. May be called once in a process.
    pub(crate) fn listen(&self) -> Result<(), Failure> {
        let listening = set_global_default(Registry::default().with(self.layer()));
        listening.map_err(|error| Failure::of(Status::Failed, &error))
    }

    /// Sends the remaining spans. Waits for the collector, at most [`END_WITHIN`].
    pub(crate) fn end(&self) {
        // The SDK has said why in the log.
        let _sent = self.processor.shutdown_with_timeout(END_WITHIN);
    }
}

/// Describes this process; `OTEL_RESOURCE_ATTRIBUTES` takes precedence over what is known here.
fn resource(service: &'static str) -> Resource {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let instance = format!("{}:{}", host.trim(), std::process::id());
    Resource::builder_empty()
        .with_service_name(service)
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", instance))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .build()
}

/// Follows calls, and hands on those that are over.
#[derive(Debug)]
struct Calls<P> {
    processor: Arc<P>,
    ids: RandomIdGenerator,
}

/// A call that is under way in this process.
#[derive(Debug)]
struct UnderWay {
    began: SystemTime,
    call: String,
    request: String,
    is_clients: bool,
    error: Option<String>,
    events: SpanEvents,
}

impl<P> Calls<P> {
    fn span(&self, under_way: UnderWay, ended: SystemTime) -> SpanData {
        let UnderWay { began, call, request, is_clients, error, events } = under_way;
        let (trace, root) = ids_of(&call);
        let (id, parent, kind) = match is_clients {
            true => (root, SpanId::INVALID, SpanKind::Client),
            false => (self.ids.new_span_id(), root, SpanKind::Server),
        };
        SpanData {
            span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent,
            parent_span_is_remote: !is_clients,
            span_kind: kind,
            name: Cow::Owned(request),
            start_time: began,
            end_time: ended,
            attributes: vec![KeyValue::new("rollhouse.call", call)],
            dropped_attributes_count: 0,
            events,
            links: SpanLinks::default(),
            status: error.map_or(SpanStatus::Unset, SpanStatus::error),
            instrumentation_scope: InstrumentationScope::builder("rollhouse").build(),
        }
    }
}

impl<S, P> Layer<S> for Calls<P>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    P: SpanProcessor + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut said = SpanText::default();
        attributes.record(&mut said);
        let (Some(call), Some(span)) = (said.call, context.span(id)) else { return };
        if attributes.metadata().name() == SPAN {
            span.extensions_mut().insert(UnderWay {
                began: SystemTime::now(),
                call,
                request: said.request,
                is_clients: said.side == "client",
                error: said.error,
                events: SpanEvents::default(),
            });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(under_way) = extensions.get_mut::<UnderWay>() else { return };
        let mut said = SpanText::default();
        values.record(&mut said);
        under_way.error = said.error.or(under_way.error.take());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        for span in context.event_scope(event).into_iter().flatten() {
            let mut extensions = span.extensions_mut();
            let Some(under_way) = extensions.get_mut::<UnderWay>() else { continue };
            if under_way.events.events.len() >= MAX_EVENTS {
                under_way.events.dropped_count = under_way.events.dropped_count.saturating_add(1);
                return;
            }
            let mut said = SpanText::default();
            event.record(&mut said);
            let level = word(*event.metadata().level());
            let attributes = vec![KeyValue::new("level", level)];
            under_way.events.events.push(SpanEvent::new(said.message, SystemTime::now(), attributes, 0));
            return;
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let under_way = span.extensions_mut().remove::<UnderWay>();
        if let Some(under_way) = under_way {
            self.processor.on_end(self.span(under_way, SystemTime::now()));
        }
    }
}

/// Returns the trace of a call and the span of the asking client in it. The first half of the trace's id are the
/// letters of the call's id, as bytes: with a call's id from the log one finds the trace. The second half looks random,
/// because samplers expect that.
fn ids_of(call: &str) -> (TraceId, SpanId) {
    let mut letters = [0; 8];
    letters.iter_mut().zip(call.bytes()).for_each(|(letter, byte)| *letter = byte);
    let letters = u64::from_be_bytes(letters);
    let [low, span] = [split_mix64(letters), split_mix64(!letters)];
    // None is zero, which would be no id: a call's letters are not.
    (TraceId::from((u128::from(letters) << 64) | u128::from(low)), SpanId::from(span.max(1)))
}

/// The values of a span or an event, each cut to [`MAX_VALUE_BYTES`].
#[derive(Debug, Default)]
struct SpanText {
    call: Option<String>,
    request: String,
    side: String,
    error: Option<String>,
    message: String,
}

impl Visit for SpanText {
    fn record_str(&mut self, field: &Field, value: &str) {
        let value = value[..value.floor_char_boundary(MAX_VALUE_BYTES)].to_owned();
        match field.name() {
            "call" => self.call = Some(value),
            "request" => self.request = value,
            "side" => self.side = value,
            "error" => self.error = Some(value),
            "message" => self.message = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _written = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        _ => "info",
    }
}

/// The name of the spans of calls.
const SPAN: &str = "call";
/// Number of lines that are kept for a call; the number of further ones is reported.
const MAX_EVENTS: usize = 32;
/// Bytes of a value or sentence that are reported.
const MAX_VALUE_BYTES: usize = 1_000;
/// Number of spans that wait to be sent: at most some 70 MB of the longest lines there are, and 1 MB as they usually
/// are.
const MAX_WAITING_SPANS: usize = 2_048;
/// Number of spans that are sent together.
const MAX_BATCH_SPANS: usize = 512;
/// Interval at which spans are sent when there are fewer.
const SEND_EVERY: Duration = Duration::from_secs(5);
/// Time that a collector may take for a batch.
const SEND_WITHIN: Duration = Duration::from_secs(5);
/// Time that the end of the process waits for the collector.
const END_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_sdk::error::OTelSdkResult;
    use parking_lot::Mutex;
    use tracing::{error_span, info};

    /// Keeps what it is given.
    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<SpanData>>);

    impl SpanProcessor for Kept {
        fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &opentelemetry::Context) {}

        fn on_end(&self, span: SpanData) {
            self.0.lock().push(span);
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    fn told(said: impl FnOnce()) -> Vec<SpanData> {
        let processor = Arc::new(Kept::default());
        let calls = Calls { processor: Arc::clone(&processor), ids: RandomIdGenerator::default() };
        tracing::subscriber::with_default(Registry::default().with(calls), said);
        std::mem::take(&mut *processor.0.lock())
    }

    #[test]
    fn what_is_done_for_a_call_anywhere_is_one_trace_below_the_clients_span() {
        let clients =
            told(|| drop(error_span!("call", call = "k3f9q2tz", request = "status", side = "client")));
        let others = told(|| {
            let span = error_span!("call", call = "k3f9q2tz", request = "status");
            span.in_scope(|| info!("said"));
            drop(span);
            drop(error_span!("call", call = "k3f9q2t0", request = "status"));
        });
        let [client, server] = [&clients[0], &others[0]];
        assert_eq!(client.span_context.trace_id(), server.span_context.trace_id());
        assert_eq!(server.parent_span_id, client.span_context.span_id());
        assert_eq!(client.parent_span_id, SpanId::INVALID);
        assert_ne!(server.span_context.span_id(), client.span_context.span_id());
        assert_eq!(server.events[0].name, "said");
        assert_ne!(others[1].span_context.trace_id(), server.span_context.trace_id());
        // `printf k3f9q2tz | xxd -p`
        assert!(client.span_context.trace_id().to_string().starts_with("6b3366397132747a"));
    }

    #[test]
    fn a_call_that_failed_says_why_and_what_is_no_call_is_not_told() {
        let spans = told(|| {
            let span =
                error_span!("call", call = "k3f9q2tz", request = "drain", error = tracing::field::Empty);
            span.record("error", "no such node");
            drop(error_span!("attached", call = "k3f9q2tz"));
            drop(error_span!("call", request = "without an id"));
        });
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].status, SpanStatus::error("no such node"));
    }

    #[test]
    fn lines_of_a_call_beyond_the_bound_are_counted_and_long_ones_cut() {
        let spans = told(|| {
            let span = error_span!("call", call = "k3f9q2tz", request = "drain");
            let _within = span.enter();
            (0..MAX_EVENTS + 3).for_each(|_| info!("{}", "ä".repeat(MAX_VALUE_BYTES)));
        });
        assert_eq!((spans[0].events.len(), spans[0].events.dropped_count), (MAX_EVENTS, 3));
        assert!(spans[0].events[0].name.len() <= MAX_VALUE_BYTES);
    }
}
