//! Certificates for nodes: for machines that join, by their tokens, and for nodes that renew theirs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_wire::{
    AuthorityError, Begins, Certified, Credential, Enroll, Enrolled, Identity, IdentityError, IssuedToNode,
    JoinRefused, NodeIssuer, Peer, Refusal, RefusalCode, RequestedKey, Role, TokenStore,
};

use crate::enrolments::Enrolments;

/// The settings with which a coordinator lets nodes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentConfig {
    /// The file of the issuer of nodes' certificates. Without the file nobody is let in by a token. It is read whenever
    /// a certificate is asked for.
    pub issuer: PathBuf,
    /// Time for which nodes' certificates hold.
    pub validity: Duration,
}

impl EnrolmentConfig {
    /// Returns settings with the issuer in a coordinator's data folder, and certificates that hold for 30 days.
    pub fn in_folder(data: &Path) -> Self {
        Self { issuer: data.join(ISSUER), validity: VALIDITY }
    }
}

/// Gives certificates to nodes.
pub(crate) struct NodeCertifier {
    config: EnrolmentConfig,
    identity: Arc<Identity>,
    tokens: Arc<TokenStore>,
    began: Instant,
    given: Mutex<Enrolments>,
}

/// A request for a certificate that may be granted.
#[derive(Debug, Clone)]
pub(crate) struct AdmittedRequest {
    pub(crate) node: String,
    pub(crate) key: RequestedKey,
    /// The id of the join token that has to count the request; `None` if it has counted it, or if a node asks.
    token: Option<String>,
}

impl NodeCertifier {
    pub(crate) fn new(config: EnrolmentConfig, identity: Arc<Identity>, tokens: Arc<TokenStore>) -> Self {
        Self { config, identity, tokens, began: Instant::now(), given: Mutex::default() }
    }

    /// Checks whether the peer's request is looked at now, or too many ask.
    pub(crate) fn pace(&self, peer: &Peer) -> Result<(), Refusal> {
        self.given().ask(self.began.elapsed(), &peer.owner())
    }

    /// Notes that the node is there and so has its name.
    pub(crate) fn registers(&self, node: &str) {
        self.given().registers(node);
    }

    /// Decides whether that peer may have the certificate, without the facts that are only on the disk.
    pub(crate) fn admit(&self, peer: &Peer, enroll: &Enroll) -> Result<AdmittedRequest, Refusal> {
        let bad = |error: &dyn std::fmt::Display| Refusal::new(RefusalCode::BadRequest, error.to_string());
        let (now, node) = (self.began.elapsed(), enroll.node.clone());
        if peer.role == Role::Node {
            if peer.name != node {
                let message = format!("the certificate is for node `{}`, not for the name given", peer.name);
                return Err(Refusal::new(RefusalCode::Forbidden, message));
            }
            let key = RequestedKey::read(&enroll.request).map_err(|error| bad(&error))?;
            return Ok(AdmittedRequest { node, key, token: None });
        }
        let Credential::Token { id, .. } = &peer.credential else {
            return Err(Refusal::new(RefusalCode::Forbidden, "a machine joins by a join token"));
        };
        let record = self.tokens.list().into_iter().find(|token| token.id == *id);
        let terms = record.and_then(|token| token.join).ok_or_else(|| token_gone(id))?;
        let key = RequestedKey::read(&enroll.request).map_err(|error| bad(&error))?;
        let admitted = self.given().join(now, &node, key.digest())?;
        if admitted.is_counted {
            return Ok(AdmittedRequest { node, key, token: None });
        }
        match terms.admit(&node) {
            Ok(()) => Ok(AdmittedRequest { node, key, token: Some(id.clone()) }),
            Err(refused) => {
                self.given().failed(&node, key.digest());
                Err(refusal_of(&refused))
            }
        }
    }

    /// Has the token count the request and makes the certificate. Blocks on the disk.
    pub(crate) fn issue(&self, asked: &AdmittedRequest) -> Result<(Enrolled, IssuedToNode), Refusal> {
        let issuer = NodeIssuer::load(&self.config.issuer).map_err(|error| self.no_issuer(&error))?;
        let faulty = |what: String| Refusal::new(RefusalCode::Internal, what);
        let authorities = self.identity.authorities_pem().map_err(|error| faulty(error.to_string()))?;
        let authorities = authorities
            .ok_or_else(|| faulty("the coordinator knows its authority by a fingerprint only".to_owned()))?;
        let name = Certified { role: Role::Node, name: asked.node.clone() };
        // It is to be told from those that were revoked.
        let begins = if self.identity.has_revoked(&name) { Begins::Now } else { Begins::Backdated };
        let issued = issuer
            .issue(&asked.key, &asked.node, self.config.validity, begins)
            .map_err(|error| faulty(error.to_string()))?;
        if let Err(error) = self.identity.believes(&issued.certificate_pem) {
            if let IdentityError::Revoked { .. } = error {
                // It began in the very second in which those before were revoked.
                return Err(Refusal::busy(error.to_string(), NEXT_SECOND_MS));
            }
            let path = self.config.issuer.display();
            return Err(faulty(format!(
                "the coordinator does not believe what the issuer {path} signs: {error}"
            )));
        }
        // Last, so that nothing that fails costs a use.
        if let Some(token) = &asked.token {
            let used = self.tokens.join(token, &asked.node, SystemTime::now());
            used.map_err(|refused| refusal_of(&refused))?;
            self.given().counted(&asked.node, asked.key.digest());
        }
        let certificate = issued.certificate_pem.clone();
        Ok((Enrolled { certificate, authorities }, issued))
    }

    fn no_issuer(&self, error: &AuthorityError) -> Refusal {
        let path = self.config.issuer.display();
        match error {
            AuthorityError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Refusal::new(
                    RefusalCode::Unsupported,
                    format!(
                        "this coordinator gives no certificates, for it has no issuer: `rollhouse certs issuer --output \
                     {path}` makes one"
                    ),
                )
            }
            other => Refusal::new(RefusalCode::Internal, format!("the issuer cannot be used: {other}")),
        }
    }

    pub(crate) fn given(&self) -> MutexGuard<'_, Enrolments> {
        self.given.lock()
    }
}

/// Milliseconds after which a certificate begins in another second.
const NEXT_SECOND_MS: u64 = 1_000;
/// The name of the issuer's file in a coordinator's data folder.
const ISSUER: &str = "issuer.pem";
/// Time for which certificates hold: long enough for a coordinator that is away for a week; a node asks for its next
/// one after 20 days.
const VALIDITY: Duration = Duration::from_secs(30 * 86_400);

fn token_gone(id: &str) -> Refusal {
    Refusal::new(RefusalCode::Unauthenticated, format!("the token {id} is not a join token any more"))
}

fn refusal_of(refused: &JoinRefused) -> Refusal {
    let code = match refused {
        JoinRefused::Name { .. } => RefusalCode::Forbidden,
        JoinRefused::UsedUp { .. } => RefusalCode::Quota,
        JoinRefused::Token(_) => RefusalCode::Unauthenticated,
        JoinRefused::File(_) => RefusalCode::Internal,
    };
    Refusal::new(code, refused.to_string())
}
