//! Bearer tokens, which trainers, viewers and admins without a certificate show.
//!
//! A token reads `rh_<id>_<secret>`. The file keeps the SHA-256 of the secret, never the secret: it has 256
//! random bits, so that nothing slower than one hash is needed to keep it from being guessed.

mod error;
mod record;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use ring::rand::{SecureRandom, SystemRandom};
use rollhouse_core::open_regular_with;
use serde::{Deserialize, Serialize};

use crate::identity::{Kept, Readers, Stamp, read_file, replace_file};
use crate::{
    Credential, Hello, JoinRefused, JoinTerms, Peer, ReadGrant, Refusal, RefusalCode, Role, Stranger, hex,
    is_name,
};

pub use error::{TokenFileError, TokenRefused};
use record::EarlierSecret;
pub use record::{TokenRecord, Tokens};

/// The properties of a token to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Name of its holder.
    pub name: String,
    /// The role of its holder: viewer, trainer, admin, or join.
    pub role: Role,
    /// Number of lanes that its holders may have open at a time.
    pub max_lanes: Option<u32>,
    /// The owners whose recordings, pools and sessions its holders may read beside their own; for viewers and trainers.
    pub reads: Option<ReadGrant>,
    /// Time for which it holds; `None` means until it is revoked, which join tokens may not have.
    pub lifetime: Option<Duration>,
    /// The nodes that it lets in; set for join tokens, and only for those.
    pub join: Option<JoinTerms>,
}

/// The tokens of a cluster: a JSON file (0600), replaced whole and durably, read again whenever it has changed. Several
/// processes may change it: each holds a lock on a file beside it while it does. If the file as it is now cannot be
/// used, the earlier contents stay in force and [`TokenStore::trouble`] tells.
#[derive(Debug)]
pub struct TokenStore {
    path: PathBuf,
    state: Mutex<LoadedTokens>,
}

#[derive(Debug)]
struct LoadedTokens {
    tokens: Arc<Tokens>,
    stamp: Option<Stamp>,
    trouble: Option<Arc<TokenFileError>>,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    tokens: Vec<TokenRecord>,
}

