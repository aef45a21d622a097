//! The arguments that say which policy chooses actions.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use rollhouse_core::read_regular;
use rollhouse_policy::{Builtin, DenseNet, MAX_NET_BYTES, Model, Sampling, UnknownPolicy};

use crate::failure::{Failure, Status};

/// A policy, and how it draws actions.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Policy that chooses the actions: random, noop, or a file of a dense net (FILE.safetensors)
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
    /// Returns the model: reads its file, if it is one of a file.
    pub(crate) fn model(&self) -> Result<Arc<dyn Model>, Failure> {
        let path = match &self.policy {
            PolicyName::Builtin(_) if self.draws_otherwise() => {
                let message = "--deterministic-policy, --temperature and --epsilon are for nets";
                return Err(Failure::new(Status::Usage, message).hint(format_args!(
                    "{} draws nothing from a net; name a file with --policy",
                    self.policy
                )));
            }
            PolicyName::Builtin(builtin) => return Ok(Arc::new(*builtin)),
            PolicyName::File(path) => path,
        };
        let net = read_net(path)?;
        let Sampling { deterministic, temperature, epsilon } = net.sampling();
        let sampling = Sampling {
            deterministic: deterministic || self.deterministic_policy,
            temperature: self.temperature.unwrap_or(temperature),
            epsilon: self.epsilon.unwrap_or(epsilon),
        };
        let net = net.with_sampling(sampling).map_err(|error| Failure::of(Status::Usage, &error))?;
        Ok(Arc::new(net))
    }

    const fn draws_otherwise(&self) -> bool {
        self.deterministic_policy || self.temperature.is_some() || self.epsilon.is_some()
    }
}

/// The name of a policy: of a built-in one, or of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PolicyName {
    Builtin(Builtin),
    File(PathBuf),
}

impl PolicyName {
    /// Returns the model that draws as its file says.
    pub(crate) fn model(&self) -> Result<Arc<dyn Model>, Failure> {
        match self {
            Self::Builtin(builtin) => Ok(Arc::new(*builtin)),
            Self::File(path) => Ok(Arc::new(read_net(path)?)),
        }
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        match name.parse() {
            Ok(builtin) => Ok(Self::Builtin(builtin)),
            Err(_) if Path::new(name).extension().is_some_and(|ending| ending == "safetensors") => {
                Ok(Self::File(name.into()))
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(builtin) => builtin.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

fn read_net(path: &Path) -> Result<DenseNet, Failure> {
    let bytes = read_regular(path, MAX_NET_BYTES).map_err(|error| {
        Failure::new(Status::Usage, format_args!("policy {} cannot be read: {error}", path.display()))
    })?;
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    DenseNet::of_bytes(&name, &bytes).map_err(|error| {
        let failure = Failure::of(Status::Usage, &error);
        Failure::new(Status::Usage, format_args!("policy {}: {}", path.display(), failure.message()))
    })
}
