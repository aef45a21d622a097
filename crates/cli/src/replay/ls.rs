//! `rollhouse replay ls`.
//!
//! A listing comes a page at a time, so that memory is bounded however long it gets. A folder is searched here; for a
//! store the cluster's coordinator is asked.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use rollhouse_client::Cluster;
use rollhouse_core::GameResult;
use rollhouse_replay::{Label, Labels, Query, Sort, SortKey, Tag};
use rollhouse_wire::limits::MAX_STORE_EPISODES;
use rollhouse_wire::{RefusalCode, StoreEpisodes, StoreQuery};

use crate::args::{FilterArgs, LsArgs, Place};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Count, Real};
use crate::output::{Output, say};
use crate::replay::source::Source;
use crate::replay::{Listed, read_failure};
use crate::table::{Align, Table};

pub(super) fn run(args: &LsArgs, out: &mut Output) -> Result<Status, Failure> {
    let sort = sort_for(args, io::stdout().is_terminal());
    let asked = match args.data.place() {
        // Of those of which something is said the coordinator need not look for any.
        Place::Cluster if args.filter.has_labels() => None,
        Place::Cluster => stored(args, sort, &connect(&args.data.cluster)?, out)?,
        Place::Folder(_) => None,
    };
    let listed = match asked {
        Some(listed) => listed,
        None => read(args, sort, out)?,
    };
    if listed == 0 && !args.json {
        say(&format!("no episodes to list in {}", Source::shown_of(&args.data)));
    }
    Ok(Status::Done)
}

/// Returns the order of a listing: what is asked for, else the newest first for a person, and by name for a program.
fn sort_for(args: &LsArgs, is_terminal: bool) -> Sort {
    let newest = Sort { key: SortKey::Started, descending: true };
    let usual = if is_terminal && !args.json { newest } else { Sort::default() };
    args.filter.sort.unwrap_or(usual)
}

/// Asks the coordinator for the episodes, prints them, and returns their number. `None` if it cannot answer, because it
/// is an older one.
fn stored(args: &LsArgs, sort: Sort, cluster: &Cluster, out: &mut Output) -> Result<Option<usize>, Failure> {
    let filter = &args.filter;
    let mut query = StoreQuery {
        env: filter.env.clone(),
        outcome: filter.outcome.map(|outcome| outcome.word().to_owned()),
        result: filter.result.and_then(GameResult::word).map(str::to_owned),
        all_outcomes: filter.all_outcomes,
        options: filter.options.iter().cloned().collect(),
        min_return: filter.min_return,
        min_agent_returns: filter.min_agent_returns.iter().cloned().collect(),
        run: filter.run,
        sort: sort_of(sort),
        ..StoreQuery::default()
    };
    let labels = cluster.labels().map_err(|error| request_failure(&error))?;
    let mut printer = Printer::new(args.json, !labels.is_empty());
    let mut left = args.filter.limit.unwrap_or(usize::MAX);
    while left > 0 {
        query.limit = left.min(MAX_STORE_EPISODES) as u32;
        let page: StoreEpisodes = match cluster.query_store(&query) {
            Ok(page) => page,
            Err(error) if printer.printed == 0 && error.refusal() == Some(RefusalCode::Unsupported) => {
                return Ok(None);
            }
            Err(error) => return Err(request_failure(&error)),
        };
        if !query.options.is_empty() && !page.by_options {
            // It does not look at options.
            return Ok(None);
        }
        let mut found = page.episodes.iter().map(|episode| &episode.beside);
        if query.result.is_some() && found.clone().any(|found| found.result != query.result)
            || found.any(|found| {
                !query.min_agent_returns.keys().all(|agent| found.agent_returns.contains_key(agent))
            })
        {
            // It does not look at results, or at those of agents.
            return Ok(None);
        }
        left -= left.min(page.episodes.len());
        printer.print(page.episodes.iter().map(|episode| Listed::stored(episode, &labels)), out)?;
        if !page.more || page.episodes.is_empty() {
            break;
        }
        query.after = page.after;
    }
    Ok(Some(printer.printed))
}

