//! One session of a pool: its stream, and the request that is under way on it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::{Interruption, Outcome, RunId};
use rollhouse_wire::{
    Attach, AttachCallError, AttachMemory, Attached, CallError, CallId, CloseCode, ColumnBuffer, Connection,
    ConnectionLost, DialError, EndCause, FrameHeader, FrameKind, FrameReader, FrameWriter, Grant, Notes,
    Refusal, RefusalCode, Request, SessionId, VERSION, control,
};
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::error::Unanswered;
use crate::inquiry::Inquiry;
use crate::memory_link::{LinkError, MemoryAnswer, MemoryLink, NoAnswer, Shape};
use crate::network::Network;
use crate::numbering::Numbering;
use crate::retry::{GiveUp, Patience, Retry, RetryAction, RetryEvent};
use crate::transport::Transport;

/// A session as its owner sees it.
///
/// ```text
/// Detached ⇄ Attached      by need; a lost stream is attached again by the next request
/// either ──▶ Gone          the node does not know it any more; for good
/// ```
///
/// Requests are made one at a time. A request is resumable: [`Session::answer`] can be dropped at any point and
/// called again.
pub(crate) struct Session {
    pool: RunId,
    grant: Grant,
    /// Its lanes in the pool.
    lanes: Range<usize>,
    max_columns: usize,
    lease: Duration,
    /// By what it is stepped; `Auto` until that was decided by the first attachment.
    transport: Transport,
    shape: Arc<Shape>,
    stream: Option<Stream>,
    /// Kept when it is detached, for the frames in it.
    memory: Option<Box<MemoryLink>>,
    /// Why it is not attached by memory, as of the last attempt.
    refused_memory: Option<Refusal>,
    /// Of an attachment by memory: the number of the last request that the session had answered before.
    answered_before: Option<u32>,
    gone: Option<Gone>,
    /// Why it has ended, as its node or the coordinator says.
    ended: Option<EndCause>,
    /// Whether its answers say what a log needs, as of the last attachment.
    logs: bool,
    /// Whether its lanes are resumed elsewhere if its node is lost, as of the request under way.
    resumes: bool,
    /// Nobody listened at its node's port any more when that was tried last.
    port_closed: bool,
    numbering: Numbering,
    pending: Option<Pending>,
    /// What the last attempt to reach its node came to, or what that refused last, since it last answered.
    trouble: Option<String>,
    /// When to look whether the node is silent.
    alarm: Alarm,
}

/// A stream to the node. Dropped, the node learns that its owner does not listen any more.
struct Stream {
    connection: Connection,
    reader: FrameReader,
    writer: FrameWriter,
}

/// A request that has no answer yet.
struct Pending {
    request: FrameBody,
    retry: Retry,
    next: RetryAction,
    /// It stands in the writer already, under this stream's number.
    written: bool,
    /// What the node said last, if it refused.
    refusal: Option<Refusal>,
}

/// What is asked, but for its number.
#[derive(Debug, Clone)]
pub(crate) struct FrameBody {
    pub(crate) kind: FrameKind,
    pub(crate) columns: Bytes,
    pub(crate) sidecar: Bytes,
}

/// Why a session is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    /// One sentence.
    pub(crate) reason: String,
    /// How the episodes end that were open in its lanes.
    pub(crate) outcome: Interruption,
    /// Whether a batch has shown its lanes as lost.
    pub(crate) told: bool,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The session is gone; see [`Session::gone`].
    Gone,
    /// The node will not do it; nothing has moved in this session.
    Refused(Refusal),
    /// The deadline came first.
    TimedOut,
}

/// When requests have to be answered, and on which clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Zero of the clock that retries are decided by.
    pub(crate) start: Instant,
    /// The caller's deadline.
    pub(crate) deadline: Instant,
}

