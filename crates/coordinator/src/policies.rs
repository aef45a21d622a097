//! The policies of a cluster: files of weights, one for each version of a name.
//!
//! ```text
//! DATA/policies/NAME@VERSION         a header, which says what there is of it, and the file
//! DATA/policies/NAME@VERSION.part    one that is being written; removed at the next start
//! ```
//!
//! A version appears under its name when every byte of it is on the disk, and is acknowledged when its name is on the disk
//! too. Versions are never changed. All methods may block for the disk.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::msgpack::Message as _;
use rollhouse_core::{Claimant, SharedBound, Shares, messages};
use rollhouse_policy::Builtin;
use rollhouse_replay::{Disk, DiskFile};
use rollhouse_wire::limits::{MAX_POLICIES_LISTED, MAX_POLICY_BYTES};
use rollhouse_wire::{
    POLICY_NAME_RULE, PolicyFile, PolicyHash, PolicyInfo, PolicyList, PolicyPut, PolicyRemoved,
    PolicyVersion, PutPolicy, ReadGrant, Refusal, RefusalCode, RemovePolicy, is_policy_name,
};
use serde::{Deserialize, Serialize};

/// The policies of a coordinator's folder.
#[derive(Debug)]
pub(crate) struct PolicyShelf {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    kept: Mutex<Kept>,
    /// Held while a version is written or removed: one at a time.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct Kept {
    policies: BTreeMap<String, BTreeMap<u64, Header>>,
    /// Bytes by owner.
    bytes: Shares,
    /// Number of versions.
    versions: usize,
}

/// What a file begins with, behind the magic number and the length of this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    info: PolicyInfo,
    /// Whether its owner is an admin.
    operates: bool,
}

messages!(Header);

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct PolicyAsker {
    pub(crate) claimant: Claimant,
    pub(crate) reads: ReadGrant,
}

