//! The place of the tracer in a program without traces, which refuses to be given a collector.

use rollhouse_config::Endpoint;
use tracing::Subscriber;
use tracing_subscriber::Layer;

use crate::failure::{Failure, Status};

/// A tracer that does not exist.
#[derive(Debug)]
pub(crate) enum Tracer {}

impl Tracer {
    /// Refuses an endpoint.
    pub(crate) fn new(_service: &'static str, endpoint: &Endpoint) -> Result<Option<Self>, Failure> {
        match endpoint.0 {
            None => Ok(None),
            Some(_) => {
                let what = "traces.endpoint is set, but this program was built without the feature otlp";
                Err(Failure::new(Status::Usage, what)
                    .hint("`cargo build --release --features otlp` builds it with"))
            }
        }
    }

    pub(crate) fn layer<S: Subscriber>(&self) -> impl Layer<S> + Send + Sync + use<S> {
        match *self {}
        #[expect(unreachable_code, reason = "names the type that is never made")]
        tracing_subscriber::layer::Identity::new()
    }

    pub(crate) fn listen(&self) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) fn end(&self) {
        match *self {}
    }
}
