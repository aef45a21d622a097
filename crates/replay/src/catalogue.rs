//! The catalogue: what is known of sealed segments, in sled. It may be missing, stale, scrambled or in use at any
//! time; readers then scan.

use std::collections::BTreeMap;
use std::path::Path;

use crate::index::SegmentIndex;

/// What the catalogue of `dir` knows of the given segments; nothing if it cannot be read.
pub(crate) fn load(dir: &Path, numbers: &[u64]) -> BTreeMap<u64, SegmentIndex> {
    let _ = (dir, numbers);
    BTreeMap::new()
}
