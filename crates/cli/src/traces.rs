//! Traces of clients' calls for an OpenTelemetry collector, in programs that are built with the feature `otlp`.

#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
mod without;

use rollhouse_config::{Endpoint, variable};

use crate::failure::{Failure, Status};

#[cfg(feature = "otlp")]
pub(crate) use otlp::Tracer;
#[cfg(not(feature = "otlp"))]
pub(crate) use without::Tracer;

impl Tracer {
    /// Runs a command and traces its calls. A command has no settings of its own: the environment names the collector.
    pub(crate) fn of_command(command: impl FnOnce() -> Result<Status, Failure>) -> Result<Status, Failure> {
        let variable = variable("traces.endpoint");
        let given = std::env::var(&variable).unwrap_or_default();
        let endpoint = Endpoint::parse(&given).map_err(|why| {
            Failure::new(Status::Usage, format_args!("${variable}: `{given}` is not an endpoint: {why}"))
        })?;
        let tracer = Self::new("rollhouse", &endpoint)?;
        let Some(tracer) = tracer else { return command() };
        tracer.listen()?;
        let done = command();
        tracer.end();
        done
    }
}
