//! Tenants who flood: processes of their own, each with a token of its own, which are started again when they end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;

use clap::ValueEnum;
use rollhouse_cli::certs::write_private;
use rollhouse_cli::failure::Failure;
use rollhouse_cli::human::Count;
use rollhouse_cli::output::Output;
use rollhouse_wire::Role;
use serde::Serialize;

use super::asker::AskerFigures;
use super::logged::{log_of, spawn};
use super::processes::Processes;
use super::waits::{CallWaits, WaitFigures};
use crate::args::TenantKind;
use crate::failed::failed;
use crate::itself;

impl TenantKind {
    const fn role(self) -> Role {
        match self {
            Self::Connections | Self::Questions | Self::Unread => Role::Viewer,
            Self::Replays | Self::Pools | Self::Steps | Self::Rollouts | Self::Learning | Self::Sleepers => {
                Role::Trainer
            }
        }
    }

    /// Returns whether it wants a node that hosts Python envs.
    const fn wants_python(self) -> bool {
        matches!(self, Self::Learning | Self::Sleepers)
    }
}

/// The processes. Killed when dropped.
pub(super) struct Tenants {
    folder: PathBuf,
    all: Vec<Tenant>,
}

struct Tenant {
    kind: TenantKind,
    name: String,
    connection: PathBuf,
    child: Option<Child>,
    started: u64,
}

/// What a tenant did; the field names are part of the interface.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TenantFigures {
    pub(super) kind: TenantKind,
    /// Number of processes, one after the other.
    pub(super) started: u64,
    /// Number of requests, or dials, that were answered as it wished.
    pub(super) had: u64,
    /// Number of those that were refused, or not answered.
    pub(super) refused: u64,
}

/// What tenants did, and what came of it for those who are honest; the field names are part of the interface.
#[derive(Debug, Serialize)]
pub(super) struct BesideTenants {
    pub(super) tenants: Vec<TenantFigures>,
    pub(super) waits: Vec<CallWaits>,
    pub(super) asked: AskerFigures,
}

impl BesideTenants {
    /// Returns whether nobody honest was refused, or waited more than twice as long as alone.
    pub(super) fn is_clean(&self) -> bool {
        self.asked.failed == 0 && self.waits.iter().all(CallWaits::is_fair)
    }

    pub(super) fn print(&self, out: &mut Output) -> io::Result<()> {
        writeln!(out, "Tenants who flooded, and how long the honest ones waited, alone and beside them:")?;
        for TenantFigures { kind, started, had, refused } in &self.tenants {
            let word = kind.to_possible_value().map_or_else(String::new, |word| word.get_name().to_owned());
            let (had, refused) = (Count(*had), Count(*refused));
            writeln!(out, "  {word:<12} had {had}, was refused {refused} times, in {started} processes")?;
        }
        let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.2}"));
        for CallWaits { call, alone, beside, ratios } in &self.waits {
            for (whose, waits) in [("alone", alone), ("beside", beside)] {
                let WaitFigures { count, p50_ms, p99_ms, max_ms } = waits;
                let [median, most, longest] = [p50_ms, p99_ms, max_ms].map(|time| ms(*time));
                writeln!(
                    out,
                    "  {call:<9} {whose:<7} {:>9}: median {median} ms, 99th percentile {most} ms, longest {longest} ms",
                    Count(*count).to_string()
                )?;
            }
            let [median, most, longest] = ratios.map(ms);
            writeln!(out, "  {call:<9} ratio            : {median}, {most}, {longest}")?;
        }
        let AskerFigures { questions, openings, failed, first } = &self.asked;
        writeln!(
            out,
            "Of {} questions and openings of the honest {failed} failed.",
            Count(questions + openings)
        )?;
        first.iter().try_for_each(|what| writeln!(out, "  {what}"))
    }
}

impl Tenants {
    /// Makes their tokens. None of them is started.
    pub(super) fn prepare(folder: &Path, processes: &Processes, python: bool) -> Result<Self, Failure> {
        let kinds = TenantKind::value_variants().iter().filter(|kind| python || !kind.wants_python());
        let tenant = |&kind: &TenantKind| {
            let word = kind.to_possible_value().map_or_else(String::new, |word| word.get_name().to_owned());
            let name = format!("tenant-{word}");
            let max_lanes = (kind.role() == Role::Trainer).then_some(TENANT_LANES);
            let connection = folder.join(format!("{name}.connection"));
            write_private(&connection, &format!("{}\n", processes.tenant(&name, kind.role(), max_lanes)?))?;
            Ok(Tenant { kind, name, connection, child: None, started: 0 })
        };
        let all = kinds.map(tenant).collect::<Result<_, Failure>>()?;
        Ok(Self { folder: folder.to_owned(), all })
    }

    /// Starts each that does not run.
    pub(super) fn turn(&mut self) -> Result<(), Failure> {
        let Self { folder, all } = self;
        for tenant in all {
            let ended = match &mut tenant.child {
                Some(child) => child.try_wait().map_err(failed)?.is_some(),
                None => true,
            };
            if ended {
                let mut command = itself::bench().map_err(failed)?;
                let word = tenant.name.trim_start_matches("tenant-");
                command.args(["chaos-tenant", word, "--connect"]).arg(&tenant.connection);
                tenant.started += 1;
                tenant.child = Some(spawn(folder, &format!("{}-{}", tenant.name, tenant.started), command)?);
            }
        }
        Ok(())
    }

    /// Kills all of them, and returns what they did.
    pub(super) fn end(mut self) -> Result<Vec<TenantFigures>, Failure> {
        let mut figures = Vec::new();
        for tenant in &mut self.all {
            tenant.kill().map_err(failed)?;
            let mut of_it = TenantFigures { kind: tenant.kind, started: tenant.started, had: 0, refused: 0 };
            for number in 1..=tenant.started {
                let log = log_of(&self.folder, &format!("{}-{number}", tenant.name));
                let said = fs::read_to_string(log).map_err(failed)?;
                if let Some((had, refused)) = said.lines().rev().find_map(counts) {
                    of_it.had += had;
                    of_it.refused += refused;
                }
            }
            figures.push(of_it);
        }
        Ok(figures)
    }
}

impl Tenant {
    fn kill(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.kill();
    }
}

/// Reads a line of what a tenant did, as it prints one each second.
fn counts(line: &str) -> Option<(u64, u64)> {
    let (had, refused) = line.strip_prefix("had ")?.split_once(", refused ")?;
    Some((had.parse().ok()?, refused.parse().ok()?))
}

/// Number of lanes that the token of each may have, as an operator bounds a tenant.
const TENANT_LANES: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_did_is_read_from_its_last_line_and_from_no_other() {
        assert_eq!(counts("had 12, refused 7"), Some((12, 7)));
        for line in ["", "had 12", "had 12, refused", "had x, refused 7", "error: had 1, refused 2"] {
            assert_eq!(counts(line), None, "{line}");
        }
    }
}
