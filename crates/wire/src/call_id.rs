//! Ids of clients' calls, by which work is traced from process to process.

use std::fmt;
use std::str::FromStr;

use rollhouse_core::{EpisodeName, RunId, msgpack};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tracing::field::{Empty, display};
use tracing::{Instrument, error_span};

use crate::Request;
use crate::control::{self, ControlError};
use crate::limits::MAX_CONTROL_BYTES;

/// The id of one call of a client: 40 random bits, printed like a run's short id, `k3f9q2tz`. Any request may carry
/// one. A process that makes further requests for the call passes the id on, and log lines name it. No decision depends
/// on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u64);

impl CallId {
    /// Draws a new id from the operating system's randomness.
    pub fn generate() -> Self {
        Self(RunId::generate().short())
    }

    /// Runs `asked` inside a span that stands for the client's call as a whole. What other processes do for the call
    /// are parts of that span. Cancellation-safe if `asked` is.
    ///
    /// # Errors
    /// Those of `asked`; the span records them.
    pub async fn traced<T, E: fmt::Display>(
        self,
        request: &'static str,
        asked: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let span = error_span!("call", call = %self, request, side = "client", error = Empty);
        let done = asked.instrument(span.clone()).await;
        if let Err(error) = &done {
            span.record("error", display(error));
        }
        done
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = EpisodeName { run: self.0, lane: 0, number: 0 }.to_string();
        f.write_str(name.split('-').next().unwrap_or_default())
    }
}

/// The error for text that is not a call's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a call's id is 8 letters and digits, as in k3f9q2tz")]
pub struct NoCallId;

impl FromStr for CallId {
    type Err = NoCallId;

    fn from_str(text: &str) -> Result<Self, NoCallId> {
        let name = format!("{text}-0-0").parse::<EpisodeName>();
        name.map(|name| Self(name.run)).map_err(|_| NoCallId)
    }
}

/// Returns a request and the call that it is part of, if it is, as they are sent.
pub(crate) fn request_bytes(request: &Request, of: Option<CallId>) -> Result<Vec<u8>, ControlError> {
    #[derive(Serialize)]
    struct Called<'a> {
        #[serde(flatten)]
        request: &'a Request,
        call: String,
    }
    let mut bytes = Vec::with_capacity(256);
    match of {
        Some(of) => {
            let called = Called { request, call: of.to_string() };
            control::put(&mut bytes, &|out| msgpack::encode(&called, out))?;
        }
        None => control::encode(request, &mut bytes)?,
    }
    Ok(bytes)
}

/// A request and the call that it is part of, as they are received.
#[derive(Deserialize)]
pub(crate) struct Received {
    #[serde(flatten)]
    pub(crate) request: Request,
    #[serde(default)]
    call: Option<Named>,
}

/// Reads and writes a call's id as a field that may be missing.
pub(crate) mod optional {
    use super::{CallId, Named};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(call: &Option<CallId>, to: S) -> Result<S::Ok, S::Error> {
        match call {
            Some(call) => to.collect_str(call),
            None => to.serialize_none(),
        }
    }

    /// Reads an id; anything that is not an id counts as none.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CallId>, D::Error> {
        Ok(Option::<Named>::deserialize(from)?.as_ref().and_then(Named::call))
    }
}

/// The value found in the field of a call's id.
#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Text(String),
    Other(IgnoredAny),
}

impl Named {
    fn call(&self) -> Option<CallId> {
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Other(IgnoredAny) => None,
        }
    }
}

impl Received {
    /// Reads a request without its length word.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, ControlError> {
        Ok(msgpack::decode(bytes, MAX_CONTROL_BYTES)?)
    }

    /// Returns the call; `None` if the request carries no id, or a malformed one.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.call.as_ref().and_then(Named::call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClosePool, Drain, PoolStatusRequest, StatusRequest};

    fn encoded(message: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        msgpack::encode(message, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_request_is_read_the_same_with_its_call_and_without() {
        let (pool, node) = (RunId::generate(), "node-1".to_owned());
        for request in [
            Request::Status(StatusRequest {}),
            Request::ClosePool(ClosePool { pool }),
            Request::Drain(Drain { node }),
            Request::PoolStatus(PoolStatusRequest { pool, keep: true }),
        ] {
            let call = CallId::generate();
            let [with, without] = [Some(call), None].map(|of| {
                let bytes = request_bytes(&request, of).unwrap();
                Received::read(&bytes[4..]).unwrap()
            });
            assert_eq!((with.call(), without.call()), (Some(call), None));
            assert_eq!((with.request, without.request), (request.clone(), request));
        }
    }

    #[test]
    fn what_is_no_id_counts_as_none_and_ids_are_read_as_they_are_printed() {
        let call: CallId = "k3f9q2tz".parse().unwrap();
        assert_eq!(call.to_string(), "k3f9q2tz");
        for text in ["", "k3f9q2t", "k3f9q2tz0", "K3F9Q2TZ", "k3f9q2t\n", "-0-0"] {
            assert_eq!(text.parse::<CallId>(), Err(NoCallId), "{text}");
        }
        let call_of = |bytes: &[u8]| Received::read(bytes).unwrap().call();
        let odd = std::collections::BTreeMap::from([("type", "status"), ("call", "a\nb")]);
        assert_eq!(call_of(&encoded(&odd)), None);
        #[derive(Serialize)]
        struct Numbered {
            r#type: &'static str,
            call: u32,
        }
        assert_eq!(call_of(&encoded(&Numbered { r#type: "status", call: 7 })), None);
    }
}
