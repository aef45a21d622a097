//! For whom pools are kept, and whether those may still go by what they showed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use rollhouse_wire::{
    Connection, Credential, IdentityError, PeerCertificate, TokenRefused, TokenStore, Tokens,
};

/// What owners of pools have shown, looked at again for as long as they have pools, connected or not.
///
/// An owner is never refused for being unknown: a coordinator that has lost its tokens, or has just started and has not
/// met the holder of a certificate yet, ends nobody's lanes for that.
#[derive(Debug)]
pub(crate) struct Owners {
    tokens: Arc<TokenStore>,
    known: BTreeMap<Arc<str>, Shown>,
}

/// What an owner has shown and was believed.
#[derive(Debug)]
enum Shown {
    /// The token of that id.
    Token,
    /// One of these: several while the holder's own is being replaced.
    Certificates(Vec<PeerCertificate>),
}

impl Owners {
    pub(crate) fn new(tokens: Arc<TokenStore>) -> Self {
        Self { tokens, known: BTreeMap::new() }
    }

    /// Somebody asks for lanes who was admitted. What tokens' holders have shown is in their names.
    pub(crate) fn asks(&mut self, owner: &str, certificate: Option<PeerCertificate>) {
        let Some(certificate) = certificate.filter(|_| token_of(owner).is_none()) else { return };
        let known = self.known.entry(owner.into()).or_insert_with(|| Shown::Certificates(Vec::new()));
        if let Shown::Certificates(shown) = known
            && !shown.iter().any(|other| other.is(&certificate))
        {
            if shown.len() >= MAX_CERTIFICATES {
                shown.remove(0);
            }
            shown.push(certificate);
        }
    }

    /// Those of the owners whose time is over, and why; others than these are forgotten.
    pub(crate) fn refused(&mut self, owners: BTreeSet<Arc<str>>, now: SystemTime) -> Vec<(Arc<str>, String)> {
        self.known.retain(|owner, _| owners.contains(owner));
        let tokens = self.tokens.now();
        let mut refused = Vec::new();
        for owner in owners {
            let why = match (token_of(&owner), self.known.get_mut(&owner)) {
                (Some(id), known) => match tokens.holds(id, now) {
                    Ok(()) if known.is_none() => {
                        self.known.insert(owner, Shown::Token);
                        continue;
                    }
                    Err(why) if known.is_some() || why != TokenRefused::NotValid => why.to_string(),
                    Ok(()) | Err(_) => continue,
                },
                (None, Some(Shown::Certificates(shown))) => match believed(shown, now) {
                    Ok(()) => continue,
                    Err(why) => why.to_string(),
                },
                (None, _) => continue,
            };
            self.known.remove(&owner);
            refused.push((owner, why));
        }
        refused
    }
}

/// Forgets what is not believed any more.
///
/// # Errors
/// If that was all.
fn believed(shown: &mut Vec<PeerCertificate>, now: SystemTime) -> Result<(), IdentityError> {
    let mut last = IdentityError::Missing;
    shown.retain(|certificate| certificate.certify(now).map_err(|why| last = why).is_ok());
    if shown.is_empty() { Err(last) } else { Ok(()) }
}

/// The id of the token by which an owner is known.
fn token_of(owner: &str) -> Option<&str> {
    owner.split_once(':').map(|(_, id)| id)
}

/// Why a connection is not to go on; `None` while what its peer showed holds.
pub(crate) fn refusal(connection: &Connection, tokens: &Tokens, now: SystemTime) -> Option<String> {
    match &connection.peer().credential {
        Credential::Token(id) => tokens.holds(id, now).err().map(|why| why.to_string()),
        Credential::Certificate => connection.certificate()?.certify(now).err().map(|why| why.to_string()),
        Credential::None => None,
    }
}

/// Certificates of one owner that are remembered: the newest.
const MAX_CERTIFICATES: usize = 4;
