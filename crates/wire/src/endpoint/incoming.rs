//! The requests of a peer, in the order in which they have been read completely.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::msgpack::{self, Message};
use rollhouse_core::{Claimant, Portion, ShareBook, SharedBound};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::field::Empty;
use tracing::{Span, error_span};

use super::answer::answer_bytes;
use super::connection::Connection;
use super::lost::{CloseCode, ConnectionLost, StreamLost};
use super::peer::Peer;
use super::stream::{ByteReceiver, ByteSender, MESSAGE_STEP_BYTES, MessageError};
use super::{EnvelopeReader, EnvelopeWriter, FrameReader, FrameWriter};
use crate::call_id::Received;
use crate::control::ControlError;
use crate::limits::{MAX_CONTROL_BYTES, MAX_OPEN_REQUESTS, MAX_STRANGER_BYTES};
use crate::{CallId, Refusal, RefusalCode, Request, Role};

/// Reads the requests of one connection. Requests that the peer's role may not make are refused here; bytes that are
/// not a request close the connection; a stream on which no whole request comes within [`REQUEST_DEADLINE`] is given
/// up. Dropping it ends the tasks that read.
pub struct Requests {
    connection: Connection,
    open: Arc<Semaphore>,
    refused: Option<Refused>,
    shares: Option<RequestShares>,
    reading: JoinSet<Option<(Request, Responder)>>,
}

/// The shares by owner of requests that are not answered yet. Clones are handles to the same.
#[derive(Debug, Clone)]
pub struct RequestShares {
    requests: ShareBook,
    bytes: ShareBook,
}

impl Default for RequestShares {
    /// Makes shares of which nobody has anything.
    fn default() -> Self {
        Self {
            requests: ShareBook::new(SharedBound::REQUESTS),
            bytes: ShareBook::new(SharedBound::REQUEST_BYTES),
        }
    }
}