impl Session {
    pub(crate) fn new(
        pool: RunId,
        grant: Grant,
        max_columns: usize,
        lease: Duration,
        transport: Transport,
        shape: Arc<Shape>,
    ) -> Self {
        let first = grant.first_lane as usize;
        let lanes = first..first + grant.lanes as usize;
        Self {
            pool,
            grant,
            lanes,
            max_columns,
            lease,
            transport,
            shape,
            stream: None,
            memory: None,
            refused_memory: None,
            answered_before: None,
            gone: None,
            ended: None,
            logs: false,
            resumes: false,
            port_closed: false,
            numbering: Numbering::default(),
            pending: None,
            trouble: None,
            alarm: Alarm::default(),
        }
    }

    /// Its lanes in the pool.
    pub(crate) fn lanes(&self) -> &Range<usize> {
        &self.lanes
    }

    /// Where it runs.
    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Why it is gone; `None` while it is not.
    pub(crate) fn gone(&self) -> Option<&Gone> {
        self.gone.as_ref()
    }

    /// Whether it is gone by what it did, and not by what became of its node.
    pub(crate) const fn has_failed(&self) -> bool {
        matches!(self.ended, Some(EndCause::Hung | EndCause::Failed))
    }

    /// Notes that a batch has shown its lanes as lost; whether that was the first time.
    pub(crate) fn tell_gone(&mut self) -> bool {
        self.gone.as_mut().is_some_and(|gone| !std::mem::replace(&mut gone.told, true))
    }

