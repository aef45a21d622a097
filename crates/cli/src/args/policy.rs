//! The arguments that say which policy chooses actions, and those of `rollhouse policy`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, Subcommand};
use rollhouse_core::{EnvId, read_regular};
use rollhouse_policy::{Builtin, Dialect, GivenNet, MAX_NET_BYTES, Model, Sampling};
use rollhouse_wire::{BadPolicyRef, PolicyRef};

use super::{ConnectArgs, PluginArgs, PythonArgs, number};
use crate::failure::{Failure, Status};

/// A policy, and how it draws actions.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Policy that chooses the actions: random, noop, a file of a net (FILE.safetensors, FILE.onnx), or with --connect one of
    /// `rollhouse policy ls` (NAME or NAME@VERSION)
    #[arg(long, value_name = "NAME", default_value_t = PolicyName::Builtin(Builtin::Random))]
    pub(crate) policy: PolicyName,
    /// Take the likeliest action of a net instead of one that is drawn
    #[arg(long)]
    pub(crate) deterministic_policy: bool,
    /// Divide a net's logits by this, or multiply its standard deviations: below 1 it draws more of what is likely
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Take an action of all allowed ones alike instead of the net's, with this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) epsilon: Option<f64>,
}

impl PolicyArgs {
    /// Returns the model that plays on this machine: reads its file, if it is one of a file.
    pub(crate) fn model(&self) -> Result<Arc<dyn Model>, Failure> {
        let net: GivenNet = match &self.policy {
            PolicyName::Builtin(builtin) => {
                self.refuse_drawing()?;
                return Ok(Arc::new(*builtin));
            }
            PolicyName::File(path) => net_of(path, &read(path)?)?,
            PolicyName::OfCluster(policy) => return Err(of_no_cluster(policy)),
        };
        let net = match self.sampling(net.as_model()) {
            Some(sampling) => net.with_sampling(sampling),
            None => Ok(net),
        };
        Ok(net.map_err(|error| Failure::of(Status::Usage, &error))?.into_model())
    }

    /// Returns how a model is to draw actions, if that is asked for.
    pub(crate) fn sampling(&self, model: &dyn Model) -> Option<Sampling> {
        let Sampling { deterministic, temperature, epsilon } = model.sampling()?;
        self.draws_otherwise().then(|| Sampling {
            deterministic: deterministic || self.deterministic_policy,
            temperature: self.temperature.unwrap_or(temperature),
            epsilon: self.epsilon.unwrap_or(epsilon),
        })
    }

    /// Refuses what is for nets, of a policy that is none.
    pub(crate) fn refuse_drawing(&self) -> Result<(), Failure> {
        if !self.draws_otherwise() {
            return Ok(());
        }
        let message = "--deterministic-policy, --temperature and --epsilon are for nets";
        Err(Failure::new(Status::Usage, message)
            .hint(format_args!("{} draws nothing from a net; name a file with --policy", self.policy)))
    }

    /// Returns whether actions are to be drawn in another way than the policy's file says.
    pub(crate) const fn draws_otherwise(&self) -> bool {
        self.deterministic_policy || self.temperature.is_some() || self.epsilon.is_some()
    }
}

/// A policy as it is named: a built-in one, one of a file, or one that a cluster has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PolicyName {
    Builtin(Builtin),
    File(PathBuf),
    OfCluster(PolicyRef),
}

impl PolicyName {
    /// Returns the model that draws as its file says.
    pub(crate) fn model(&self) -> Result<Arc<dyn Model>, Failure> {
        match self {
            Self::Builtin(builtin) => Ok(Arc::new(*builtin)),
            Self::File(path) => Ok(net_of(path, &read(path)?)?.into_model()),
            Self::OfCluster(policy) => Err(of_no_cluster(policy)),
        }
    }
}

impl FromStr for PolicyName {
    type Err = BadPolicyRef;

    fn from_str(name: &str) -> Result<Self, BadPolicyRef> {
        if let Ok(builtin) = name.parse() {
            return Ok(Self::Builtin(builtin));
        }
        if Path::new(name).extension().is_some_and(|ending| ENDINGS.iter().any(|of| ending == *of)) {
            return Ok(Self::File(name.into()));
        }
        name.parse().map(Self::OfCluster)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(builtin) => builtin.fmt(f),
            Self::File(path) => path.display().fmt(f),
            Self::OfCluster(policy) => policy.fmt(f),
        }
    }
}

