//! Data frames on a stream.

use std::fmt;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};

use super::lost::StreamLost;
use super::stream::{ByteReceiver, ByteSender};
use crate::limits::{ANSWER_PIECE_BYTES, MAX_POLICY_BYTES, MAX_SIDECAR_BYTES};
use crate::{ColumnBuffer, FrameError, FrameHeader, FrameKind, HEADER_BYTES};

/// Receives frames. Holds one frame's columns and sidecar at a time, in buffers that are used again.
#[derive(Debug)]
pub struct FrameReader {
    stream: ByteReceiver,
    max_columns: usize,
    stage: Stage,
    header: [u8; HEADER_BYTES],
    columns: ColumnBuffer,
    sidecar: Vec<u8>,
}

/// The parts of a frame that have been received.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Header { filled: usize },
    Columns { header: FrameHeader, filled: usize },
    Sidecar { header: FrameHeader, filled: usize },
}

impl FrameReader {
    /// Makes a reader of frames whose columns take at most `max_columns` bytes: what the session's layout can give.
    pub fn new(stream: ByteReceiver, max_columns: usize) -> Self {
        Self {
            stream,
            max_columns,
            stage: Stage::Header { filled: 0 },
            header: [0; HEADER_BYTES],
            columns: ColumnBuffer::default(),
            sidecar: Vec::new(),
        }
    }

    /// Takes frames whose columns have so many bytes, from the next one on.
    pub const fn take_up_to(&mut self, max_columns: usize) {
        self.max_columns = max_columns;
    }

    /// Reads the next frame and returns its header, once its columns and sidecar are here too; `None` when the stream
    /// has ended between two frames. Cancellation-safe: the next call goes on where this one was dropped.
    ///
    /// # Errors
    /// See [`FrameFault`]. Afterwards the stream is of no use. Unless the stream was lost, close the connection with
    /// [`FrameFault::code`].
    pub async fn read(&mut self) -> Result<Option<FrameHeader>, FrameFault> {
        loop {
            let (target, filled) = match &mut self.stage {
                Stage::Header { filled } => (&mut self.header[..], filled),
                Stage::Columns { filled, .. } => (self.columns.bytes_mut(), filled),
                Stage::Sidecar { filled, .. } => (&mut self.sidecar[..], filled),
            };
            if *filled < target.len() {
                match self.stream.read(&mut target[*filled..]).await.map_err(FrameFault::Lost)? {
                    Some(bytes) => *filled += bytes,
                    None if matches!(self.stage, Stage::Header { filled: 0 }) => return Ok(None),
                    None => return Err(FrameFault::Lost(StreamLost::Cut)),
                }
                continue;
            }
            match self.stage {
                Stage::Header { .. } => self.begin()?,
                Stage::Columns { header, .. } => self.stage = Stage::Sidecar { header, filled: 0 },
                Stage::Sidecar { header, .. } => {
                    self.stage = Stage::Header { filled: 0 };
                    return Ok(Some(header));
                }
            }
        }
    }

    fn begin(&mut self) -> Result<(), FrameFault> {
        let header = FrameHeader::decode(self.header).map_err(FrameFault::Header)?;
        // The file of a policy is as long as it is, whatever the session's columns are.
        let of_policy = header.kind == FrameKind::Policy;
        let limit = if of_policy { MAX_POLICY_BYTES } else { self.max_columns };
        if header.columns as usize > limit {
            return Err(FrameFault::Columns { bytes: header.columns, limit });
        }
        self.columns.resize(header.columns as usize);
        self.sidecar.clear();
        self.sidecar.resize(header.sidecar as usize, 0);
        self.stage = Stage::Columns { header, filled: 0 };
        Ok(())
    }

    /// Returns the columns of the frame that was read last.
    pub fn columns(&self) -> &ColumnBuffer {
        &self.columns
    }

    /// Swaps the columns of the frame that was read last with another buffer.
    pub fn swap_columns(&mut self, other: &mut ColumnBuffer) {
        std::mem::swap(&mut self.columns, other);
    }

    /// Returns the sidecar of the frame that was read last; empty if it had none.
    pub fn sidecar(&self) -> &[u8] {
        &self.sidecar
    }

    /// Returns the stream, to give it up.
    pub fn stream(&mut self) -> &mut ByteReceiver {
        &mut self.stream
    }
}

/// Sends frames.
#[derive(Debug)]
pub struct FrameWriter {
    stream: ByteSender,
    /// Bytes that have not been handed to the connection yet.
    pending: Vec<Bytes>,
    sent: usize,
    /// When the peer last had a piece of these, and how many bytes it has taken since.
    piece: Option<(Instant, usize)>,
}

