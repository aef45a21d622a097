//! `rollhouse certs`: the authority of a cluster and its certificates.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rollhouse_core::{lock_refused, open_regular_with, read_regular_text};
use rollhouse_wire::{
    AuthorityError, CA_CERTIFICATE, CertificateAuthority, Certified, Issued, NodeIssuer, Readers, Revoked,
    Role, ShownCertificate, is_name, replace_file, show_certificates,
};
use serde::Serialize;

use crate::args::{
    CertsInitArgs, CertsIssueArgs, CertsIssuerArgs, CertsRevokeArgs, CertsRevokedArgs, CertsWhat,
};
use crate::audit_note;
use crate::failure::{Failure, Status};
use crate::human::{When, counted, rfc3339};
use crate::output::{Output, say};
use crate::private_folder::{cannot_write, private_folder};
use crate::table::{Align, Table};
use crate::token::existing;

pub(crate) fn run(what: &CertsWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        CertsWhat::Init(args) => init(args, out),
        CertsWhat::Issue(args) => issue(args, out),
        CertsWhat::Issuer(args) => issuer(args, out),
        CertsWhat::Revoke(args) => revoke(args, out),
        CertsWhat::Revoked(args) => revoked(args, out),
        CertsWhat::Show(args) => show(&args.dir, args.json, out),
        CertsWhat::Fingerprint(args) => {
            let shown = shown(&args.dir.join(CA_CERTIFICATE))?;
            for certificate in shown {
                writeln!(out, "{}", certificate.fingerprint)?;
            }
            Ok(Status::Done)
        }
    }
}

/// Shows the holders of a folder's certificates, and how long they hold.
fn show(dir: &Path, json: bool, out: &mut Output) -> Result<Status, Failure> {
    let held = ["cert.pem", "identity.pem"].map(|name| dir.join(name)).into_iter().find(|path| path.exists());
    let path = match held {
        _ if dir.is_file() => dir.to_owned(),
        Some(path) => path,
        None => dir.join(CA_CERTIFICATE),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for ShownCertificate { fingerprint, certified, validity } in shown(&path)? {
        let of = certified
            .as_ref()
            .map_or_else(|| "the authority".to_owned(), |of| format!("{} `{}`", of.role.word(), of.name));
        let until = u64::try_from(validity.not_after).unwrap_or(0);
        let days = validity.left(now).as_secs() / 86_400;
        if json {
            let expires = rfc3339(until * 1000);
            out.json(&CertificateRow {
                role: certified.as_ref().map(|of| of.role.word()),
                name: certified.as_ref().map(|of| of.name.as_str()),
                fingerprint: fingerprint.to_string(),
                expires,
                days_left: days,
            })?;
        } else {
            writeln!(out, "{of}: holds until {} (UTC), {}", When(until * 1000), counted(days, "day"))?;
            writeln!(out, "  {fingerprint}")?;
        }
    }
    Ok(Status::Done)
}

/// The output of `--json`; the field names are part of the interface. An authority has neither role nor name.
#[derive(Debug, Serialize)]
struct CertificateRow<'a> {
    role: Option<&'static str>,
    name: Option<&'a str>,
    fingerprint: String,
    expires: String,
    days_left: u64,
}

fn shown(path: &Path) -> Result<Vec<ShownCertificate>, Failure> {
    show_certificates(path).map_err(|error| Failure::of(Status::Usage, &error))
}