/// Reads and prints the episodes, and returns their number.
fn read(args: &LsArgs, sort: Sort, out: &mut Output) -> Result<usize, Failure> {
    let source = Source::of(&args.data)?;
    let library = source.open()?;
    let labels = source.labels(&library)?;
    let mut query = Query { sort, ..query_of(args, || Ok(labels.clone()))? };
    let mut printer = Printer::new(args.json, !labels.is_empty());
    let mut left = args.filter.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let page = left.min(PAGE);
        query.limit = Some(page);
        let episodes = library.list(&query).map_err(read_failure)?;
        printer.print(episodes.iter().map(|one| Listed::of(&one.info).with(&labels, &one.info)), out)?;
        left -= episodes.len();
        match episodes.last() {
            Some(last) if episodes.len() == page => query.after = Some(query.sort.rank_of(&last.info)),
            _ => break,
        }
    }
    Ok(printer.printed)
}

/// Returns the query without its limit.
pub(super) fn query_of(
    args: &LsArgs,
    labels: impl FnOnce() -> Result<Labels, Failure>,
) -> Result<Query, Failure> {
    with_labels(args.filter.query(), &args.filter, labels)
}

/// Adds the filters on labels to a query.
pub(super) fn with_labels(
    query: Query,
    filter: &FilterArgs,
    labels: impl FnOnce() -> Result<Labels, Failure>,
) -> Result<Query, Failure> {
    with_tag(query, filter.tag.as_ref(), filter.pinned, labels)
}

/// Limits a query to episodes that have a tag and, if wanted, are pinned.
pub(super) fn with_tag(
    query: Query,
    tag: Option<&Tag>,
    pinned: bool,
    labels: impl FnOnce() -> Result<Labels, Failure>,
) -> Result<Query, Failure> {
    if tag.is_none() && !pinned {
        return Ok(query);
    }
    let labels = labels()?;
    let is_meant =
        |label: &Label| (!pinned || label.pinned) && tag.is_none_or(|tag| label.tags.contains(tag));
    let only = labels.iter().filter(|(_, label)| is_meant(label)).map(|(key, _)| *key).collect();
    Ok(Query { only: Some(Arc::new(only)), ..query })
}

/// Prints pages: a line of JSON an episode, or one table.
pub(super) struct Printer {
    /// The table; `None` prints JSON.
    table: Option<Table>,
    has_labels: bool,
    printed: usize,
}

impl Printer {
    /// Makes a printer, with a column of labels if there are any.
    pub(super) fn new(json: bool, has_labels: bool) -> Self {
        let table = || {
            let mut columns = vec![
                ("EPISODE", Align::Left),
                ("ENV", Align::Left),
                ("RETURN", Align::Right),
                ("STEPS", Align::Right),
                ("OUTCOME", Align::Left),
                ("POLICY", Align::Left),
                ("SEED", Align::Right),
                ("STARTED (UTC)", Align::Left),
            ];
            if has_labels {
                columns.push(("LABELS", Align::Left));
            }
            // What it is a fork of, which few are.
            columns.push(("", Align::Left));
            Table::new(&columns)
        };
        Self { table: (!json).then(table), has_labels, printed: 0 }
    }

    pub(super) fn print<'a>(
        &mut self,
        mut episodes: impl ExactSizeIterator<Item = Listed<'a>>,
        out: &mut Output,
    ) -> io::Result<()> {
        self.printed += episodes.len();
        let Some(table) = &mut self.table else { return episodes.try_for_each(|episode| out.json(&episode)) };
        if episodes.len() == 0 {
            return Ok(());
        }
        for episode in episodes {
            let mut row = vec![
                episode.id,
                episode.env.to_owned(),
                episode.total_reward.map_or_else(|| "?".to_owned(), |total| Real(total).to_string()),
                Count(episode.length).to_string(),
                match episode.beside.result {
                    Some(result) => format!("{}, {result}", episode.outcome),
                    None => episode.outcome.to_owned(),
                },
                episode.policy.to_owned(),
                episode.seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string()),
                episode.shown_started,
            ];
            if self.has_labels {
                row.push(episode.label.words());
            }
            let parent = episode.parent.map(|parent| format!("fork of {} at {}", parent.id, parent.step));
            row.push(parent.unwrap_or_default());
            table.row(row);
        }
        table.write(out)
    }
}

fn sort_of(sort: Sort) -> String {
    let key = match sort.key {
        SortKey::Name => "name",
        SortKey::Return => "return",
        SortKey::Length => "length",
        SortKey::Started => "started",
    };
    if sort.descending { format!("-{key}") } else { key.to_owned() }
}

/// Number of episodes of a folder that are in memory at a time: some 8 MB. Each page has to search the packed rows of
/// all segments that may be in it.
const PAGE: usize = 32_768;
