//! Makes a machine a node: a join token gets it its first certificate, and the node's link renews that.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_wire::{
    AuthorityError, CallError, CloseCode, Connection, DialError, Dialer, Enroll, Enrolled, Expected,
    Identity, IdentityFileError, JoinedError, JoinedFolder, KeyRequest, Settings, Trust, Validity,
};

/// A machine that is to become a node.
#[derive(Debug, Clone)]
pub struct Joining {
    /// Host and port of the coordinator.
    pub coordinator: String,
    /// The authority by which the coordinator is verified.
    pub trust: Trust,
    /// The name that the node is to have.
    pub node: String,
    /// The folder in which the certificate is kept.
    pub folder: JoinedFolder,
    /// Settings of the QUIC socket.
    pub quic: Settings,
    /// Name and version of the program.
    pub program: String,
}

/// Why a machine is not a node yet, or why a node has no newer certificate.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The coordinator cannot be verified, because the files by which it is known cannot be read.
    #[error(transparent)]
    Trust(IdentityFileError),
    /// There is no connection to the coordinator.
    #[error(transparent)]
    Dial(DialError),
    /// The coordinator refused, or did not answer.
    #[error(transparent)]
    Call(CallError),
    /// No key can be made.
    #[error(transparent)]
    Key(AuthorityError),
    /// The certificate that was given is of no use or cannot be kept.
    #[error(transparent)]
    Keep(JoinedError),
    /// The machine has no thread for work that blocks.
    #[error("the system refuses a thread")]
    Thread,
}

impl Joining {
    /// Dials the coordinator, has it certify the key of `request`, and keeps what it gives. Asking again with the same
    /// request costs the token no further use if the coordinator has answered a short time ago. Blocks on the disk for a
    /// moment; needs a tokio runtime with time and I/O.
    ///
    /// # Errors
    /// See [`JoinError`]; nothing has changed then.
    pub async fn join(&self, token: &str, request: &KeyRequest) -> Result<Validity, JoinError> {
        let identity = Identity::load(self.trust.clone(), None).map_err(JoinError::Trust)?;
        let dialer = Dialer::new(identity, self.quic, self.program.clone());
        let connection = dialer
            .dial(&self.coordinator, &Expected::COORDINATOR, Some(token))
            .await
            .map_err(JoinError::Dial)?;
        let enrolled = enroll(&connection, &self.node, request).await?;
        connection.close(CloseCode::Finished, "the node has its certificate");
        // The coordinator is told, or finds out by itself.
        let _told = tokio::time::timeout(LINGER, dialer.closed()).await;
        self.folder.keep(request, &enrolled, &self.node).map_err(JoinError::Keep)
    }
}

impl JoinError {
    /// Returns whether trying again may help without anybody changing anything.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Dial(error) => error.is_transient(),
            Self::Call(CallError::Refused(refusal)) => refusal.code.is_transient(),
            Self::Call(CallError::Lost(_) | CallError::TimedOut { .. }) => true,
            Self::Call(CallError::Malformed(_))
            | Self::Trust(_)
            | Self::Key(_)
            | Self::Keep(_)
            | Self::Thread => false,
        }
    }
}

/// The means by which a node renews its certificate.
#[derive(Debug, Clone)]
pub(crate) struct Renewing {
    pub(crate) identity: Arc<Identity>,
    pub(crate) folder: JoinedFolder,
    pub(crate) node: String,
}

impl Renewing {
    /// Has a new key certified over the node's own connection, and replaces the earlier one. From then on, both who is
    /// dialled and who dials in is shown the new certificate.
    pub(crate) async fn renew(self, connection: Connection) -> Result<Validity, JoinError> {
        let request = KeyRequest::make().map_err(JoinError::Key)?;
        let enrolled = enroll(&connection, &self.node, &request).await?;
        let Self { identity, folder, node } = self;
        // Task: file operation.
        let kept = tokio::task::spawn_blocking(move || folder.keep(&request, &enrolled, &node));
        let validity = kept.await.map_err(|_| JoinError::Thread)?.map_err(JoinError::Keep)?;
        identity.read_again();
        Ok(validity)
    }
}

async fn enroll(connection: &Connection, node: &str, request: &KeyRequest) -> Result<Enrolled, JoinError> {
    let asked = Enroll { node: node.to_owned(), request: request.request().to_vec() };
    connection.call(asked, DEADLINE).await.map_err(JoinError::Call)
}

/// Time that the coordinator may take to sign: its disk syncs the token's use.
const DEADLINE: Duration = Duration::from_secs(15);
/// Time for the coordinator to hear that the connection is over.
const LINGER: Duration = Duration::from_millis(500);
