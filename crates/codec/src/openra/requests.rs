//! What requests come to once they are checked and clamped.

use super::messages::{Command, FastAdvanceRequest};
use super::words::Interrupts;

/// Greatest number of ticks of an advance; more and fewer than one are clamped.
pub const MAX_TICKS: u32 = 5000;
/// Maximum number of bytes of a session's name.
pub const MAX_SESSION_NAME: usize = 64;

/// The session that a request is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionName {
    /// The one of a bridge that has only one: no name is said.
    Single,
    /// One that was created.
    Created(String),
}

/// Reason for which a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// A session's name is too long.
    #[error("a session's name of {0} bytes; it has at most {MAX_SESSION_NAME}")]
    Name(usize),
    /// There are more commands than fit into the ticks.
    #[error("{given} commands in {ticks} ticks; a tick has at most {each}")]
    Commands {
        /// Number of commands.
        given: usize,
        /// Number of ticks, clamped.
        ticks: u32,
        /// Most commands of a tick.
        each: usize,
    },
}

impl SessionName {
    /// Reads a name; an empty one is the single session's.
    ///
    /// # Errors
    /// [`BadRequest::Name`].
    pub fn of(text: String) -> Result<Self, BadRequest> {
        match text.len() {
            0 => Ok(Self::Single),
            1..=MAX_SESSION_NAME => Ok(Self::Created(text)),
            bytes => Err(BadRequest::Name(bytes)),
        }
    }
}

/// An advance that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Advance {
    /// Number of ticks, 1 to [`MAX_TICKS`].
    pub ticks: u32,
    /// Commands, at most as many as fit into the ticks.
    pub commands: Vec<Command>,
    /// Ticks between two looks at interrupts; `None` never looks.
    pub check_every: Option<u32>,
    /// What ends it early.
    pub interrupts: Interrupts,
}

impl Advance {
    /// Checks and clamps a request. `each` commands fit into a tick.
    ///
    /// # Errors
    /// See [`BadRequest`].
    pub fn of(request: FastAdvanceRequest, each: usize) -> Result<(SessionName, Self), BadRequest> {
        let session = SessionName::of(request.session_id)?;
        let ticks = request.ticks.clamp(1, MAX_TICKS as i32).unsigned_abs();
        let given = request.commands.len();
        if given > each.saturating_mul(ticks as usize) {
            return Err(BadRequest::Commands { given, ticks, each });
        }
        let check_every = u32::try_from(request.check_events_every).ok().filter(|every| *every > 0);
        let interrupts = Interrupts::of_names(request.enabled_interrupts.iter().map(String::as_str));
        Ok((session, Self { ticks, commands: request.commands, check_every, interrupts }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ticks: i32, commands: usize) -> FastAdvanceRequest {
        let commands = vec![Command::default(); commands];
        FastAdvanceRequest { ticks, commands, ..FastAdvanceRequest::default() }
    }

    #[test]
    fn ticks_are_clamped_to_one_and_five_thousand() {
        let ticks = |given| Advance::of(request(given, 0), 16).unwrap().1.ticks;
        assert_eq!([i32::MIN, -1, 0, 1, 5000, 5001, i32::MAX].map(ticks), [1, 1, 1, 1, 5000, 5000, 5000]);
    }

    #[test]
    fn a_tick_takes_sixteen_commands_and_the_seventeenth_needs_another() {
        assert!(Advance::of(request(1, 16), 16).is_ok());
        assert!(Advance::of(request(2, 17), 16).is_ok());
        let refused = Advance::of(request(1, 17), 16).unwrap_err();
        assert_eq!(refused.to_string(), "17 commands in 1 ticks; a tick has at most 16");
    }

    #[test]
    fn interrupts_are_looked_for_only_if_a_number_of_ticks_is_said() {
        let every = |given| {
            let request = FastAdvanceRequest { check_events_every: given, ..request(9, 0) };
            Advance::of(request, 16).unwrap().1.check_every
        };
        assert_eq!([-1, 0, 1, 7].map(every), [None, None, Some(1), Some(7)]);
    }

    #[test]
    fn no_name_is_the_single_session_and_one_that_is_too_long_is_refused() {
        assert_eq!(SessionName::of(String::new()), Ok(SessionName::Single));
        assert_eq!(SessionName::of("x".repeat(65)), Err(BadRequest::Name(65)));
    }
}
