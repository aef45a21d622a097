//! A session's answers as bytes: header, columns and sidecar in one buffer that is used again and again.

use bytes::{BufMut, Bytes, BytesMut};
use rollhouse_core::ColumnRef;
use rollhouse_engine::{Fragment, Frame, Received};
use rollhouse_policy::LaneStates;
use rollhouse_wire::{
    FragmentNotes, FrameHeader, FrameKind, FrameLayout, HEADER_BYTES, Notes, PolicyTaken, Refusal, put_memory,
};
use serde::Serialize;

/// Writes one answer: first its columns in the order of a frame, then, with [`Answer::finish`], its sidecar and header.
#[derive(Debug)]
pub(crate) struct Answer {
    out: BytesMut,
}

impl Answer {
    /// Begins an answer in the memory of an earlier one if nobody reads that any more. Otherwise it allocates as much,
    /// and a bit more, since sidecars differ in length.
    pub(crate) fn reusing(earlier: Bytes) -> Self {
        let again = |earlier: Bytes| BytesMut::with_capacity(earlier.len() + SIDECARS_DIFFER_BY);
        let mut out = earlier.try_into_mut().unwrap_or_else(again);
        out.clear();
        out.put_bytes(0, HEADER_BYTES);
        Self { out }
    }

    /// Appends the rows of all lanes.
    pub(crate) fn batch(&mut self, layout: &FrameLayout, frame: &Frame<'_>, final_obs: bool) {
        let obs = (0..layout.obs.len()).map(|column| frame.obs(column));
        let infos = (0..layout.infos.len()).map(|column| frame.info(column));
        let flags = [frame.terminated(), frame.truncated(), frame.reset()];
        self.rows(obs.chain(infos), frame.rewards(), flags);
        if final_obs {
            (0..layout.obs.len()).for_each(|column| self.column(frame.final_obs(column)));
        }
    }

    /// Appends the count and the numbers of some lanes, then their rows.
    pub(crate) fn some(&mut self, received: &Received, final_obs: bool) {
        self.out.put_u64_le(received.lanes.len() as u64);
        received.lanes.iter().for_each(|&lane| self.out.put_u32_le(lane));
        self.fill_up();
        self.all(received);
        if final_obs {
            self.last(received);
        }
    }

    /// Appends the rows of all lanes, as they are in `received`, without last observations.
    pub(crate) fn all(&mut self, received: &Received) {
        let columns = received.obs.iter().chain(&received.infos).map(|column| column.as_ref());
        let flags = [&received.terminated, &received.truncated, &received.reset].map(Vec::as_slice);
        self.rows(columns, &received.rewards, flags);
    }

    /// Appends the last observations of the rows.
    pub(crate) fn last(&mut self, received: &Received) {
        received.final_obs.iter().for_each(|column| self.column(column.as_ref()));
    }

    /// Appends what lanes have shown and done in some steps.
    pub(crate) fn fragment(&mut self, layout: &FrameLayout, fragment: &Fragment) {
        let obs = (0..layout.obs.len()).map(|column| fragment.obs(column));
        let shown = obs.chain((0..layout.infos.len()).map(|channel| fragment.info(channel)));
        for frames in shown {
            // The first frame its owner has already.
            let first = frames.len() / (fragment.steps() + 1);
            self.column(frames.slice(first, frames.len()));
        }
        self.column(fragment.actions());
        fragment.notes().for_each(|noted| self.column(noted));
        self.column(ColumnRef::F64(fragment.rewards()));
        self.column(ColumnRef::U8(fragment.terminated()));
        self.column(ColumnRef::U8(fragment.truncated()));
        self.column(ColumnRef::U8(fragment.reset()));
        fragment.finals().obs.iter().for_each(|column| self.column(column.as_ref()));
    }

    /// Appends what a policy remembers of all lanes.
    pub(crate) fn memory(&mut self, lanes: &LaneStates) {
        put_memory(lanes, &mut self.out);
    }

    /// Writes sidecar and header, and returns the whole answer.
    pub(crate) fn finish(
        self,
        kind: FrameKind,
        final_obs: bool,
        number: u32,
        sidecar: &Sidecar<'_>,
    ) -> Bytes {
        let mut out = self.out;
        let columns = out.len() - HEADER_BYTES;
        sidecar.write(&mut out);
        let sidecar = out.len() - HEADER_BYTES - columns;
        let flags = if final_obs { FrameHeader::FINAL_OBS } else { 0 };
        // Both lengths are within the limits of frames: a session is refused whose batches would not be.
        let header = FrameHeader { kind, flags, number, columns: columns as u32, sidecar: sidecar as u32 };
        out[..HEADER_BYTES].copy_from_slice(&header.encode());
        out.freeze()
    }

    fn rows<'a>(
        &mut self,
        columns: impl Iterator<Item = ColumnRef<'a>>,
        rewards: &[f64],
        [terminated, truncated, reset]: [&[u8]; 3],
    ) {
        columns.for_each(|column| self.column(column));
        self.column(ColumnRef::F64(rewards));
        self.column(ColumnRef::U8(terminated));
        self.column(ColumnRef::U8(truncated));
        self.column(ColumnRef::U8(reset));
    }

    fn column(&mut self, column: ColumnRef<'_>) {
        self.out.put_slice(column.bytes());
        self.fill_up();
    }

    /// Fills up with zeros to a multiple of 8, at which every column begins; the header's length is such a multiple
    /// too.
    fn fill_up(&mut self) {
        let bytes = self.out.len().next_multiple_of(8) - self.out.len();
        self.out.put_bytes(0, bytes);
    }
}

/// Spare bytes for a longer sidecar: a few more episodes that began.
const SIDECARS_DIFFER_BY: usize = 256;

/// The part of an answer that stands beside its columns.
#[derive(Debug)]
pub(crate) enum Sidecar<'a> {
    Nothing,
    Notes(&'a Notes),
    Refusal(&'a Refusal),
    Policy(&'a PolicyTaken),
    Fragment(&'a FragmentNotes),
}

impl Sidecar<'_> {
    fn write(&self, out: &mut BytesMut) {
        let written = match self {
            Self::Nothing => Ok(()),
            Self::Notes(notes) => pack(notes, out),
            Self::Refusal(refusal) => pack(refusal, out),
            Self::Policy(taken) => pack(taken, out),
            Self::Fragment(notes) => pack(notes, out),
        };
        debug_assert!(written.is_ok(), "memory takes every message");
    }
}

fn pack<T: Serialize>(message: &T, out: &mut BytesMut) -> Result<(), rmp_serde::encode::Error> {
    message.serialize(&mut rmp_serde::Serializer::new(out.writer()).with_struct_map())
}
