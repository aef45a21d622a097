//! A session's stream: its owner's frames come in, answers go out.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use rollhouse_wire::{Attach, Attached};
use rollhouse_wire::{
    CloseCode, Connection, FrameFault, FrameHeader, FrameKind, FrameReader, FrameWriter, Request, Responder,
    StreamLost,
};
use tracing::Instrument;

use crate::Gone;
use crate::hosting::{Hosting, Place};
use crate::owned::{FrameRequest, RequestFault, Unanswered};
use crate::transport::Transport;
use crate::turn::TurnOver;

/// Answers an `Attach` and serves the stream until its owner ends it, another takes over, or the session ends. Bytes
/// that are no request end the connection with the reason.
pub(crate) async fn serve(
    hosting: Arc<Hosting>,
    connection: Connection,
    attach: Attach,
    responder: Responder,
) {
    let (began, asked, call) = (Instant::now(), Request::Attach(attach), responder.call());
    // Of what comes then, steps, no line is written.
    let span = responder.span(&asked);
    // First, so that an owner that has its share of connections sends away nobody who is attached.
    let attached = match hosting.admit(&connection, &attach) {
        Ok(admitted) => {
            let attached = hosting.attach(&attach, Transport::Quic).instrument(span.clone()).await;
            attached.map(|place| (place, admitted))
        }
        Err(refusal) => Err(refusal),
    };
    let of = attached.as_ref().map(|(place, _)| place.session());
    span.in_scope(|| hosting.answers_owner(asked.word(), call, began, of));
    let (place, _admitted) = match attached {
        Ok(attached) => attached,
        Err(refusal) => {
            // Whether he still wants to hear it is his affair.
            let _told = responder.refuse(refusal).instrument(span).await;
            return;
        }
    };
    // What was asked for is done.
    drop(span);
    let (lanes, as_done, paced) =
        (place.session.lanes(), place.session.is_of_lanes(), place.session.is_paced());
    let plays = as_done && !paced;
    let attached = Attached { lanes, last: place.last, logs: place.logs, as_done, plays, paced };
    if let Ok((reader, writer)) = responder.accept_frames(attached, place.session.max_columns()).await {
        let request = FrameRequest::default();
        let mut stream = Stream { place: &place, reader, writer, request, ahead: None };
        let end = stream.run(&hosting).await;
        stream.tell(&connection, &end);
        if let End::Fault(..) = end {
            hosting.figures.malformed.add(1);
        }
        if let End::Gone(gone) = end {
            // Whoever finds the session gone sees to it that its end is told.
            let (id, incarnation) = place.session.placed();
            hosting.end(id, incarnation, gone).await;
        }
    }
}

struct Stream<'a> {
    place: &'a Place,
    reader: FrameReader,
    writer: FrameWriter,
    request: FrameRequest,
    /// What came while a request was being answered.
    ahead: Option<ReadFrame>,
}

/// The header of a frame that was read; `None` at the end of the stream.
type ReadFrame = Result<Option<FrameHeader>, FrameFault>;

/// Why a stream ended.
enum End {
    /// The owner ended it.
    ByOwner,
    /// Another attachment has taken over.
    Replaced,
    /// The session has ended.
    SessionEnded,
    /// The session was lost while this stream waited for it.
    Gone(Gone),
    /// The bytes that came are no request.
    Fault(CloseCode, String),
}

