//! `rollhouse token`: makes, revokes and lists the tokens of people and programs without a certificate.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rollhouse_client::Address;
use rollhouse_wire::{
    JoinTerms, NewToken, ReadGrant, Role, TokenFileError, TokenRecord, TokenRefused, TokenStore,
    show_certificates,
};
use serde::Serialize;

use crate::args::{TokenCreateArgs, TokenLsArgs, TokenRevokeArgs, TokenRotateArgs, TokenWhat};
use crate::audit_note;
use crate::failure::{Failure, Status};
use crate::human::{Count, When, rfc3339};
use crate::output::{Output, say};
use crate::private_folder::private_folder;
use crate::table::{Align, Table};

pub(crate) fn run(what: &TokenWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        TokenWhat::Create(args) => create(args, out),
        TokenWhat::Rotate(args) => rotate(args, out),
        TokenWhat::Revoke(args) => revoke(args, out),
        TokenWhat::Ls(args) => list(args, out),
    }
}

/// Opens the tokens of a coordinator whose data folder is `data`.
pub fn open(data: &Path) -> Result<TokenStore, Failure> {
    TokenStore::open(data.join(TOKENS)).map_err(failure)
}

fn create(args: &TokenCreateArgs, out: &mut Output) -> Result<Status, Failure> {
    if args.new {
        private_folder(&args.folder.data)?;
    } else {
        existing(&args.folder.data)?;
    }
    let new = asked(args)?;
    let now = SystemTime::now();
    // Before there is a token that nobody is shown.
    let ca = args.address.as_ref().map(|_| fingerprint(&args.folder.data)).transpose()?;
    audit_note::note(&args.folder.data, "token_create", &format!("{} `{}`", new.role.word(), new.name))?;
    let (record, token) = open(&args.folder.data)?.create(&new, now).map_err(failure)?;
    let connect = args.address.as_ref().zip(ca).map(|(address, ca)| connection(address, &token, &ca));
    let connect = connect.transpose()?;
    if args.json {
        let listed = Listed::of(&record, now);
        out.json(&Created { token: &token, connect: connect.as_deref(), listed })?;
        return Ok(Status::Done);
    }
    let (id, role, name) = (&record.id, record.role.word(), &record.name);
    match &record.join {
        Some(terms) => say(&format!(
            "made the token {id} {terms}, {} of them; it is shown only now:",
            Count(terms.uses.into())
        )),
        None => say(&format!("made the token {id} of the {role} `{name}`; it is shown only now:")),
    }
    writeln!(out, "{}", connect.as_ref().unwrap_or(&token))?;
    if record.join.is_some() && !args.folder.data.join(ISSUER).exists() {
        say(
            "note: without an issuer in the coordinator's folder, or where coordinator.issuer says, it lets nobody in:",
        );
        say(&format!("  rollhouse certs issuer --output {}", args.folder.data.join(ISSUER).display()));
    }
    Ok(Status::Done)
}

/// Checks the arguments as a whole: some belong to join tokens only, others to other tokens only.
fn asked(args: &TokenCreateArgs) -> Result<NewToken, Failure> {
    let usage = |what: &str| Err(Failure::new(Status::Usage, what));
    let days = args.days.map(|days| Duration::from_secs(u64::from(days) * 86_400));
    let lifetime = args.expires.or(days);
    let joins = args.role == Role::Join;
    if joins && args.max_lanes.is_some() {
        return usage("--max-lanes is for tokens that open pools, and a join token opens none");
    }
    if !args.reads.is_empty() && !matches!(args.role, Role::Viewer | Role::Trainer) {
        return usage(
            "--reads is for viewers and trainers: an admin reads everything, and a join token nothing",
        );
    }
    let words = args.reads.iter().map(String::as_str);
    let reads = (!args.reads.is_empty()).then(|| ReadGrant::of_words(words)).transpose();
    let reads = reads.map_err(|error| Failure::new(Status::Usage, format_args!("--reads: {error}")))?;
    if !joins && (args.node.is_some() || args.name_prefix.is_some() || args.uses.is_some()) {
        return usage("--node, --name-prefix and --uses are for join tokens only");
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None if joins => Role::Join.word().to_owned(),
        None => return usage("--name says who its holder is"),
    };
    let join = joins.then(|| JoinTerms {
        node: args.node.clone(),
        name_prefix: args.name_prefix.clone(),
        ..JoinTerms::new(args.uses.unwrap_or(1))
    });
    let lifetime = lifetime.or(joins.then_some(JOIN_LIFETIME));
    Ok(NewToken { name, role: args.role, max_lanes: args.max_lanes, reads, lifetime, join })
}

