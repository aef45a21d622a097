//! Offsets of the fixed words in an attached session's two files. `docs/arena-layout.md` says what they mean; a test
//! compares the numbers there and here.

use std::fmt;

/// Version of the layout. It rises whenever a reader of the previous version would misread a file.
pub const LAYOUT_VERSION: u64 = 2;

/// Number of bytes in the fixed part of each file.
pub(crate) const HEADER_BYTES: usize = 1024;

/// A word of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Name of the word in docs/arena-layout.md.
    pub name: &'static str,
    /// Offset of the word in bytes.
    pub at: usize,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! words {
    ($($constant:ident $name:ident $at:literal)*) => {
        $(pub(crate) const $constant: super::Word = super::Word { name: stringify!($name), at: $at };)*
        #[cfg(test)]
        pub(crate) const ALL: &[super::Word] = &[$($constant),*];
        const _: () = {
            $(assert!($at % 8 == 0 && $at + 8 <= super::HEADER_BYTES, "a word lies in the header");)*
        };
    };
}

/// Words that the node writes. Words that are written often have lines of 128 bytes of their own, because processors
/// fetch lines in pairs.
pub(crate) mod outputs {
    pub(crate) const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"RHOUTPUT");
    words! {
        MAGIC magic 0
        VERSION version 8
        FILE_BYTES file_bytes 16
        LANES lanes 24
        AUTORESET autoreset 32
        GENERATION generation 40
        TERM term 48
        COUNTER counter 56
        COLUMNS_AT columns_at 64
        TABLE_AT table_at 72
        COLUMN_COUNT column_count 80
        DETAILS_AT details_at 88
        DETAILS_BYTES details_bytes 96
        LANE_RECORDS_AT lane_records_at 104
        READY_RING_AT ready_ring_at 112
        READY_RING_LANES ready_ring_lanes 120
        ANSWERS_AT answers_at 128
        ANSWERS_BYTES answers_bytes 136
        NOTE_AT note_at 144
        NOTES_AT notes_at 152
        NOTES_BYTES notes_bytes 160
        LANE_NOTES_AT lane_notes_at 168
        ANSWER_SEQ answer_seq 256
        FRAME_SEQ frame_seq 264
        ANSWER_KIND answer_kind 272
        NOTE_BYTES note_bytes 280
        LOST_LANES lost_lanes 288
        LEAVING leaving 296
        STATE state 384
        CLOSE_CODE close_code 392
        NODE_SLEEPING node_sleeping 512
        TRAINER_WAKE trainer_wake 520
        NODE_HEARTBEAT node_heartbeat 640
        READY_WRITTEN ready_written 768
        LANES_REFUSED lanes_refused 776
        ANSWERS_WRITTEN answers_written 896
        REQUESTS_READ requests_read 904
    }
}

/// Words that the trainer writes.
pub(crate) mod inputs {
    pub(crate) const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"RHINPUTS");
    words! {
        MAGIC magic 0
        VERSION version 8
        FILE_BYTES file_bytes 16
        LANES lanes 24
        GENERATION generation 32
        TERM term 40
        COUNTER counter 48
        ACTIONS_AT actions_at 56
        ACTION_ELEMENTS action_elements 64
        ACTION_DTYPE action_dtype 72
        SEEDS_AT seeds_at 80
        RESETS_AT resets_at 88
        LANE_SEQS_AT lane_seqs_at 96
        REQUESTS_AT requests_at 104
        REQUESTS_BYTES requests_bytes 112
        ACTION_SEQ action_seq 256
        REQUEST_KIND request_kind 264
        LANES_SEQ lanes_seq 272
        REQUESTS_WRITTEN requests_written 280
        TRAINER_SLEEPING trainer_sleeping 384
        NODE_WAKE node_wake 392
        READY_READ ready_read 640
        LANES_WANTED lanes_wanted 648
        ANSWERS_READ answers_read 768
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows `| offset | \`name\` | ... |` of one section of the page.
    fn rows(page: &str, section: &str) -> Vec<(usize, String)> {
        let section = page.split("\n## ").find(|part| part.contains(section)).unwrap();
        let row = |line: &str| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let at = cells.next()?.parse().ok()?;
            let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            Some((at, name.to_owned()))
        };
        section.lines().filter_map(row).collect()
    }

    #[test]
    fn every_word_stands_where_the_page_says() {
        let page = include_str!("../../../docs/arena-layout.md");
        for (section, words) in [("Header of `outputs`", outputs::ALL), ("Header of `inputs`", inputs::ALL)] {
            let here: Vec<_> = words.iter().map(|word| (word.at, word.name.to_owned())).collect();
            assert_eq!(rows(page, section), here, "{section}");
        }
    }
}
