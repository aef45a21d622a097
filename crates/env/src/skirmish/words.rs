//! What a state is hashed by: the words of its fields, the same on every machine.

use std::hash::{Hash, Hasher};

use rollhouse_core::StateHasher;

/// Returns the hash of a value by its fields.
pub(crate) fn hash_of(value: &impl Hash) -> u32 {
    let mut words = Words(StateHasher::new());
    value.hash(&mut words);
    words.0.finish()
}

/// Words of fields. Each integer is a word whatever its width, so that a machine's own width of a `usize` has no part in it.
struct Words(StateHasher);

impl Words {
    fn word(&mut self, word: u64) {
        self.0 = self.0.word(word);
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.word(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.word(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.word(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.word(value as u64);
    }

    fn write_i32(&mut self, value: i32) {
        self.word(i64::from(value) as u64);
    }

    fn write_i64(&mut self, value: i64) {
        self.word(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.word(value as i64 as u64);
    }

    fn finish(&self) -> u64 {
        self.0.finish().into()
    }
}
