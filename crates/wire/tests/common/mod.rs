//! A cluster's authority and identities in a folder of the test, and listeners that admit by them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests outside of test functions")]

pub mod raw;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rollhouse_wire::{
    Arrival, CertificateAuthority, CertificateFiles, Connection, Dialer, Identity, Listener, Peer, Role,
    Settings, TokenStore, Trust, TurnedAway,
};
use tempfile::TempDir;

pub const DAY: Duration = Duration::from_secs(86_400);
pub const SOON: Duration = Duration::from_secs(10);

/// A folder with an authority and its identities; gone when dropped.
pub struct Cluster {
    folder: TempDir,
    pub authority: CertificateAuthority,
}

impl Cluster {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::create(folder.path(), DAY).unwrap();
        Self { folder, authority }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn trust(&self) -> Trust {
        Trust::File(self.path().join("ca.pem"))
    }

    /// A certificate with its key, issued by this cluster.
    pub fn files(&self, role: Role, name: &str) -> CertificateFiles {
        let files = CertificateFiles {
            certificate: self.path().join(format!("{name}.pem")),
            key: self.path().join(format!("{name}.key")),
        };
        let issued = self.authority.issue(role, name, DAY).unwrap();
        issued.write(&files.certificate, &files.key).unwrap();
        files
    }

    pub fn identity(&self, role: Role, name: &str) -> Arc<Identity> {
        Identity::load(self.trust(), Some(self.files(role, name))).unwrap()
    }

    /// Somebody who trusts this cluster and has no certificate.
    pub fn nobody(&self) -> Arc<Identity> {
        Identity::load(self.trust(), None).unwrap()
    }

    pub fn tokens(&self) -> Arc<TokenStore> {
        Arc::new(TokenStore::open(self.path().join("tokens.json")).unwrap())
    }

    /// A coordinator's endpoint.
    pub fn coordinator(&self, settings: Settings) -> Listener {
        let tokens = self.tokens();
        let identity = self.identity(Role::Coordinator, "coordinator");
        let admit = move |hello: &_, stranger: &_| tokens.introduce(hello, stranger, SystemTime::now());
        Listener::bind(localhost(), identity, settings, "coordinator/test", Box::new(admit)).unwrap()
    }

    /// A node's endpoint, which takes everybody for anonymous.
    pub fn node(&self, name: &str, settings: Settings) -> Listener {
        let identity = self.identity(Role::Node, name);
        let admit = |_: &_, stranger: &_| Ok(Peer::anonymous(stranger));
        Listener::bind(localhost(), identity, settings, "node/test", Box::new(admit)).unwrap()
    }
}

pub fn localhost() -> std::net::SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub fn dialer(identity: Arc<Identity>) -> Dialer {
    Dialer::new(identity, Settings::default(), "client/test")
}

pub fn address(listener: &Listener) -> String {
    listener.effective().address.to_string()
}

/// The next stranger, who must have become known.
pub async fn connected(listener: &mut Listener) -> Connection {
    match listener.accept().await {
        Some(Arrival::Connected(connection)) => connection,
        other => panic!("expected a connection, got {other:?}"),
    }
}

/// The next stranger, who must have been turned away.
pub async fn turned_away(listener: &mut Listener) -> TurnedAway {
    match listener.accept().await {
        Some(Arrival::TurnedAway(away)) => away,
        other => panic!("expected somebody to be turned away, got {other:?}"),
    }
}

/// Runs a test on a runtime of its own, as every process has it.
pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}
