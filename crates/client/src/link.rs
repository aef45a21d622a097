//! The link between a session's owner and its node: a QUIC stream, or shared memory.
//!
//! Both kinds take the same requests and give the same answers, which `link/conformance.rs` checks. [`Link::in_place`]
//! gives access to what only memory can do.

use std::borrow::Cow;
use std::ops::Range;

use rollhouse_arena::Frame;
use rollhouse_core::RunId;
use rollhouse_wire::limits::MAX_FRAME_BYTES;
use rollhouse_wire::{
    BatchPlaces, Connection, FrameHeader, FrameKind, Grant, LostLane, Notes, Refusal, RefusalCode, control,
};

use self::attaching::LinkError;
pub(crate) use self::attaching::Shape;
pub(crate) use self::memory::{MemoryAnswer, MemoryLink, NoAnswer};
pub(crate) use self::rows::RowsOf;
pub(crate) use self::stream::StreamLink;
use crate::batch::Target;
use crate::carrier::{Carrier, LinkAnswer, LinkLost, SessionStream};
use crate::check::check_notes;
use crate::log::LaneFlags;
use crate::session::{RequestBody, SessionEvent};
use crate::transport::Transport;

mod attaching;
#[cfg(test)]
mod conformance;
mod memory;
mod rows;
mod stream;

/// The link by which a session is attached, or was last.
pub(crate) enum Link<S = StreamLink> {
    /// A stream of a connection to its node.
    Stream(S),
    /// Memory of its node; kept when the link is detached, for the frames in it.
    Memory(Box<MemoryLink>),
}

/// The conditions under which a session may be attached.
pub(crate) struct Terms {
    /// The kind of the link; `Auto` until the first attachment has decided it.
    pub(crate) transport: Transport,
    /// Why it is not attached by memory, as of the last attempt.
    pub(crate) refused_memory: Option<Refusal>,
    pub(crate) shape: Shape,
    pub(crate) max_columns: usize,
    /// Whether its lanes play by policies of their owner's.
    pub(crate) plays: bool,
    /// Whether its lanes are live.
    pub(crate) paced: bool,
    /// Whether the node that it was attached to last has such lanes.
    pub(crate) offers: bool,
}

/// Offsets of the columns of a session's batches.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) plain: BatchPlaces,
    /// Offsets with last observations; `None` unless SAME_STEP.
    pub(crate) with_final: Option<BatchPlaces>,
    /// Number of the info channel with the action that was taken, if rows report it.
    pub(crate) taken: Option<usize>,
}

/// The columns of an answer about all lanes.
pub(crate) enum BatchAnswer<'a> {
    Frame(Frame<'a>),
    Bytes { places: &'a BatchPlaces, columns: &'a [u8] },
}

impl<S: SessionStream> Default for Link<S> {
    /// Makes a link that is not attached.
    fn default() -> Self {
        Self::Stream(S::default())
    }
}

impl Link {
    /// Returns the connection to the node on which the link runs, if it runs on one.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Stream(link) => link.connection(),
            Self::Memory(_) => None,
        }
    }
}

impl<S: SessionStream> Link<S> {
    /// Attaches a session of that pool. Cancellation-safe.
    pub(crate) async fn attach(
        &mut self,
        terms: &mut Terms,
        carrier: &impl Carrier<Stream = S>,
        pool: RunId,
        grant: &Grant,
    ) -> SessionEvent {
        if terms.transport != Transport::Quic {
            match attaching::attach(self, (&terms.shape, terms.paced), carrier, pool, grant).await {
                Ok(attached) => {
                    (terms.transport, terms.refused_memory) = (Transport::Shm, None);
                    return attached;
                }
                Err(error) if terms.transport == Transport::Shm => return self.no_memory(terms, &error),
                Err(error) => terms.refused_memory = Some(error.refusal()),
            }
        }
        match carrier.attach_stream(pool, grant, terms.max_columns).await {
            Ok((_, attached)) if terms.plays && !attached.plays => {
                SessionEvent::AttachRefused(Refusal::new(RefusalCode::Unsupported, NO_POLICIES))
            }
            Ok((_, attached)) if terms.paced && !attached.paced => {
                SessionEvent::AttachRefused(Refusal::new(RefusalCode::Unsupported, NO_PACE))
            }
            Ok((link, attached)) => {
                (terms.transport, terms.offers, *self) =
                    (Transport::Quic, attached.plays, Self::Stream(link));
                SessionEvent::Attached { last: attached.last, logs: attached.logs }
            }
            Err(event) => event,
        }
    }

