//! `rollhouse audit`: shows who changed what at a coordinator, and who had an authority certify whom.

use std::path::Path;

use rollhouse_coordinator::AuditLog;
use rollhouse_wire::{AuditLine, AuditQuery, CA_CERTIFICATE};
use serde::Serialize;

use crate::args::{AuditArgs, COORDINATOR_DATA, ConnectArgs};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{When, rfc3339};
use crate::output::{Output, say};
use crate::table::{Align, Table};
use crate::token;

/// Shows the newest lines, the oldest of them first.
pub(crate) fn run(args: &AuditArgs, out: &mut Output) -> Result<Status, Failure> {
    let data = args.data.as_deref();
    let lines = match (&args.cluster.connect, data) {
        (None, Some(data)) => of_folder(data, args.limit)?,
        (None, None) if args.cluster.url().is_none() => of_folder(Path::new(COORDINATOR_DATA), args.limit)?,
        _ => of_cluster(&args.cluster, args.limit)?,
    };
    if args.json {
        for line in &lines {
            out.json(&AuditRow::of(line))?;
        }
        return Ok(Status::Done);
    }
    if lines.is_empty() {
        say("nothing was changed yet");
        return Ok(Status::Done);
    }
    let columns = ["AT (UTC)", "BY", "FROM", "WHAT", "OF"];
    let mut table = Table::new(&columns.map(|column| (column, Align::Left)));
    for AuditLine { at_ms, by, from, action, subject, .. } in lines {
        table.row(vec![When(at_ms).to_string(), by, from, action, subject]);
    }
    table.write(out)?;
    Ok(Status::Done)
}

/// Reads the newest lines in the folder of a coordinator or of an authority.
fn of_folder(data: &Path, limit: u32) -> Result<Vec<AuditLine>, Failure> {
    if !data.join(CA_CERTIFICATE).exists() {
        token::existing(data)?;
    }
    AuditLog::of(data).newest(limit as usize).map_err(|error| {
        let what = format_args!("the audit in {} cannot be read: {error}", data.display());
        Failure::new(Status::Failed, what)
    })
}

/// Asks a coordinator for the newest lines, page after page.
fn of_cluster(cluster: &ConnectArgs, limit: u32) -> Result<Vec<AuditLine>, Failure> {
    let cluster = connect(cluster)?;
    let (mut pages, mut before, mut left) = (Vec::new(), None, limit);
    while left > 0 {
        let query = AuditQuery { before, limit: left };
        let page = cluster.audit(query).map_err(|error| request_failure(&error))?;
        left = left.saturating_sub(u32::try_from(page.lines.len()).unwrap_or(u32::MAX));
        before = page.lines.first().map(|line| line.number);
        let is_last = !page.more || before.is_none();
        pages.push(page.lines);
        if is_last {
            break;
        }
    }
    Ok(pages.into_iter().rev().flatten().collect())
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Serialize)]
struct AuditRow<'a> {
    number: u64,
    at: String,
    by: &'a str,
    /// The address from which a peer asked.
    from: Option<&'a str>,
    action: &'a str,
    subject: &'a str,
}

impl<'a> AuditRow<'a> {
    fn of(line: &'a AuditLine) -> Self {
        let AuditLine { number, at_ms, by, from, action, subject } = line;
        let from = Some(&**from).filter(|from| !from.is_empty());
        Self { number: *number, at: rfc3339(*at_ms), by, from, action, subject }
    }
}
