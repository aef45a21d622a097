//! OpenRA's bridge for learners: package `openra.rl`, service `RLBridge`, and the metadata of its replays.
//!
//! Messages (feature `messages`) are proto3. Fields that are not known are passed over and not kept: a message
//! that is read and written again has lost them. Numbers of enums that are not known are kept as numbers.
//!
//! `decode` is the one way in. `Advance`, [`Bots`] and the like are what requests come to once they are checked.

#[cfg(feature = "messages")]
mod messages;
#[cfg(feature = "messages")]
mod reading;
mod replay;
#[cfg(feature = "messages")]
mod requests;
mod words;

#[cfg(feature = "messages")]
pub use messages::{
    ActionKind, AgentAction, BuildingInfo, Command, CreateSessionRequest, CreateSessionResponse,
    DestroySessionRequest, DestroySessionResponse, Economy, FastAdvanceRequest, GameObservation, GameState,
    KillEvent, MapInfo, Military, ProductionInfo, StateRequest, UnitInfo,
};
#[cfg(feature = "messages")]
pub use prost::Message;
#[cfg(feature = "messages")]
pub use reading::{
    MAX_ACTORS, MAX_COMMANDS, MAX_INTERRUPTS, MAX_OBSERVATION_BYTES, MAX_REQUEST_BYTES, MAX_TEXTS,
    MessageError, Readable, decode,
};
pub use replay::{MAX_METADATA_BYTES, Metadata, PlayerMetadata, ReplayError, TAIL_BYTES, Tail};
#[cfg(feature = "messages")]
pub use requests::{Advance, BadRequest, MAX_SESSION_NAME, MAX_TICKS, SessionName};
pub use words::{BadBots, Bots, Interrupt, Interrupts, MAX_BOTS_BYTES, Phase, Stance, Strength};

/// Path of the service, before the name of a call.
pub const SERVICE: &str = "openra.rl.RLBridge";
/// Port that the bridge has unless another is said.
pub const PORT: u16 = 9999;
/// Planes of a spatial map, channels last: terrain, height, resources, passable, fog, own building, own units, enemy
/// building, enemy units.
pub const PLANES: usize = 9;