    /// Returns what follows when a session that is to be stepped by memory is not attached.
    fn no_memory(&self, terms: &mut Terms, error: &LinkError) -> SessionEvent {
        let had_memory = matches!(self, Self::Memory(_));
        let mut refusal = error.refusal();
        if had_memory && error.is_dead() {
            // The process that had the session is no more, and the session with it.
            refusal = Refusal::new(RefusalCode::NotFound, "its process has ended");
        } else if had_memory && !error.is_refusal() {
            return SessionEvent::Unreachable(None);
        }
        terms.refused_memory = Some(refusal.clone());
        SessionEvent::AttachRefused(refusal)
    }

    /// Returns the transport by which it is attached now.
    pub(crate) fn transport(&self) -> Option<Transport> {
        match self {
            Self::Stream(link) => link.is_attached().then_some(Transport::Quic),
            Self::Memory(link) => link.is_attached().then_some(Transport::Shm),
        }
    }

    /// Returns whether requests can be posted.
    pub(crate) fn is_attached(&self) -> bool {
        self.transport().is_some()
    }

    /// Returns the connection to the node on which the link runs, if it runs on one.
    pub(crate) fn line(&self) -> Option<S::Line> {
        match self {
            Self::Stream(link) => link.line(),
            Self::Memory(_) => None,
        }
    }

    /// Waits until a request can be posted under that number. Returns true if it was not posted on this attachment yet.
    /// A request under way that nobody waits for may have to be answered first. Cancellation-safe.
    pub(crate) async fn is_free(
        &mut self,
        number: u32,
        carrier: &impl Carrier<Stream = S>,
    ) -> Result<bool, LinkLost> {
        match self {
            Self::Stream(link) => link.is_free(number),
            Self::Memory(link) => link.is_free(number, carrier).await,
        }
    }

    /// Posts a request, once on each attachment, after [`Link::is_free`].
    pub(crate) fn post(&mut self, number: u32, body: &RequestBody) {
        match self {
            Self::Stream(link) => link.post(number, body),
            Self::Memory(link) => link.post_numbered(number, body),
        }
    }

    /// Has the posted request answered with the lanes that are done, if it waits for more.
    pub(crate) fn hasten(&mut self) {
        match self {
            Self::Stream(link) => link.hasten(),
            Self::Memory(link) => link.hasten(),
        }
    }

    /// Returns the lanes that were refused last, if they are known apart from those of the request.
    pub(crate) fn refused_lanes(&self) -> Option<&[u32]> {
        match self {
            Self::Stream(_) => None,
            Self::Memory(link) => Some(&link.refused),
        }
    }

    /// Waits for the answer to the posted request with that number, which is of that kind. Answers to earlier ones are
    /// skipped. Cancellation-safe.
    pub(crate) async fn answer(
        &mut self,
        number: u32,
        kind: FrameKind,
        carrier: &impl Carrier<Stream = S>,
    ) -> Result<LinkAnswer, LinkLost> {
        match self {
            Self::Stream(link) => link.answer(number).await,
            Self::Memory(link) => link.answer_numbered(number, kind, carrier).await,
        }
    }

