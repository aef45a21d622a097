//! `rollhouse policy`: the policies of a cluster.

mod compare;

use std::fs::OpenOptions;
use std::io::Write;

use rollhouse_client::{Cluster, FetchedPolicy};
use rollhouse_host::ConnectWatch;
use rollhouse_policy::{Dialect, GivenNet, model_of};
use rollhouse_wire::{PolicyInfo, PolicyRef};
use serde::Serialize;

use crate::args::policy::{net_of, read};
use crate::args::{
    PoliciesWhat, PolicyExportArgs, PolicyLsArgs, PolicyName, PolicyPutArgs, PolicyRmArgs, PolicyShowArgs,
};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Bytes, When, counted};
use crate::json::PolicyObject;
use crate::logging::Logging;
use crate::output::{Output, say};
use crate::python_envs;
use crate::table::{Align, Table};

pub(crate) fn run(what: &PoliciesWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        PoliciesWhat::Put(args) => put(args, out),
        PoliciesWhat::Ls(args) => ls(args, out),
        PoliciesWhat::Show(args) => show(args, out),
        PoliciesWhat::Rm(args) => rm(args),
        PoliciesWhat::Export(args) => export(args),
        PoliciesWhat::Compare(args) => compare::run(args, out),
    }
}

fn put(args: &PolicyPutArgs, out: &mut Output) -> Result<Status, Failure> {
    let file = read(&args.file)?;
    // What is no net is refused before anything is sent.
    net_of(&args.file, &file)?;
    let cluster = connect(&args.cluster)?;
    let PolicyRef { name, version } = &args.name;
    let put = cluster.put_policy(name, *version, file.into()).map_err(|error| request_failure(&error))?;
    let policy = PolicyRef { name: name.clone(), version: Some(put.version) };
    if args.json {
        out.json(&PutRow { name, version: put.version, known: put.known })?;
    } else {
        writeln!(out, "{policy}")?;
    }
    if put.known {
        say(&format!("the cluster has that file as {policy} already"));
    }
    Ok(Status::Done)
}