impl PolicyShelf {
    /// Reads what there is in a folder, which is made if it is not there. Files that are not what their names say are passed
    /// over, and stay. `budget` is the number of bytes beyond which nothing is taken in.
    ///
    /// # Errors
    /// A file operation fails.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path, budget: u64) -> io::Result<Self> {
        disk.create_dir(dir)?;
        let bytes = Shares::new(SharedBound::POLICIES.with_limit(budget));
        let mut kept = Kept { policies: BTreeMap::new(), bytes, versions: 0 };
        for name in disk.list(dir)? {
            let path = dir.join(&name);
            if name.ends_with(PART) {
                disk.remove(&path)?;
                continue;
            }
            match read_header(&*disk.open(&path)?)? {
                Some((header, _)) if header.info.policy.to_string() == name => kept.add(header),
                _ => tracing::warn!("{} is no policy, and is passed over", path.display()),
            }
        }
        Ok(Self { disk, dir: dir.to_owned(), kept: Mutex::new(kept), changing: Mutex::new(()) })
    }

    /// Returns how many versions are kept, and their bytes.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let kept = self.kept.lock();
        let headers = kept.policies.values().flat_map(|versions| versions.values());
        (kept.versions as u64, headers.map(|header| header.info.bytes).sum())
    }

    /// Looks whether a version may be stored, before its bytes come. Returns the answer if it is there already.
    ///
    /// # Errors
    /// The name is none or another owner's, the version is not above those that there are, or there is no room.
    pub(crate) fn admit(&self, put: &PutPolicy, asker: &PolicyAsker) -> Result<Option<PolicyPut>, Refusal> {
        check_name(&put.name)?;
        if put.bytes == 0 || put.bytes > MAX_POLICY_BYTES as u64 {
            let message = format!("{} bytes of a policy; it has 1 to {MAX_POLICY_BYTES}", put.bytes);
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        let kept = self.kept.lock();
        let Some(versions) = kept.policies.get(&put.name) else {
            return kept.has_room(put, asker).map(|()| None);
        };
        if let Some(first) = versions.values().next() {
            check_owner(&first.info, asker)?;
        }
        let same = |header: &&Header| header.info.hash == put.hash && header.info.bytes == put.bytes;
        let known = match put.version {
            None => versions.values().rev().find(same),
            Some(version) => versions.get(&version).filter(same),
        };
        if let Some(header) = known {
            return Ok(Some(PolicyPut { version: header.info.policy.version, known: true }));
        }
        let newest = versions.last_key_value().map(|(version, _)| *version);
        if let (Some(given), Some(newest)) = (put.version, newest)
            && given <= newest
        {
            let message = format!("version {given} of policy `{}` after {newest}; versions go up", put.name);
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        kept.has_room(put, asker).map(|()| None)
    }

    /// Stores a version whose bytes have come, at `now_ms` milliseconds since 1970. Durable on return.
    ///
    /// # Errors
    /// As [`PolicyShelf::admit`], the bytes are not those that were announced, or they cannot be written.
    pub(crate) fn put(
        &self,
        put: &PutPolicy,
        asker: &PolicyAsker,
        file: &[u8],
        now_ms: u64,
    ) -> Result<PolicyPut, Refusal> {
        if file.len() as u64 != put.bytes || PolicyHash::of(file) != put.hash {
            let message = format!("what came of policy `{}` is not what was announced", put.name);
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        let Some(format) = format_of(file) else {
            let message = format!("policy `{}` is neither a file of safetensors nor of ONNX", put.name);
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        };
        let _alone = self.changing.lock();
        if let Some(known) = self.admit(put, asker)? {
            return Ok(known);
        }
        let next = || {
            let kept = self.kept.lock();
            let newest = kept.policies.get(&put.name).and_then(|versions| versions.last_key_value());
            newest.map_or(0, |(version, _)| version.saturating_add(1))
        };
        let version = put.version.unwrap_or_else(next);
        let header = Header {
            info: PolicyInfo {
                policy: PolicyVersion { name: put.name.clone(), version },
                bytes: put.bytes,
                hash: put.hash,
                format: format.to_owned(),
                owner: asker.claimant.name().to_owned(),
                put_ms: now_ms,
            },
            operates: asker.claimant.operates(),
        };
        self.write(&header, file).map_err(|error| failed("stored", &header.info.policy, &error))?;
        self.kept.lock().add(header);
        Ok(PolicyPut { version, known: false })
    }

    /// Returns a page of the policies that may be read.
    pub(crate) fn list(&self, asker: &PolicyAsker, after: Option<&PolicyVersion>) -> PolicyList {
        let kept = self.kept.lock();
        let from = after.map_or("", |after| &*after.name);
        let names = kept.policies.range::<str, _>((Bound::Included(from), Bound::Unbounded));
        let all = names.flat_map(|(_, versions)| versions.values().map(|header| &header.info));
        let mut behind = all
            .filter(|info| after.is_none_or(|after| info.policy > *after))
            .filter(|info| asker.reads.has_owner(&info.owner));
        let policies = behind.by_ref().take(MAX_POLICIES_LISTED).cloned().collect();
        PolicyList { policies, more: behind.next().is_some() }
    }

    /// Returns what there is of a version, or of the newest. A node may read all.
    ///
    /// # Errors
    /// There is none that may be read.
    pub(crate) fn find(
        &self,
        name: &str,
        version: Option<u64>,
        reads: &ReadGrant,
    ) -> Result<PolicyInfo, Refusal> {
        let kept = self.kept.lock();
        let versions = kept.policies.get(name);
        let found = versions.and_then(|versions| match version {
            Some(version) => versions.get(&version),
            None => versions.last_key_value().map(|(_, header)| header),
        });
        let may = |header: &&Header| reads.has_owner(&header.info.owner);
        found.filter(may).map(|header| header.info.clone()).ok_or_else(|| {
            let policy = version.map_or_else(|| name.to_owned(), |version| format!("{name}@{version}"));
            let message = format!(
                "there is no policy `{}`; `rollhouse policy ls` lists those there are",
                policy.escape_debug()
            );
            Refusal::new(RefusalCode::NotFound, message)
        })
    }

    /// Returns the file that nodes are to fetch of a policy.
    ///
    /// # Errors
    /// As [`PolicyShelf::find`].
    pub(crate) fn file_of(
        &self,
        name: &str,
        version: Option<u64>,
        reads: &ReadGrant,
    ) -> Result<PolicyFile, Refusal> {
        let PolicyInfo { policy, bytes, hash, .. } = self.find(name, version, reads)?;
        Ok(PolicyFile { version: policy.version, bytes, hash })
    }

    /// Reads the file of a version.
    ///
    /// # Errors
    /// It is gone, damaged, or cannot be read.
    pub(crate) fn read(&self, info: &PolicyInfo) -> Result<Vec<u8>, Refusal> {
        let read = || {
            let file = self.disk.open(&self.path(&info.policy))?;
            let Some((header, at)) = read_header(&*file)?.filter(|(header, _)| header.info == *info) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its header is damaged"));
            };
            let mut bytes = vec![0; header.info.bytes as usize];
            read_all(&*file, &mut bytes, at)?;
            if PolicyHash::of(&bytes) != info.hash {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its bytes have another hash"));
            }
            Ok(bytes)
        };
        read().map_err(|error| failed("read", &info.policy, &error))
    }

    /// Removes versions.
    ///
    /// # Errors
    /// There are none, they are another owner's, or a file operation fails: those before are gone then.
    pub(crate) fn remove(
        &self,
        remove: &RemovePolicy,
        asker: &PolicyAsker,
    ) -> Result<PolicyRemoved, Refusal> {
        let _alone = self.changing.lock();
        let newest = self.find(&remove.name, remove.version, &asker.reads)?;
        check_owner(&newest, asker)?;
        let versions: Vec<u64> = match remove.version {
            Some(version) => vec![version],
            None => {
                let kept = self.kept.lock();
                kept.policies.get(&remove.name).map(|versions| versions.keys().copied().collect())
            }
            .unwrap_or_default(),
        };
        let mut removed = PolicyRemoved { versions: 0, bytes: 0 };
        for version in versions {
            let policy = PolicyVersion { name: remove.name.clone(), version };
            let gone = self.disk.remove(&self.path(&policy)).and_then(|()| self.disk.sync_dir(&self.dir));
            gone.map_err(|error| failed("removed", &policy, &error))?;
            removed.versions += 1;
            removed.bytes += self.kept.lock().forget(&policy);
        }
        Ok(removed)
    }

    fn write(&self, header: &Header, file: &[u8]) -> io::Result<()> {
        let mut encoded = Vec::new();
        header.write(&mut encoded).map_err(io::Error::other)?;
        let path = self.path(&header.info.policy);
        let part = self.dir.join(format!("{}{PART}", header.info.policy));
        let written = (|| {
            let part_file = self.disk.create(&part)?;
            part_file.append_all(&MAGIC)?;
            part_file.append_all(&(encoded.len() as u32).to_le_bytes())?;
            part_file.append_all(&encoded)?;
            part_file.append_all(file)?;
            part_file.sync_data()?;
            self.disk.rename(&part, &path)
        })();
        if let Err(error) = written {
            // What stays is removed at the next start.
            let _gone = self.disk.remove(&part);
            return Err(error);
        }
        self.disk.sync_dir(&self.dir)
    }

    fn path(&self, policy: &PolicyVersion) -> PathBuf {
        self.dir.join(policy.to_string())
    }
}

impl Kept {
    fn add(&mut self, header: Header) {
        self.bytes.add(&header.claimant(), header.info.bytes);
        self.versions += 1;
        let PolicyVersion { name, version } = header.info.policy.clone();
        self.policies.entry(name).or_default().insert(version, header);
    }

    /// Returns the bytes of a version that is there no more.
    fn forget(&mut self, policy: &PolicyVersion) -> u64 {
        let Some(versions) = self.policies.get_mut(&policy.name) else { return 0 };
        let Some(header) = versions.remove(&policy.version) else { return 0 };
        if versions.is_empty() {
            self.policies.remove(&policy.name);
        }
        self.versions -= 1;
        self.bytes.give_back(&header.claimant(), header.info.bytes);
        header.info.bytes
    }

    fn has_room(&self, put: &PutPolicy, asker: &PolicyAsker) -> Result<(), Refusal> {
        let quota = |message: String| Err(Refusal::new(RefusalCode::Quota, message));
        if self.versions >= MAX_VERSIONS {
            return quota(format!(
                "the cluster has {MAX_VERSIONS} versions of policies, as many as it keeps"
            ));
        }
        if self.bytes.has_room(&asker.claimant, put.bytes) {
            return Ok(());
        }
        let (taken, share) = (self.bytes.taken(&asker.claimant), self.bytes.share(&asker.claimant));
        quota(format!(
            "policy `{}` has {} bytes, and `{}` has {taken} of the {share} that one may have now; `rollhouse policy rm` \
             makes room, and store.policies is the budget",
            put.name,
            put.bytes,
            asker.claimant.name().escape_debug()
        ))
    }
}

impl Header {
    fn claimant(&self) -> Claimant {
        let owner = self.info.owner.as_str();
        if self.operates { Claimant::operator(owner) } else { Claimant::owner(owner) }
    }
}

/// Refuses what is no name of a policy.
fn check_name(name: &str) -> Result<(), Refusal> {
    let name = name.escape_debug();
    let bad = |message: String| Err(Refusal::new(RefusalCode::BadRequest, message));
    if !is_policy_name(&name.to_string()) {
        return bad(format!("`{name}` is no name of a policy, which has {POLICY_NAME_RULE}"));
    }
    match name.to_string().parse::<Builtin>() {
        Ok(builtin) => bad(format!("`{builtin}` is a built-in policy; take another name")),
        Err(_) => Ok(()),
    }
}

/// Refuses a change of another owner's. Tokens of one name are of one owner.
fn check_owner(info: &PolicyInfo, asker: &PolicyAsker) -> Result<(), Refusal> {
    let person = |owner: &str| owner.split(':').next().unwrap_or_default().to_owned();
    if asker.claimant.operates() || person(&info.owner) == person(asker.claimant.name()) {
        return Ok(());
    }
    let message = format!("policy `{}` is another owner's; take another name", info.policy.name);
    Err(Refusal::new(RefusalCode::Forbidden, message))
}

/// Returns what a file is, by how it begins.
fn format_of(file: &[u8]) -> Option<&'static str> {
    // Eight bytes with the length of a JSON object, which follows.
    let is_safetensors = file.get(8) == Some(&b'{');
    // A protobuf message whose first field is the version of the format.
    let is_onnx = file.first() == Some(&0x08);
    if is_safetensors {
        Some("safetensors")
    } else if is_onnx {
        Some("onnx")
    } else {
        None
    }
}

