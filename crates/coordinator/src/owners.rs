//! Owners of pools, and the check whether their tokens and certificates still hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use rollhouse_wire::{
    Connection, Credential, IdentityError, PeerCertificate, TokenRefused, TokenStore, Tokens,
};

/// The tokens and certificates that owners of pools have shown. They are checked again for as long as the owners have
/// pools, connected or not.
///
/// An owner is never refused for being unknown: a coordinator that has lost its tokens, or has just started and has not
/// met the holder of a certificate yet, ends nobody's lanes for that.
#[derive(Debug)]
pub(crate) struct Owners {
    tokens: Arc<TokenStore>,
    known: BTreeMap<Arc<str>, OwnerCredential>,
}

/// The credential by which an owner was believed.
#[derive(Debug)]
enum OwnerCredential {
    /// The token whose id is in the owner's name.
    Token,
    /// One of these certificates: there are several while the holder's own is being replaced.
    Certificates(Vec<PeerCertificate>),
}

impl Owners {
    pub(crate) fn new(tokens: Arc<TokenStore>) -> Self {
        Self { tokens, known: BTreeMap::new() }
    }

    /// Notes the certificate of an owner that asks for lanes and was admitted. Holders of tokens need no note, because
    /// the token's id is in their name.
    pub(crate) fn asks(&mut self, owner: &str, certificate: Option<PeerCertificate>) {
        let Some(certificate) = certificate.filter(|_| token_of(owner).is_none()) else { return };
        let known =
            self.known.entry(owner.into()).or_insert_with(|| OwnerCredential::Certificates(Vec::new()));
        if let OwnerCredential::Certificates(shown) = known
            && !shown.iter().any(|other| other.is(&certificate))
        {
            if shown.len() >= MAX_CERTIFICATES {
                shown.remove(0);
            }
            shown.push(certificate);
        }
    }

    /// Returns the owners whose credentials no longer hold, with the reason. All owners that are not named are
    /// forgotten.
    pub(crate) fn refused(&mut self, owners: BTreeSet<Arc<str>>, now: SystemTime) -> Vec<(Arc<str>, String)> {
        self.known.retain(|owner, _| owners.contains(owner));
        let tokens = self.tokens.now();
        let mut refused = Vec::new();
        for owner in owners {
            let why = match (token_of(&owner), self.known.get_mut(&owner)) {
                (Some(id), known) => match tokens.holds(id, now) {
                    Ok(()) if known.is_none() => {
                        self.known.insert(owner, OwnerCredential::Token);
                        continue;
                    }
                    Err(why) if known.is_some() || why != TokenRefused::NotValid => why.to_string(),
                    Ok(()) | Err(_) => continue,
                },
                (None, Some(OwnerCredential::Certificates(shown))) => match believed(shown, now) {
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

/// Forgets the certificates that are not believed any more.
///
/// # Errors
/// If none is left.
fn believed(shown: &mut Vec<PeerCertificate>, now: SystemTime) -> Result<(), IdentityError> {
    let mut last = IdentityError::Missing;
    shown.retain(|certificate| certificate.certify(now).map_err(|why| last = why).is_ok());
    if shown.is_empty() { Err(last) } else { Ok(()) }
}

/// Returns the id of the token by which an owner is known.
fn token_of(owner: &str) -> Option<&str> {
    owner.split_once(':').map(|(_, id)| id)
}

/// Returns the reason why a connection is to end; `None` while the credential that its peer showed holds.
pub(crate) fn refusal(connection: &Connection, tokens: &Tokens, now: SystemTime) -> Option<String> {
    match &connection.peer().credential {
        Credential::Token { id, secret } => tokens.admits(id, *secret, now).err().map(|why| why.to_string()),
        Credential::Certificate => connection.certificate()?.certify(now).err().map(|why| why.to_string()),
        Credential::None => None,
    }
}

/// Number of certificates of one owner that are remembered: the newest.
const MAX_CERTIFICATES: usize = 4;
