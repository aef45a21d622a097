//! `rollhouse envs`: lists and describes environments, and lists those of a cluster.

use std::io;
use std::num::NonZeroU32;

use rollhouse_core::{
    BoxSpace, CompositeSpace, Determinism, EnvId, EnvSpec, MethodSpec, ObservationSpace, OwnDType, Space,
};
use rollhouse_env::is_for_tests;
use rollhouse_host::ConnectWatch;
use rollhouse_wire::{EnvList, OfferedEnv};

use crate::args::EnvsArgs;
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Count, Real};
use crate::json::{EnvObject, OfferedObject, dynamics};
use crate::look::say_omitted;
use crate::output::{Output, say};
use crate::python_envs;
use crate::table::{Align, Table};

pub(crate) fn run(args: &EnvsArgs, out: &mut Output) -> Result<Status, Failure> {
    if args.cluster.connect.is_some() {
        return of_cluster(args, out);
    }
    let of_id =
        |id: &EnvId| python_envs::of_id(id, &args.plugins, &args.python, false, &ConnectWatch::default());
    let ids = |ids: Vec<String>| ids.into_iter().map(EnvId::from).collect();
    let ids: Vec<_> = match (&args.id, args.python.given()) {
        (Some(id), _) => vec![id.clone()],
        (None, Some(name)) => {
            let message = format_args!("{name} is for Python environments, and no ID names one");
            return Err(Failure::new(Status::Usage, message));
        }
        (None, None) if args.all => ids(args.plugins.registry()?.ids()),
        (None, None) => ids(args.plugins.registry()?.shown_ids()),
    };
    let entries: Vec<_> = ids.iter().map(of_id).collect::<Result<_, _>>()?;
    let specs = entries.iter().map(|entry| entry.spec());
    if args.json {
        for spec in specs {
            out.json(&EnvObject::from(spec))?;
        }
    } else if args.id.is_some() {
        for spec in specs {
            describe(spec, out)?;
        }
    } else {
        list(specs, out)?;
    }
    Ok(Status::Done)
}

/// Lists the envs of which pools can be opened in a cluster.
fn of_cluster(args: &EnvsArgs, out: &mut Output) -> Result<Status, Failure> {
    if args.id.is_some() || !args.plugins.plugins.is_empty() {
        let hint = "without --connect, `rollhouse envs ID` describes an env of this program";
        return Err(Failure::new(
            Status::Usage,
            "--connect lists envs of nodes, and takes no ID and no --plugin",
        )
        .hint(hint));
    }
    let EnvList { mut envs, omitted } =
        connect(&args.cluster)?.first_envs(args.limit).map_err(|error| request_failure(&error))?;
    envs.retain(|offered| args.all || !is_for_tests(&offered.env));
    if args.json {
        for offered in &envs {
            out.json(&OfferedObject::from(offered))?;
        }
    } else if envs.is_empty() {
        say("no node has joined; `rollhouse node` on any machine does");
    } else {
        list_offered(&envs, out)?;
    }
    say_omitted(omitted);
    Ok(Status::Done)
}

fn list_offered(envs: &[OfferedEnv], out: &mut Output) -> io::Result<()> {
    let mut table = Table::new(&[
        ("ENV", Align::Left),
        ("NODES", Align::Right),
        ("FREE LANES", Align::Right),
        ("DYNAMICS HASH", Align::Left),
    ]);
    for OfferedEnv { env, dynamics_hash, nodes, free_lanes } in envs {
        table.row(vec![
            env.clone(),
            nodes.to_string(),
            Count((*free_lanes).into()).to_string(),
            dynamics_hash.map_or_else(|| "learned when one is asked for".to_owned(), dynamics),
        ]);
    }
    table.write(out)
}

fn list<'a>(specs: impl Iterator<Item = &'a EnvSpec>, out: &mut Output) -> io::Result<()> {
    let mut table = Table::new(&[
        ("ENV", Align::Left),
        ("OBSERVATION", Align::Left),
        ("ACTION", Align::Left),
        ("STEP LIMIT", Align::Right),
        ("WHAT IT IS", Align::Left),
    ]);
    for spec in specs {
        table.row(vec![
            spec.id.clone(),
            observation(&spec.observation_space),
            space(&spec.action_space),
            spec.max_episode_steps.map_or_else(|| "none".to_owned(), |limit| limit.to_string()),
            spec.summary.clone(),
        ]);
    }
    table.write(out)?;
    writeln!(out, "\nMore about one: rollhouse envs ID")
}

