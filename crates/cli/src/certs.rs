//! `rollhouse certs`: the authority of a cluster and what it signs.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rollhouse_wire::{AuthorityError, CertificateAuthority, Role};

use crate::args::{CertsInitArgs, CertsIssueArgs, CertsWhat};
use crate::failure::{Failure, Status};
use crate::output::say;

pub(crate) fn run(what: &CertsWhat) -> Result<Status, Failure> {
    match what {
        CertsWhat::Init(args) => init(args),
        CertsWhat::Issue(args) => issue(args),
    }
}

fn init(args: &CertsInitArgs) -> Result<Status, Failure> {
    private_folder(&args.dir)?;
    let authority = CertificateAuthority::create(&args.dir, days(args.days)).map_err(authority_failure)?;
    let dir = args.dir.display();
    say(&format!("made the authority {}", authority.fingerprint()));
    say(&format!("  {dir}/ca.pem  for everybody"));
    say(&format!("  {dir}/ca.key  for whoever issues certificates, and nobody else"));
    say("next: a certificate each for the coordinator and the nodes, in the folder tls of their data folder");
    say(&format!(
        "  rollhouse certs issue --dir {dir} --role coordinator --name main --output rollhouse-coordinator/tls"
    ));
    say(&format!(
        "  rollhouse certs issue --dir {dir} --role node --name node-1 --output rollhouse-node/tls"
    ));
    Ok(Status::Done)
}

fn issue(args: &CertsIssueArgs) -> Result<Status, Failure> {
    let authority = CertificateAuthority::load(&args.dir).map_err(|error| match error {
        AuthorityError::Read { .. } => {
            authority_failure(error).hint("`rollhouse certs init` makes an authority")
        }
        other => authority_failure(other),
    })?;
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => args.dir.join(format!("{}-{}", args.role.word(), args.name)),
    };
    write_identity(&authority, args.role, &args.name, days(args.days), &folder)?;
    let (role, name, folder) = (args.role.word(), &args.name, folder.display());
    say(&format!("made a certificate for the {role} `{name}`, which holds {} days", args.days));
    say(&format!("  {folder}/cert.pem and key.pem, and beside them the authority's ca.pem"));
    Ok(Status::Done)
}

/// Puts a new certificate, its key and the authority's certificate into a folder, which is made if need be. An
/// authority's file that is there is kept if it trusts this authority already: it may trust another one, too.
pub(crate) fn write_identity(
    authority: &CertificateAuthority,
    role: Role,
    name: &str,
    validity: Duration,
    folder: &Path,
) -> Result<(), Failure> {
    let issued = authority.issue(role, name, validity).map_err(authority_failure)?;
    private_folder(folder)?;
    let ca = folder.join("ca.pem");
    let trusted = fs::read_to_string(&ca).unwrap_or_default();
    if !trusted.contains(authority.certificate_pem().trim()) {
        // What is trusted already stays trusted: an authority is replaced by trusting both for a while.
        let both = format!("{}{trusted}", authority.certificate_pem());
        fs::write(&ca, both).map_err(|error| cannot_write(&ca, &error))?;
    }
    issued.write(&folder.join("cert.pem"), &folder.join("key.pem")).map_err(authority_failure)
}

/// Makes a folder that only its owner can look into, and those above it.
pub(crate) fn private_folder(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| cannot_write(folder, &error))
}

/// Writes a file that only its owner can read, whole or not at all.
pub(crate) fn write_private(path: &Path, contents: &str) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let write = || {
        // One that a crash left may have another mode.
        let _removed = fs::remove_file(beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()?;
        fs::rename(beside, path)
    };
    write().map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Status::Failed, format_args!("{} cannot be written: {error}", path.display()))
}

pub(crate) fn authority_failure(error: AuthorityError) -> Failure {
    let status = match error {
        AuthorityError::Exists(_) => Status::Refused,
        AuthorityError::Role(_) | AuthorityError::Name(_) => Status::Usage,
        AuthorityError::Read { .. } | AuthorityError::BadKey { .. } | AuthorityError::NoCertificate(_) => {
            Status::Usage
        }
        AuthorityError::Write { .. } | AuthorityError::Make(_) | AuthorityError::Useless(_) => Status::Failed,
    };
    Failure::of(status, &error)
}

pub(crate) fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 86_400)
}