fn ls(args: &PolicyLsArgs, out: &mut Output) -> Result<Status, Failure> {
    let cluster = connect(&args.cluster)?;
    let mut policies = cluster.policies().map_err(|error| request_failure(&error))?;
    if let Some(name) = &args.name {
        policies.retain(|info| info.policy.name == *name);
    }
    if args.json {
        for info in &policies {
            out.json(&PolicyObject::from(info))?;
        }
        return Ok(Status::Done);
    }
    if policies.is_empty() {
        say("there are no policies; `rollhouse policy put NAME FILE` stores one");
        return Ok(Status::Done);
    }
    let columns = [
        ("POLICY", Align::Left),
        ("BYTES", Align::Right),
        ("FORMAT", Align::Left),
        ("OWNER", Align::Left),
        ("PUT (UTC)", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for PolicyInfo { policy, bytes, format, owner, put_ms, .. } in policies {
        table.row(vec![
            policy.to_string(),
            Bytes(bytes).to_string(),
            format,
            owner,
            When(put_ms).to_string(),
        ]);
    }
    table.write(out)?;
    Ok(Status::Done)
}

fn show(args: &PolicyShowArgs, out: &mut Output) -> Result<Status, Failure> {
    let cluster = connect(&args.cluster)?;
    let FetchedPolicy { info, file } = fetch(&cluster, &args.policy)?;
    if args.json {
        out.json(&PolicyObject::from(&info))?;
        return Ok(Status::Done);
    }
    let model = model_of(&info.policy.name, info.policy.version, None, &file);
    let model =
        model.map_or_else(|error| format!("cannot be read here: {error}"), |model| model.description());
    writeln!(out, "{}", info.policy)?;
    writeln!(out, "  net     {model}")?;
    writeln!(out, "  file    {}, {}", Bytes(info.bytes), info.format)?;
    writeln!(out, "  sha256  {}", info.hash)?;
    writeln!(out, "  owner   {}", info.owner)?;
    writeln!(out, "  put     {} UTC", When(info.put_ms))?;
    Ok(Status::Done)
}

fn rm(args: &PolicyRmArgs) -> Result<Status, Failure> {
    let PolicyRef { name, version } = &args.policy;
    match (version, args.all) {
        (None, false) => {
            let message = format_args!("{name} has no version, so that all would be removed");
            return Err(Failure::new(Status::Usage, message)
                .hint(format_args!("name one, as {name}@0, or give --all")));
        }
        (Some(_), true) => {
            let message = format_args!("{} is one version, and --all removes all", args.policy);
            return Err(Failure::new(Status::Usage, message));
        }
        _ => {}
    }
    let cluster = connect(&args.cluster)?;
    let removed = cluster.remove_policy(name, *version).map_err(|error| request_failure(&error))?;
    say(&format!("removed {} of {name}, {}", counted(removed.versions, "version"), Bytes(removed.bytes)));
    Ok(Status::Done)
}

fn export(args: &PolicyExportArgs) -> Result<Status, Failure> {
    let (policy, file) = match (&args.policy, args.dialect) {
        (PolicyName::File(path), None) => {
            let message = format_args!("{} is a file already", path.display());
            return Err(Failure::new(Status::Usage, message)
                .hint("--dialect writes it in the form of another program"));
        }
        (PolicyName::File(path), Some(dialect)) => {
            let net = net_of(path, &read(path)?)?;
            (args.policy.to_string(), in_dialect(args, dialect, &net)?)
        }
        (PolicyName::OfCluster(policy), dialect) => {
            let FetchedPolicy { info, file } = fetch(&connect(&args.cluster)?, policy)?;
            let file = match dialect {
                None => file.to_vec(),
                Some(dialect) => {
                    let net = GivenNet::of_bytes(&info.policy.name, &file);
                    let net = net.map_err(|error| Failure::of(Status::Usage, &error))?;
                    in_dialect(args, dialect, &net.with_version(info.policy.version))?
                }
            };
            (info.policy.to_string(), file)
        }
        (PolicyName::Builtin(builtin), _) => {
            return Err(Failure::new(Status::Usage, format_args!("policy {} has no file", builtin.name())));
        }
    };
    let path = &args.output;
    let written = OpenOptions::new().write(true).create_new(true).open(path).and_then(|mut to| {
        to.write_all(&file)?;
        to.sync_all()
    });
    written.map_err(|error| {
        Failure::new(Status::Failed, format_args!("{} cannot be written: {error}", path.display()))
    })?;
    let form = args.dialect.map_or_else(String::new, |dialect| format!(" for {dialect}"));
    say(&format!("wrote {policy} to {}{form}, {}", path.display(), Bytes(file.len() as u64)));
    Ok(Status::Done)
}

/// Returns the bytes of a net's file in a dialect, for the env that is named.
fn in_dialect(args: &PolicyExportArgs, dialect: Dialect, net: &GivenNet) -> Result<Vec<u8>, Failure> {
    let Some(env) = &args.env else {
        return Err(Failure::new(Status::Usage, "--dialect needs the env of the policy, --env ID"));
    };
    if env.source().is_learned() {
        Logging::begin_warnings("policy")?;
    }
    let env = python_envs::of_id(env, &args.plugins, &args.python, false, &ConnectWatch::default())?;
    net.in_dialect(dialect, env.spec()).map_err(|error| Failure::of(Status::Usage, &error))
}

fn fetch(cluster: &Cluster, policy: &PolicyRef) -> Result<FetchedPolicy, Failure> {
    cluster.fetch_policy(&policy.name, policy.version).map_err(|error| request_failure(&error))
}

/// The output of `put --json`; the field names are part of the interface.
#[derive(Serialize)]
struct PutRow<'a> {
    name: &'a str,
    version: u64,
    /// Whether the cluster had the file as this version.
    known: bool,
}