fn describe(spec: &EnvSpec, out: &mut Output) -> io::Result<()> {
    writeln!(out, "{}: {}\n", spec.id, spec.summary)?;
    writeln!(out, "observation    {}", observation(&spec.observation_space))?;
    for ((path, space), column) in spec.observation_space.columns().into_iter().zip(spec.obs_columns()) {
        if !path.is_empty() {
            writeln!(out, "  {path}")?;
        }
        elements(space, &column.names, out)?;
    }
    writeln!(out, "action         {}", space(&spec.action_space))?;
    elements(&spec.action_space, &spec.action_names, out)?;
    match spec.max_episode_steps {
        Some(limit) => writeln!(out, "step limit     {}", Count(limit.into()))?,
        None => writeln!(out, "step limit     none")?,
    }
    let recorded = match spec.determinism {
        Determinism::Deterministic => "as start and actions; the rest is recomputed",
        Determinism::NonDeterministic => "in full: it cannot be recomputed",
    };
    writeln!(out, "recorded       {recorded}")?;
    writeln!(out, "dynamics hash  {}", dynamics(spec.dynamics_hash))?;
    if !spec.options.is_empty() {
        writeln!(out, "options")?;
        let mut table = Table::new(&[("  NAME", Align::Left), ("DEFAULT", Align::Right), ("", Align::Left)]);
        for option in &spec.options {
            table.row(vec![format!("  {}", option.name), option.default.to_string(), option.summary.clone()]);
        }
        table.write(out)?;
    }
    if !spec.methods.is_empty() {
        writeln!(out, "methods")?;
        for method in &spec.methods {
            describe_method(method, out)?;
        }
    }
    Ok(())
}

fn describe_method(method: &MethodSpec, out: &mut Output) -> io::Result<()> {
    let MethodSpec { name, summary, params, changes, max_per_second } = method;
    let changes = if *changes { "changes its lane" } else { "changes nothing" };
    writeln!(out, "  {name}: {summary} ({changes}{})", rate(*max_per_second))?;
    if !params.is_empty() {
        writeln!(out, "    payload  {params}")?;
    }
    Ok(())
}

/// Says how often a method may be called.
fn rate(max_per_second: Option<NonZeroU32>) -> String {
    max_per_second.map_or_else(String::new, |limit| format!("; at most {limit} a second on a lane"))
}

/// Describes an observation space: `Dict(arm: Box(7, float32), goal: Discrete(3))`, `Tuple(..)`, or a plain space.
fn observation(space: &ObservationSpace) -> String {
    match space {
        ObservationSpace::Plain(plain) => self::space(plain),
        ObservationSpace::Composite(parts) => composite(parts),
    }
}

fn composite(space: &CompositeSpace) -> String {
    match space {
        CompositeSpace::Dict { spaces } => {
            let parts: Vec<String> =
                spaces.iter().map(|(name, space)| format!("{name}: {}", observation(space))).collect();
            format!("Dict({})", parts.join(", "))
        }
        CompositeSpace::Tuple { spaces } => {
            let parts: Vec<String> = spaces.iter().map(observation).collect();
            format!("Tuple({})", parts.join(", "))
        }
        CompositeSpace::Text(text) => format!("Text({}, {})", text.min_length(), text.max_length()),
        CompositeSpace::Sequence(sequence) => {
            format!("Sequence({}, at most {})", self::space(sequence.item()), sequence.maximum())
        }
    }
}

/// Describes a space in Gymnasium's words: `Discrete(2)`, `Box(4, float32)`.
pub(crate) fn space(space: &Space) -> String {
    match space {
        Space::Discrete(space) if space.start == 0 => format!("Discrete({})", space.n),
        Space::Discrete(space) => format!("Discrete({}, start={})", space.n, space.start),
        Space::Box(BoxSpace { parts: Some(parts), .. }) => composite(parts),
        Space::Box(space) => {
            let shape: Vec<String> = space.shape.iter().map(usize::to_string).collect();
            let kind = match space.kind() {
                "multi_discrete" => "MultiDiscrete",
                "multi_binary" => "MultiBinary",
                _ => "Box",
            };
            let dtype = space.own.map_or(space.dtype.name(), OwnDType::name);
            format!("{kind}({}, {dtype})", shape.join("x"))
        }
    }
}

fn elements(space: &Space, names: &[String], out: &mut Output) -> io::Result<()> {
    match space {
        Space::Box(space) => {
            let mut table =
                Table::new(&[("  ELEMENT", Align::Left), ("LOW", Align::Right), ("HIGH", Align::Right)]);
            let bounds: Vec<(f64, f64)> = space.low.iter().zip(space.high.iter()).collect();
            let (mut at, mut rows) = (0, 0);
            while at < bounds.len() && rows < MAX_ELEMENTS {
                let alike = bounds[at..].iter().take_while(|of| **of == bounds[at]).count();
                // Elements without names are one row where they have one bound.
                let name = names.get(at).cloned();
                let end = if name.is_some() { at + 1 } else { at + alike };
                let one = || if end == at + 1 { at.to_string() } else { format!("{at} to {}", end - 1) };
                let (low, high) = bounds[at];
                table.row(vec![format!("  {}", name.unwrap_or_else(one)), bound(low), bound(high)]);
                (at, rows) = (end, rows + 1);
            }
            table.write(out)?;
            match bounds.len() - at {
                0 => Ok(()),
                more => writeln!(out, "  and {} more", Count(more as u64)),
            }
        }
        Space::Discrete(space) => {
            for (value, name) in (space.start..).zip(names) {
                writeln!(out, "  {value}  {name}")?;
            }
            Ok(())
        }
    }
}

/// Describes a bound. Some spaces are bounded by the type's own range, which is as good as none.
fn bound(value: f64) -> String {
    if value.abs() >= f64::from(f32::MAX) {
        if value < 0.0 { "-inf".to_owned() } else { "inf".to_owned() }
    } else {
        Real(value).to_string()
    }
}

/// Rows in which the elements of a box are listed.
const MAX_ELEMENTS: usize = 64;
