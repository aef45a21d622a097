//! The table of names: what types, activities, queues and players are called, as numbers.

use std::collections::BTreeMap;

/// Words by their numbers. 0 is no word, or one that the table does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Words {
    words: Vec<String>,
    numbers: BTreeMap<String, i64>,
}

/// Maximum number of words of a table.
pub(crate) const MAX_WORDS: usize = 4096;
/// Maximum number of bytes of a word.
pub(crate) const MAX_WORD_BYTES: usize = 64;

impl Words {
    /// Makes a table; the first word has the number 1. A word that comes twice has its first number.
    pub(crate) fn new(words: Vec<String>) -> Self {
        let mut numbers = BTreeMap::new();
        for (number, word) in (1..).zip(&words) {
            numbers.entry(word.clone()).or_insert(number);
        }
        Self { words, numbers }
    }

    /// Returns the words of Red Alert that every table has that nobody gives.
    pub(crate) fn usual() -> Self {
        Self::new(USUAL.split_ascii_whitespace().map(str::to_owned).collect())
    }

    /// Returns the greatest number.
    pub(crate) const fn last(&self) -> i64 {
        self.words.len() as i64
    }

    /// Returns the number of a word.
    pub(crate) fn number(&self, word: &str) -> i64 {
        self.numbers.get(word).copied().unwrap_or_default()
    }

    /// Returns the word of a number; 0 and numbers beyond the last have none, which is empty.
    pub(crate) fn word(&self, number: i64) -> &str {
        let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        place.and_then(|place| self.words.get(place)).map_or("", String::as_str)
    }
}

/// Actors of Red Alert, then queues, activities and players. New words go to the end: numbers are in recordings.
const USUAL: &str = "\
    e1 e2 e3 e4 e6 e7 dog spy thf medi mech mrj shok sniper hijacker einstein zombie \
    jeep 1tnk 2tnk 3tnk 4tnk arty v2rl harv mcv apc ftrk mnly ttnk ctnk dtrk qtnk mgg stnk truk \
    yak mig heli hind mh60 tran badr u2 ss msub dd ca pt lst \
    fact powr apwr proc silo barr tent kenn weap dome atek stek hpad afld fix spen syrd tsla ftur pbox hbox gun agun sam \
    gap iron pdox mslo brik fenc sbag cycl barb wood bio hosp miss oilb fcom minv minp crate wcrate scrate \
    Building Defense Infantry Vehicle Aircraft Ship \
    idle move attack_move attack guard patrol harvest \
    Idle Move AttackMoveActivity Attack Guard HarvestResource FindAndDeliverResources DeliverResources Wait Turn Deploy \
    Transform Enter RideTransport UnloadCargo Fly FlyAttack ReturnToBase Land TakeOff Repair Sell \
    Multi0 Multi1 Multi2 Multi3 Multi4 Multi5 Multi6 Multi7 Neutral Creeps";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_numbers_from_one_and_unknown_ones_have_none() {
        let words = Words::usual();
        assert_eq!((words.number("e1"), words.word(1)), (1, "e1"));
        assert_eq!((words.number("no such"), words.number(""), words.word(0)), (0, 0, ""));
        assert_eq!(
            (words.word(words.last()), words.word(words.last() + 1), words.word(-1)),
            ("Creeps", "", "")
        );
        assert!((1..=words.last()).all(|number| words.number(words.word(number)) == number), "no word twice");
        assert!(words.last() as usize <= MAX_WORDS);
    }

    #[test]
    fn a_word_that_comes_twice_has_its_first_number() {
        let words = Words::new(vec!["a".into(), "b".into(), "a".into()]);
        assert_eq!((words.number("a"), words.number("b"), words.last()), (1, 2, 3));
    }
}
