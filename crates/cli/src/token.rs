//! `rollhouse token`: what trainers, viewers and admins show who have no certificate.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rollhouse_wire::{NewToken, TokenFileError, TokenRecord, TokenRefused, TokenStore};
use serde::Serialize;

use crate::args::{TokenCreateArgs, TokenLsArgs, TokenRevokeArgs, TokenWhat};
use crate::certs::private_folder;
use crate::failure::{Failure, Status};
use crate::human::{Count, When, rfc3339};
use crate::output::{Output, say};
use crate::table::{Align, Table};

pub(crate) fn run(what: &TokenWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        TokenWhat::Create(args) => create(args, out),
        TokenWhat::Revoke(args) => revoke(args, out),
        TokenWhat::Ls(args) => list(args, out),
    }
}

/// The tokens of a coordinator whose data folder is `data`.
pub(crate) fn open(data: &Path) -> Result<TokenStore, Failure> {
    TokenStore::open(data.join(TOKENS)).map_err(failure)
}

fn create(args: &TokenCreateArgs, out: &mut Output) -> Result<Status, Failure> {
    if args.new {
        private_folder(&args.folder.data)?;
    } else {
        existing(&args.folder.data)?;
    }
    let new = NewToken {
        name: args.name.clone(),
        role: args.role,
        max_lanes: args.max_lanes,
        lifetime: args.days.map(|days| Duration::from_secs(u64::from(days) * 86_400)),
    };
    let now = SystemTime::now();
    let (record, token) = open(&args.folder.data)?.create(&new, now).map_err(failure)?;
    if args.json {
        out.json(&Created { token: &token, listed: Listed::of(&record, now) })?;
        return Ok(Status::Done);
    }
    say(&format!(
        "made the token {} of the {} `{}`; it is shown only now:",
        record.id,
        record.role.word(),
        record.name
    ));
    writeln!(out, "{token}")?;
    Ok(Status::Done)
}

fn revoke(args: &TokenRevokeArgs, out: &mut Output) -> Result<Status, Failure> {
    existing(&args.folder.data)?;
    let now = SystemTime::now();
    let record = open(&args.folder.data)?.revoke(&args.id, now).map_err(failure)?;
    if args.json {
        out.json(&Listed::of(&record, now))?;
        return Ok(Status::Done);
    }
    say(&format!("the token {} of the {} `{}` is revoked", record.id, record.role.word(), record.name));
    Ok(Status::Done)
}

fn list(args: &TokenLsArgs, out: &mut Output) -> Result<Status, Failure> {
    existing(&args.folder.data)?;
    let now = SystemTime::now();
    let tokens = open(&args.folder.data)?.list();
    if args.json {
        for token in &tokens {
            out.json(&Listed::of(token, now))?;
        }
        return Ok(Status::Done);
    }
    if tokens.is_empty() {
        say(&format!("there are no tokens in {}", args.folder.data.display()));
        return Ok(Status::Done);
    }
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("ROLE", Align::Left),
        ("MAX LANES", Align::Right),
        ("STATE", Align::Left),
        ("MADE (UTC)", Align::Left),
        ("EXPIRES (UTC)", Align::Left),
    ]);
    for token in &tokens {
        table.row(vec![
            token.id.clone(),
            token.name.clone(),
            token.role.word().to_owned(),
            token.max_lanes.map_or_else(|| "any".to_owned(), |lanes| Count(lanes.into()).to_string()),
            state(token, now).to_owned(),
            When(token.created * 1000).to_string(),
            token.expires.map_or_else(|| "never".to_owned(), |at| When(at * 1000).to_string()),
        ]);
    }
    table.write(out)?;
    Ok(Status::Done)
}

/// A folder that is not there, or is no coordinator's, is a slip of the pen, not one without tokens.
fn existing(data: &Path) -> Result<(), Failure> {
    let wrong = |what: &str| {
        let failure = Failure::new(Status::Usage, format_args!("{} is {what}", data.display()));
        Err(failure.hint("name the coordinator's folder with --data DIR; `token create --new` makes one"))
    };
    match data {
        data if !data.is_dir() => wrong("no folder"),
        data if OF_COORDINATORS.iter().any(|name| data.join(name).exists()) => Ok(()),
        _ => wrong("no folder of a coordinator: it has none of its files"),
    }
}

/// One of these is in the folder of every coordinator that was started, has a certificate or has tokens.
const OF_COORDINATORS: [&str; 3] = ["coordinator.lock", "tls", TOKENS];

/// What `--json` prints; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: &'a str,
    name: &'a str,
    role: &'static str,
    max_lanes: Option<u32>,
    state: &'static str,
    created: String,
    expires: Option<String>,
}

#[derive(Debug, Serialize)]
struct Created<'a> {
    token: &'a str,
    #[serde(flatten)]
    listed: Listed<'a>,
}

impl<'a> Listed<'a> {
    fn of(record: &'a TokenRecord, now: SystemTime) -> Self {
        Self {
            id: &record.id,
            name: &record.name,
            role: record.role.word(),
            max_lanes: record.max_lanes,
            state: state(record, now),
            created: rfc3339(record.created * 1000),
            expires: record.expires.map(|at| rfc3339(at * 1000)),
        }
    }
}

fn state(record: &TokenRecord, now: SystemTime) -> &'static str {
    match record.check(now) {
        Ok(()) => "valid",
        Err(TokenRefused::Revoked) => "revoked",
        Err(TokenRefused::Expired { .. }) => "expired",
        Err(TokenRefused::NotValid) => "not valid",
    }
}

pub(crate) fn failure(error: TokenFileError) -> Failure {
    let status = match error {
        TokenFileError::Unknown(_) | TokenFileError::Role(_) | TokenFileError::Name(_) => Status::Usage,
        TokenFileError::TooMany => Status::Refused,
        TokenFileError::Read { .. }
        | TokenFileError::Parse { .. }
        | TokenFileError::Write { .. }
        | TokenFileError::NoRandomness => Status::Failed,
    };
    let unknown = matches!(error, TokenFileError::Unknown(_));
    let failure = Failure::of(status, &error);
    if unknown { failure.hint("`rollhouse token ls` lists the tokens there are") } else { failure }
}

/// Name of the file in a coordinator's data folder.
pub(crate) const TOKENS: &str = "tokens.json";
