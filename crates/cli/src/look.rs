//! `rollhouse status`, `nodes`, `sessions`, `drain` and `undrain`: an operator's questions to a cluster.

use std::io;
use std::time::Duration;

use rollhouse_core::Weight;
use rollhouse_wire::{
    ClusterStatus, NodeList, NodeState, NodeStatus, SessionList, SessionReport, SessionStatus, StoreStatus,
    Unfit,
};
use serde::Serialize;

use crate::args::{DrainArgs, ListArgs, LookArgs, UndrainArgs};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Count, Si, Time, counted};
use crate::json::{NodeObject, SessionObject, StatusObject};
use crate::output::{Output, say};
use crate::table::{Align, Table};

pub(crate) fn status(args: &LookArgs, out: &mut Output) -> Result<Status, Failure> {
    let status = connect(&args.cluster)?.status().map_err(|error| request_failure(&error))?;
    if args.json {
        out.json(&StatusObject::from(&status))?;
    } else {
        print_status(&status, out)?;
    }
    Ok(Status::Done)
}

pub(crate) fn nodes(args: &ListArgs, out: &mut Output) -> Result<Status, Failure> {
    let NodeList { nodes, omitted } =
        connect(&args.look.cluster)?.first_nodes(args.limit).map_err(|error| request_failure(&error))?;
    if args.look.json {
        for node in &nodes {
            out.json(&NodeObject::from(node))?;
        }
    } else if nodes.is_empty() {
        say("no node has joined; `rollhouse node` on any machine does");
    } else {
        print_nodes(&nodes, out)?;
    }
    say_omitted(omitted);
    Ok(Status::Done)
}

pub(crate) fn sessions(args: &ListArgs, out: &mut Output) -> Result<Status, Failure> {
    let cluster = connect(&args.look.cluster)?;
    let list = cluster.first_sessions(args.limit).map_err(|error| request_failure(&error))?;
    let SessionList { sessions, omitted } = list;
    if args.look.json {
        for session in &sessions {
            out.json(&SessionObject::from(session))?;
        }
    } else if sessions.is_empty() {
        say("no session is open");
    } else {
        print_sessions(&sessions, out)?;
    }
    say_omitted(omitted);
    Ok(Status::Done)
}

/// Says how many entries are left out, with `--json` too: what is shown is not all then.
pub(crate) fn say_omitted(omitted: u32) {
    if let Some(words) = left_out(omitted) {
        say(&words);
    }
}

fn left_out(omitted: u32) -> Option<String> {
    (omitted > 0).then(|| format!("and {omitted} more; a larger `--limit` shows them"))
}

pub(crate) fn drain(args: &DrainArgs, out: &mut Output) -> Result<Status, Failure> {
    let (node, cluster) = (&args.node, connect(&args.look.cluster)?);
    cluster.drain(node).map_err(|error| request_failure(&error))?;
    if !args.wait {
        if args.look.json {
            out.json(&Changed { node, state: "draining" })?;
        }
        say(&format!(
            "{node} takes no new sessions and ends when its last has; `rollhouse nodes{}` shows how far it is",
            args.look.cluster.option()
        ));
        return Ok(Status::Done);
    }
    loop {
        let list = cluster.nodes().map_err(|error| request_failure(&error))?;
        match drained(&list.nodes, list.omitted, node) {
            Drained::NotYet => std::thread::park_timeout(LOOK_EVERY),
            Drained::Ended => break,
            Drained::Lost => {
                return Err(Failure::new(
                    Status::Failed,
                    format_args!("{node} is lost: it did not leave in order"),
                ));
            }
            Drained::GoesOn => {
                return Err(Failure::new(
                    Status::Refused,
                    format_args!("{node} goes on: its drain was taken back"),
                ));
            }
        }
    }
    if args.look.json {
        out.json(&Changed { node, state: "ended" })?;
    }
    say(&format!("{node} has ended"));
    Ok(Status::Done)
}

