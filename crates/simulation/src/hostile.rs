//! A hostile tenant: it asks for pools, and for places of its own and of others, and is gone before it has an answer.

use std::sync::LazyLock;

use rollhouse_coordinator::{Asker, Cluster, Event, Ticket};
use rollhouse_core::{RecordRule, RunId};
use rollhouse_env::Registry;
use rollhouse_wire::{OpenPool, ReplaceSession, SessionReport};

use crate::bug::Bug;
use crate::cast::ENV;
use crate::context::Context;
use crate::request::a_pool;

const OWNER: &str = "eve";
/// Most lanes that it may have: others find room beside it.
const QUOTA: u32 = 2;

static DYNAMICS: LazyLock<u64> =
    LazyLock::new(|| Registry::builtin().get(ENV).expect("a built-in env").spec().dynamics_hash);

/// Returns the sessions that are not its own, as the coordinator has them.
pub(crate) fn of_others(cluster: &Cluster) -> Vec<SessionReport> {
    let reports = cluster.sessions().sessions.into_iter().map(|session| session.report);
    reports.filter(|report| report.owner != OWNER).collect()
}

/// Returns one of its requests, and whether that is about another owner's pool.
pub(crate) fn event(cluster: &Cluster, ticket: Ticket, ctx: &mut Context<'_>) -> (Event, bool) {
    let others = of_others(cluster);
    let other = (!others.is_empty() && ctx.random.chance(500)).then(|| {
        let index = ctx.random.index(others.len());
        &others[index]
    });
    let owner = match other {
        Some(report) if ctx.has(Bug::MistakesOwners) => report.owner.clone(),
        _ => OWNER.to_owned(),
    };
    let asker = Asker { owner, max_lanes: Some(QUOTA), admin: false };
    let mut open = OpenPool { lanes: ctx.random.within(1, 4) as u32, ..a_pool(OWNER, ctx) };
    open.settings.record = RecordRule::None;
    if let Some(report) = other {
        open.pool = report.session.pool;
    }
    let event = match ctx.random.within(0, 3) {
        0 => Event::OpenPool { ticket, asker, request: Box::new(open) },
        1 => Event::ClosePool { ticket, asker, pool: open.pool },
        _ => {
            let request = Box::new(replace(open, other, ctx));
            Event::ReplaceSession { ticket, asker, request }
        }
    };
    (event, other.is_some())
}

/// Asks for another place of a session as its owner would, or of a session that never was.
fn replace(open: OpenPool, other: Option<&SessionReport>, ctx: &mut Context<'_>) -> ReplaceSession {
    let (moving, replaces) = (ctx.random.chance(300), ctx.random.chance(300));
    let lanes = other.map_or(open.lanes, |report| report.lanes);
    ReplaceSession {
        index: other.map_or(0, |report| report.session.index),
        incarnation: other.map(|report| report.incarnation).unwrap_or_default(),
        first_lane: other.map_or(0, |report| report.first_lane),
        lanes,
        dynamics: *DYNAMICS,
        moving,
        node: format!("made-up-{}", RunId::from_u128(u128::from(ctx.random.bits()))),
        replaces,
        open: OpenPool { lanes: other.map_or(open.lanes, |report| report.pool_lanes), ..open },
    }
}
