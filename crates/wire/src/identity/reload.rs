//! Our own identity and the trusted authorities, read again whenever their files change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::clock;
use super::error::IdentityFileError;
use super::files::{self, MAX_FILE_BYTES, Stamp};
use super::pem::certificates_in;
use super::revoked::Revoked;
use super::trust::{Authorities, Certified, Fingerprint, IdentityError, Side};
use super::validity::Validity;

/// The authority of a cluster, as a peer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// A PEM file with the certificates of the cluster's authorities: one, or old and new during a rotation.
    File(PathBuf),
    /// The fingerprint of the authority's certificate, which servers send along.
    Fingerprint(Fingerprint),
}

/// The paths of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM: the certificate, then those that link it to an authority, the authority's own included.
    pub certificate: PathBuf,
    /// PEM: the certificate's key.
    pub key: PathBuf,
}

/// Our own certificate and the authorities that we trust. Files that change are read again at the next handshake or
/// look at a [`PeerCertificate`](super::PeerCertificate), at most every half second. If the new contents cannot be
/// used, the earlier ones stay in force and [`Identity::trouble`] tells.
///
/// The check reads the metadata of up to four files on the thread that serves connections: microseconds on a
/// local disk, where these files belong.
pub struct Identity {
    trust: Trust,
    files: Option<CertificateFiles>,
    /// The file of revoked names.
    revoked: Option<PathBuf>,
    state: Mutex<LoadedFiles>,
}

struct LoadedFiles {
    loaded: Arc<Loaded>,
    stamps: [Option<Stamp>; 4],
    checked: Instant,
    trouble: Option<Arc<IdentityFileError>>,
}

/// The contents of the files.
pub(super) struct Loaded {
    pub(super) authorities: Authorities,
    revoked: Revoked,
    own: Option<Own>,
}

struct Own {
    key: Arc<CertifiedKey>,
    certified: Certified,
    validity: Validity,
}

impl Identity {
    /// Reads the files. Blocks on the disk.
    ///
    /// # Errors
    /// See [`IdentityFileError`]. Our own certificate has to be believed by our own authorities and must not have
    /// expired; this is not checked if the authority is known by its fingerprint only and is not in our chain.
    pub fn load(trust: Trust, files: Option<CertificateFiles>) -> Result<Arc<Self>, IdentityFileError> {
        Self::read(trust, files, None)
    }

    /// Reads the files as [`Identity::load`] does, and believes no certificate that is [`Revoked`] in that file, which
    /// need not exist.
    ///
    /// # Errors
    /// Those of [`Identity::load`].
    pub fn load_refusing(
        trust: Trust,
        files: Option<CertificateFiles>,
        revoked: &Path,
    ) -> Result<Arc<Self>, IdentityFileError> {
        Self::read(trust, files, Some(revoked.to_path_buf()))
    }

    fn read(
        trust: Trust,
        files: Option<CertificateFiles>,
        revoked: Option<PathBuf>,
    ) -> Result<Arc<Self>, IdentityFileError> {
        let stamps = stamps(&trust, files.as_ref(), revoked.as_deref());
        let loaded = Arc::new(Loaded::read(&trust, files.as_ref(), revoked.as_deref())?);
        let state = LoadedFiles { loaded, stamps, checked: Instant::now(), trouble: None };
        Ok(Arc::new(Self { trust, files, revoked, state: Mutex::new(state) }))
    }

    /// Returns whether certificates of that name have been revoked; a new one is then to begin no sooner than now.
    pub fn has_revoked(&self, of: &Certified) -> bool {
        self.current().revoked.names(of)
    }

    /// Returns the holder of our certificate; `None` without one.
    pub fn certified(&self) -> Option<Certified> {
        self.current().own.as_ref().map(|own| own.certified.clone())
    }

    /// Returns the time in which our certificate holds; `None` without one.
    pub fn validity(&self) -> Option<Validity> {
        self.current().own.as_ref().map(|own| own.validity)
    }

    /// Returns why the files as they are now are not in force; `None` if they are.
    pub fn trouble(&self) -> Option<Arc<IdentityFileError>> {
        self.current();
        self.lock().trouble.clone()
    }

    /// Checks the files again now, however short a time ago that was done: they have just been replaced.
    pub fn read_again(&self) {
        let mut state = self.lock();
        state.checked = state.checked.checked_sub(RECHECK).unwrap_or(state.checked);
        drop(state);
        self.current();
    }

