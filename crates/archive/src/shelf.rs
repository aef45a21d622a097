//! Shelves, which put segments to a target, find them there, and take them out again.

use std::collections::BTreeSet;

use rollhouse_replay::limits::MAX_SEGMENT_BYTES;

use crate::error::{Flaw, TargetError, TargetFault};
use crate::label::{Checked, LABELS, Label, SegmentId};
use crate::limits::{MAX_LABEL_BYTES, MAX_MANIFEST_BYTES, MAX_SEGMENTS};
use crate::manifest::{MANIFESTS, Manifest};
use crate::target::Target;

/// The segments of a target. All methods may block, as the target's do.
#[derive(Debug)]
pub struct Shelf {
    target: Target,
}

/// The result of keeping a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The segment was there already.
    Present,
    /// The segment was sent, and is there.
    Sent,
}

impl Shelf {
    /// Makes the shelf of a target.
    pub const fn new(target: Target) -> Self {
        Self { target }
    }

    /// Returns the target.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Keeps a segment. A segment that is there with the same checksum and length is not sent again. On return it is
    /// durable there, and its size was read back. An interruption at any point leaves a segment without a label, which
    /// does not count and is completed by the next attempt.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn keep(&self, checked: &Checked) -> Result<Kept, TargetError> {
        let label = Label::of(checked);
        let text = label.encode();
        if self.has(&checked.id, &label)? && self.label_text(&checked.id)?.as_ref() == Some(&text) {
            return Ok(Kept::Present);
        }
        if self.target.len(&checked.id.segment_object())? != Some(label.bytes) {
            self.send(checked, &label)?;
        }
        self.vouch(checked, &label, text)?;
        Ok(Kept::Sent)
    }

    /// Keeps a segment as [`Shelf::keep`] does, but always sends it: so a damaged copy is replaced.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn keep_anew(&self, checked: &Checked) -> Result<(), TargetError> {
        let label = Label::of(checked);
        self.send(checked, &label)?;
        self.vouch(checked, &label, label.encode())
    }

    fn send(&self, checked: &Checked, label: &Label) -> Result<(), TargetError> {
        let object = checked.id.segment_object();
        self.target.put(&object, checked.bytes.clone())?;
        if self.target.len(&object)? != Some(label.bytes) {
            let what = format!("{object} has another size at the target than was sent");
            return Err(TargetError::new(TargetFault::Failed, what));
        }
        Ok(())
    }

    /// Puts the objects beside a segment that make it count.
    fn vouch(&self, checked: &Checked, label: &Label, text: Vec<u8>) -> Result<(), TargetError> {
        if label.has_aside() {
            self.target.put(&checked.id.aside_object(), checked.aside.encode())?;
        }
        self.target.put(&checked.id.label_object(), text)
    }

    /// Reads the label of a segment; `None` if there is none that can be read.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn label(&self, id: &SegmentId) -> Result<Option<Label>, TargetError> {
        Ok(self.label_text(id)?.and_then(|text| Label::decode(id, &text)))
    }

    /// Returns whether the segment to which the label belongs is there, by its size.
    fn has(&self, id: &SegmentId, label: &Label) -> Result<bool, TargetError> {
        let segment = self.target.len(&id.segment_object())? == Some(label.bytes);
        Ok(segment && (!label.has_aside() || self.target.len(&id.aside_object())?.is_some()))
    }

    fn label_text(&self, id: &SegmentId) -> Result<Option<Vec<u8>>, TargetError> {
        self.target.get(&id.label_object(), MAX_LABEL_BYTES)
    }

    /// Returns the segments that have a label, in about the order in which they were written.
    ///
    /// # Errors
    /// See [`TargetFault`]; also if there are more than [`MAX_SEGMENTS`].
    pub fn segments(&self) -> Result<BTreeSet<SegmentId>, TargetError> {
        let (mut found, mut more) = (BTreeSet::new(), false);
        self.target.list(LABELS, &mut |name| {
            if let Some(id) = SegmentId::of_label(name) {
                more |= found.len() == MAX_SEGMENTS;
                if !more {
                    found.insert(id);
                }
            }
        })?;
        if more {
            let what = format!("{} has more than {MAX_SEGMENTS} segments", self.target.shown());
            return Err(TargetError::new(TargetFault::Failed, what));
        }
        Ok(found)
    }

    /// Takes a segment out and checks every byte.
    ///
    /// # Errors
    /// If the target fails. A flaw of the segment is returned as a value.
    pub fn fetch(&self, id: &SegmentId) -> Result<Result<Checked, Flaw>, TargetError> {
        let object = id.label_object();
        let Some(text) = self.label_text(id)? else { return Ok(Err(Flaw::Missing { object })) };
        let Some(label) = Label::decode(id, &text) else {
            return Ok(Err(Flaw::Content { object, what: "it is not a label of that segment" }));
        };
        if label.bytes > MAX_SEGMENT_BYTES {
            return Ok(Err(Flaw::Content { object, what: "no segment has so many bytes" }));
        }
        // One that is longer than its label says is told with its length.
        let object = id.segment_object();
        let found = self.target.len(&object)?;
        if let Some(found) = found.filter(|found| *found > label.bytes) {
            let labelled = (label.bytes, id.crc);
            return Ok(Err(Flaw::Bytes { object, labelled, found: (found, 0) }));
        }
        let bytes = self.target.get(&object, label.bytes)?;
        let aside = match label.has_aside() {
            true => self.target.get(&id.aside_object(), MAX_ASIDE_BYTES)?,
            false => None,
        };
        Ok(label.check(id, bytes, aside))
    }

    /// Puts the manifest of an export to the target and returns its name.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn conclude(&self, manifest: &Manifest) -> Result<String, TargetError> {
        let (name, text) = manifest.encode();
        if self.target.len(&name)? != Some(text.len() as u64) {
            self.target.put(&name, text)?;
        }
        Ok(name)
    }

    /// Reads all manifests, one after another; `None` for one that is damaged.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn manifests(&self, mut visit: impl FnMut(&str, Option<Manifest>)) -> Result<(), TargetError> {
        let mut names = BTreeSet::new();
        self.target.list(MANIFESTS, &mut |name| {
            if names.len() < MAX_SEGMENTS {
                names.insert(name.to_owned());
            }
        })?;
        for name in names {
            let object = format!("{MANIFESTS}/{name}");
            let text = self.target.get(&object, MAX_MANIFEST_BYTES)?;
            // One that is gone was deleted since.
            if let Some(text) = text {
                visit(&object, Manifest::decode(&name, &text));
            }
        }
        Ok(())
    }
}

/// Bytes of the list of a segment's episodes that are set aside.
const MAX_ASIDE_BYTES: u64 = rollhouse_replay::limits::MAX_ASIDE_BYTES;
