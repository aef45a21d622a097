//! Connections to a cluster: finds its address and the credentials, and connects.

use std::path::Path;
use std::time::Duration;

use rollhouse_client::{
    Address, AddressError, Cluster, ConnectError, ConnectOptions, RequestError, trust_of,
};
use rollhouse_core::read_regular_text;
use rollhouse_wire::{CallError, DialError, RefusalCode, Trust};

use crate::args::{ConnectArgs, environment};
use crate::failure::{Failure, Status};

/// Connects to the named cluster, or, if none is named, to the one that `rollhouse up` runs from this folder.
pub(crate) fn connect(args: &ConnectArgs) -> Result<Cluster, Failure> {
    let text = match args.url() {
        Some(text) => text,
        None => read_regular_text(DEFAULT_CONNECTION, MAX_CONNECTION_BYTES).map_err(|_| {
            Failure::new(Status::Usage, "no cluster is named")
                .hint("give --connect URL or set $ROLLHOUSE_CONNECT; `rollhouse up` starts one here and prints its URL")
        })?,
    };
    let address = parse(&text)?;
    let given = |flag: &Option<String>, variable| flag.clone().or_else(|| environment(variable));
    let ca = given(&args.ca, "ROLLHOUSE_CA").map(|text| trust(&text)).transpose()?;
    let options = ConnectOptions {
        token: given(&args.token, "ROLLHOUSE_TOKEN").map_or_else(token_of_file, |token| Ok(Some(token)))?,
        ca,
        connect_timeout: CONNECT_TIMEOUT,
        ..ConnectOptions::default()
    };
    let shown = address.to_string();
    Cluster::connect(&address, options, None).map_err(|error| connect_failure(&error, &shown))
}

/// Reads a URL, or the contents of the file with that name.
pub(crate) fn parse(text: &str) -> Result<Address, Failure> {
    let text = text.trim();
    if text.contains("://") || !Path::new(text).is_file() {
        return text.parse().map_err(|error: AddressError| Failure::of(Status::Usage, &error).hint(FORM));
    }
    let held = read_regular_text(text, MAX_CONNECTION_BYTES)
        .map_err(|error| Failure::new(Status::Usage, format_args!("{text} cannot be read: {error}")))?;
    held.trim().parse().map_err(|error: AddressError| {
        Failure::new(Status::Usage, format_args!("{text} holds no connection string: {error}")).hint(FORM)
    })
}

fn trust(text: &str) -> Result<Trust, Failure> {
    trust_of(text).map_err(|error| Failure::of(Status::Usage, &error))
}

/// Reads the token in the file that `$ROLLHOUSE_TOKEN_FILE` names: containers are given secrets in this way.
fn token_of_file() -> Result<Option<String>, Failure> {
    let Some(path) = environment("ROLLHOUSE_TOKEN_FILE") else { return Ok(None) };
    let held = read_regular_text(&path, MAX_CONNECTION_BYTES);
    let token = held.map(|text| Some(text.trim().to_owned()));
    token.map_err(|error| {
        let what = format_args!("$ROLLHOUSE_TOKEN_FILE: {path} cannot be read: {error}");
        Failure::new(Status::Usage, what)
    })
}

fn connect_failure(error: &ConnectError, address: &str) -> Failure {
    let status = match error {
        ConnectError::Address(_) | ConnectError::NoCa | ConnectError::Identity(_) => Status::Usage,
        ConnectError::Dial(error) => dial_status(error),
        ConnectError::Interrupted => Status::Interrupted,
        _ => Status::Failed,
    };
    let failure = Failure::of(status, error);
    match status {
        Status::Unavailable => failure.hint(format_args!("tried {address}; is a coordinator running there?")),
        Status::Refused if matches!(error, ConnectError::Dial(DialError::Refused(_))) => {
            failure.hint("`rollhouse token ls` on the coordinator's machine shows which tokens are valid")
        }
        _ => failure,
    }
}

/// Makes the failure of a command from that of a request.
pub(crate) fn request_failure(error: &RequestError) -> Failure {
    let status = match error {
        RequestError::Dial(error) => dial_status(error),
        RequestError::Call { error: CallError::Refused(refusal), .. } => refusal_status(refusal.code),
        RequestError::Interrupted => Status::Interrupted,
        _ => Status::Unavailable,
    };
    Failure::of(status, error)
}

fn dial_status(error: &DialError) -> Status {
    match error {
        DialError::Refused(refusal) => refusal_status(refusal.code),
        // Somebody answers, who is not the coordinator we trust or does not speak to us.
        DialError::Identity { .. } | DialError::Version { .. } => Status::Refused,
        _ => Status::Unavailable,
    }
}

const fn refusal_status(code: RefusalCode) -> Status {
    match code {
        RefusalCode::BadRequest | RefusalCode::NotFound => Status::Usage,
        RefusalCode::Busy | RefusalCode::Draining => Status::Unavailable,
        RefusalCode::Internal => Status::Failed,
        _ => Status::Refused,
    }
}

/// Time for which a coordinator that does not answer is dialled again: somebody waits at the terminal.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The file in which `rollhouse up` leaves its connection string, below its data folder.
pub(crate) const CONNECTION: &str = "connection";
/// Bytes of a file with a connection string, a token or the name of a place.
pub(crate) const MAX_CONNECTION_BYTES: u64 = 64 << 10;
/// The path of that file for the default data folder.
const DEFAULT_CONNECTION: &str = "./rollhouse-cluster/connection";

const FORM: &str = "a cluster is named by rollhouse://HOST:PORT?token=TOKEN&ca=sha256:HEX, or by a file that holds such a line";
