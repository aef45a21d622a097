//! The sessions that there are and the last that there were, by their names.

use std::collections::{BTreeMap, VecDeque};

use rollhouse_codec::openra::SessionName;

use super::life::Ending;

/// The sessions of a gate.
#[derive(Debug)]
pub(crate) struct Book<S> {
    single: Option<S>,
    created: BTreeMap<String, S>,
    /// Names of the last sessions that ended, the oldest first.
    ended: VecDeque<(String, Ending)>,
    most: usize,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found<S> {
    Session(S),
    /// It has ended.
    Ended(Ending),
    /// Nobody has created it, or it ended long ago.
    Unknown,
}

/// Maximum number of names of ended sessions that are remembered.
const MAX_ENDED: usize = 4096;

impl<S: Clone> Book<S> {
    /// Makes a book of at most `most` created sessions at a time.
    pub(crate) const fn new(most: usize) -> Self {
        Self { single: None, created: BTreeMap::new(), ended: VecDeque::new(), most }
    }

    /// Enters a session. Returns it if there are as many as may be, or one has that name.
    pub(crate) fn enter(&mut self, name: &SessionName, session: S) -> Result<(), S> {
        let SessionName::Created(name) = name else {
            self.single = Some(session);
            return Ok(());
        };
        if self.created.len() >= self.most || self.created.contains_key(name) {
            return Err(session);
        }
        self.created.insert(name.clone(), session);
        Ok(())
    }

    pub(crate) fn find(&self, name: &SessionName) -> Found<S> {
        let (session, name) = match name {
            SessionName::Single => (self.single.as_ref(), None),
            SessionName::Created(name) => (self.created.get(name), Some(name)),
        };
        match (session, name) {
            (Some(session), _) => Found::Session(session.clone()),
            (None, None) => Found::Unknown,
            (None, Some(name)) => {
                let ended = self.ended.iter().rev().find(|(ended, _)| ended == name);
                ended.map_or(Found::Unknown, |(_, ending)| Found::Ended(*ending))
            }
        }
    }

    /// Forgets a created session, but for how it ended. The single one stays until another takes its place.
    pub(crate) fn end(&mut self, name: &SessionName, ending: Ending) {
        if let SessionName::Created(name) = name
            && self.created.remove(name).is_some()
        {
            if self.ended.len() == MAX_ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back((name.clone(), ending));
        }
    }

    pub(crate) fn all(&self) -> Vec<S> {
        self.single.iter().chain(self.created.values()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> SessionName {
        SessionName::Created(text.to_owned())
    }

    #[test]
    fn a_session_is_found_by_its_name_and_remembered_after_its_end() {
        let mut book = Book::new(2);
        assert_eq!(book.enter(&name("a"), 1), Ok(()));
        assert_eq!(book.enter(&name("a"), 9), Err(9), "the name is taken");
        assert_eq!(book.enter(&name("b"), 2), Ok(()));
        assert_eq!(book.enter(&name("c"), 3), Err(3), "there are as many as may be");
        book.end(&name("a"), Ending::Idle);
        assert_eq!(book.find(&name("a")), Found::Ended(Ending::Idle));
        assert_eq!(book.find(&name("b")), Found::Session(2));
        assert_eq!(book.find(&name("z")), Found::Unknown);
        assert_eq!(book.enter(&name("c"), 3), Ok(()));
        assert_eq!(book.all(), [2, 3]);
    }

    #[test]
    fn the_single_session_is_no_created_one_and_takes_no_place_of_theirs() {
        let mut book = Book::new(0);
        assert_eq!(book.find(&SessionName::Single), Found::Unknown);
        assert_eq!(book.enter(&SessionName::Single, 1), Ok(()));
        assert_eq!(book.enter(&SessionName::Single, 2), Ok(()), "another takes its place");
        book.end(&SessionName::Single, Ending::Over);
        assert_eq!(book.find(&SessionName::Single), Found::Session(2));
    }

    #[test]
    fn the_oldest_ended_names_are_forgotten() {
        let mut book = Book::new(1);
        for number in 0..=MAX_ENDED {
            book.enter(&name(&number.to_string()), number).unwrap();
            book.end(&name(&number.to_string()), Ending::Over);
        }
        assert_eq!(book.find(&name("0")), Found::Unknown);
        assert_eq!(book.find(&name("1")), Found::Ended(Ending::Over));
    }
}