    /// Its memory, if it is stepped through memory.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&MemoryLink> {
        self.memory.as_deref()
    }

    /// Its memory, if it is stepped through memory.
    #[inline]
    pub(crate) fn memory_mut(&mut self) -> Option<&mut MemoryLink> {
        self.memory.as_deref_mut()
    }

    /// Why it is not attached by memory, if it is not; asked after [`Session::attach_early`].
    pub(crate) fn refused_memory(&self) -> Option<&Refusal> {
        self.refused_memory.as_ref()
    }

    /// By what it is attached.
    pub(crate) fn transport(&self) -> Option<Transport> {
        if self.memory.as_ref().is_some_and(|link| link.is_attached()) {
            return Some(Transport::Shm);
        }
        self.stream.as_ref().map(|_| Transport::Quic)
    }

    fn is_attached(&self) -> bool {
        self.transport().is_some()
    }

    /// A step by memory was answered that was posted without [`Session::ask`].
    #[inline]
    pub(crate) fn count_request(&mut self) {
        let number = self.numbering.next();
        self.numbering.written(number);
        self.numbering.answered();
    }

    /// Takes over the step that [`MemoryLink::post_step`] began: [`Session::answer`] carries it on.
    pub(crate) fn adopt(&mut self, step: FrameBody, clock: Clock, seed: u64) {
        self.ask(step, clock, seed);
        if let Some(pending) = &mut self.pending {
            pending.written = true;
        }
        let number = self.numbering.next();
        self.numbering.written(number);
    }

    /// The connection its stream runs on.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.stream.as_ref().map(|stream| &stream.connection)
    }

    /// That its node has not answered for so long, and what is known of why.
    pub(crate) fn unanswered(&self, after: Duration) -> Unanswered {
        let Grant { node, address, .. } = &self.grant;
        Unanswered { after, node: node.clone(), address: address.clone(), last: self.trouble.clone() }
    }

    /// Whether its answers say what a log needs.
    pub(crate) const fn logs(&self) -> bool {
        self.logs
    }

    /// Gives it up.
    pub(crate) fn give_up_for(&mut self, reason: String) {
        self.detach();
        self.pending = None;
        let outcome = self.gone.as_ref().map_or(Interruption::NodeLost, |gone| gone.outcome);
        self.gone = Some(Gone { reason, outcome, told: false });
    }

    /// Whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// Makes a request; [`Session::answer`] carries it out. The answer to an earlier one that is still under way
    /// will not be taken.
    pub(crate) fn ask(&mut self, request: FrameBody, clock: Clock, seed: u64) {
        let patience = Patience {
            deadline: clock.deadline - clock.start,
            lease: self.lease,
            abandoned: 0,
            seed: seed ^ u64::from(self.grant.index),
        };
        let (retry, next) = self.numbering.begin(clock.start.elapsed(), self.is_attached(), patience);
        self.pending = Some(Pending { request, retry, next, written: false, refusal: None });
    }

    /// Makes a request that tells what the lanes did elsewhere: it goes on with every later call of
    /// [`Session::answer`] until it is answered, or the session is gone.
    pub(crate) fn tell(&mut self, part: FrameBody, clock: Clock, seed: u64) {
        let patience = Patience::until_told(self.lease, seed ^ u64::from(self.grant.index));
        let (retry, next) = self.numbering.begin(clock.start.elapsed(), self.is_attached(), patience);
        self.pending = Some(Pending { request: part, retry, next, written: false, refusal: None });
    }

    /// Carries the request out that was made: its answer's header once the whole answer is in
    /// [`Session::columns`] and [`Session::notes`]. If the lanes are resumed elsewhere when their node is lost, a word
    /// of the node's host is enough for that. Cancellation-safe: the next call goes on where this one was dropped.
    pub(crate) async fn answer(
        &mut self,
        network: &Network,
        clock: Clock,
        resumes: bool,
    ) -> Result<FrameHeader, Trouble> {
        self.resumes = resumes;
        loop {
            let Some(pending) = &self.pending else { return Err(self.give_up(GiveUp::NodeLost)) };
            let next = pending.next;
            let inquiry = Inquiry::new(network, self.pool, &self.grant, self.connection());
            let mut alarm = std::mem::take(&mut self.alarm);
            let came = tokio::select! {
                biased;
                done = self.act(next, network, clock) => Ok(done),
                cause = inquiry.gone(&mut alarm) => Err(cause),
            };
            self.alarm = alarm;
            let (event, header) = match came {
                Ok(Ok(done)) => done,
                Ok(Err(why)) => return Err(self.give_up(why)),
                Err(cause) => {
                    self.ended = Some(cause);
                    (RetryEvent::ToldGone, None)
                }
            };
            // Nothing is awaited from here on: an event is taken in as a whole or not at all.
            let Some(pending) = &mut self.pending else { continue };
            pending.next = pending.retry.on(clock.start.elapsed(), event);
            pending.written = false;
            if let (RetryAction::Finish, Some(header)) = (pending.next, header) {
                self.pending = None;
                self.trouble = None;
                self.numbering.answered();
                return Ok(header);
            }
        }
    }

    /// Does what is to be done next; an answer's header comes with its event. Cancellation-safe.
    async fn act(
        &mut self,
        next: RetryAction,
        network: &Network,
        clock: Clock,
    ) -> Result<(RetryEvent, Option<FrameHeader>), GiveUp> {
        match next {
            RetryAction::Send { number } => Ok(match self.send(number).await {
                Ok(header) => (RetryEvent::Answered, Some(header)),
                Err(event) => (event, None),
            }),
            RetryAction::Attach => Ok((Box::pin(self.attach(network)).await, None)),
            RetryAction::WaitUntil(until) => {
                tokio::time::sleep_until(clock.start + until).await;
                Ok((RetryEvent::Woken, None))
            }
            RetryAction::Finish => Err(GiveUp::NodeLost),
            RetryAction::GiveUp(why) => Err(why),
        }
    }

    /// Attaches if it is not; at the next request it is tried again. Cancellation-safe.
    pub(crate) async fn attach_early(&mut self, network: &Network) {
        if !self.is_attached() {
            let _event = self.attach(network).await;
        }
    }

    /// The columns of the last answer.
    pub(crate) fn columns(&self) -> Option<&ColumnBuffer> {
        self.stream.as_ref().map(|stream| stream.reader.columns())
    }

    /// What the last answer over its stream says beside its columns.
    ///
    /// # Errors
    /// If it is not what a node says.
    pub(crate) fn notes(&self) -> Result<Notes, String> {
        match self.stream.as_ref().map_or(&[][..], |stream| stream.reader.sidecar()) {
            [] => Ok(Notes::default()),
            bytes => control::decode(bytes).map_err(|error| error.to_string()),
        }
    }

    /// Gives the session up because its node does not keep to the protocol; the connection is closed.
    pub(crate) fn distrust(&mut self, what: &str) -> Trouble {
        if let Some(stream) = self.stream.take() {
            stream.connection.close(CloseCode::Malformed, what);
        }
        if let Some(link) = &mut self.memory {
            link.detach();
        }
        self.pending = None;
        let reason = format!("node {}: {what}", self.grant.node);
        self.gone = Some(Gone { reason, outcome: Interruption::Crashed, told: false });
        Trouble::Gone
    }

    /// Ends its stream.
    pub(crate) fn detach(&mut self) {
        if let Some(link) = &mut self.memory {
            link.detach();
        }
        if let Some(mut stream) = self.stream.take() {
            // A stream that is no more needs no end.
            let _finished = stream.writer.stream().finish();
        }
    }

    /// Writes the request, once, and reads up to its answer.
    async fn send(&mut self, number: u32) -> Result<FrameHeader, RetryEvent> {
        if self.memory.is_some() {
            return self.send_by_memory(number).await;
        }
        let (Some(stream), Some(pending)) = (&mut self.stream, &mut self.pending) else {
            return Err(RetryEvent::Lost);
        };
        if !pending.written {
            let FrameBody { kind, columns, sidecar } = &pending.request;
            let header = FrameHeader {
                kind: *kind,
                flags: 0,
                number,
                columns: columns.len() as u32,
                sidecar: sidecar.len() as u32,
            };
            stream.writer.put(header, &[columns.as_ref()], sidecar);
            pending.written = true;
            self.numbering.written(number);
        }
        let header = match stream.exchange(number).await {
            Ok(header) => header,
            Err(fault) => return Err(self.fail(fault)),
        };
        if header.kind != FrameKind::Refused {
            return Ok(header);
        }
        let refusal: Refusal = match control::decode(stream.reader.sidecar()) {
            Ok(refusal) => refusal,
            Err(error) => return Err(self.fail(Some(error.to_string()))),
        };
        self.trouble = Some(refusal.to_string());
        let event = RetryEvent::Refused {
            code: refusal.code,
            retry_after: refusal.retry_after_ms.map(Duration::from_millis),
        };
        pending.refusal = Some(refusal);
        self.numbering.answered();
        Err(event)
    }

    /// Posts the request, once, and waits for its answer. What is under way from before is waited for first.
    async fn send_by_memory(&mut self, number: u32) -> Result<FrameHeader, RetryEvent> {
        let (Some(link), Some(pending)) = (&mut self.memory, &mut self.pending) else {
            return Err(RetryEvent::Lost);
        };
        let mut answer = None;
        if !pending.written {
            while link.is_under_way() {
                // Nobody waits for the answer any more.
                if let Err(NoAnswer::Lost) = link.answer().await {
                    return Err(RetryEvent::Lost);
                }
            }
            // Posted in an attachment before this one, it was carried out, or it is posted again.
            answer = self.answered_before.take_if(|before| *before == number);
            self.numbering.written(number);
            if answer.is_none() {
                link.post(&pending.request);
            }
            pending.written = true;
        }
        let kind = pending.request.kind;
        let answer = match answer {
            Some(_) => link.last(kind),
            // Taken on another way; see `adopt`.
            None if !link.is_under_way() => link.last(kind),
            None => match link.answer().await {
                Ok(answer) => answer,
                Err(NoAnswer::Lost | NoAnswer::Stopped) => return Err(RetryEvent::Lost),
            },
        };
        let header = |kind| FrameHeader { kind, flags: 0, number, columns: 0, sidecar: 0 };
        match answer {
            MemoryAnswer::Batch => Ok(header(FrameKind::Batch)),
            MemoryAnswer::Rows => Ok(header(FrameKind::Rows)),
            MemoryAnswer::Refused(refusal) => {
                let retry_after = refusal.retry_after_ms.map(Duration::from_millis);
                let event = RetryEvent::Refused { code: refusal.code, retry_after };
                self.trouble = Some(refusal.to_string());
                pending.refusal = Some(refusal);
                self.numbering.answered();
                Err(event)
            }
        }
    }

    /// The stream is of no use any more; with what the node did wrong, if it did.
    fn fail(&mut self, fault: Option<String>) -> RetryEvent {
        let Some(Stream { connection, .. }) = self.stream.take() else { return RetryEvent::Lost };
        if let Some(what) = fault {
            connection.close(CloseCode::Malformed, &what);
        }
        self.lost_by(&connection, RetryEvent::Lost)
    }

    /// What has happened when something failed that needed that connection: `otherwise`, if not more is known.
    fn lost_by(&mut self, connection: &Connection, otherwise: RetryEvent) -> RetryEvent {
        match connection.lost() {
            Some(ConnectionLost::PortClosed) => self.nobody_listens(),
            _ => otherwise,
        }
    }

    fn nobody_listens(&mut self) -> RetryEvent {
        self.port_closed = true;
        RetryEvent::PortClosed { resumes: self.resumes }
    }

    async fn attach(&mut self, network: &Network) -> RetryEvent {
        match self.transport {
            Transport::Quic => self.attach_stream(network).await,
            Transport::Shm => {
                self.attach_memory(network).await.unwrap_or_else(|error| self.no_memory(&error))
            }
            Transport::Auto => match self.attach_memory(network).await {
                Ok(event) => event,
                Err(error) => {
                    self.refused_memory = Some(error.refusal());
                    self.attach_stream(network).await
                }
            },
        }
    }

    async fn attach_memory(&mut self, network: &Network) -> Result<RetryEvent, LinkError> {
        let Some(socket) = network.attach().socket(&self.grant) else { return Err(LinkError::NoSocket) };
        let Grant { index, incarnation, secret, .. } = self.grant;
        let asked = AttachMemory { version: VERSION, pool: self.pool, index, incarnation, secret, log: true };
        let anybody = network.attach().anybody();
        let (call, word) = (CallId::generate(), Request::AttachMemory(asked).word());
        let asked = (asked, call);
        let attach = MemoryLink::attach(&mut self.memory, &socket, anybody, asked, &self.grant, &self.shape);
        let attached = tokio::time::timeout(ATTACH_DEADLINE, call.traced(word, attach)).await;
        let Attached { last, logs, .. } = attached.map_err(|_| LinkError::TimedOut)??;
        self.transport = Transport::Shm;
        self.refused_memory = None;
        self.logs = logs;
        self.answered_before = Some(last);
        Ok(RetryEvent::Attached { last })
    }

    /// What it means that a session which is to be stepped by memory is not attached.
    fn no_memory(&mut self, error: &LinkError) -> RetryEvent {
        let mut refusal = error.refusal();
        if self.memory.is_some() && error.is_dead() {
            // The process that had the session is no more, and the session with it.
            refusal = Refusal::new(RefusalCode::NotFound, "its process has ended");
        } else if self.memory.is_some() && !matches!(error, LinkError::Call(AttachCallError::Refused(_))) {
            return RetryEvent::Unreachable;
        }
        let retry_after = refusal.retry_after_ms.map(Duration::from_millis);
        let event = RetryEvent::AttachRefused { code: refusal.code, retry_after };
        if refusal.ended.is_some() {
            self.ended = refusal.ended;
        }
        self.trouble = Some(refusal.to_string());
        if let Some(pending) = &mut self.pending {
            pending.refusal = Some(refusal.clone());
        }
        self.refused_memory = Some(refusal);
        event
    }

    async fn attach_stream(&mut self, network: &Network) -> RetryEvent {
        let connection = match network.node(&self.grant).await {
            Ok(connection) => connection,
            Err(error) => {
                self.trouble = Some(error.to_string());
                return match &*error {
                    DialError::PortClosed { .. } => self.nobody_listens(),
                    _ => RetryEvent::Unreachable,
                };
            }
        };
        self.port_closed = false;
        let Grant { index, incarnation, secret, .. } = self.grant;
        let attach = Attach { pool: self.pool, index, incarnation, secret, log: true };
        let call = CallId::generate();
        let word = Request::Attach(attach).word();
        let attached = call.traced(word, connection.attach(attach, Some(call), self.max_columns));
        match tokio::time::timeout(ATTACH_DEADLINE, attached).await {
            Ok(Ok((attached, reader, writer))) if attached.lanes == self.grant.lanes => {
                self.transport = Transport::Quic;
                self.trouble = None;
                self.stream = Some(Stream { connection, reader, writer });
                self.logs = attached.logs;
                RetryEvent::Attached { last: attached.last }
            }
            Ok(Ok(_)) => {
                connection.close(CloseCode::Malformed, "the session has another number of lanes");
                RetryEvent::Unreachable
            }
            Ok(Err(CallError::Refused(refusal))) => {
                let refusal = refusal.of_call(call);
                let retry_after = refusal.retry_after_ms.map(Duration::from_millis);
                let event = RetryEvent::AttachRefused { code: refusal.code, retry_after };
                self.ended = refusal.ended;
                self.trouble = Some(refusal.to_string());
                if let Some(pending) = &mut self.pending {
                    pending.refusal = Some(refusal);
                }
                event
            }
            Ok(Err(error)) => {
                self.trouble = Some(error.to_string());
                self.lost_by(&connection, RetryEvent::Unreachable)
            }
            Err(_) => {
                self.trouble = Some(format!("nothing within {} s", ATTACH_DEADLINE.as_secs()));
                self.lost_by(&connection, RetryEvent::Unreachable)
            }
        }
    }

    fn give_up(&mut self, why: GiveUp) -> Trouble {
        let pending = self.pending.take();
        let refusal = pending.and_then(|pending| pending.refusal);
        match why {
            GiveUp::TimedOut => Trouble::TimedOut,
            GiveUp::Refused(code) => {
                Trouble::Refused(refusal.unwrap_or_else(|| Refusal::new(code, "no reason was given")))
            }
            GiveUp::NodeLost => {
                let id = SessionId { pool: self.pool, index: self.grant.index };
                let node = &self.grant.node;
                let reason = match (self.ended, refusal) {
                    (Some(EndCause::NodeLost), _) => format!("node {node} is lost, the coordinator says"),
                    (Some(cause), _) => {
                        let word = Outcome::Interrupted(cause.interruption()).word();
                        format!("session {id} on node {node} has ended: {word}")
                    }
                    (None, Some(refusal)) => {
                        format!("node {node} does not have session {id} any more: {refusal}")
                    }
                    (None, None) if self.port_closed => format!("nobody listens at the port of node {node}"),
                    (None, None) => format!("node {node} was not heard of for {} s", self.lease.as_secs()),
                };
                let outcome = self.ended.map_or(Interruption::NodeLost, EndCause::interruption);
                self.detach();
                self.gone = Some(Gone { reason, outcome, told: false });
                Trouble::Gone
            }
        }
    }
}

impl Stream {
    /// Hands over what was put, and reads until the answer with that number is here. Answers to earlier requests
    /// are skipped: nobody waits for them any more.
    ///
    /// # Errors
    /// The stream is no more; with what the node did wrong, if it did.
    async fn exchange(&mut self, number: u32) -> Result<FrameHeader, Option<String>> {
        // A stream that cannot be written to may still hold the answer to what was written.
        let _flushed = self.writer.flush().await;
        loop {
            match self.reader.read().await {
                Ok(Some(header)) if header.number == number => return Ok(header),
                Ok(Some(_)) => {}
                Ok(None) => return Err(None),
                Err(fault) => return Err(fault.code().map(|_| fault.to_string())),
            }
        }
    }
}

/// How long a node may take to answer `Attach`: longer than a step may be expected to take, as it answers when
/// the session is at rest.
const ATTACH_DEADLINE: Duration = Duration::from_secs(10);
