//! The turn at a session: it belongs to the last owner that attached, until the session ends.

/// The number of the attachment that may step a session now. Pure.
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
    /// Notes that an owner attached under that number; the one that was attached before is sent away. An attachment
    /// that was overtaken by a later one changes nothing.
    pub fn take_over(&mut self, attachment: u64) {
        self.attachment = self.attachment.max(attachment);
    }

    /// Notes that the session ends: nobody may go on.
    pub const fn end(&mut self) {
        self.ended = true;
    }

    /// Returns whether the session has ended.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Checks whether that attachment may go on.
    ///
    /// # Errors
    /// The reason why not.
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
