//! The choice of episodes that are written out.

use rollhouse_replay::{Library, LibraryEpisode, Query, Rank, Sort, SortKey};

use super::nothing_chosen;
use crate::args::ExportArgs;
use crate::failure::{Failure, Status};
use crate::human::counted;
use crate::replay::ls::with_labels;
use crate::replay::nearest::find_or_nearest;
use crate::replay::read_failure;
use crate::replay::source::Source;

/// The chosen episodes, a page at a time: memory is bounded however many there are.
pub(super) struct Chosen {
    library: Library,
    of: Of,
    /// Their number, if it is known.
    total: Option<u64>,
}

enum Of {
    /// Named episodes, until they are given out.
    Named(Vec<LibraryEpisode>),
    Listed {
        query: Box<Query>,
        left: usize,
        after: Option<Rank>,
    },
}

impl Chosen {
    /// Finds the named episodes, or else those that the filters let through.
    pub(super) fn of(args: &ExportArgs, source: &Source) -> Result<Self, Failure> {
        let library = source.open()?;
        if args.names.is_empty() {
            let mut query = with_labels(args.filter.query(), &args.filter, || source.labels(&library))?;
            let left = args.best.or(args.filter.limit).unwrap_or(usize::MAX);
            if args.best.is_some() {
                query.sort = Sort { key: SortKey::Return, descending: true };
            }
            return Ok(Self {
                library,
                of: Of::Listed { query: Box::new(query), left, after: None },
                total: None,
            });
        }
        let found =
            args.names.iter().map(|&name| find_or_nearest(&library, name)).collect::<Result<Vec<_>, _>>()?;
        let total = Some(found.len() as u64);
        Ok(Self { library, of: Of::Named(found), total })
    }

    /// Returns the next of them in their order; `None` after the last.
    pub(super) fn next_page(&mut self) -> Result<Option<Vec<LibraryEpisode>>, Failure> {
        let (query, left, after) = match &mut self.of {
            Of::Named(found) => return Ok(Some(std::mem::take(found)).filter(|found| !found.is_empty())),
            Of::Listed { query, left, after } => (query, left, after),
        };
        let page = (*left).min(PAGE);
        query.limit = Some(page);
        query.after = after.take();
        let episodes = if page == 0 { Vec::new() } else { self.library.list(query).map_err(read_failure)? };
        let is_last = episodes.len() < page || page == *left;
        if is_last && self.total.is_none() && query.after.is_none() {
            self.total = Some(episodes.len() as u64);
        }
        *left = if is_last { 0 } else { *left - episodes.len() };
        *after = episodes.last().map(|last| query.sort.rank_of(&last.info));
        Ok(Some(episodes).filter(|episodes| !episodes.is_empty()))
    }

    /// Returns the only one of them.
    pub(super) fn only(&mut self) -> Result<LibraryEpisode, Failure> {
        if let Of::Listed { left, .. } = &mut self.of {
            // A second one would be one too many.
            *left = (*left).min(2);
        }
        let mut page = self.next_page()?.unwrap_or_default();
        match (page.pop(), page.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(nothing_chosen()),
            (Some(_), _) => {
                let what = match &self.of {
                    Of::Named(_) => format!("{} are named", counted(page.len() as u64 + 1, "episode")),
                    Of::Listed { .. } => "several episodes are chosen".to_owned(),
                };
                let failure = Failure::new(Status::Usage, format!("{what}, and there is one file for them"));
                Err(failure.hint("--into DIR writes a file of each; --best 1 or --limit 1 chooses one"))
            }
        }
    }

    /// Returns their number, if it is known yet.
    pub(super) const fn total(&self) -> Option<u64> {
        self.total
    }
}

/// Number of episodes of a folder that are in memory at a time: some 8 MB.
const PAGE: usize = 32_768;