impl TokenStore {
    /// Opens the tokens in that file, which need not exist yet. Blocks on the disk.
    ///
    /// # Errors
    /// See [`TokenFileError`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokenFileError> {
        let path = path.into();
        let stamp = Stamp::of(&path);
        let tokens = Arc::new(Tokens::new(read(&path)?));
        Ok(Self { path, state: Mutex::new(LoadedTokens { tokens, stamp, trouble: None }) })
    }

    /// Makes a token and returns its record and its text. The holder shows the text, which nobody else knows. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// See [`TokenFileError`].
    pub fn create(&self, new: &NewToken, now: SystemTime) -> Result<(TokenRecord, String), TokenFileError> {
        if !TOKEN_ROLES.contains(&new.role) {
            return Err(TokenFileError::Role(new.role));
        }
        if !is_name(&new.name) {
            return Err(TokenFileError::Name(new.name.chars().take(200).collect()));
        }
        if (new.role == Role::Join) != new.join.is_some() || (new.join.is_some() && new.lifetime.is_none()) {
            return Err(TokenFileError::Terms);
        }
        if new.reads.is_some() && !matches!(new.role, Role::Viewer | Role::Trainer) {
            return Err(TokenFileError::Reads(new.role));
        }
        let id = drawn::<ID_BYTES>()?;
        let (secret, secret_sha256) = drawn_secret()?;
        let record = TokenRecord {
            id,
            name: new.name.clone(),
            role: new.role,
            secret_sha256,
            earlier: None,
            max_lanes: new.max_lanes,
            reads: new.reads.clone(),
            join: new.join.clone().map(|terms| JoinTerms { used: 0, ..terms }),
            created: seconds(now),
            expires: new.lifetime.map(|lifetime| seconds(now).saturating_add(lifetime.as_secs())),
            revoked: None,
        };
        let text = format!("{PREFIX}{}_{secret}", record.id);
        self.change(|tokens| {
            let long_ago = seconds(now).saturating_sub(JOIN_TOKENS_KEPT.as_secs());
            tokens.retain(|token| token.join.is_none() || token.expires.is_none_or(|at| at > long_ago));
            if tokens.len() >= MAX_TOKENS {
                return Err(TokenFileError::TooMany);
            }
            tokens.push(record.clone());
            Ok(())
        })?;
        Ok((record, text))
    }

    /// Revokes a token; revoking it again is no error. A holder that is connected is sent away at the next look at
    /// [`TokenStore::now`] or [`TokenStore::holds`]. Blocks on the disk.
    ///
    /// # Errors
    /// [`TokenFileError::Unknown`] if there is no token with that id; see [`TokenFileError`] for the others.
    pub fn revoke(&self, id: &str, now: SystemTime) -> Result<TokenRecord, TokenFileError> {
        self.change(|tokens| {
            let record = tokens.iter_mut().find(|token| token.id == id);
            let record = record.ok_or_else(|| TokenFileError::Unknown(id.chars().take(64).collect()))?;
            record.revoked.get_or_insert(seconds(now));
            Ok(record.clone())
        })
    }

    /// Gives a token another secret, and returns its record and its new text. Whoever holds it stays the same owner, so
    /// that pools go on. The secret before holds for `grace` more, and no connection that it has opened holds longer; of
    /// several rotations within that time only the last one's. Blocks on the disk.
    ///
    /// # Errors
    /// [`TokenFileError::Unknown`] if there is no token with that id, [`TokenFileError::Over`] if it does not hold any
    /// more; see [`TokenFileError`] for the others.
    pub fn rotate(
        &self,
        id: &str,
        grace: Duration,
        now: SystemTime,
    ) -> Result<(TokenRecord, String), TokenFileError> {
        let (secret, secret_sha256) = drawn_secret()?;
        let record = self.change(|tokens| {
            let record = tokens.iter_mut().find(|token| token.id == id);
            let record = record.ok_or_else(|| TokenFileError::Unknown(id.chars().take(64).collect()))?;
            record.check(now).map_err(|why| TokenFileError::Over(id.to_owned(), why))?;
            let before = std::mem::replace(&mut record.secret_sha256, secret_sha256);
            let until = seconds(now).saturating_add(grace.as_secs());
            record.earlier = (!grace.is_zero()).then_some(EarlierSecret { secret_sha256: before, until });
            Ok::<_, TokenFileError>(record.clone())
        })?;
        let text = format!("{PREFIX}{}_{secret}", record.id);
        Ok((record, text))
    }

    /// Uses the join token with that id for a node of that name. The use is on the disk when this returns. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// See [`JoinRefused`]; the token was not used then.
    pub fn join(&self, id: &str, node: &str, now: SystemTime) -> Result<(), JoinRefused> {
        self.change(|tokens| {
            let record = tokens.iter_mut().find(|token| token.id == id);
            let record = record.ok_or(JoinRefused::Token(TokenRefused::NotValid))?;
            record.check(now).map_err(JoinRefused::Token)?;
            let terms = record.join.as_mut().ok_or(JoinRefused::Token(TokenRefused::NotValid))?;
            terms.admit(node)?;
            terms.used += 1;
            Ok(())
        })
    }

    /// Returns all tokens, in the order in which they were made.
    pub fn list(&self) -> Vec<TokenRecord> {
        self.current().tokens.records.clone()
    }

    /// Returns the tokens as the file has them now, to check many of them. Reads the file's metadata once.
    pub fn now(&self) -> Arc<Tokens> {
        Arc::clone(&self.current().tokens)
    }

    /// Returns why the file as it is now is not in force; `None` if it is.
    pub fn trouble(&self) -> Option<Arc<TokenFileError>> {
        self.current().trouble.clone()
    }

    /// Returns the record of a token that was shown. Reads the file's metadata, which takes microseconds.
    ///
    /// # Errors
    /// See [`TokenRefused`].
    pub fn authenticate(&self, token: &str, now: SystemTime) -> Result<TokenRecord, TokenRefused> {
        self.shown(token, now).map(|(record, _)| record)
    }

    /// Returns the record of a token that was shown, and the first bytes of the SHA-256 of the secret in it.
    fn shown(&self, token: &str, now: SystemTime) -> Result<(TokenRecord, u64), TokenRefused> {
        let (id, secret) = token
            .strip_prefix(PREFIX)
            .filter(|rest| rest.len() <= MAX_TOKEN_BYTES)
            .and_then(|rest| rest.split_once('_'))
            .ok_or(TokenRefused::NotValid)?;
        let tokens = self.now();
        let record = tokens.get(id).ok_or(TokenRefused::NotValid)?;
        let shown = digest(secret.as_bytes());
        record.has_secret(|kept| same(&shown, kept), seconds(now))?;
        record.check(now)?;
        Ok((record.clone(), mark(&shown)))
    }

    /// Checks whether the token with that id still holds, for connections that are open already.
    ///
    /// # Errors
    /// See [`TokenRefused`].
    pub fn holds(&self, id: &str, now: SystemTime) -> Result<(), TokenRefused> {
        self.now().holds(id, now)
    }

    /// Returns the peer for which a coordinator takes a stranger: the holder of a believed certificate, else of a
    /// token.
    ///
    /// # Errors
    /// [`RefusalCode::Unauthenticated`] without either, or if what was shown is not believed;
    /// [`RefusalCode::Forbidden`] to another coordinator.
    pub fn introduce(&self, hello: &Hello, stranger: &Stranger, now: SystemTime) -> Result<Peer, Refusal> {
        let unknown = |text: String| Refusal::new(RefusalCode::Unauthenticated, text);
        let certified = stranger.certificate.as_ref().map(|certificate| certificate.certify(now));
        match (certified, &hello.token) {
            (Some(Ok(certified)), _) if certified.role == Role::Coordinator => {
                Err(Refusal::new(RefusalCode::Forbidden, "a coordinator does not join another"))
            }
            (Some(Ok(certified)), _) => Ok(Peer {
                role: certified.role,
                reads: ReadGrant::of_role(certified.role, certified.name.clone(), None),
                name: certified.name,
                credential: Credential::Certificate,
                max_lanes: None,
                address: stranger.address,
            }),
            (Some(Err(error)), _) => Err(unknown(error.to_string())),
            (None, Some(token)) => {
                let shown = self.shown(token, now).map_err(|refused| unknown(refused.to_string()))?;
                let (record, secret) = shown;
                let credential = Credential::Token { id: record.id, secret };
                let granted = record.reads.map(|granted| self.now().named_by(granted));
                Ok(Peer {
                    role: record.role,
                    reads: ReadGrant::of_role(record.role, credential.owner(&record.name), granted),
                    name: record.name,
                    credential,
                    max_lanes: record.max_lanes,
                    address: stranger.address,
                })
            }
            (None, None) => Err(unknown("neither a certificate nor a token was shown".into())),
        }
    }

    /// Locks the tokens and reads the file again if it has changed.
    fn current(&self) -> MutexGuard<'_, LoadedTokens> {
        // Every change of the state is one assignment, so that a panic leaves none half done.
        let mut state = self.state.lock();
        let stamp = Stamp::of(&self.path);
        if stamp != state.stamp {
            let known = !state.tokens.records.is_empty();
            match read(&self.path) {
                // Who removes the whole file has revoked nobody.
                Ok(_) if stamp.is_none() && known => {
                    let source = io::ErrorKind::NotFound.into();
                    state.trouble = Some(Arc::new(TokenFileError::Read { path: self.path.clone(), source }));
                }
                Ok(tokens) => {
                    let tokens = Arc::new(Tokens::new(tokens));
                    *state = LoadedTokens { tokens, stamp, trouble: None };
                }
                Err(error) => state.trouble = Some(Arc::new(error)),
            }
        }
        state
    }

    fn change<T, E: From<TokenFileError>>(
        &self,
        change: impl FnOnce(&mut Vec<TokenRecord>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = self.lock_file()?;
        let mut tokens = read(&self.path)?;
        let changed = change(&mut tokens)?;
        let write = |source| TokenFileError::Write { path: self.path.clone(), source };
        let mut text = serde_json::to_vec_pretty(&Contents { tokens })
            .map_err(|source| write(io::Error::other(source)))?;
        text.push(b'\n');
        replace_file(&self.path, &text, Readers::Owner).map_err(write)?;
        drop(self.current());
        Ok(changed)
    }

    /// Takes the lock under which the file is changed. It lies on a file of its own, because the other is replaced.
    fn lock_file(&self) -> Result<File, TokenFileError> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        let error = |source| TokenFileError::Write { path: path.clone(), source };
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let kept = Kept::of(&path, folder, Readers::Owner).map_err(error)?;
        let mut open = OpenOptions::new();
        open.create(true).truncate(false).write(true).mode(0o600);
        let file = open_regular_with(&mut open, &path).map_err(error)?;
        kept.give(&file).map_err(error)?;
        file.lock().map_err(error)?;
        Ok(file)
    }
}