/// Endings of files of nets.
const ENDINGS: [&str; 2] = ["safetensors", "onnx"];

/// Reads the file of a policy.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_regular(path, MAX_NET_BYTES).map_err(|error| {
        Failure::new(Status::Usage, format_args!("policy {} cannot be read: {error}", path.display()))
    })
}

/// Returns the net of a file's bytes, under the file's name without its ending.
pub(crate) fn net_of(path: &Path, bytes: &[u8]) -> Result<GivenNet, Failure> {
    GivenNet::of_bytes(&stem(path), bytes).map_err(|error| {
        let failure = Failure::of(Status::Usage, &error);
        Failure::new(Status::Usage, format_args!("policy {}: {}", path.display(), failure.message()))
    })
}

/// Returns the name of a file without its ending.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

pub(crate) fn of_no_cluster(policy: &PolicyRef) -> Failure {
    let message = format_args!("`{policy}` is neither a built-in policy nor a file, and no cluster is named");
    Failure::new(Status::Usage, message).hint(
        "built in are random and noop, a file ends in .safetensors or .onnx; with --connect URL it is one of the cluster's",
    )
}

/// The arguments of `rollhouse policy`.
#[derive(Debug, Args)]
pub(crate) struct PoliciesArgs {
    #[command(subcommand)]
    pub(crate) what: PoliciesWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoliciesWhat {
    /// Store a file as the next version of a policy; a file that it has already stays the version that it is
    Put(PolicyPutArgs),
    /// List policies with their versions
    Ls(PolicyLsArgs),
    /// Show a version of a policy, or its newest
    Show(PolicyShowArgs),
    /// Remove a version of a policy, or all; lanes that play by it go on
    Rm(PolicyRmArgs),
    /// Write the file of a version of a policy, or of its newest; with --dialect in the form of ONNX that another program takes
    Export(Box<PolicyExportArgs>),
    /// Have two policies play the same episodes, and say which is better; with --connect on a cluster's nodes
    Compare(Box<PolicyCompareArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyPutArgs {
    /// The policy's name
    #[arg(value_name = "NAME")]
    pub(crate) name: PolicyRef,
    /// The file of its weights, see docs/policies.md
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyLsArgs {
    /// Only versions of this policy
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyShowArgs {
    /// The policy: NAME or NAME@VERSION
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PolicyRef,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyRmArgs {
    /// The policy: NAME@VERSION, or NAME with --all
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PolicyRef,
    /// Remove all its versions
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyExportArgs {
    /// The policy: NAME or NAME@VERSION; with --dialect also a file of a net (FILE.safetensors)
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PolicyName,
    /// The file to write; one that is there is not replaced
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Write a net of dense layers as the ONNX that this program takes: unreal, godot or mlagents
    #[arg(long, value_name = "NAME", requires = "env")]
    pub(crate) dialect: Option<Dialect>,
    /// Environment whose spaces say what the net's inputs and outputs are: one of `rollhouse envs`, gymnasium:ID, or
    /// package.module:Class in Python
    #[arg(long, value_name = "ID", requires = "dialect")]
    pub(crate) env: Option<EnvId>,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyCompareArgs {
    /// The policy to compare with: random, noop, a file, or with --connect NAME or NAME@VERSION
    #[arg(value_name = "POLICY")]
    pub(crate) first: PolicyName,
    /// The policy that may be better
    #[arg(value_name = "OTHER")]
    pub(crate) second: PolicyName,
    /// Environment to play: one of `rollhouse envs`, gymnasium:ID, or package.module:Class in Python
    #[arg(long, value_name = "ID")]
    pub(crate) env: EnvId,
    /// Number of episodes of each, side by side
    #[arg(long, value_name = "E", default_value_t = 100, value_parser = number::whole::<u32, 2, { MAX_COMPARED as u64 }>)]
    pub(crate) episodes: u32,
    /// Seed of the first episode and of everything random; the same seed gives the same episodes [default: drawn and shown]
    #[arg(long, value_name = "S", value_parser = number::any::<u64>)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Most episodes that are compared: each is a lane.
const MAX_COMPARED: u32 = 65_536;
