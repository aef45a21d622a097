//! Targets: places that hold objects under names.

use std::path::PathBuf;

use crate::error::{TargetError, TargetFault};
use crate::folder::Folder;
#[cfg(feature = "s3")]
use crate::objects::Objects;
use crate::target_options::TargetOptions;

/// A folder, or a bucket of object storage together with a prefix of all names in it. Objects are put whole or not at
/// all and are never changed in place. All methods may block for the disk or the network, and must not be called on a
/// thread of an async runtime.
#[derive(Debug)]
pub struct Target {
    place: Place,
    shown: String,
}

#[derive(Debug)]
enum Place {
    Folder(Folder),
    #[cfg(feature = "s3")]
    Objects(Box<Objects>),
}

impl Target {
    /// Makes the target for a path, `file://PATH` or `s3://BUCKET/PREFIX`. A folder need not be there; object storage
    /// is not asked yet.
    ///
    /// # Errors
    /// If the text does not name a target, or names one of a kind that this program was built without.
    pub fn named(text: &str, options: &TargetOptions) -> Result<Self, TargetError> {
        let shown = text.to_owned();
        let place = match text.split_once("://") {
            None if !text.is_empty() => Place::Folder(Folder::new(PathBuf::from(text))),
            Some(("file", path)) if path.starts_with('/') => Place::Folder(Folder::new(PathBuf::from(path))),
            Some(("s3", rest)) => objects(rest, options)?,
            _ => {
                let what =
                    format!("{text:?} names no target: a folder, file:///FOLDER or s3://BUCKET/PREFIX");
                return Err(TargetError::new(TargetFault::Name, what));
            }
        };
        Ok(Self { place, shown })
    }

    /// Returns the target's name in messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Prepares the target for objects. A folder is made if it is not there; a bucket must exist.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn prepare(&self) -> Result<(), TargetError> {
        match &self.place {
            Place::Folder(folder) => folder.prepare(),
            #[cfg(feature = "s3")]
            Place::Objects(objects) => objects.prepare(),
        }
    }

    /// Checks that the prepared target is still there: that a folder is not gone, and is not an empty mount point.
    /// Removes files that other processes left half written.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn is_there(&self) -> Result<(), TargetError> {
        match &self.place {
            Place::Folder(folder) => folder.is_there(),
            #[cfg(feature = "s3")]
            Place::Objects(objects) => objects.prepare(),
        }
    }

    /// Puts an object under a name, in place of an earlier one. On return it is durable: on the disk, or accepted by
    /// the storage with the checksum of the bytes. After an error the name has its earlier object or the new one. A
    /// folder that was not prepared accepts none.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), TargetError> {
        match &self.place {
            Place::Folder(folder) => folder.put(name, &bytes),
            #[cfg(feature = "s3")]
            Place::Objects(objects) => objects.put(name, bytes),
        }
    }

    /// Returns the object with that name; `None` if there is none.
    ///
    /// # Errors
    /// See [`TargetFault`]; also if it has more than `most` bytes, of which none is read then.
    pub fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, TargetError> {
        match &self.place {
            Place::Folder(folder) => folder.get(name, most),
            #[cfg(feature = "s3")]
            Place::Objects(objects) => objects.get(name, most),
        }
    }

    /// Returns the length of the object with that name in bytes; `None` if there is none.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub fn len(&self, name: &str) -> Result<Option<u64>, TargetError> {
        match &self.place {
            Place::Folder(folder) => folder.len(name),
            #[cfg(feature = "s3")]
            Place::Objects(objects) => objects.len(name),
        }
    }

    /// Lists the names that begin with `folder` and `/`, in no order, and gives each to `visit` without that prefix.
    ///
    /// # Errors
    /// See [`TargetFault`]; [`TargetFault::Name`] if there is no such target.
    pub fn list(&self, folder: &str, visit: &mut dyn FnMut(&str)) -> Result<(), TargetError> {
        match &self.place {
            Place::Folder(place) => place.list(folder, visit),
            #[cfg(feature = "s3")]
            Place::Objects(objects) => objects.list(folder, visit),
        }
    }
}

#[cfg(feature = "s3")]
fn objects(rest: &str, options: &TargetOptions) -> Result<Place, TargetError> {
    Ok(Place::Objects(Box::new(Objects::named(rest, options)?)))
}

#[cfg(not(feature = "s3"))]
fn objects(_: &str, _: &TargetOptions) -> Result<Place, TargetError> {
    let what = "this program was built without object storage; `cargo build --features s3` has it";
    Err(TargetError::new(TargetFault::Name, what))
}