    /// Returns the columns of the last answer, which is to be one about all lanes.
    ///
    /// # Errors
    /// If it is one about some lanes.
    pub(crate) fn batch<'a>(
        &'a self,
        header: FrameHeader,
        places: &'a Places,
    ) -> Result<BatchAnswer<'a>, String> {
        match self {
            Self::Stream(link) => {
                let flags = header.flags & FrameHeader::FINAL_OBS;
                let places = match (header.kind, flags, &places.with_final) {
                    (FrameKind::Batch, 0, _) => &places.plain,
                    (FrameKind::Batch, _, Some(places)) => places,
                    (kind, flags, _) => {
                        return Err(format!("a frame of kind {kind:?} with flags {flags} was not asked for"));
                    }
                };
                let columns = link.columns().map_or(&[][..], |columns| columns.bytes());
                if columns.len() != places.bytes {
                    return Err(format!("a batch of {} bytes, {} are wanted", columns.len(), places.bytes));
                }
                Ok(BatchAnswer::Bytes { places, columns })
            }
            Self::Memory(link) => match link.frame() {
                Some(frame) => Ok(BatchAnswer::Frame(frame)),
                None => Err("an answer without a frame".to_owned()),
            },
        }
    }

    /// Returns the notes beside the columns of the last answer, one about all of `lanes` lanes; lost lanes are listed
    /// apart.
    ///
    /// # Errors
    /// If it is not what a node says.
    pub(crate) fn notes(&self, lanes: usize) -> Result<(Cow<'_, Notes>, Vec<LostLane>), String> {
        match self {
            Self::Stream(link) => {
                let mut notes = notes_of(link)?;
                let losses = std::mem::take(&mut notes.lost);
                check_notes(&notes, &losses, lanes)?;
                Ok((Cow::Owned(notes), losses))
            }
            Self::Memory(link) => Ok((Cow::Borrowed(link.notes()), link.lost())),
        }
    }

    /// Takes answers of fragments from now on.
    ///
    /// # Errors
    /// The link has none.
    pub(crate) fn play(&mut self, terms: &mut Terms) -> Result<(), Refusal> {
        let refused = |message| Err(Refusal::new(RefusalCode::Unsupported, message));
        (terms.max_columns, terms.plays) = (MAX_FRAME_BYTES, true);
        match self {
            Self::Stream(link) if link.is_attached() && !terms.offers => refused(NO_POLICIES),
            Self::Stream(link) => {
                link.take_up_to(MAX_FRAME_BYTES);
                Ok(())
            }
            Self::Memory(_) => refused(
                "lanes that are stepped through memory play by no policy of their owner's; open them with transport quic",
            ),
        }
    }

    /// Returns the memory, if the session is stepped by that: frames and actions lie in it, and need not be copied.
    #[inline]
    pub(crate) fn in_place(&self) -> Option<&MemoryLink> {
        match self {
            Self::Memory(link) => Some(link),
            Self::Stream(_) => None,
        }
    }

    /// Returns the memory as [`Link::in_place`] does, to post in it.
    #[inline]
    pub(crate) fn in_place_mut(&mut self) -> Option<&mut MemoryLink> {
        match self {
            Self::Memory(link) => Some(link),
            Self::Stream(_) => None,
        }
    }

    /// Returns the memory whose rings carry commands, if the session is attached by it.
    pub(crate) fn rings(&mut self) -> Option<&mut MemoryLink> {
        self.in_place_mut().filter(|link| link.is_attached())
    }

    /// Lets the node go.
    pub(crate) fn detach(&mut self) {
        match self {
            Self::Stream(link) => link.detach(),
            Self::Memory(link) => link.detach(),
        }
    }

    /// Lets the node go because it breaks the protocol.
    pub(crate) fn distrust(&mut self, what: &str) {
        match self {
            Self::Stream(link) => link.distrust(what),
            Self::Memory(link) => link.detach(),
        }
    }
}

/// Returns the notes that the last answer on a stream has beside its columns.
///
/// # Errors
/// If they are malformed.
fn notes_of(stream: &impl SessionStream) -> Result<Notes, String> {
    match stream.sidecar() {
        [] => Ok(Notes::default()),
        bytes => control::decode(bytes).map_err(|error| error.to_string()),
    }
}

impl BatchAnswer<'_> {
    /// Copies the columns into the target, at the session's `lanes`.
    pub(crate) fn land(&self, target: &Target<'_>, lanes: &Range<usize>) {
        match self {
            Self::Frame(frame) => target.land_frame(lanes, frame),
            Self::Bytes { places, columns } => target.land(lanes, places, 0, columns),
        }
    }

    /// Returns info channel `number` of the answer, as bytes of its column.
    pub(crate) fn info(&self, number: usize) -> &[u8] {
        match self {
            Self::Frame(frame) => frame.info(number).bytes(),
            Self::Bytes { places, columns } => &columns[places.infos[number].clone()],
        }
    }

    /// Returns the flags of the last answer.
    #[inline]
    pub(crate) fn flags(&self) -> LaneFlags<'_> {
        match self {
            Self::Frame(frame) => LaneFlags {
                terminated: frame.terminated(),
                truncated: frame.truncated(),
                reset: frame.reset(),
            },
            Self::Bytes { places, columns } => LaneFlags {
                terminated: &columns[places.terminated.clone()],
                truncated: &columns[places.truncated.clone()],
                reset: &columns[places.reset.clone()],
            },
        }
    }
}

/// Why lanes of an earlier version do not tick.
const NO_PACE: &str = "the node's version has no live lanes: it would have them wait for their owner";

/// Why lanes of an earlier version do not play.
const NO_POLICIES: &str = "the node's version has no lanes that play by a policy of their owner's";
