//! `rollhouse close`: ends a pool.

use std::collections::BTreeSet;

use rollhouse_client::{Cluster, run_named};
use rollhouse_core::RunId;

use crate::args::CloseArgs;
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::counted;
use crate::json::PoolObject;
use crate::output::{Output, say};

pub(crate) fn run(args: &CloseArgs, out: &mut Output) -> Result<Status, Failure> {
    let cluster = connect(&args.cluster)?;
    let pool = match run_named(&args.pool) {
        Some(pool) => pool,
        None => shown_as(&args.pool, &cluster, &args.cluster.option())?,
    };
    let status = cluster.close_pool(pool).map_err(|error| request_failure(&error))?;
    if args.json {
        out.json(&PoolObject::of(pool, &status))?;
        return Ok(Status::Done);
    }
    let (episodes, steps) = (status.done.episodes, status.done.steps);
    say(&format!(
        "pool {pool} is closed; it played {}, {}",
        counted(episodes, "episode"),
        counted(steps, "step")
    ));
    if status.open > 0 {
        say(&format!(
            "{} of it have not ended yet; their nodes are asked until they have",
            counted(status.open.into(), "session")
        ));
    }
    Ok(Status::Done)
}

/// Returns the pool whose open sessions are shown under that short name.
fn shown_as(name: &str, cluster: &Cluster, place: &str) -> Result<RunId, Failure> {
    let name = name.split('/').next().unwrap_or_default();
    let sessions = cluster.sessions().map_err(|error| request_failure(&error))?.sessions;
    let ids = sessions.iter().map(|session| session.report.session);
    let named: BTreeSet<RunId> =
        ids.filter(|id| id.to_string().split('/').next() == Some(name)).map(|id| id.pool).collect();
    let mut named = named.into_iter();
    match (named.next(), named.next()) {
        (Some(pool), None) => Ok(pool),
        (Some(_), Some(_)) => {
            let message = format!("`{name}` stands for more than one pool; name it by its whole id");
            Err(Failure::new(Status::Usage, message)
                .hint(format_args!("`rollhouse sessions --json{place}` shows whole ids")))
        }
        (None, _) => {
            let message = format!("no pool `{}` has open sessions", name.escape_debug());
            Err(Failure::new(Status::Usage, message)
                .hint(format_args!("`rollhouse sessions{place}` shows which have")))
        }
    }
}