fn init(args: &CertsInitArgs, out: &mut Output) -> Result<Status, Failure> {
    private_folder(&args.dir)?;
    let authority = CertificateAuthority::create(&args.dir, days(args.days)).map_err(authority_failure)?;
    audit_note::note(&args.dir, "authority_create", &authority.fingerprint().to_string())?;
    if args.json {
        return show(&args.dir, true, out);
    }
    let dir = args.dir.display();
    say(&format!("made the authority {}", authority.fingerprint()));
    say(&format!("  {dir}/ca.pem  for everybody"));
    say(&format!("  {dir}/ca.key  for those who issue certificates, and nobody else"));
    say("next: a certificate each for the coordinator and the nodes, in the folder tls of their data folder");
    say(&format!(
        "  rollhouse certs issue --dir {dir} --role coordinator --name main --output rollhouse-coordinator/tls"
    ));
    say(&format!(
        "  rollhouse certs issue --dir {dir} --role node --name node-1 --output rollhouse-node/tls"
    ));
    Ok(Status::Done)
}

/// Makes the issuer with which a coordinator lets nodes in.
fn issuer(args: &CertsIssuerArgs, out: &mut Output) -> Result<Status, Failure> {
    let authority = load(&args.dir)?;
    if let Some(folder) = args.output.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        private_folder(folder)?;
    }
    audit_note::note(&args.dir, "issuer_create", &args.output.display().to_string())?;
    NodeIssuer::create(&authority, days(args.days), &args.output).map_err(authority_failure)?;
    if args.json {
        return show(&args.output, true, out);
    }
    say(&format!("made an issuer of nodes' certificates, which holds {} days", args.days));
    say(&format!("  {}  for the coordinator, and nobody else", args.output.display()));
    say("next: a token for each machine that is to be a node");
    say("  rollhouse token create --role join --address HOST:7600");
    Ok(Status::Done)
}

/// Revokes the certificates that a name has now, at a coordinator.
fn revoke(args: &CertsRevokeArgs, out: &mut Output) -> Result<Status, Failure> {
    existing(&args.folder.data)?;
    if !is_name(&args.name) {
        return Err(Failure::new(
            Status::Usage,
            format_args!("`{}` is not a name that a certificate can have", args.name),
        ));
    }
    let path = args.folder.data.join(REVOKED);
    if let Some(folder) = path.parent() {
        private_folder(folder)?;
    }
    // Of two who revoke at a time neither undoes what the other does.
    let lock = path.with_extension("lock");
    let held = open_regular_with(OpenOptions::new().create(true).append(true).mode(0o600), &lock);
    let _held = held
        .and_then(|file| file.lock().map(|()| file).map_err(lock_refused))
        .map_err(|error| cannot_write(&lock, &error))?;
    let subject = format!("{} `{}`", args.role.word(), args.name);
    audit_note::note(&args.folder.data, "certificate_revoke", &subject)?;
    let mut revoked = Revoked::read(&path).map_err(|error| Failure::of(Status::Usage, &error))?;
    let certified = Certified { role: args.role, name: args.name.clone() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    revoked.revoke(&certified, now);
    revoked.write(&path).map_err(|error| cannot_write(&path, &error))?;
    if args.json {
        let (role, name) = (args.role.word(), args.name.as_str());
        out.json(&RevokedRow { role, name, until: rfc3339(now.as_secs() * 1000) })?;
        return Ok(Status::Done);
    }
    say(&format!("the certificates that the {certified} has had until now are revoked"));
    say(
        "a running coordinator ends its connections within a second; a new certificate of this name is believed if it",
    );
    say("is issued with `rollhouse certs issue --from-now`, or by a new join token");
    Ok(Status::Done)
}

fn revoked(args: &CertsRevokedArgs, out: &mut Output) -> Result<Status, Failure> {
    existing(&args.folder.data)?;
    let revoked = Revoked::read(&args.folder.data.join(REVOKED));
    let revoked = revoked.map_err(|error| Failure::of(Status::Usage, &error))?;
    let mut table = Table::new(&[("ROLE", Align::Left), ("NAME", Align::Left), ("UNTIL (UTC)", Align::Left)]);
    for (role, name, until) in revoked.iter() {
        if args.json {
            out.json(&RevokedRow { role, name, until: rfc3339(until.saturating_mul(1000)) })?;
        } else {
            table.row(vec![role.to_owned(), name.to_owned(), When(until.saturating_mul(1000)).to_string()]);
        }
    }
    if !args.json {
        table.write(out)?;
    }
    Ok(Status::Done)
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct RevokedRow<'a> {
    role: &'a str,
    name: &'a str,
    until: String,
}

/// Bytes of a file of authorities: dozens of certificates.
const MAX_CA_BYTES: u64 = 256 << 10;
/// The file of revoked certificates in a coordinator's folder, unless `tls.revoked` names another.
const REVOKED: &str = "tls/revoked";

fn load(dir: &Path) -> Result<CertificateAuthority, Failure> {
    CertificateAuthority::load(dir).map_err(|error| match error {
        AuthorityError::Read { .. } => {
            authority_failure(error).hint("`rollhouse certs init` makes an authority")
        }
        other => authority_failure(other),
    })
}

fn issue(args: &CertsIssueArgs, out: &mut Output) -> Result<Status, Failure> {
    let authority = load(&args.dir)?;
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => args.dir.join(format!("{}-{}", args.role.word(), args.name)),
    };
    audit_note::note(&args.dir, "certificate_issue", &format!("{} `{}`", args.role.word(), args.name))?;
    let issued = match args.from_now {
        true => authority.issue_from_now(args.role, &args.name, days(args.days)),
        false => authority.issue(args.role, &args.name, days(args.days)),
    };
    place(&authority, &issued.map_err(authority_failure)?, &folder)?;
    if args.json {
        return show(&folder, true, out);
    }
    let (role, name, folder) = (args.role.word(), &args.name, folder.display());
    say(&format!("made a certificate for the {role} `{name}`, which holds {} days", args.days));
    say(&format!("  {folder}/cert.pem and key.pem, and beside them the authority's ca.pem"));
    Ok(Status::Done)
}

