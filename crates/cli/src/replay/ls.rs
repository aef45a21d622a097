//! `rollhouse replay ls`.
//!
//! A folder is looked through here; a cluster's coordinator is asked, a page at a time, for the first few. Each page costs
//! it a look at everything, so that whoever wants more reads the store himself, once.

use std::io;

use rollhouse_client::Cluster;
use rollhouse_replay::{Query, SortKey};
use rollhouse_wire::limits::MAX_STORE_EPISODES;
use rollhouse_wire::{RefusalCode, StoreEpisodes, StoreQuery};

use crate::args::{LsArgs, Place};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Count, Real};
use crate::output::{Output, say};
use crate::replay::source::Source;
use crate::replay::{Listed, read_failure};
use crate::table::{Align, Table};

pub(super) fn run(args: &LsArgs, out: &mut Output) -> Result<Status, Failure> {
    let asked = match (args.data.place(), args.limit) {
        (Place::Cluster, Some(limit)) if limit <= MOST_ASKED => {
            stored(args, limit, &connect(&args.data.cluster)?, out)?
        }
        _ => None,
    };
    let listed = match asked {
        Some(listed) => listed,
        None => read(args, out)?,
    };
    if listed == 0 && !args.json {
        say(&format!("no episodes to list in {}", Source::shown_of(&args.data)));
    }
    Ok(Status::Done)
}

/// Has the coordinator look, and prints what it finds; how many that are. `None` if it cannot: it is an older one.
fn stored(
    args: &LsArgs,
    limit: usize,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Option<usize>, Failure> {
    let mut query = StoreQuery {
        env: args.env.clone(),
        outcome: args.outcome.map(|outcome| outcome.word().to_owned()),
        min_return: args.min_return,
        run: args.run,
        sort: sort_of(args),
        ..StoreQuery::default()
    };
    let mut left = limit;
    let mut listed = 0;
    while left > 0 {
        query.limit = left.min(MAX_STORE_EPISODES) as u32;
        let page: StoreEpisodes = match cluster.query_store(&query) {
            Ok(page) => page,
            Err(error) if listed == 0 && error.refusal() == Some(RefusalCode::Unsupported) => {
                return Ok(None);
            }
            Err(error) => return Err(request_failure(&error)),
        };
        listed += page.episodes.len();
        left -= left.min(page.episodes.len());
        print(page.episodes.iter().map(Listed::stored), args.json, out)?;
        if !page.more || page.episodes.is_empty() {
            break;
        }
        query.after = page.after;
    }
    Ok(Some(listed))
}

/// Reads and prints; gives how many.
fn read(args: &LsArgs, out: &mut Output) -> Result<usize, Failure> {
    let query = Query {
        env: args.env.clone(),
        outcome: args.outcome,
        min_return: args.min_return,
        run: args.run,
        sort: args.sort,
        limit: args.limit,
        ..Query::default()
    };
    let episodes = Source::of(&args.data)?.open()?.list(&query).map_err(read_failure)?;
    print(episodes.iter().map(|episode| Listed::of(&episode.info)), args.json, out)?;
    Ok(episodes.len())
}

/// One page: a line of JSON an episode, or a table.
fn print<'a>(
    mut episodes: impl ExactSizeIterator<Item = Listed<'a>>,
    json: bool,
    out: &mut Output,
) -> io::Result<()> {
    if json {
        return episodes.try_for_each(|episode| out.json(&episode));
    }
    if episodes.len() == 0 {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("EPISODE", Align::Left),
        ("ENV", Align::Left),
        ("RETURN", Align::Right),
        ("STEPS", Align::Right),
        ("OUTCOME", Align::Left),
        ("POLICY", Align::Left),
        ("SEED", Align::Right),
        ("STARTED (UTC)", Align::Left),
    ]);
    for episode in episodes {
        table.row(vec![
            episode.id,
            episode.env.to_owned(),
            episode.total_reward.map_or_else(|| "?".to_owned(), |total| Real(total).to_string()),
            Count(episode.length).to_string(),
            episode.outcome.to_owned(),
            episode.policy.to_owned(),
            episode.seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string()),
            episode.shown_started,
        ]);
    }
    table.write(out)
}

fn sort_of(args: &LsArgs) -> String {
    let key = match args.sort.key {
        SortKey::Name => "name",
        SortKey::Return => "return",
        SortKey::Length => "length",
        SortKey::Started => "started",
    };
    if args.sort.descending { format!("-{key}") } else { key.to_owned() }
}

/// Episodes that a coordinator is asked for: ten pages.
const MOST_ASKED: usize = 10 * MAX_STORE_EPISODES;
