//! `rollhouse replay ls`.

use rollhouse_replay::Query;

use crate::args::LsArgs;
use crate::failure::{Failure, Status};
use crate::human::{Count, Real, When};
use crate::output::{Output, say};
use crate::replay::source::Source;
use crate::replay::{Listed, read_failure};
use crate::table::{Align, Table};

pub(super) fn run(args: &LsArgs, out: &mut Output) -> Result<Status, Failure> {
    let query = Query {
        env: args.env.clone(),
        outcome: args.outcome,
        min_return: args.min_return,
        sort: args.sort,
        limit: args.limit,
    };
    let source = Source::of(&args.data)?;
    let episodes = source.open()?.list(&query).map_err(read_failure)?;
    if args.json {
        for episode in &episodes {
            out.json(&Listed::of(&episode.info))?;
        }
        return Ok(Status::Done);
    }
    if episodes.is_empty() {
        say(&format!("no episodes to list in {}", source.shown()));
        return Ok(Status::Done);
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
    for info in episodes.iter().map(|episode| &episode.info) {
        table.row(vec![
            info.name.to_string(),
            info.env().to_owned(),
            info.total_reward.map_or_else(|| "?".to_owned(), |total| Real(total).to_string()),
            Count(info.length).to_string(),
            info.outcome.word().to_owned(),
            info.policy().name.clone(),
            info.seed().map_or_else(|| "-".to_owned(), |seed| seed.to_string()),
            When(info.started_ms).to_string(),
        ]);
    }
    table.write(out)?;
    Ok(Status::Done)
}