pub(crate) fn undrain(args: &UndrainArgs, out: &mut Output) -> Result<Status, Failure> {
    let node = &args.node;
    connect(&args.look.cluster)?.undrain(node).map_err(|error| request_failure(&error))?;
    if args.look.json {
        out.json(&Changed { node, state: "undraining" })?;
    }
    say(&format!("{node} takes new sessions again within a second, unless it has ended"));
    Ok(Status::Done)
}

/// The output of `--json` for a change; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Changed<'a> {
    node: &'a str,
    state: &'static str,
}

/// The progress of a node that was asked to drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drained {
    NotYet,
    Ended,
    Lost,
    GoesOn,
}

fn drained(nodes: &[NodeStatus], omitted: u32, node: &str) -> Drained {
    match nodes.iter().find(|status| status.node == node).map(|status| status.state) {
        Some(NodeState::Draining) => Drained::NotYet,
        Some(NodeState::Lost) => Drained::Lost,
        Some(NodeState::Alive | NodeState::Suspect) => Drained::GoesOn,
        // It may be among those that did not fit.
        None if omitted > 0 => Drained::NotYet,
        None => Drained::Ended,
    }
}

/// Interval at which it is checked whether a node has drained.
const LOOK_EVERY: Duration = Duration::from_millis(500);

fn print_status(status: &ClusterStatus, out: &mut Output) -> io::Result<()> {
    let states = status.nodes.iter().filter(|(_, count)| **count > 0);
    let states: Vec<String> = states.map(|(state, count)| format!("{count} {}", state.word())).collect();
    let known: u32 = status.nodes.values().sum();
    let nodes = if states.is_empty() { "none".to_owned() } else { format!("{known}: {}", states.join(", ")) };
    let mut line = |what: &str, value: String| writeln!(out, "{what:<9} {value}");
    line(
        "up",
        format!("{}, term {}, {}", Time(Duration::from_secs(status.uptime_s)), status.term, status.program),
    )?;
    line("nodes", nodes)?;
    if let Some(behind) = &status.behind {
        line("refused", behind.to_string())?;
    }
    line("lanes", format!("{} of {} in use", Count(status.lanes.into()), Count(status.capacity.into())))?;
    let transports: Vec<String> =
        status.transports.iter().map(|(name, count)| format!("{count} by {name}")).collect();
    let by =
        if transports.is_empty() { String::new() } else { format!(", owners: {}", transports.join(", ")) };
    let pools = counted(status.pools.into(), "pool");
    line("sessions", format!("{} in {pools}{by}", Count(status.sessions.into())))?;
    line("played", format!("{}, {}", counted(status.episodes, "episode"), counted(status.steps, "step")))?;
    let of =
        if status.store.budget > 0 { format!(" of {}", Bytes(status.store.budget)) } else { String::new() };
    let segments = counted(status.store.segments, "segment");
    line("store", format!("{}{of} in {segments}", Bytes(status.store.bytes)))?;
    line("recorded", recording_cost(status))?;
    if status.store.quarantined > 0 {
        line(
            "",
            format!(
                "{} set aside: damaged, or under numbers that were taken",
                counted(status.store.quarantined, "segment")
            ),
        )?;
    }
    if status.store.set_aside > 0 {
        let episodes = counted(status.store.set_aside, "episode");
        line("", format!("{episodes} set aside: `rollhouse replay quarantine ls` lists them"))?;
    }
    Ok(())
}

/// Says what recording has cost since the coordinator's start.
fn recording_cost(status: &ClusterStatus) -> String {
    let StoreStatus { received_bytes, budget, bytes, .. } = status.store;
    let arrived = Bytes(received_bytes);
    if status.steps == 0 || received_bytes == 0 {
        return format!("{arrived} since the start");
    }
    let step = received_bytes as f64 / status.steps as f64;
    let left = (budget.saturating_sub(bytes) as f64 / step) as u64;
    format!(
        "{arrived} since the start, {step:.1} bytes for each step that was played: room for {} more",
        Count(left)
    )
}

