//! The arguments of commands about clusters: processes, identities, settings, and looking.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use rollhouse_client::MAX_LISTED;
use rollhouse_config::{Given, Role as ConfigRole, Setting, Time};
use rollhouse_wire::Role;

use super::{help, number};

/// The cluster to ask, and the credentials for it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConnectArgs {
    /// The cluster: rollhouse://HOST:PORT?token=...&ca=..., or a file that holds that line [env:
    /// ROLLHOUSE_CONNECT]
    #[arg(long, value_name = "URL", help_heading = help::CLUSTER)]
    pub(crate) connect: Option<String>,
    /// The token, if it is not in the URL [env: ROLLHOUSE_TOKEN, or ROLLHOUSE_TOKEN_FILE, which names a file with it]
    #[arg(long, value_name = "TOKEN", help_heading = help::CLUSTER)]
    pub(crate) token: Option<String>,
    /// The cluster's authority, if it is not in the URL: a PEM file, or sha256: and its fingerprint [env:
    /// ROLLHOUSE_CA]
    #[arg(long, value_name = "CA", help_heading = help::CLUSTER)]
    pub(crate) ca: Option<String>,
}

/// The arguments of a command that only asks and shows.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of a command that lists.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// List at most that many
    #[arg(long, value_name = "N", default_value_t = MAX_LISTED, value_parser = number::any::<usize>)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// The node's name, as `rollhouse nodes` shows it
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Return when the node has ended; it fails if the node is lost or goes on
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) look: LookArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndrainArgs {
    /// The node's name, as `rollhouse nodes` shows it
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) look: LookArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CloseArgs {
    /// The pool: a run's id, as `rollhouse rollout` prints it, or what `rollhouse sessions` shows before the slash
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments that every service takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServiceArgs {
    /// A TOML file with settings; config/ has one for each service, with every key at its default
    #[arg(long, value_name = "FILE", help_heading = help::SETTINGS)]
    pub(crate) config: Option<PathBuf>,
    /// Set any key, as in --set node.threads=4; may be given several times
    #[arg(long, value_name = "KEY=VALUE", help_heading = help::SETTINGS)]
    pub(crate) set: Vec<Assignment>,
    /// The lowest level of lines on stderr, log.level: off, error, warn, info, debug or trace, or as in info,node=debug
    /// [default: info]
    #[arg(long, value_name = "LEVEL", help_heading = help::SETTINGS)]
    pub(crate) log: Option<String>,
    /// The format of lines on stderr, log.format: text, json, or auto, which is text on a terminal and else JSON
    /// [default: auto]
    #[arg(long, value_name = "FORMAT", help_heading = help::SETTINGS)]
    pub(crate) log_format: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The service that is to run here
    #[arg(long = "for", value_name = "ROLE", value_enum)]
    pub(crate) role: DoctorRole,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// The services for which a machine is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DoctorRole {
    Coordinator,
    Node,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Address to ask instead of those of this machine's coordinator and node [env: ROLLHOUSE_METRICS__LISTEN]
    /// [default: 127.0.0.1:7601 and 127.0.0.1:7611, those of the two that run]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) at: Option<String>,
    /// Ask whether it makes progress (/healthz) instead of whether it takes new work (/readyz)
    #[arg(long)]
    pub(crate) live: bool,
    /// Print one JSON object a line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Folder of certificates, token and recordings [default: ./rollhouse-cluster]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<String>,
    /// Interpreter in whose process this runs, if it does, which hosts Python envs unless the config names another; else it is
    /// looked for.
    #[arg(skip)]
    pub(crate) python: Option<OsString>,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CoordinatorArgs {
    /// IP address and UDP port where nodes and clients dial in [default: 0.0.0.0:7600]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Folder of its term, tokens, store and tls/ [default: ./rollhouse-coordinator]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<String>,
    /// Least term of this start, for a data folder that was restored or is behind: greater than any before
    #[arg(long, value_name = "TERM")]
    pub(crate) least_term: Option<String>,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The coordinator it dials [default: where it joined, else 127.0.0.1:7600]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) coordinator: Option<String>,
    /// The name under which it joins; later it goes by the name in its certificate [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Credentials for joining while it has no certificate: a connection string with a join token, or a file that holds one,
    /// which does not show in `ps` [env: ROLLHOUSE_NODE__JOIN, or ROLLHOUSE_NODE__JOIN_FILE]
    #[arg(long, value_name = "URL")]
    pub(crate) join: Option<String>,
    /// IP address and UDP port where trainers dial in [default: 0.0.0.0:7610]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Folder of its spool and tls/ [default: ./rollhouse-node]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<String>,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: ConfigWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigWhat {
    /// Check whether a file is right
    Check(ConfigCheckArgs),
    /// Show every setting with its value and where that comes from
    Show(ConfigShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigCheckArgs {
    /// The TOML file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The service whose file it is: coordinator, node or local
    #[arg(long = "for", value_name = "ROLE", value_parser = config_role)]
    pub(crate) role: ConfigRole,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// The service: coordinator, node or local
    #[arg(long = "for", value_name = "ROLE", value_parser = config_role)]
    pub(crate) role: ConfigRole,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    #[command(subcommand)]
    pub(crate) what: CertsWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertsWhat {
    /// Make the authority that signs a cluster's certificates
    Init(CertsInitArgs),
    /// Make a certificate for a coordinator, a node or a person
    Issue(CertsIssueArgs),
    /// Make the issuer with which a coordinator lets in nodes that show a join token
    Issuer(CertsIssuerArgs),
    /// Revoke the certificates of a name at a coordinator, from now on
    Revoke(CertsRevokeArgs),
    /// List the names whose certificates were revoked
    Revoked(CertsRevokedArgs),
    /// Show whose a certificate is and how long it holds
    Show(CertsShowArgs),
    /// Print the authority's fingerprint, by which clients know the cluster
    Fingerprint(CertsFingerprintArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CertsInitArgs {
    /// Folder of the authority: ca.pem for everybody, ca.key for those who issue certificates
    #[arg(long, value_name = "DIR", default_value = DEFAULT_AUTHORITY)]
    pub(crate) dir: PathBuf,
    /// Days for which it holds
    #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = number::whole::<u32, 1, MAX_DAYS>)]
    pub(crate) days: u32,
    /// Print what `certs show --json` prints about it instead of what to do next
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CertsIssuerArgs {
    /// Folder of the authority, which signs it
    #[arg(long, value_name = "DIR", default_value = DEFAULT_AUTHORITY)]
    pub(crate) dir: PathBuf,
    /// The file; one that is there is replaced, and a running coordinator takes the new one
    #[arg(short, long, value_name = "FILE", default_value = "./rollhouse-coordinator/issuer.pem")]
    pub(crate) output: PathBuf,
    /// Days for which it and certificates signed by it hold
    #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = number::whole::<u32, 1, MAX_DAYS>)]
    pub(crate) days: u32,
    /// Print what `certs show --json` prints about it instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CertsRevokeArgs {
    /// Role of its holder: coordinator, node, trainer, viewer or admin
    #[arg(long, value_name = "ROLE", value_parser = certified_role)]
    pub(crate) role: Role,
    /// Name of its holder; all certificates of this name that exist now are revoked
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) folder: TokenFolderArgs,
    /// Print what `certs revoked --json` prints about it instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CertsRevokedArgs {
    #[command(flatten)]
    pub(crate) folder: TokenFolderArgs,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CertsShowArgs {
    /// Folder of a certificate, with cert.pem, or of an authority, with ca.pem; or a file of certificates
    #[arg(value_name = "DIR", default_value = DEFAULT_AUTHORITY)]
    pub(crate) dir: PathBuf,
    /// Print one JSON object a certificate
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CertsFingerprintArgs {
    /// Folder with the authority's ca.pem
    #[arg(value_name = "DIR", default_value = DEFAULT_AUTHORITY)]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CertsIssueArgs {
    /// Role of its holder: coordinator, node, trainer, viewer or admin
    #[arg(long, value_name = "ROLE", value_parser = certified_role)]
    pub(crate) role: Role,
    /// Name of its holder; a node goes by this name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    /// Folder of the authority
    #[arg(long, value_name = "DIR", default_value = DEFAULT_AUTHORITY)]
    pub(crate) dir: PathBuf,
    /// Folder for ca.pem, cert.pem and key.pem; those there are replaced, and a running process takes the new
    /// ones [default: ROLE-NAME in the authority's folder]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Days for which it holds
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = number::whole::<u32, 1, MAX_DAYS>)]
    pub(crate) days: u32,
    /// Let it begin now instead of an hour ago, so that it is not among those of its name that were revoked until now
    #[arg(long)]
    pub(crate) from_now: bool,
    /// Print what `certs show --json` prints about it instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) what: TokenWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenWhat {
    /// Make a token; it is printed once and stored only as a hash
    Create(TokenCreateArgs),
    /// Give a token another secret, which is printed once; its holder's pools go on, and the secret before holds for a time
    Rotate(TokenRotateArgs),
    /// Make a token invalid at once
    Revoke(TokenRevokeArgs),
    /// List the tokens
    Ls(TokenLsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// Role of its holder: trainer, viewer or admin; or join: become a node, and nothing else
    #[arg(long, value_name = "ROLE", value_parser = token_role)]
    pub(crate) role: Role,
    /// Name of its holder, for listings [default of a join token: join]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Number of lanes that its holder may have at a time [default: any number]
    #[arg(long, value_name = "N", value_parser = number::positive::<u32>)]
    pub(crate) max_lanes: Option<u32>,
    /// Whose recordings, pools and sessions it reads beside its own: an owner as `rollhouse sessions` shows it, a NAME
    /// for all tokens and the certificate of that name, or all; may be given again [default of a viewer: all, of a
    /// trainer: nobody's]
    #[arg(long, value_name = "OWNER|all")]
    pub(crate) reads: Vec<String>,
    /// Days for which it holds [default: until it is revoked]
    #[arg(long, value_name = "DAYS", value_parser = number::whole::<u32, 1, MAX_DAYS>)]
    pub(crate) days: Option<u32>,
    /// Time for which it holds, with a unit, as in "30 min" or "12 h" [default of a join token: 1 h]
    #[arg(long, value_name = "TIME", conflicts_with = "days", value_parser = lifetime)]
    pub(crate) expires: Option<Duration>,
    /// The only node that a join token lets in
    #[arg(long, value_name = "NAME", conflicts_with = "name_prefix")]
    pub(crate) node: Option<String>,
    /// The prefix of the names of nodes that a join token lets in [default: any name]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) name_prefix: Option<String>,
    /// Number of nodes that a join token lets in [default: 1]
    #[arg(long, value_name = "N", value_parser = number::whole::<u32, 1, 1_000_000>)]
    pub(crate) uses: Option<u32>,
    /// Address at which the coordinator is dialled: print the connection string instead of the token alone
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) address: Option<String>,
    /// Make the folder if it does not exist or is not a coordinator's
    #[arg(long)]
    pub(crate) new: bool,
    #[command(flatten)]
    pub(crate) folder: TokenFolderArgs,
    /// Print one JSON object instead of the token alone
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRotateArgs {
    /// The token's id, as `rollhouse token ls` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Time for which the secret before still holds, with a unit, as in "30 min"; "0 s" ends it at once
    #[arg(long, value_name = "TIME", default_value = "1 h", value_parser = grace)]
    pub(crate) grace: Duration,
    /// Print a connection string for the coordinator at that address, with the token in it
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
    #[command(flatten)]
    pub(crate) folder: TokenFolderArgs,
    /// Print the token and what `token ls --json` prints about it
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArgs {
    /// The token's id, as `rollhouse token ls` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) folder: TokenFolderArgs,
    /// Print what `token ls --json` prints about it instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// The coordinator's folder, or an authority's, on its machine, instead of a cluster's coordinator [default:
    /// ./rollhouse-coordinator, if no cluster is named]
    #[arg(long, value_name = "DIR", env = "ROLLHOUSE_COORDINATOR__DATA")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Number of lines, the newest
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number::any::<u32>)]
    pub(crate) limit: u32,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenLsArgs {
    #[command(flatten)]
    pub(crate) folder: TokenFolderArgs,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenFolderArgs {
    /// The coordinator's folder, on the machine on which it runs; the coordinator need not be restarted
    #[arg(
        long,
        value_name = "DIR",
        env = "ROLLHOUSE_COORDINATOR__DATA",
        default_value = COORDINATOR_DATA
    )]
    pub(crate) data: PathBuf,
}

/// The folder of a coordinator whose settings name no other.
pub(crate) const COORDINATOR_DATA: &str = "./rollhouse-coordinator";

/// An assignment, `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("KEY=VALUE is wanted, as in node.threads=4")?;
        Ok(Self { key: key.trim().to_owned(), value: value.to_owned() })
    }
}

fn config_role(text: &str) -> Result<ConfigRole, String> {
    let role = ConfigRole::ALL.into_iter().find(|role| role.word() == text);
    role.ok_or_else(|| "known are coordinator, node and local".to_owned())
}

fn certified_role(text: &str) -> Result<Role, String> {
    let roles = [Role::Coordinator, Role::Node, Role::Trainer, Role::Viewer, Role::Admin];
    let role = roles.into_iter().find(|role| role.word() == text);
    role.ok_or_else(|| "known are coordinator, node, trainer, viewer and admin".to_owned())
}

fn token_role(text: &str) -> Result<Role, String> {
    let roles = [Role::Trainer, Role::Viewer, Role::Admin, Role::Join];
    let role = roles.into_iter().find(|role| role.word() == text);
    role.ok_or_else(|| {
        "known are trainer, viewer, admin and join; nodes and coordinators need certificates".to_owned()
    })
}

fn grace(text: &str) -> Result<Duration, String> {
    let mut time = Time(Duration::ZERO);
    match time.set(&Given::Word(text.to_owned())) {
        Ok(()) => Ok(time.0),
        Err(why) => Err(format!("expected {}; {why}", time.wanted())),
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let mut time = Time(Duration::ZERO);
    match time.set(&Given::Word(text.to_owned())) {
        Ok(()) if time.0 < Duration::from_secs(1) => Err("at least 1 s".to_owned()),
        Ok(()) => Ok(time.0),
        Err(why) => Err(format!("expected {}; {why}", time.wanted())),
    }
}

/// The most days for which a certificate or token is made.
const MAX_DAYS: u64 = 36_500;
const DEFAULT_AUTHORITY: &str = "./rollhouse-ca";
