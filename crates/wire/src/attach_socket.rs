//! The Unix socket at which an owner on the node's own machine gets the memory of a session.
//!
//! One connection is one attachment: a request, an answer with two descriptors beside it, and then nothing. The end of
//! the connection tells each side that the other is gone, however it went.

mod listener;
mod owner;
mod request;

pub use listener::{AttachBindError, AttachListener, LocalArrival};
pub use owner::{AttachCallError, OwnerSocket};
pub use request::AttachSocket;