/// Returns the fingerprint of the authority of that folder's coordinator: its certificate's chain ends with the
/// authority.
fn fingerprint(data: &Path) -> Result<String, Failure> {
    let path = data.join("tls").join("cert.pem");
    let shown = show_certificates(&path).map_err(|error| Failure::of(Status::Usage, &error))?;
    let authority = shown.iter().rev().find(|certificate| certificate.certified.is_none());
    let found = authority.map(|certificate| certificate.fingerprint.to_string());
    found.ok_or_else(|| {
        let what = format_args!("{} does not end with the authority's certificate", path.display());
        Failure::new(Status::Usage, what)
    })
}

/// Makes the connection string of a coordinator that is dialled at that address.
fn connection(address: &str, token: &str, ca: &str) -> Result<String, Failure> {
    let line = format!("rollhouse://{address}?token={token}&ca={ca}");
    match line.parse::<Address>() {
        Ok(_) => Ok(line),
        Err(error) => Err(Failure::new(Status::Usage, format_args!("--address {address}: {error}"))),
    }
}

/// Gives a token another secret. Nothing is printed of the one before.
fn rotate(args: &TokenRotateArgs, out: &mut Output) -> Result<Status, Failure> {
    existing(&args.folder.data)?;
    let now = SystemTime::now();
    // Before there is a secret that nobody is shown.
    let ca = args.address.as_ref().map(|_| fingerprint(&args.folder.data)).transpose()?;
    let tokens = open(&args.folder.data)?;
    audit_note::note(&args.folder.data, "token_rotate", &args.id)?;
    let (record, token) = tokens.rotate(&args.id, args.grace, now).map_err(failure)?;
    let connect = args.address.as_ref().zip(ca).map(|(address, ca)| connection(address, &token, &ca));
    let connect = connect.transpose()?;
    if args.json {
        let listed = Listed::of(&record, now);
        out.json(&Created { token: &token, connect: connect.as_deref(), listed })?;
        return Ok(Status::Done);
    }
    let until = record.earlier_until().map(|at| format!("until {} (UTC)", When(at * 1000)));
    let until = until.unwrap_or_else(|| "no longer".to_owned());
    say(&format!(
        "the token {} of the {} `{}` has another secret, which is shown only now; the one before holds {until}:",
        record.id,
        record.role.word(),
        record.name
    ));
    writeln!(out, "{}", connect.as_ref().unwrap_or(&token))?;
    Ok(Status::Done)
}

fn revoke(args: &TokenRevokeArgs, out: &mut Output) -> Result<Status, Failure> {
    existing(&args.folder.data)?;
    let now = SystemTime::now();
    audit_note::note(&args.folder.data, "token_revoke", &args.id)?;
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
        ("READS", Align::Left),
        ("LET IN", Align::Right),
        ("STATE", Align::Left),
        ("MADE (UTC)", Align::Left),
        ("EXPIRES (UTC)", Align::Left),
    ]);
    for token in &tokens {
        table.row(vec![
            token.id.clone(),
            token.name.clone(),
            token.role.word().to_owned(),
            match token.max_lanes {
                _ if token.join.is_some() => String::new(),
                Some(lanes) => Count(lanes.into()).to_string(),
                None => "any".to_owned(),
            },
            reads(token).unwrap_or_default(),
            token.join.as_ref().map_or_else(String::new, |terms| format!("{} of {}", terms.used, terms.uses)),
            state(token, now).to_owned(),
            When(token.created * 1000).to_string(),
            token.expires.map_or_else(|| "never".to_owned(), |at| When(at * 1000).to_string()),
        ]);
    }
    table.write(out)?;
    Ok(Status::Done)
}

