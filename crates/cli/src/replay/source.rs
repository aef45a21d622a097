//! The source of recordings: a folder or the store of a cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_client::{Cluster, RemoteDisk};
use rollhouse_core::EpisodeName;
use rollhouse_replay::{Disk, EpisodeKey, Label, LabelChange, Labels, Library, RealDisk};

use crate::args::{DataArgs, Place};
use crate::connect::{connect, request_failure};
use crate::failure::Failure;
use crate::replay::nearest::find_or_nearest;
use crate::replay::{label_failure, read_failure};

/// A folder on this machine, or the store of a cluster.
pub(crate) struct Source {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    shown: String,
    /// The disk of the cluster's store, if the source is one.
    remote: Option<RemoteDisk>,
    cluster: Option<Cluster>,
}

impl Source {
    /// Makes the source that the arguments name. Connects if that is a cluster.
    pub(crate) fn of(args: &DataArgs) -> Result<Self, Failure> {
        match args.place() {
            Place::Folder(root) => Ok(Self {
                disk: Arc::new(RealDisk),
                shown: root.display().to_string(),
                root,
                remote: None,
                cluster: None,
            }),
            Place::Cluster => {
                let cluster = connect(&args.cluster)?;
                let disk = RemoteDisk::new(cluster.clone());
                let remote = Some(disk.clone());
                Ok(Self {
                    disk: Arc::new(disk),
                    root: PathBuf::new(),
                    shown: SHOWN_STORE.to_owned(),
                    remote,
                    cluster: Some(cluster),
                })
            }
        }
    }

    /// Returns the name of the source in messages. Connects to nothing.
    pub(crate) fn shown_of(args: &DataArgs) -> String {
        match args.place() {
            Place::Folder(root) => root.display().to_string(),
            Place::Cluster => SHOWN_STORE.to_owned(),
        }
    }

    /// Opens the source for reading, whether anybody is writing there or not.
    pub(crate) fn open(&self) -> Result<Library, Failure> {
        Library::open(Arc::clone(&self.disk), &self.root).map_err(read_failure)
    }

    /// Opens again what was opened before, as it is now. Cheap where little has changed.
    pub(crate) fn look_again(&self, library: &Library) -> Result<Library, Failure> {
        if let Some(remote) = &self.remote {
            remote.look_again();
        }
        library.opened_again().map_err(read_failure)
    }

    /// Opens the source as [`Source::open`] does, but trusts no catalogue, so that damage is found.
    pub(crate) fn open_scanning(&self) -> Result<Library, Failure> {
        Library::open_scanning(Arc::clone(&self.disk), &self.root).map_err(read_failure)
    }

    /// Opens the episodes and segments that it has set aside.
    pub(crate) fn open_set_aside(&self) -> Result<Library, Failure> {
        Library::open_set_aside(&self.disk, &self.root).map_err(read_failure)
    }

    /// Returns the labels of the source's episodes.
    pub(crate) fn labels(&self, library: &Library) -> Result<Labels, Failure> {
        match &self.cluster {
            Some(cluster) => cluster.labels().map_err(|error| request_failure(&error)),
            None => library.labels().map_err(label_failure),
        }
    }

    /// Changes the label of an episode; the change is durable on return.
    pub(crate) fn label(
        &self,
        library: &Library,
        name: EpisodeName,
        change: &LabelChange,
    ) -> Result<Label, Failure> {
        let found = find_or_nearest(library, name)?;
        match &self.cluster {
            Some(cluster) => {
                let labelled = cluster.label(&EpisodeKey::of(&found.info), change);
                labelled.map_err(|error| request_failure(&error))
            }
            None => library.label(name, change).map_err(label_failure),
        }
    }

    /// Returns the name of a folder inside it; `None` is the source itself.
    pub(crate) fn subfolder(&self, dir: &Path) -> Option<String> {
        super::subfolder(&self.root, dir)
    }

    /// Returns whether it is a folder, into which one run at a time is recorded.
    pub(crate) fn is_folder(&self) -> bool {
        !self.root.as_os_str().is_empty()
    }

    /// Returns the disk that reads its files.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Returns its name in messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

const SHOWN_STORE: &str = "the cluster's store";
