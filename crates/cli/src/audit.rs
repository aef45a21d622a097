//! `rollhouse audit`: shows who changed what at a coordinator.

use rollhouse_coordinator::{AuditLine, AuditLog};
use serde::Serialize;

use crate::args::AuditArgs;
use crate::failure::{Failure, Status};
use crate::human::{When, rfc3339};
use crate::output::{Output, say};
use crate::table::{Align, Table};
use crate::token;

/// Shows the newest lines, the oldest of them first.
pub(crate) fn run(args: &AuditArgs, out: &mut Output) -> Result<Status, Failure> {
    let data = &args.folder.data;
    token::existing(data)?;
    let lines = AuditLog::of(data).newest(args.limit as usize).map_err(|error| {
        let what = format_args!("the audit in {} cannot be read: {error}", data.display());
        Failure::new(Status::Failed, what)
    })?;
    if args.json {
        for line in &lines {
            out.json(&AuditRow { at: rfc3339(line.at_ms), line })?;
        }
        return Ok(Status::Done);
    }
    if lines.is_empty() {
        say(&format!("nothing was changed yet at the coordinator of {}", data.display()));
        return Ok(Status::Done);
    }
    let columns = ["AT (UTC)", "BY", "FROM", "WHAT", "OF"];
    let mut table = Table::new(&columns.map(|column| (column, Align::Left)));
    for AuditLine { at_ms, by, from, action, subject } in lines {
        table.row(vec![When(at_ms).to_string(), by, from, action, subject]);
    }
    table.write(out)?;
    Ok(Status::Done)
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Serialize)]
struct AuditRow<'a> {
    at: String,
    #[serde(flatten)]
    line: &'a AuditLine,
}