    /// Returns the holder of a chain of certificates, given as PEM, if peers with our trusted authorities believe it
    /// now.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn believes(&self, chain_pem: &str) -> Result<Certified, IdentityError> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain_pem.as_bytes()).filter_map(Result::ok).collect();
        self.certify(&chain, Side::Client, clock::now())
    }

    /// Returns the certificates of the authorities that we trust, as PEM; `None` if they are known by a fingerprint
    /// only. Blocks on the disk.
    ///
    /// # Errors
    /// [`IdentityFileError::Read`] or [`IdentityFileError::Empty`].
    pub fn authorities_pem(&self) -> Result<Option<String>, IdentityFileError> {
        let Trust::File(path) = &self.trust else { return Ok(None) };
        let pem = certificates_in(&String::from_utf8_lossy(&contents(path)?));
        if pem.is_empty() { Err(IdentityFileError::Empty(path.clone())) } else { Ok(Some(pem)) }
    }

    pub(crate) fn certify(
        &self,
        chain: &[CertificateDer<'_>],
        side: Side,
        now: UnixTime,
    ) -> Result<Certified, IdentityError> {
        self.current().certify(chain, side, now)
    }

    /// Checks the files now, whenever that was done last. Blocks on the disk.
    pub fn look_again(&self) {
        self.looked_at(Duration::ZERO);
    }

    pub(super) fn current(&self) -> Arc<Loaded> {
        self.looked_at(RECHECK)
    }

    /// Checks the files, unless that was done less than `every` ago, and returns the contents in force.
    fn looked_at(&self, every: Duration) -> Arc<Loaded> {
        let mut state = self.lock();
        if state.checked.elapsed() >= every {
            state.checked = Instant::now();
            let (files, revoked) = (self.files.as_ref(), self.revoked.as_deref());
            let stamps = stamps(&self.trust, files, revoked);
            if stamps != state.stamps {
                match Loaded::read(&self.trust, files, revoked) {
                    Ok(loaded) => {
                        state.loaded = Arc::new(loaded);
                        state.stamps = stamps;
                        state.trouble = None;
                    }
                    // The stamps stay the old ones: half of a pair may have been replaced, the other follows.
                    Err(error) => state.trouble = Some(Arc::new(error)),
                }
            }
        }
        state.loaded.clone()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, LoadedFiles> {
        // Every change of the state is one assignment, so that a panic leaves none half done.
        self.state.lock()
    }

    fn own_key(&self) -> Option<Arc<CertifiedKey>> {
        self.current().own.as_ref().map(|own| own.key.clone())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("trust", &self.trust).field("files", &self.files).finish()
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.own_key()
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.own_key()
    }

    fn has_certs(&self) -> bool {
        self.files.is_some()
    }
}

impl Loaded {
    fn read(
        trust: &Trust,
        files: Option<&CertificateFiles>,
        revoked: Option<&Path>,
    ) -> Result<Self, IdentityFileError> {
        let authorities = match trust {
            Trust::File(path) => Authorities::Known(certificates(path)?),
            Trust::Fingerprint(pin) => Authorities::Pinned(*pin),
        };
        let own = files.map(|files| Own::read(files, &authorities)).transpose()?;
        let revoked = revoked.map(Revoked::read).transpose()?.unwrap_or_default();
        Ok(Self { authorities, revoked, own })
    }

    /// Returns the holder of a chain, if it is believed.
    pub(super) fn certify(
        &self,
        chain: &[CertificateDer<'_>],
        side: Side,
        now: UnixTime,
    ) -> Result<Certified, IdentityError> {
        let certified = self.authorities.certify(chain, side, now)?;
        // A chain that was believed has a first certificate.
        chain.first().map_or(Ok(()), |leaf| self.revoked.check(&certified, leaf))?;
        Ok(certified)
    }
}

impl Own {
    fn read(files: &CertificateFiles, authorities: &Authorities) -> Result<Self, IdentityFileError> {
        let chain = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&contents(&files.key)?)
            .map_err(|source| IdentityFileError::Pem { path: files.key.clone(), source })?;
        let bad_key = |source| IdentityFileError::Key { path: files.key.clone(), source };
        let key = CertifiedKey::from_der(chain, key, &default_provider()).map_err(bad_key)?;
        key.keys_match().map_err(bad_key)?;
        let refused =
            |source| IdentityFileError::Refused { path: files.certificate.clone(), source: Box::new(source) };
        let certified = authorities.certify(&key.cert, Side::Client, clock::now()).map_err(refused)?;
        // It holds for as long as all do that link it to the authority.
        let all = key.cert.iter().map(|link| Validity::of(link)).collect::<Option<Vec<_>>>();
        let validity = all.and_then(|all| all.into_iter().reduce(Validity::within));
        let validity = validity.ok_or_else(|| IdentityFileError::Empty(files.certificate.clone()))?;
        Ok(Self { key: Arc::new(key), certified, validity })
    }
}

/// A certificate in a file, to be listed for people.
#[derive(Debug, Clone)]
pub struct ShownCertificate {
    /// The certificate's fingerprint.
    pub fingerprint: Fingerprint,
    /// The certificate's holder; `None` for an authority.
    pub certified: Option<Certified>,
    /// The time in which it holds.
    pub validity: Validity,
}

/// Returns the certificates in a PEM file, in their order, whether anybody believes them or not. Blocks on the disk.
///
/// # Errors
/// See [`IdentityFileError`].
pub fn show_certificates(path: &Path) -> Result<Vec<ShownCertificate>, IdentityFileError> {
    let shown = certificates(path)?.into_iter().map(|certificate| {
        let validity =
            Validity::of(&certificate).ok_or_else(|| IdentityFileError::Empty(path.to_path_buf()))?;
        let (fingerprint, certified) = (Fingerprint::of(&certificate), Certified::shown_by(&certificate));
        Ok(ShownCertificate { fingerprint, certified, validity })
    });
    shown.collect()
}

fn stamps(trust: &Trust, files: Option<&CertificateFiles>, revoked: Option<&Path>) -> [Option<Stamp>; 4] {
    let authority = match trust {
        Trust::File(path) => Stamp::of(path),
        Trust::Fingerprint(_) => None,
    };
    let stamp = |of: fn(&CertificateFiles) -> &Path| files.and_then(|files| Stamp::of(of(files)));
    [authority, stamp(|files| &files.certificate), stamp(|files| &files.key), revoked.and_then(Stamp::of)]
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityFileError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(&contents(path)?)
        .collect::<Result<_, _>>()
        .map_err(|source| IdentityFileError::Pem { path: path.to_path_buf(), source })?;
    if found.is_empty() { Err(IdentityFileError::Empty(path.to_path_buf())) } else { Ok(found) }
}

fn contents(path: &Path) -> Result<Vec<u8>, IdentityFileError> {
    files::read(path, MAX_FILE_BYTES)
        .map_err(|source| IdentityFileError::Read { path: path.to_path_buf(), source })
}

/// Shortest interval between checks of the files: a lost trust is to be noticed within a second.
const RECHECK: Duration = Duration::from_millis(500);