impl FrameWriter {
    /// Makes a writer of frames to that stream.
    pub fn new(stream: ByteSender) -> Self {
        Self { stream, pending: Vec::new(), sent: 0, piece: None }
    }

    /// Takes a frame: its columns back to back, whose length is the one in the header, and its sidecar. Copies them,
    /// and puts the header and everything small into one piece, because each piece that is handed over wakes the
    /// connection. Call [`FrameWriter::flush`] before the next frame.
    ///
    /// # Panics
    /// If the lengths are not those in the header.
    pub fn put(&mut self, header: FrameHeader, columns: &[&[u8]], sidecar: &[u8]) {
        let bytes: usize = columns.iter().map(|column| column.len()).sum();
        assert!(
            bytes == header.columns as usize && sidecar.len() == header.sidecar as usize,
            "{header:?} with {bytes} and {} bytes",
            sidecar.len()
        );
        let mut left = HEADER_BYTES + bytes + sidecar.len();
        let mut piece = BytesMut::with_capacity(left.min(PIECE_BYTES));
        let encoded = header.encode();
        for mut part in [&encoded[..]].into_iter().chain(columns.iter().copied()).chain([sidecar]) {
            while !part.is_empty() {
                if piece.len() == PIECE_BYTES {
                    left -= PIECE_BYTES;
                    let next = BytesMut::with_capacity(left.min(PIECE_BYTES));
                    self.pending.push(std::mem::replace(&mut piece, next).freeze());
                }
                let (now, later) = part.split_at(part.len().min(PIECE_BYTES - piece.len()));
                piece.put_slice(now);
                part = later;
            }
        }
        self.pending.push(piece.freeze());
    }

    /// Takes a frame that is encoded already, for example one that was kept to be sent again.
    pub fn put_encoded(&mut self, frame: Bytes) {
        self.pending.push(frame);
    }

    /// Hands the frames that were put to the connection, and returns when it has taken all, as soon as its windows
    /// allow. Cancellation-safe: the next call goes on where this one was dropped.
    ///
    /// # Errors
    /// If the stream is gone, or a peer that asked does not take a piece in time: then the stream is given up.
    pub async fn flush(&mut self) -> Result<(), StreamLost> {
        while self.sent < self.pending.len() {
            let (since, taken) = *self.piece.get_or_insert_with(|| (Instant::now(), 0));
            let written = self.stream.write_pieces(&mut self.pending[self.sent..], since).await?;
            self.sent += written.chunks;
            let taken = taken + written.bytes;
            self.piece = (taken < ANSWER_PIECE_BYTES).then_some((since, taken));
        }
        self.pending.clear();
        (self.sent, self.piece) = (0, None);
        Ok(())
    }

    /// Returns the stream, to end it or give it up.
    pub fn stream(&mut self) -> &mut ByteSender {
        &mut self.stream
    }
}

/// The reason why frames cannot be read any further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameFault {
    /// The stream is gone.
    Lost(StreamLost),
    /// The bytes are not the header of a frame.
    Header(FrameError),
    /// The frame has more bytes of columns than the session can have.
    Columns {
        /// Bytes of the frame's columns.
        bytes: u32,
        /// Largest number of bytes that the session can have.
        limit: usize,
    },
}

impl FrameFault {
    /// Returns the code with which the connection has to be closed; `None` if only the stream is gone.
    pub const fn code(&self) -> Option<super::CloseCode> {
        match self {
            Self::Lost(StreamLost::Cut) => Some(super::CloseCode::Malformed),
            Self::Lost(_) => None,
            Self::Header(FrameError::Columns(_) | FrameError::Sidecar(_)) | Self::Columns { .. } => {
                Some(super::CloseCode::TooLong)
            }
            Self::Header(_) => Some(super::CloseCode::Malformed),
        }
    }
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => lost.fmt(f),
            Self::Header(error) => error.fmt(f),
            Self::Columns { bytes, limit } => {
                write!(f, "a frame with {bytes} bytes of columns, the session's have at most {limit}")
            }
        }
    }
}

impl std::error::Error for FrameFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost(lost) => Some(lost),
            Self::Header(error) => Some(error),
            Self::Columns { .. } => None,
        }
    }
}

/// Bytes of one piece: large pieces save bookkeeping, and a frame of 64 KiB with its header is still one.
const PIECE_BYTES: usize = 256 << 10;
const _: () = assert!(MAX_SIDECAR_BYTES <= u32::MAX as usize, "a header can name any sidecar's length");