impl Stream<'_> {
    async fn run(&mut self, hosting: &Arc<Hosting>) -> End {
        loop {
            let header = match self.next_request(hosting).await {
                Ok(header) => header,
                Err(end) => return end,
            };
            if let Err(end) = self.answer(header, hosting).await {
                return end;
            }
            // Short batches never wait: other sessions are to have their turn as well.
            tokio::task::consume_budget().await;
        }
    }

    /// Waits for the owner's next request, awake at first: one that steps without a pause asks again at once.
    async fn next_request(&mut self, hosting: &Hosting) -> Result<FrameHeader, End> {
        loop {
            let header = match self.ahead.take() {
                Some(read) => request_of(read)?,
                None => self.read_request(hosting).await?,
            };
            // The request that was to be hastened has been answered.
            if header.kind != FrameKind::Hasten {
                return Ok(header);
            }
            check_hasten(header)?;
            tokio::task::consume_budget().await;
        }
    }

    async fn read_request(&mut self, hosting: &Hosting) -> Result<FrameHeader, End> {
        let mut read = pin!(self.reader.read());
        let read = match hosting.eagerness.wait(read.as_mut()).await {
            Some(read) => read,
            None => loop {
                let due_at = self.place.session.due_at();
                let pause = due_at.map(|at| tokio::time::sleep_until(at.into()));
                tokio::select! {
                    // A request that is here is asked for at once; whether the session still moves is seen there.
                    biased;
                    read = read.as_mut() => break read,
                    end = turned_away(self.place) => return Err(end),
                    () = after(pause), if due_at.is_some() => {
                        self.place.session.look_after(&hosting.executor).await;
                    }
                }
            },
        };
        request_of(read)
    }

    async fn answer(&mut self, header: FrameHeader, hosting: &Arc<Hosting>) -> Result<(), End> {
        self.reader.swap_columns(&mut self.request.columns);
        self.request.sidecar.clear();
        self.request.sidecar.extend_from_slice(self.reader.sidecar());
        let (session, number) = (&self.place.session, self.place.number);
        let Self { reader, request, ahead, .. } = self;
        let answer = session.answer(number, header, request, &hosting.executor, &hosting.figures);
        let mut answer = pin!(answer);
        let mut hastened = false;
        let answer = loop {
            tokio::select! {
                // Most are answered at once.
                biased;
                answer = answer.as_mut() => break answer,
                read = reader.read(), if !hastened => {
                    // Whatever comes, nobody waits for the rest of this one any more.
                    session.status().hasten(header.number);
                    hastened = true;
                    if !matches!(read, Ok(Some(next)) if hastens(next, header.number)) {
                        *ahead = Some(read);
                    }
                }
            }
        };
        let answer = answer.map_err(|unanswered| match unanswered {
            Unanswered::Fault(fault) => End::Fault(code_of(fault), fault.to_string()),
            Unanswered::Replaced => End::Replaced,
            Unanswered::Ended => End::SessionEnded,
            Unanswered::Gone(gone) => End::Gone(gone),
        })?;
        self.writer.put_encoded(answer);
        tokio::select! {
            biased;
            flushed = self.writer.flush() => flushed.map_err(|_: StreamLost| End::ByOwner),
            end = turned_away(self.place) => Err(end),
        }
    }

    /// Tells the owner how the stream ended, unless the owner ended it.
    fn tell(&mut self, connection: &Connection, end: &End) {
        let code = match end {
            End::ByOwner => {
                // Already finished or lost is as good.
                let _finished = self.writer.stream().finish();
                return;
            }
            End::Replaced => CloseCode::Replaced,
            End::SessionEnded | End::Gone(_) => CloseCode::SessionEnded,
            End::Fault(code, reason) => {
                connection.close(*code, reason);
                return;
            }
        };
        self.writer.stream().give_up(code);
        self.reader.stream().give_up(code);
    }
}

/// Waits for the end of a pause, for ever if there is none. Cancellation-safe.
async fn after(pause: Option<tokio::time::Sleep>) {
    match pause {
        Some(pause) => pause.await,
        None => std::future::pending().await,
    }
}

/// Returns the header of a request that was read.
fn request_of(read: ReadFrame) -> Result<FrameHeader, End> {
    match read {
        Ok(Some(header)) => Ok(header),
        Ok(None) => Err(End::ByOwner),
        Err(fault) => Err(match fault.code() {
            Some(code) => End::Fault(code, fault.to_string()),
            None => End::ByOwner,
        }),
    }
}

/// Returns whether a frame hastens the request with that number, and is well-formed.
fn hastens(next: FrameHeader, number: u32) -> bool {
    next.kind == FrameKind::Hasten && next.number == number && check_hasten(next).is_ok()
}

/// Refuses a frame that hastens a request and has what does not belong to it.
fn check_hasten(header: FrameHeader) -> Result<(), End> {
    let FrameHeader { flags, columns, sidecar, .. } = header;
    if flags == 0 && columns == 0 && sidecar == 0 {
        return Ok(());
    }
    let message =
        format!("flags {flags}, {columns} bytes of columns and {sidecar} of a sidecar where none belong");
    Err(End::Fault(CloseCode::Malformed, message))
}

/// Waits until this attachment may not go on. Cancellation-safe.
async fn turned_away(place: &Place) -> End {
    match place.session.status().turned_away(place.number).await {
        TurnOver::Replaced => End::Replaced,
        TurnOver::Ended => End::SessionEnded,
    }
}

const fn code_of(fault: RequestFault) -> CloseCode {
    match fault {
        RequestFault::OutOfOrder { .. } => CloseCode::OutOfOrder,
        RequestFault::NoRequest(_)
        | RequestFault::Columns { .. }
        | RequestFault::Lanes { .. }
        | RequestFault::Sidecar(_)
        | RequestFault::Reset
        | RequestFault::Send
        | RequestFault::Play
        | RequestFault::Policy
        | RequestFault::Memory
        | RequestFault::Past(_) => CloseCode::Malformed,
    }
}