/// Refuses a folder that does not exist or is not a coordinator's: it is probably a typing error, and not a folder
/// without tokens.
pub(crate) fn existing(data: &Path) -> Result<(), Failure> {
    let wrong = |what: &str| {
        let failure = Failure::new(Status::Usage, format_args!("{} is {what}", data.display()));
        Err(failure.hint("name the coordinator's folder with --data DIR; `token create --new` makes one"))
    };
    match data {
        data if !data.is_dir() => wrong("no folder"),
        data if OF_COORDINATORS.iter().any(|name| data.join(name).exists()) => Ok(()),
        _ => wrong("not a coordinator's folder: it has none of its files"),
    }
}

/// Names in a coordinator's folder: every coordinator that was started, has a certificate or has tokens has one of
/// these.
const OF_COORDINATORS: [&str; 3] = ["coordinator.lock", "tls", TOKENS];

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: &'a str,
    name: &'a str,
    role: &'static str,
    max_lanes: Option<u32>,
    /// Whose recordings, pools and sessions it reads beside its own: `all`, owners, or null for none and for roles that
    /// read none.
    reads: Option<String>,
    state: &'static str,
    created: String,
    expires: Option<String>,
    /// Until when the secret before the last rotation holds, if there is one.
    earlier_until: Option<String>,
    /// The terms of a join token: which nodes it lets in, and how many it has let in.
    join: Option<&'a JoinTerms>,
}

#[derive(Debug, Serialize)]
struct Created<'a> {
    token: &'a str,
    /// The connection string, if the coordinator's address was given.
    connect: Option<&'a str>,
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
            reads: reads(record),
            state: state(record, now),
            created: rfc3339(record.created * 1000),
            expires: record.expires.map(|at| rfc3339(at * 1000)),
            earlier_until: record.earlier_until().map(|at| rfc3339(at * 1000)),
            join: record.join.as_ref(),
        }
    }
}

/// Returns whose recordings a token reads beside its own; `None` for none.
fn reads(record: &TokenRecord) -> Option<String> {
    match (record.role, &record.reads) {
        (Role::Admin | Role::Viewer, None) => Some(ReadGrant::All.to_string()),
        (_, granted) => granted.as_ref().map(ToString::to_string),
    }
}

fn state(record: &TokenRecord, now: SystemTime) -> &'static str {
    match record.check(now) {
        Ok(()) if record.join.as_ref().is_some_and(|terms| terms.used >= terms.uses) => "used up",
        Ok(()) => "valid",
        Err(TokenRefused::Revoked) => "revoked",
        Err(TokenRefused::Expired { .. }) => "expired",
        Err(TokenRefused::NotValid | TokenRefused::Replaced) => "not valid",
    }
}

/// Makes the failure of a command whose tokens cannot be read or changed.
pub fn failure(error: TokenFileError) -> Failure {
    let status = match error {
        TokenFileError::Unknown(_)
        | TokenFileError::Role(_)
        | TokenFileError::Name(_)
        | TokenFileError::Terms
        | TokenFileError::Reads(_) => Status::Usage,
        TokenFileError::TooMany | TokenFileError::Over(..) => Status::Refused,
        TokenFileError::Read { .. }
        | TokenFileError::Parse { .. }
        | TokenFileError::Write { .. }
        | TokenFileError::NoRandomness => Status::Failed,
    };
    let unknown = matches!(error, TokenFileError::Unknown(_));
    let failure = Failure::of(status, &error);
    if unknown { failure.hint("`rollhouse token ls` lists the tokens there are") } else { failure }
}

/// Time for which a join token holds by default: enough to set machines up.
const JOIN_LIFETIME: Duration = Duration::from_secs(3600);
/// The name of the issuer's file, unless coordinator.issuer names another.
const ISSUER: &str = "issuer.pem";
/// The name of the file of tokens in a coordinator's data folder.
pub(crate) const TOKENS: &str = "tokens.json";
