//! Damage of a segment: where it is, and of which kind.

/// Bytes of a segment that are not an intact record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// Number of the segment.
    pub segment: u64,
    /// Offset in the segment of the record with the first bad byte.
    pub from: u64,
    /// Offset of the next intact record, or the segment's end.
    pub to: u64,
    /// The kind of damage.
    pub cause: DamageCause,
}

/// The kind of damage of a stretch of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageCause {
    /// No intact record header stands where one should.
    Header,
    /// The payload does not have the header's checksum.
    Payload,
    /// The payload has its checksum and still does not decode, or belongs to no readable run.
    Content,
    /// The header of a run is coded against one that is not in the segment any more, or is another one there.
    Base,
    /// The records of a sealed or older segment end without a seal.
    Unsealed,
    /// The list of the segment's episodes that are set aside cannot be read: they may be listed beside those that came
    /// first.
    Aside,
}

impl DamageCause {
    /// Returns whether the bytes of the record are as they were written.
    pub(crate) const fn is_of_an_intact_record(self) -> bool {
        matches!(self, Self::Content | Self::Base)
    }

    /// Returns the word that listings use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Payload => "payload",
            Self::Content => "content",
            Self::Base => "base",
            Self::Unsealed => "unsealed",
            Self::Aside => "aside",
        }
    }
}