/// Is called for each request that was refused, for each stream that was given up because it was one too many or its
/// request too slow, and for each connection that was closed because of what came on it, before anybody was asked. It
/// gets the word in metrics (a [`RefusalCode`]'s or a [`CloseCode`]'s) and a sentence.
/// Called on the thread that reads; must not block.
pub type Refused = Arc<dyn Fn(&'static str, &dyn fmt::Display) + Send + Sync>;

impl Connection {
    /// Returns the reader of the peer's requests. A connection may have one reader only.
    pub fn requests(&self) -> Requests {
        let (connection, open) = (self.clone(), self.open_requests());
        Requests { connection, open, refused: None, shares: None, reading: JoinSet::new() }
    }
}

impl Requests {
    /// Sets the function that is called for each refusal made here, for counts and logs.
    #[must_use]
    pub fn telling(self, refused: Refused) -> Self {
        Self { refused: Some(refused), ..self }
    }

    /// Sets the shares that the peer has of requests that are not answered, beside what one connection may have. Nodes
    /// take none: each has a connection and a heartbeat.
    #[must_use]
    pub fn sharing(self, shares: RequestShares) -> Self {
        let shares = Some(shares).filter(|_| self.connection.peer().role != Role::Node);
        Self { shares, ..self }
    }

    /// Waits for the next request, which comes with its responder. Several may be unanswered, up to
    /// [`MAX_OPEN_REQUESTS`](crate::limits::MAX_OPEN_REQUESTS); streams beyond that are given up at once.
    /// Cancellation-safe.
    ///
    /// # Errors
    /// If the connection is gone, for whichever reason.
    pub async fn next(&mut self) -> Result<(Request, Responder), ConnectionLost> {
        loop {
            tokio::select! {
                // Finished reads first, so that they are handed on before more is taken in.
                biased;
                Some(read) = self.reading.join_next() => {
                    // A reading task neither panics nor is it ended while we are here.
                    if let Ok(Some(request)) = read {
                        return Ok(request);
                    }
                }
                stream = self.connection.inner().accept_bi() => {
                    let (send, receive) = stream?;
                    let stall = self.connection.untaken().stall();
                    self.begin(ByteSender::answering(send, stall), ByteReceiver(receive));
                }
            }
        }
    }

    fn begin(&mut self, mut send: ByteSender, mut receive: ByteReceiver) {
        let Ok(permit) = self.open.clone().try_acquire_owned() else {
            let many = MAX_OPEN_REQUESTS;
            tell(
                self.refused.as_ref(),
                CloseCode::TooMany.word(),
                &format_args!("{many} requests are unanswered"),
            );
            send.give_up(CloseCode::TooMany);
            receive.give_up(CloseCode::TooMany);
            return;
        };
        let connection = self.connection.clone();
        let refused = self.refused.clone();
        let mut responder = Responder {
            send,
            receive,
            permit,
            call: None,
            portions: Vec::new(),
            connection: connection.clone(),
        };
        let shares = self.shares.clone();
        // Task: reading of a request.
        self.reading.spawn(async move {
            let claimant = connection.peer().claimant();
            if let Some(over) =
                shares.as_ref().and_then(|shares| responder.take(&shares.requests, claimant, 1))
            {
                return refuse(responder, over, refused.as_ref()).await;
            }
            let read = read(&connection, responder, refused.as_ref(), shares.as_ref());
            match tokio::time::timeout(REQUEST_DEADLINE, read).await {
                Ok(request) => request,
                Err(_) => {
                    // The stream was dropped with the future, which tells the peer.
                    let seconds = REQUEST_DEADLINE.as_secs();
                    let word = CloseCode::TooSlow.word();
                    tell(refused.as_ref(), word, &format_args!("no whole request came within {seconds} s"));
                    None
                }
            }
        });
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests")
            .field("connection", &self.connection)
            .field("reading", &self.reading.len())
            .finish_non_exhaustive()
    }
}

fn tell(refused: Option<&Refused>, word: &'static str, what: &dyn fmt::Display) {
    if let Some(refused) = refused {
        refused(word, what);
    }
}

/// Reads one request; `None` if it has been dealt with.
async fn read(
    connection: &Connection,
    mut responder: Responder,
    refused: Option<&Refused>,
    shares: Option<&RequestShares>,
) -> Option<(Request, Responder)> {
    let close = |code: CloseCode, reason: &str| {
        tell(refused, code.word(), &reason);
        connection.close(code, reason);
        None
    };
    // Who is not known yet shows a session's secret, and nothing longer.
    let most = if connection.is_known() { MAX_CONTROL_BYTES } else { MAX_STRANGER_BYTES };
    let bytes = match responder.receive.message_length(most).await {
        Ok(length) => {
            let claimant = connection.peer().claimant();
            let shares = shares.filter(|_| length > MESSAGE_STEP_BYTES);
            if let Some(over) =
                shares.and_then(|shares| responder.take(&shares.bytes, claimant, length as u64))
            {
                return refuse(responder, over, refused).await;
            }
            responder.receive.message_of(length).await
        }
        Err(error) => Err(error),
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(MessageError::Lost(StreamLost::Cut)) => {
            return close(CloseCode::Malformed, "a stream ended in the middle of its request");
        }
        Err(MessageError::Lost(_)) => return None,
        Err(MessageError::Control(error)) => return close(code_of(&error), &error.to_string()),
    };
    let refusal = match parse(&bytes) {
        Ok(received) if connection.peer().role.may(&received.request) => {
            responder.call = received.call();
            return Some((received.request, responder));
        }
        Ok(Received { request: Request::Hello(_), .. }) => {
            return close(CloseCode::OutOfOrder, "hello comes once, on the first stream");
        }
        Ok(received) => forbidden(connection.peer().role, received.request.word()),
        Err(Unreadable::Unknown(word)) => Refusal::new(
            RefusalCode::Unsupported,
            format!("`{word}` is not a request of version {}", connection.version()),
        ),
        Err(Unreadable::Malformed(error)) => return close(code_of(&error), &error.to_string()),
    };
    refuse(responder, refusal, refused).await
}

/// Refuses a request before anybody is asked.
async fn refuse(
    mut responder: Responder,
    refusal: Refusal,
    refused: Option<&Refused>,
) -> Option<(Request, Responder)> {
    tell(refused, refusal.code.word(), &refusal.message);
    responder.receive.give_up(CloseCode::Refused);
    // Whether the peer still wants to hear it is his affair.
    let _sent = responder.refuse(refusal).await;
    None
}

fn forbidden(role: Role, request: &str) -> Refusal {
    Refusal::new(RefusalCode::Forbidden, format!("the role {} may not ask for {request}", role.word()))
}

/// The reason why bytes are not a request.
pub(crate) enum Unreadable {
    /// A request that this version does not know.
    Unknown(String),
    /// The protocol knows no such message.
    Malformed(ControlError),
}

/// Reads a request, and tells a request of a newer version from rubbish.
pub(crate) fn parse(bytes: &[u8]) -> Result<Received, Unreadable> {
    /// The fields that every request has.
    #[derive(Deserialize)]
    struct Any {
        r#type: String,
    }
    Received::read(bytes).map_err(|error| match msgpack::decode::<Any>(bytes, MAX_CONTROL_BYTES) {
        Ok(any) if !Request::WORDS.contains(&any.r#type.as_str()) => {
            Unreadable::Unknown(any.r#type.chars().take(64).collect())
        }
        _ => Unreadable::Malformed(error),
    })
}

pub(crate) const fn code_of(error: &ControlError) -> CloseCode {
    match error {
        ControlError::TooLong { .. } => CloseCode::TooLong,
        ControlError::Encode(_) => CloseCode::Internal,
        ControlError::Decode(_) | ControlError::LeftOver { .. } => CloseCode::Malformed,
    }
}

/// Returns a span that names the call that `request` is part of, for log lines. It has the level of errors, so that
/// every line carries it.
pub(crate) fn span_of(call: Option<CallId>, request: &Request) -> Span {
    match call {
        Some(call) => error_span!("call", %call, request = request.word(), error = Empty),
        None => Span::none(),
    }
}

/// Answers one request. If it is dropped without an answer, the peer sees the stream end.
pub struct Responder {
    send: ByteSender,
    receive: ByteReceiver,
    permit: OwnedSemaphorePermit,
    call: Option<CallId>,
    /// What the request has of its peer's shares.
    portions: Vec<Portion>,
    connection: Connection,
}

impl Responder {
    /// Takes a part of a share until the answer is sent. Returns the refusal if the peer has its share.
    fn take(&mut self, book: &ShareBook, claimant: Claimant, amount: u64) -> Option<Refusal> {
        let taken = book.take(claimant, amount);
        taken
            .map(|portion| self.portions.push(portion))
            .map_err(|over| Refusal::busy(over.to_string(), SHARE_RETRY_MS))
            .err()
    }

    /// Returns the peer that asked.
    pub fn peer(&self) -> &Peer {
        self.connection.peer()
    }

    /// Returns the client's call that the request is part of, if it names one.
    pub const fn call(&self) -> Option<CallId> {
        self.call
    }

    /// Returns a span for carrying out `request`, which this answers; log lines inside it name the call that the
    /// request is part of.
    pub fn span(&self, request: &Request) -> Span {
        span_of(self.call, request)
    }

    /// Answers, and ends the stream. An asker who leaves [`MAX_UNTAKEN_BYTES`](crate::limits::MAX_UNTAKEN_BYTES) of answers
    /// untaken is refused as busy. Not cancellation-safe.
    ///
    /// # Errors
    /// If the asker is gone or takes nothing in time ([`Settings::answer_stall`](super::Settings)), or the answer is longer
    /// than a message may be; the asker then gets a refusal.
    pub async fn respond<T: Message>(self, answer: Result<T, Refusal>) -> Result<(), StreamLost> {
        let bytes = answer_bytes(answer.as_ref());
        self.connection.untaken().deliver(self.send, bytes).await
    }

    /// Refuses, and ends the stream. Not cancellation-safe.
    ///
    /// # Errors
    /// If the asker is gone or takes nothing in time.
    pub async fn refuse(self, refusal: Refusal) -> Result<(), StreamLost> {
        self.respond::<()>(Err(refusal)).await
    }

    /// Accepts the request and hands over the stream, which no longer counts as an open request. Not cancellation-safe.
    ///
    /// # Errors
    /// If the asker is gone or takes nothing in time.
    pub async fn accept<T: Message>(mut self, value: T) -> Result<(ByteReceiver, ByteSender), StreamLost> {
        let bytes = answer_bytes(Ok(&value));
        self.send.write_all(&bytes).await?;
        Ok((self.receive, self.send))
    }

    /// Accepts as [`Responder::accept`] does, for frames with at most `max_columns` bytes of columns from the asker.
    ///
    /// # Errors
    /// Those of [`Responder::accept`].
    pub async fn accept_frames<T: Message>(
        self,
        value: T,
        max_columns: usize,
    ) -> Result<(FrameReader, FrameWriter), StreamLost> {
        let (receive, send) = self.accept(value).await?;
        Ok((FrameReader::new(receive, max_columns), FrameWriter::new(send)))
    }

    /// Accepts as [`Responder::accept`] does, for envelopes.
    ///
    /// # Errors
    /// Those of [`Responder::accept`].
    pub async fn accept_envelopes<T: Message>(
        self,
        value: T,
    ) -> Result<(EnvelopeReader, EnvelopeWriter), StreamLost> {
        let (receive, send) = self.accept(value).await?;
        Ok((EnvelopeReader::new(receive), EnvelopeWriter::new(send)))
    }

    /// Returns the stream of bytes that follow the request.
    pub fn body(&mut self) -> &mut ByteReceiver {
        &mut self.receive
    }

    /// Waits until the asker no longer waits for the answer. Cancellation-safe.
    pub async fn abandoned(&mut self) {
        self.send.settled().await;
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Responder({:?}, {:?})", self.send.id(), self.permit)
    }
}

/// Milliseconds after which one that has its share may ask again: some of its requests are answered then.
const SHARE_RETRY_MS: u64 = 100;
/// Time that a request may take from its stream's first byte to its last.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