/// Puts a new certificate, its key and the authority's certificate into a folder, which is made if need be. An
/// authority's file in the folder is kept if it trusts this authority already: it may trust another one, too.
pub fn write_identity(
    authority: &CertificateAuthority,
    role: Role,
    name: &str,
    validity: Duration,
    folder: &Path,
) -> Result<(), Failure> {
    place(authority, &authority.issue(role, name, validity).map_err(authority_failure)?, folder)
}

fn place(authority: &CertificateAuthority, issued: &Issued, folder: &Path) -> Result<(), Failure> {
    private_folder(folder)?;
    let ca = folder.join("ca.pem");
    let trusted = read_regular_text(&ca, MAX_CA_BYTES).unwrap_or_default();
    if !trusted.contains(authority.certificate_pem().trim()) {
        // What is trusted already stays trusted: an authority is replaced by trusting both for a while.
        let both = format!("{}{trusted}", authority.certificate_pem());
        replace_file(&ca, both.as_bytes(), Readers::All).map_err(|error| cannot_write(&ca, &error))?;
    }
    issued.write(&folder.join("cert.pem"), &folder.join("key.pem")).map_err(authority_failure)
}

/// Writes a file that only its owner can read, whole or not at all.
pub fn write_private(path: &Path, contents: &str) -> Result<(), Failure> {
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

/// Makes the failure of a command whose authority cannot do what it was asked to.
pub fn authority_failure(error: AuthorityError) -> Failure {
    let status = match error {
        AuthorityError::Exists(_) => Status::Refused,
        AuthorityError::Role(_) | AuthorityError::Name(_) | AuthorityError::NodeName(_) => Status::Usage,
        AuthorityError::Read { .. } | AuthorityError::BadKey { .. } | AuthorityError::NoCertificate(_) => {
            Status::Usage
        }
        AuthorityError::Write { .. }
        | AuthorityError::Make(_)
        | AuthorityError::Useless(_)
        | AuthorityError::Request(_) => Status::Failed,
    };
    Failure::of(status, &error)
}

pub(crate) fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 86_400)
}
