//! A session attached by a QUIC stream: requests are frames, and so are answers.

use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{
    Asks, Attach, BatchPlaces, CallError, CallId, CloseCode, ColumnBuffer, Connection, ConnectionLost,
    DialError, FrameHeader, FrameKind, FrameReader, FrameWriter, Grant, Notes, Refusal, RefusalCode, control,
};

use super::{LinkAnswer, LinkLost, Places};
use crate::network::Network;
use crate::session::{RequestBody, SessionEvent};

/// A session's stream, if there is one.
#[derive(Default)]
pub(crate) struct StreamLink {
    stream: Option<Box<Stream>>,
}

/// A stream to the node. When it is dropped, the node learns that its owner does not listen any more.
struct Stream {
    connection: Connection,
    reader: FrameReader,
    writer: FrameWriter,
    /// Number of the last request that was put into the writer.
    posted: Option<u32>,
    /// Whether the node answers lanes that are sent as they are done.
    as_done: bool,
    /// Whether its lanes may play by a policy.
    plays: bool,
}

/// What an owner needs of the stream of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Bytes of the longest columns of an answer.
    pub(super) max_columns: usize,
    /// Whether the lanes are to play by a policy.
    pub(super) plays: bool,
}

/// Attaches a session of that pool by a new stream. Cancellation-safe.
///
/// # Errors
/// The event that happened instead.
pub(super) async fn attach(
    network: &Network,
    pool: RunId,
    grant: &Grant,
    Wanted { max_columns, plays }: Wanted,
) -> Result<(StreamLink, SessionEvent), SessionEvent> {
    let connection = network.node(grant).await.map_err(|error| match &*error {
        DialError::PortClosed { .. } => SessionEvent::PortClosed(Some(error.to_string())),
        _ => SessionEvent::Unreachable(Some(error.to_string())),
    })?;
    let Grant { index, incarnation, secret, .. } = *grant;
    let attach = Attach { pool, index, incarnation, secret, log: true };
    let call = CallId::generate();
    let attached = call.traced(Attach::WORD, connection.attach(attach, Some(call), max_columns));
    let lost = |why: String| match connection.lost() {
        Some(ConnectionLost::PortClosed) => SessionEvent::PortClosed(Some(why)),
        _ => SessionEvent::Unreachable(Some(why)),
    };
    match tokio::time::timeout(ATTACH_DEADLINE, attached).await {
        Ok(Ok((attached, ..))) if plays && !attached.plays => {
            Err(SessionEvent::AttachRefused(Refusal::new(RefusalCode::Unsupported, NO_POLICIES)))
        }
        Ok(Ok((attached, reader, writer))) if attached.lanes == grant.lanes => {
            let (as_done, plays) = (attached.as_done, attached.plays);
            let stream = Box::new(Stream { connection, reader, writer, posted: None, as_done, plays });
            let event = SessionEvent::Attached { last: attached.last, logs: attached.logs };
            Ok((StreamLink { stream: Some(stream) }, event))
        }
        Ok(Ok(_)) => {
            connection.close(CloseCode::Malformed, "the session has another number of lanes");
            Err(SessionEvent::Unreachable(None))
        }
        Ok(Err(CallError::Refused(refusal))) => Err(SessionEvent::AttachRefused(refusal.of_call(call))),
        Ok(Err(error)) => Err(lost(error.to_string())),
        Err(_) => Err(lost(format!("nothing within {} s", ATTACH_DEADLINE.as_secs()))),
    }
}

impl StreamLink {
    pub(super) const fn is_attached(&self) -> bool {
        self.stream.is_some()
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.stream.as_ref().map(|stream| &stream.connection)
    }

    pub(super) fn is_free(&self, number: u32) -> Result<bool, LinkLost> {
        let stream = self.stream.as_ref().ok_or(LinkLost::Ended)?;
        Ok(stream.posted != Some(number))
    }

    pub(super) fn post(&mut self, number: u32, body: &RequestBody) {
        let Some(stream) = &mut self.stream else { return };
        let RequestBody { kind, columns, .. } = body;
        // Other nodes answer it as a whole: it names all lanes that are under way.
        let plain = *kind == FrameKind::Send && !stream.as_done;
        let sidecar = if plain { &[][..] } else { &body.sidecar[..] };
        let header = FrameHeader {
            kind: *kind,
            flags: 0,
            number,
            columns: columns.len() as u32,
            sidecar: sidecar.len() as u32,
        };
        stream.writer.put(header, &[columns.as_ref()], sidecar);
        stream.posted = Some(number);
    }

