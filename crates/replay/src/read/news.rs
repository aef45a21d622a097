//! Episodes that have ended since somebody looked last.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::code::episode::Place;
use crate::read::library::{Library, LibraryEpisode};
use crate::read::query::Query;
use crate::read::read_error::ReadError;

/// A reader of news: it knows how far each folder of a library has been seen. It grows only with the number of folders.
#[derive(Debug, Clone, Default)]
pub struct News {
    /// The last place that was seen in each folder.
    seen: BTreeMap<PathBuf, Place>,
}

impl News {
    /// Makes a reader of the episodes that end after those that `library` has.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn since(library: &Library) -> Result<Self, ReadError> {
        let mut news = Self::default();
        for folder in library.folders() {
            let last =
                folder.segments.last_key_value().map_or(Place { segment: 0, offset: 0 }, |(&segment, of)| {
                    Place { segment, offset: of.index.extents.last().map_or(0, |extent| extent.to) }
                });
            news.seen.insert(folder.dir().into(), last);
        }
        Ok(news)
    }

    /// Returns the episodes of a library that match a query and have ended since the last call, in the order of their
    /// places. The library was opened again in between. An episode that came once more, as a copy, is returned once
    /// more. The query's order and bounds mean nothing.
    ///
    /// # Errors
    /// If a file operation fails; what was not returned is returned the next time.
    pub fn take(&mut self, library: &Library, query: &Query) -> Result<Vec<LibraryEpisode>, ReadError> {
        let query = Query { all_outcomes: true, ..query.clone() };
        let mut found = Vec::new();
        let mut seen = self.seen.clone();
        for folder in library.folders() {
            // A folder that is new is new as a whole.
            let seen = seen.entry(folder.dir().into()).or_insert(Place { segment: 0, offset: 0 });
            for (&number, segment) in folder.segments.range(seen.segment..) {
                let from = if number == seen.segment { seen.offset } else { 0 };
                for extent in segment.index.extents.iter().filter(|extent| extent.to > from) {
                    folder.read_extent(segment, extent, &mut |info| {
                        if info.place.offset >= from && query.matches(&info) {
                            found.push(LibraryEpisode { info, folder: folder.clone() });
                        }
                    })?;
                    *seen = Place { segment: number, offset: extent.to };
                }
            }
        }
        self.seen = seen;
        Ok(found)
    }
}
