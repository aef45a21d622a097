//! A session attached by a QUIC stream: requests are frames, and so are answers.

use rollhouse_wire::{
    CloseCode, ColumnBuffer, Connection, ConnectionLost, FrameHeader, FrameKind, FrameReader, FrameWriter,
    Refusal, control,
};

use crate::carrier::{LinkAnswer, LinkLost, SessionStream};
use crate::session::RequestBody;

/// A session's stream, if there is one.
#[derive(Default)]
pub struct StreamLink {
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
}

impl StreamLink {
    /// Makes the link of a stream that was attached; `as_done` says that lanes are answered as they are done.
    pub(crate) fn new(
        connection: Connection,
        (reader, writer): (FrameReader, FrameWriter),
        as_done: bool,
    ) -> Self {
        Self { stream: Some(Box::new(Stream { connection, reader, writer, posted: None, as_done })) }
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.stream.as_ref().map(|stream| &stream.connection)
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
}

impl SessionStream for StreamLink {
    type Line = Connection;

    fn is_attached(&self) -> bool {
        self.stream.is_some()
    }

    fn line(&self) -> Option<Connection> {
        self.connection().cloned()
    }

    fn is_free(&self, number: u32) -> Result<bool, LinkLost> {
        let stream = self.stream.as_ref().ok_or(LinkLost::Ended)?;
        Ok(stream.posted != Some(number))
    }

    fn post(&mut self, number: u32, body: &RequestBody) {
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

    fn hasten(&mut self) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.as_done) else { return };
        let Some(number) = stream.posted else { return };
        let header = FrameHeader { kind: FrameKind::Hasten, flags: 0, number, columns: 0, sidecar: 0 };
        stream.writer.put(header, &[], &[]);
    }

    async fn answer(&mut self, number: u32) -> Result<LinkAnswer, LinkLost> {
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

    fn take_up_to(&mut self, max_columns: usize) {
        if let Some(stream) = &mut self.stream {
            stream.reader.take_up_to(max_columns);
        }
    }

    fn columns(&self) -> Option<&ColumnBuffer> {
        self.stream.as_ref().map(|stream| stream.reader.columns())
    }

    fn sidecar(&self) -> &[u8] {
        self.stream.as_ref().map_or(&[][..], |stream| stream.reader.sidecar())
    }

    fn detach(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            // A stream that is no more needs no end.
            let _finished = stream.writer.stream().finish();
        }
    }

    fn distrust(&mut self, what: &str) {
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