    /// Hastens as [`Link::hasten`](super::Link::hasten) does.
    pub(super) fn hasten(&mut self) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.as_done) else { return };
        let Some(number) = stream.posted else { return };
        let header = FrameHeader { kind: FrameKind::Hasten, flags: 0, number, columns: 0, sidecar: 0 };
        stream.writer.put(header, &[], &[]);
    }

    pub(super) async fn answer(&mut self, number: u32) -> Result<LinkAnswer, LinkLost> {
        let stream = self.stream.as_mut().ok_or(LinkLost::Ended)?;
        let header = match stream.exchange(number).await {
            Ok(header) => header,
            Err(fault) => return Err(self.fail(fault)),
        };
        if header.kind != FrameKind::Refused {
            return Ok(LinkAnswer::Done(header));
        }
        match control::decode::<Refusal>(stream.reader.sidecar()) {
            Ok(refusal) => Ok(LinkAnswer::Refused(refusal)),
            Err(error) => Err(self.fail(Some(error.to_string()))),
        }
    }

    /// Notes that the stream is of no use any more, with the node's breach of the protocol, if there was one.
    fn fail(&mut self, fault: Option<String>) -> LinkLost {
        let Some(stream) = self.stream.take() else { return LinkLost::Ended };
        if let Some(what) = fault {
            stream.connection.close(CloseCode::Malformed, &what);
        }
        match stream.connection.lost() {
            Some(ConnectionLost::PortClosed) => LinkLost::PortClosed,
            _ => LinkLost::Ended,
        }
    }

    /// Takes answers of fragments from now on. Returns whether the node has such.
    pub(super) fn plays(&mut self, max_columns: usize) -> bool {
        let Some(stream) = &mut self.stream else { return true };
        stream.reader.take_up_to(max_columns);
        stream.plays
    }

    /// Returns the sidecar of the last answer; empty if it had none.
    pub(crate) fn sidecar(&self) -> &[u8] {
        self.stream.as_ref().map_or(&[], |stream| stream.reader.sidecar())
    }

    /// Returns the columns of the last answer.
    pub(crate) fn columns(&self) -> Option<&ColumnBuffer> {
        self.stream.as_ref().map(|stream| stream.reader.columns())
    }

    pub(super) fn batch<'a>(
        &'a self,
        header: FrameHeader,
        places: &'a Places,
    ) -> Result<(&'a BatchPlaces, &'a [u8]), String> {
        let places = match (header.kind, header.flags & FrameHeader::FINAL_OBS, &places.with_final) {
            (FrameKind::Batch, 0, _) => &places.plain,
            (FrameKind::Batch, _, Some(places)) => places,
            (kind, flags, _) => {
                return Err(format!("a frame of kind {kind:?} with flags {flags} was not asked for"));
            }
        };
        let columns = self.columns().map_or(&[][..], |columns| columns.bytes());
        if columns.len() != places.bytes {
            return Err(format!("a batch of {} bytes, {} are wanted", columns.len(), places.bytes));
        }
        Ok((places, columns))
    }

    /// Returns the notes that the last answer has beside its columns.
    ///
    /// # Errors
    /// If they are malformed.
    pub(crate) fn notes(&self) -> Result<Notes, String> {
        match self.stream.as_ref().map_or(&[][..], |stream| stream.reader.sidecar()) {
            [] => Ok(Notes::default()),
            bytes => control::decode(bytes).map_err(|error| error.to_string()),
        }
    }

    pub(super) fn detach(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            // A stream that is no more needs no end.
            let _finished = stream.writer.stream().finish();
        }
    }

    pub(super) fn distrust(&mut self, what: &str) {
        if let Some(stream) = self.stream.take() {
            stream.connection.close(CloseCode::Malformed, what);
        }
    }
}

impl Stream {
    /// Sends the requests that were put, and reads until the answer with that number is here. Answers to earlier
    /// requests are skipped: nobody waits for them any more.
    ///
    /// # Errors
    /// The stream is lost, with the node's breach of the protocol, if there was one.
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

/// Why lanes of an earlier version do not play.
pub(super) const NO_POLICIES: &str = "the node's version has no lanes that play by a policy of their owner's";

/// Time that a node may take to answer `Attach`. It is longer than a step may be expected to take, as the node answers
/// when the session is at rest.
pub(super) const ATTACH_DEADLINE: Duration = Duration::from_secs(10);