/// Reads what a file begins with; `None` if that, or its length, is not what a policy has. Returns where the weights begin.
fn read_header(file: &dyn DiskFile) -> io::Result<Option<(Header, u64)>> {
    let mut fixed = [0; MAGIC.len() + 4];
    let bytes = file.len()?;
    if bytes < fixed.len() as u64 {
        return Ok(None);
    }
    read_all(file, &mut fixed, 0)?;
    let (magic, length) = fixed.split_at(MAGIC.len());
    let length = length.first_chunk().map_or(0, |length| u32::from_le_bytes(*length)) as usize;
    let at = (fixed.len() + length) as u64;
    if magic != MAGIC || length > MAX_HEADER_BYTES || bytes < at {
        return Ok(None);
    }
    let mut encoded = vec![0; length];
    read_all(file, &mut encoded, fixed.len() as u64)?;
    let header = Header::read(&encoded, MAX_HEADER_BYTES).ok();
    Ok(header.filter(|header| header.info.bytes == bytes - at).map(|header| (header, at)))
}

fn read_all(file: &dyn DiskFile, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                buffer = &mut buffer[read..];
                at += read as u64;
            }
        }
    }
    Ok(())
}

fn failed(what: &str, policy: &PolicyVersion, error: &io::Error) -> Refusal {
    Refusal::new(RefusalCode::Internal, format!("policy {policy} cannot be {what}: {error}"))
}

/// The first bytes of every file.
const MAGIC: [u8; 8] = *b"rhpolicy";

/// The ending of a file that is being written; names of versions end with a digit.
const PART: &str = ".part";

/// Bytes of a header: a name, an owner, and some numbers.
const MAX_HEADER_BYTES: usize = 4 << 10;

/// Versions of all policies together: each takes some hundred bytes of memory.
const MAX_VERSIONS: usize = 1 << 16;

#[cfg(test)]
mod tests;