fn read(path: &Path) -> Result<Vec<TokenRecord>, TokenFileError> {
    let bytes = match read_file(path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(TokenFileError::Read { path: path.to_path_buf(), source }),
    };
    let contents: Contents = serde_json::from_slice(&bytes)
        .map_err(|source| TokenFileError::Parse { path: path.to_path_buf(), source })?;
    if contents.tokens.len() > MAX_TOKENS {
        return Err(TokenFileError::TooMany);
    }
    Ok(contents.tokens)
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    out
}

/// Compares two hashes in a time that does not depend on where they differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Returns the first bytes of the SHA-256 of a secret.
fn mark(sha256: &[u8; 32]) -> u64 {
    let (first, _) = sha256.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*first)
}

/// Draws bytes and returns them in hexadecimal digits.
fn drawn<const BYTES: usize>() -> Result<String, TokenFileError> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| TokenFileError::NoRandomness)?;
    let mut text = String::new();
    hex::encode(&bytes, &mut text);
    Ok(text)
}

/// Draws a secret and returns it with its SHA-256 in hexadecimal digits.
fn drawn_secret() -> Result<(String, String), TokenFileError> {
    let (secret, mut sha256) = (drawn::<SECRET_BYTES>()?, String::new());
    hex::encode(&digest(secret.as_bytes()), &mut sha256);
    Ok((secret, sha256))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Number of tokens that one file may hold.
pub const MAX_TOKENS: usize = 4096;
/// The roles that a token can give.
pub(crate) const TOKEN_ROLES: [Role; 4] = [Role::Viewer, Role::Trainer, Role::Admin, Role::Join];
/// Time for which join tokens are listed after their end; launchers make many.
const JOIN_TOKENS_KEPT: Duration = Duration::from_secs(7 * 86_400);
const PREFIX: &str = "rh_";
const ID_BYTES: usize = 5;
const SECRET_BYTES: usize = 32;
/// Largest length of a text that is checked as a token: longer than any token, and little to hash.
const MAX_TOKEN_BYTES: usize = 128;
const MAX_FILE_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const DAY: Duration = Duration::from_secs(86_400);

    fn trainer(lifetime: Option<Duration>) -> NewToken {
        NewToken {
            name: "ada".into(),
            role: Role::Trainer,
            max_lanes: Some(64),
            reads: None,
            lifetime,
            join: None,
        }
    }

    fn joining(uses: u32) -> NewToken {
        let join = Some(JoinTerms { name_prefix: Some("n".into()), ..JoinTerms::new(uses) });
        NewToken { role: Role::Join, max_lanes: None, join, ..trainer(Some(DAY)) }
    }

    #[test]
    fn a_bare_name_in_a_grant_stands_for_every_token_of_that_name_and_for_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::open(folder.path().join("tokens.json")).unwrap();
        let now = SystemTime::now();
        let ids = [1, 2].map(|_| store.create(&trainer(None), now).unwrap().0.id);
        let bob = store.create(&NewToken { name: "bob".into(), ..trainer(None) }, now).unwrap().0.id;
        let one = ReadGrant::of_words(["ada", &format!("bob:{bob}")]).unwrap();
        let new = NewToken { role: Role::Viewer, max_lanes: None, reads: Some(one), ..trainer(None) };
        let new = NewToken { name: "look".into(), ..new };
        let (record, token) = store.create(&new, now).unwrap();
        let hello = Hello { versions: crate::Versions::OURS, program: "test".into(), token: Some(token) };
        let stranger = Stranger { address: "127.0.0.1:1".parse().unwrap(), certificate: None };
        let peer = store.introduce(&hello, &stranger, now).unwrap();
        let read = [format!("ada:{}", ids[0]), format!("ada:{}", ids[1]), "ada".into(), format!("bob:{bob}")];
        assert!(read.iter().chain([&format!("look:{}", record.id)]).all(|owner| peer.reads.has_owner(owner)));
        assert!(!peer.reads.has_owner("bob") && !peer.reads.has_owner("bob:other"));
        for role in [Role::Admin, Role::Join] {
            let wrong = NewToken { role, reads: Some(ReadGrant::All), ..trainer(Some(DAY)) };
            let join = (role == Role::Join).then(|| JoinTerms::new(1));
            let refused = store.create(&NewToken { join, ..wrong }, now).unwrap_err();
            assert!(matches!(refused, TokenFileError::Reads(_)), "{refused}");
        }
    }

    #[test]
    fn a_join_token_lets_in_as_many_as_it_says_whoever_counts_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let (ours, theirs) = (TokenStore::open(&path).unwrap(), TokenStore::open(&path).unwrap());
        let now = SystemTime::now();
        let (record, text) = ours.create(&joining(2), now).unwrap();
        let (other, _) = ours.create(&trainer(None), now).unwrap();
        assert_eq!(ours.authenticate(&text, now).unwrap().role, Role::Join);
        assert!(matches!(ours.join(&record.id, "m1", now), Err(JoinRefused::Name { .. })));
        ours.join(&record.id, "n1", now).unwrap();
        theirs.join(&record.id, "n2", now).unwrap();
        assert!(matches!(ours.join(&record.id, "n3", now), Err(JoinRefused::UsedUp { uses: 2 })));
        let late = ours.join(&record.id, "n3", now + DAY);
        assert!(matches!(late, Err(JoinRefused::Token(TokenRefused::Expired { .. }))));
        let wrong = ours.join(&other.id, "n3", now);
        assert!(matches!(wrong, Err(JoinRefused::Token(TokenRefused::NotValid))));
        assert_eq!(TokenStore::open(&path).unwrap().list()[0].join.as_ref().unwrap().used, 2);
    }

    #[test]
    fn a_join_token_has_an_end_and_terms_and_is_forgotten_a_week_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::open(folder.path().join("tokens.json")).unwrap();
        let now = SystemTime::now();
        for wrong in [
            NewToken { lifetime: None, ..joining(1) },
            NewToken { join: None, ..joining(1) },
            NewToken { role: Role::Admin, ..joining(1) },
        ] {
            assert!(matches!(store.create(&wrong, now), Err(TokenFileError::Terms)));
        }
        store.create(&joining(1), now).unwrap();
        store.create(&trainer(Some(DAY)), now + 8 * DAY - Duration::from_secs(5)).unwrap();
        assert_eq!(store.list().len(), 2);
        store.create(&joining(1), now + 8 * DAY + Duration::from_secs(5)).unwrap();
        let roles: Vec<Role> = store.list().iter().map(|token| token.role).collect();
        assert_eq!(roles, [Role::Trainer, Role::Join]);
    }

    #[test]
    fn a_token_is_known_by_its_secret_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::open(folder.path().join("tokens.json")).unwrap();
        let now = SystemTime::now();
        let (record, text) = store.create(&trainer(None), now).unwrap();
        assert_eq!(store.authenticate(&text, now).unwrap(), record);
        let other = store.create(&trainer(None), now).unwrap().1;
        let (_, other_secret) = other.rsplit_once('_').unwrap();
        for wrong in
            ["", "rh_", &text[..text.len() - 1], &format!("rh_{}_{other_secret}", record.id), &text[3..]]
        {
            assert_eq!(store.authenticate(wrong, now), Err(TokenRefused::NotValid), "{wrong}");
        }
    }

    #[test]
    fn the_file_holds_no_secret_and_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let store = TokenStore::open(&path).unwrap();
        let (_, text) = store.create(&trainer(None), SystemTime::now()).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        let (_, secret) = text.rsplit_once('_').unwrap();
        assert!(!written.contains(secret));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn expired_and_revoked_tokens_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::open(folder.path().join("tokens.json")).unwrap();
        let now = SystemTime::now();
        let (short, short_text) = store.create(&trainer(Some(DAY)), now).unwrap();
        assert!(store.authenticate(&short_text, now + DAY - Duration::from_secs(2)).is_ok());
        let late = store.authenticate(&short_text, now + DAY + Duration::from_secs(60));
        assert!(matches!(late, Err(TokenRefused::Expired { ago }) if (60..=61).contains(&ago.as_secs())));
        store.revoke(&short.id, now).unwrap();
        store.revoke(&short.id, now).unwrap();
        assert_eq!(store.authenticate(&short_text, now), Err(TokenRefused::Revoked));
        assert_eq!(store.holds(&short.id, now), Err(TokenRefused::Revoked));
        assert!(matches!(store.revoke("0000000000", now), Err(TokenFileError::Unknown(_))));
    }

    #[test]
    fn what_another_process_changes_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let (ours, theirs) = (TokenStore::open(&path).unwrap(), TokenStore::open(&path).unwrap());
        let now = SystemTime::now();
        let (record, text) = theirs.create(&trainer(None), now).unwrap();
        assert!(ours.authenticate(&text, now).is_ok());
        theirs.revoke(&record.id, now).unwrap();
        assert_eq!(ours.authenticate(&text, now), Err(TokenRefused::Revoked));
    }

    #[test]
    fn a_file_that_was_spoilt_leaves_the_tokens_in_force_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let store = TokenStore::open(&path).unwrap();
        let now = SystemTime::now();
        let (_, text) = store.create(&trainer(None), now).unwrap();
        std::fs::write(&path, "{").unwrap();
        assert!(store.authenticate(&text, now).is_ok());
        assert!(matches!(store.trouble().as_deref(), Some(TokenFileError::Parse { .. })));
        assert!(matches!(store.create(&trainer(None), now), Err(TokenFileError::Parse { .. })));
        assert!(matches!(TokenStore::open(&path), Err(TokenFileError::Parse { .. })));
    }

    #[test]
    fn a_rotated_token_keeps_its_owner_and_its_secret_before_holds_for_the_grace_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::open(folder.path().join("tokens.json")).unwrap();
        let now = SystemTime::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let (record, first) = store.create(&trainer(None), now).unwrap();
        let mark_of = |token: &str, at| store.shown(token, at).map(|(_, mark)| mark);
        let opened_by = mark_of(&first, now).unwrap();
        let (rotated, second) = store.rotate(&record.id, Duration::from_secs(60), now).unwrap();
        assert_eq!((&rotated.id, &rotated.name), (&record.id, &record.name), "the same owner");
        for token in [&first, &second] {
            assert_eq!(store.authenticate(token, later(59)).unwrap().id, record.id);
        }
        assert_eq!(store.authenticate(&first, later(61)), Err(TokenRefused::NotValid));
        assert!(store.authenticate(&second, later(61)).is_ok());
        // Connections that it has opened, and pools.
        let tokens = store.now();
        assert_eq!(tokens.admits(&record.id, opened_by, later(59)), Ok(()));
        assert_eq!(tokens.admits(&record.id, opened_by, later(61)), Err(TokenRefused::Replaced));
        assert_eq!(tokens.admits(&record.id, mark_of(&second, now).unwrap(), later(61)), Ok(()));
        assert_eq!(tokens.holds(&record.id, later(61)), Ok(()));
        // Without a grace the one before ends at once, and so does the one before that.
        let (_, third) = store.rotate(&record.id, Duration::ZERO, now).unwrap();
        for token in [&first, &second] {
            assert_eq!(store.authenticate(token, now), Err(TokenRefused::NotValid));
        }
        assert!(
            TokenStore::open(folder.path().join("tokens.json")).unwrap().authenticate(&third, now).is_ok()
        );
        store.revoke(&record.id, now).unwrap();
        let refused = store.rotate(&record.id, Duration::ZERO, now);
        assert!(matches!(refused, Err(TokenFileError::Over(_, TokenRefused::Revoked))));
    }

    #[test]
    fn nodes_and_coordinators_need_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::open(folder.path().join("tokens.json")).unwrap();
        for role in [Role::Node, Role::Coordinator, Role::Anonymous] {
            let new = NewToken { role, ..trainer(None) };
            assert!(matches!(store.create(&new, SystemTime::now()), Err(TokenFileError::Role(_))));
        }
    }
}