fn print_nodes(nodes: &[NodeStatus], out: &mut Output) -> io::Result<()> {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("ADDRESS", Align::Left),
        ("LANES", Align::Right),
        ("OF", Align::Right),
        ("CPU", Align::Right),
        ("MEMORY", Align::Right),
        ("THREADS", Align::Right),
        ("SESSIONS", Align::Right),
        ("STEPS", Align::Right),
        ("EPISODES", Align::Right),
        ("TO SHIP", Align::Right),
        ("REPORT", Align::Right),
        ("PYTHON", Align::Left),
        ("LABELS", Align::Left),
    ]);
    for node in nodes {
        let labels: Vec<String> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.row(vec![
            node.node.clone(),
            node.state.word().to_owned(),
            node.address.clone(),
            Count(node.load.lanes.into()).to_string(),
            Count(node.capacity.into()).to_string(),
            of_budget(node, |weight| format!("{:.1}", weight.cpu_milli as f64 / 1000.0)),
            of_budget(node, |weight| Bytes(weight.memory).to_string()),
            node.threads.to_string(),
            node.sessions.to_string(),
            Si(node.load.steps as f64).to_string(),
            Count(node.load.episodes).to_string(),
            Bytes(node.load.spool_bytes).to_string(),
            format!("{} ago", Time(Duration::from_millis(node.silent_ms))),
            node.kinds.join(","),
            labels.join(","),
        ]);
    }
    table.write(out)?;
    for node in nodes {
        if let Some(Unfit { takes, why, .. }) = &node.unfit {
            writeln!(out, "{} {takes}: {why}", node.node)?;
        }
    }
    Ok(())
}

/// Returns what a node's lanes take of what it has for them; empty for a node that does not say what it has.
fn of_budget(node: &NodeStatus, part: impl Fn(Weight) -> String) -> String {
    node.budget.map(|budget| format!("{} of {}", part(node.load.taken), part(budget))).unwrap_or_default()
}

fn print_sessions(sessions: &[SessionStatus], out: &mut Output) -> io::Result<()> {
    let mut table = Table::new(&[
        ("SESSION", Align::Left),
        ("NODE", Align::Left),
        ("ENV", Align::Left),
        ("OWNER", Align::Left),
        ("LANES", Align::Left),
        ("STEPPED BY", Align::Left),
        ("STEPS", Align::Right),
        ("EPISODES", Align::Right),
    ]);
    for SessionStatus { node, report, connecting } in sessions {
        let last = report.first_lane + report.lanes.saturating_sub(1);
        table.row(vec![
            report.session.to_string(),
            node.clone(),
            report.env.to_string(),
            report.owner.clone(),
            format!("{}-{last} of {}", report.first_lane, report.pool_lanes),
            stepped_by(report, *connecting),
            Count(report.done.steps).to_string(),
            Count(report.done.episodes).to_string(),
        ]);
    }
    table.write(out)
}

/// Returns who steps a session, and how often its lanes have tried again to connect, if they do.
fn stepped_by(report: &SessionReport, retries: u32) -> String {
    let by = match (&report.replay, report.attached, &report.transport) {
        _ if report.launching && retries > 0 => "nobody yet".to_owned(),
        _ if report.launching => "nobody yet: it is launched".to_owned(),
        (Some(replay), ..) => format!("replay of {}, {}", replay.episode, replay.state.word()),
        (None, None, _) => "the node".to_owned(),
        (None, Some(true), Some(transport)) => transport.clone(),
        (None, Some(true), None) => "its owner".to_owned(),
        (None, Some(false), _) => "nobody: its owner is away".to_owned(),
    };
    if retries > 0 {
        return format!("{by}: connecting, retry {retries}");
    }
    match &report.plays {
        Some(plays) => format!("{by}, by {plays}"),
        None => by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: `sessions` of a cluster with thousands showed a part of them as if that were all. Cause: what the answer says of
    /// entries that did not fit was dropped. Fix: lists say how many there are more.
    #[test]
    fn a_list_that_was_cut_says_by_how_much_and_a_whole_one_says_nothing() {
        assert_eq!(left_out(0), None);
        assert_eq!(left_out(7).as_deref(), Some("and 7 more; a larger `--limit` shows them"));
    }
}
