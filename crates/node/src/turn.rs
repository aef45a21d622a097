//! Whose turn it is at a session: that of the last who attached, until the session ends.

/// Which attachment may step a session now. Pure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    attachment: u64,
    ended: bool,
}

/// Why an attachment may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnOver {
    /// Another one has taken over.
    Replaced,
    /// The session has ended.
    Ended,
}

impl Turn {
    /// An owner attached under that number; whoever was attached before is sent away. An attachment that was
    /// overtaken by a later one changes nothing.
    pub fn take_over(&mut self, attachment: u64) {
        self.attachment = self.attachment.max(attachment);
    }

    /// The session ends: nobody may go on.
    pub const fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the session has ended.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether that attachment may go on.
    ///
    /// # Errors
    /// Why not.
    pub const fn admit(&self, attachment: u64) -> Result<(), TurnOver> {
        if self.ended {
            Err(TurnOver::Ended)
        } else if self.attachment != attachment {
            Err(TurnOver::Replaced)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attachment_may_go_on_until_the_session_ends() {
        let mut turn = Turn::default();
        turn.take_over(2);
        turn.take_over(1);
        assert_eq!(turn.admit(1), Err(TurnOver::Replaced));
        assert_eq!(turn.admit(2), Ok(()));
        turn.take_over(3);
        assert_eq!((turn.admit(2), turn.admit(3)), (Err(TurnOver::Replaced), Ok(())));
        turn.end();
        assert_eq!(turn.admit(3), Err(TurnOver::Ended));
    }
}
