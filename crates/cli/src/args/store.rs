//! The arguments of `rollhouse store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DataArgs, short_run};

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) what: StoreWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreWhat {
    /// Carry recordings to a folder or to object storage; what is there already is not sent again
    Export(StoreExportArgs),
    /// Take in recordings that were exported or archived; what is there already is not changed
    Import(StoreImportArgs),
    /// Read everything that was exported or archived, and say what is damaged or missing
    Verify(StoreVerifyArgs),
}

/// The arguments of reaching object storage.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// URL of the object storage, if it is not Amazon's; credentials and region are taken from the usual variables AWS_*
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Reach the object storage without TLS, where everybody on the way can read and change what is sent
    #[arg(long)]
    pub(crate) allow_http: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StoreExportArgs {
    /// Only episodes of this run: the first part of their names, e.g. k3f9q2tz; may be given several times
    #[arg(long = "run", value_name = "RUN", value_parser = short_run, required_unless_present = "all")]
    pub(crate) runs: Vec<u64>,
    /// Every run
    #[arg(long, conflicts_with = "runs")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// The target: a folder, file:///FOLDER or s3://BUCKET/PREFIX
    #[arg(long, value_name = "TARGET")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StoreImportArgs {
    /// The source: a folder, file:///FOLDER or s3://BUCKET/PREFIX
    #[arg(long, value_name = "TARGET")]
    pub(crate) from: String,
    /// Folder that takes them: of recordings, of a coordinator's store, or a new one
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StoreVerifyArgs {
    /// The target to read: a folder, file:///FOLDER or s3://BUCKET/PREFIX
    #[arg(value_name = "TARGET")]
    pub(crate) from: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
