//! The coding of the columns of a chunk: ids, flags and rules. Layout: docs/replay-format.md.

/// Columns of a chunk: their places in memory and their ids in files.
pub(crate) mod column {
    pub(crate) const LANES: usize = 0;
    pub(crate) const STEPPED: usize = 1;
    pub(crate) const ACTIONS: usize = 2;
    pub(crate) const ENDS: usize = 3;
    pub(crate) const WINDOWS: usize = 4;
    pub(crate) const BEGINS: usize = 5;
    pub(crate) const FIRST_OBS: usize = 6;
    pub(crate) const REWARDS: usize = 7;
    pub(crate) const VERSIONS: usize = 8;
    pub(crate) const CALLS: usize = 9;
    pub(crate) const OPTIONS: usize = 10;
    /// Actions as runs of equal ones.
    pub(crate) const REPEATED_ACTIONS: usize = 11;
    /// Actions as packed rows.
    pub(crate) const PACKED_ACTIONS: usize = 12;
    pub(crate) const AGENTS: usize = 13;
    /// Number of columns that every run may have.
    pub(crate) const FIXED: usize = 14;
    /// Id of the first observation column.
    pub(crate) const OBS_ID: u64 = 16;
    /// Number of observation columns whose ids follow the first one's.
    const NEAR: usize = 48;
    /// Id of the first info column.
    pub(crate) const INFO_ID: u64 = 64;
    /// Id of the first observation column behind those.
    const FAR_OBS_ID: u64 = 128;
    /// Id of the first step column.
    const NOTED_ID: u64 = 144;
    /// Id of the first info column that is coded as step columns are.
    const REPEATED_INFO_ID: u64 = 160;
    /// Id of the first observation column that is packed.
    const PACKED_OBS_ID: u64 = 224;
    /// Id of the first info column that is packed.
    const PACKED_INFO_ID: u64 = 288;
    const _: () = assert!(
        REPEATED_INFO_ID as usize + rollhouse_core::limits::MAX_OBS_COLUMNS <= PACKED_OBS_ID as usize
    );
    const _: () =
        assert!(PACKED_OBS_ID as usize + rollhouse_core::limits::MAX_OBS_COLUMNS <= PACKED_INFO_ID as usize);
    const _: () = assert!(FIXED < OBS_ID as usize && REPEATED_ACTIONS + 1 == PACKED_ACTIONS);
    const _: () = assert!(OBS_ID as usize + NEAR == INFO_ID as usize);
    const _: () =
        assert!(NOTED_ID as usize + rollhouse_core::limits::MAX_STEP_COLUMNS <= REPEATED_INFO_ID as usize);
    const _: () = assert!(INFO_ID as usize + rollhouse_core::limits::MAX_OBS_COLUMNS <= FAR_OBS_ID as usize);
    const _: () =
        assert!(FAR_OBS_ID as usize + rollhouse_core::limits::MAX_OBS_COLUMNS - NEAR <= NOTED_ID as usize);

    /// Returns the id in files of step column `index`.
    pub(crate) const fn noted_id(index: usize) -> u64 {
        NOTED_ID + index as u64
    }

    /// Returns which of so many step columns has that id in files.
    pub(crate) fn noted_of(id: u64, columns: usize) -> Option<usize> {
        id.checked_sub(NOTED_ID).map(|index| index as usize).filter(|&index| index < columns)
    }

    /// Returns the id in files of info column `index` where it is coded as step columns are.
    pub(crate) const fn repeated_info_id(index: usize) -> u64 {
        REPEATED_INFO_ID + index as u64
    }

    /// Returns which of so many info columns has that id in files.
    pub(crate) fn repeated_info_of(id: u64, columns: usize) -> Option<usize> {
        id.checked_sub(REPEATED_INFO_ID).map(|index| index as usize).filter(|&index| index < columns)
    }

    /// Returns the id in files of a column that is packed: of so many observation columns, and the info columns after them,
    /// the one at `index`.
    pub(crate) const fn packed_id(index: usize, obs_columns: usize) -> u64 {
        if index < obs_columns {
            PACKED_OBS_ID + index as u64
        } else {
            PACKED_INFO_ID + (index - obs_columns) as u64
        }
    }

    /// Returns which of these columns has that id in files.
    pub(crate) fn packed_of(id: u64, obs_columns: usize, info_columns: usize) -> Option<usize> {
        (0..obs_columns + info_columns).find(|&index| packed_id(index, obs_columns) == id)
    }

    /// Returns the place of observation column `index`; info columns follow the observation columns.
    pub(crate) const fn obs(index: usize) -> usize {
        FIXED + index
    }

    /// Returns the id in files of the column at `place`.
    pub(crate) const fn id(place: usize, obs_columns: usize) -> u64 {
        if place < FIXED {
            place as u64 + 1
        } else if place < FIXED + obs_columns {
            let index = place - FIXED;
            if index < NEAR { OBS_ID + index as u64 } else { FAR_OBS_ID + (index - NEAR) as u64 }
        } else {
            INFO_ID + (place - FIXED - obs_columns) as u64
        }
    }
}

/// The column that says which lanes stepped.
pub(crate) mod stepped {
    /// Bits 0-1 of the head: every lane steps in every row.
    pub(crate) const ALWAYS: u8 = 0;
    /// Bits 0-1 of the head: every lane steps, but not in the row after its episode ended.
    pub(crate) const SKIPS_AFTER_END: u8 = 1;
    /// Bits 0-1 of the head: a mask per row follows.
    pub(crate) const MASKS: u8 = 2;
    pub(crate) const RULE_BITS: u8 = 3;
    /// Bit of the head: a mask of the lanes whose episode ended just before the chunk follows.
    pub(crate) const HAS_ENDED: u8 = 4;
    /// Bit of the head: a mask of the lanes that were parked before the chunk follows.
    pub(crate) const HAS_PARKED: u8 = 8;

    /// The rule that says which lanes step in the next row. A lane that does otherwise is an exception and, unless it
    /// merely stepped right after an end, changes between parked and not.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(crate) struct Rule {
        /// All bits if lanes rest in the row after an end, else none.
        skips_after_end: u64,
        pub(crate) ended: u64,
        pub(crate) parked: u64,
    }

    /// Returns whether a lane rests in the row after its episode's end, given the name of the autoreset mode.
    pub(crate) fn skips_after_end(autoreset: &str) -> bool {
        autoreset == "NextStep"
    }

    impl Rule {
        pub(crate) const fn new(skips_after_end: bool, ended: u64, parked: u64) -> Self {
            Self { skips_after_end: (skips_after_end as u64).wrapping_neg(), ended, parked }
        }

        /// Returns the lanes that rest in the next row because their episode has just ended.
        #[inline]
        pub(crate) const fn skipped(&self) -> u64 {
            self.ended & self.skips_after_end
        }

        /// Returns the number of rows in which a lane rests after its episode's end.
        #[inline]
        pub(crate) const fn rests_after_end(&self) -> i64 {
            (self.skips_after_end & 1) as i64
        }

        #[inline]
        pub(crate) const fn expected(&self) -> u64 {
            !(self.parked | self.skipped())
        }

        #[inline]
        pub(crate) const fn after_row(&mut self, change: u64) {
            self.parked ^= change & !self.skipped();
            self.ended = 0;
        }
    }
}

/// The column of ends.
pub(crate) mod ends {
    use rollhouse_core::Outcome;

    use crate::code::events::{CODE_HASH, CODE_RESULT_SHIFT, CODE_SCORE, EndEvent};

    /// Head of the column: one flags byte stands for all ends.
    pub(crate) const UNIFORM: u8 = 1;
    /// Head of the column: each end has a flags byte.
    pub(crate) const EACH: u8 = 0;
    /// Bits 0-3: outcome; this value marks an end of an episode that is not kept.
    pub(crate) const NOT_KEPT: u8 = 15;
    pub(crate) const OUTCOME_BITS: u8 = 15;
    /// Bits 4-5: how the return is written.
    pub(crate) const RETURN_SHIFT: u32 = 4;
    /// The return equals the length.
    pub(crate) const RETURN_LENGTH: u8 = 0;
    /// The return equals minus the length.
    pub(crate) const RETURN_MINUS_LENGTH: u8 = 1;
    /// The return is a zigzag varint.
    pub(crate) const RETURN_INTEGER: u8 = 2;
    /// The return is a float of eight bytes.
    pub(crate) const RETURN_FLOAT: u8 = 3;
    /// Bit 6: a hash follows.
    pub(crate) const HASH: u8 = 1 << 6;
    /// Bit 7: a byte with the result and the score flag follows.
    pub(crate) const EXTRA: u8 = 1 << 7;
    /// Bit of the extra byte: a score follows.
    pub(crate) const EXTRA_SCORE: u8 = 4;

    #[inline]
    pub(crate) fn return_coding(value: f64, length: u64) -> u8 {
        // Bits are compared: -0.0 is not 0. Ages stay far below 2^63, and signed numbers convert faster.
        let length = length as i64 as f64;
        if value.to_bits() == length.to_bits() {
            RETURN_LENGTH
        } else if value.to_bits() == (-length).to_bits() {
            RETURN_MINUS_LENGTH
        } else if value.abs() < 1e15 && (value as i64 as f64).to_bits() == value.to_bits() {
            RETURN_INTEGER
        } else {
            RETURN_FLOAT
        }
    }

    /// Returns whether an end with these flags has nothing but a hash.
    pub(crate) fn is_plain(flags: u8) -> bool {
        let coding = flags >> RETURN_SHIFT & 3;
        let follows_length = coding == RETURN_LENGTH || coding == RETURN_MINUS_LENGTH;
        flags & EXTRA == 0 && follows_length && Outcome::from_code(flags & OUTCOME_BITS).is_some()
    }

    #[inline]
    pub(crate) const fn has_extra(event: &EndEvent) -> bool {
        event.code & (CODE_SCORE | 3 << CODE_RESULT_SHIFT) != 0
    }

    #[inline]
    pub(crate) fn flags_of(event: &EndEvent, length: u64) -> u8 {
        event.code & OUTCOME_BITS
            | return_coding(event.total_reward, length) << RETURN_SHIFT
            | if event.code & CODE_HASH != 0 { HASH } else { 0 }
            | if has_extra(event) { EXTRA } else { 0 }
    }
}

/// The column of window hashes.
pub(crate) mod windows {
    use rollhouse_core::limits::HASH_WINDOW_STEPS;

    /// Head of the column: one hash for every multiple of the window, also on an episode's last step.
    pub(crate) const ALL: u8 = 0;
    /// Head of the column: one hash for every multiple of the window, but none on an episode's last step.
    pub(crate) const BEFORE_END: u8 = 1;
    /// Head of the column: the hashes are listed with their places.
    pub(crate) const LISTED: u8 = 2;

    /// Returns the number of multiples of the window above `from` up to `to`.
    pub(crate) const fn between(from: u64, to: u64) -> u64 {
        to / HASH_WINDOW_STEPS - from / HASH_WINDOW_STEPS
    }
}

/// The step columns, and info columns and actions that repeat.
pub(crate) mod repeated {
    /// Head of a column: the values stand row by row.
    pub(crate) const PLAIN: u8 = 0;
    /// Head of a column: runs of equal values, lane by lane.
    pub(crate) const RUNS: u8 = 1;
}

/// The column of begins.
pub(crate) mod begins {
    /// Low bits of a begin's head that are flags.
    pub(crate) const FLAG_BITS: u32 = 2;
    /// Bit of a begin's head: a buffered half follows.
    pub(crate) const HALF: u64 = 1;
    /// Bit of a begin's head: a seed follows.
    pub(crate) const NEW_SEED: u64 = 2;
    /// A difference of words at or above this value stands for "the words follow in full".
    pub(crate) const WIDE: u64 = 1 << 61;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rollhouse_core::limits::MAX_OBS_COLUMNS;

    use super::column;

    #[test]
    fn each_column_of_the_widest_env_has_an_id_of_its_own_and_the_first_48_those_they_always_had() {
        let places = 0..column::FIXED + 2 * MAX_OBS_COLUMNS;
        let ids: BTreeSet<u64> = places.clone().map(|place| column::id(place, MAX_OBS_COLUMNS)).collect();
        assert_eq!(ids.len(), places.len());
        let observation = |index| column::id(column::obs(index), MAX_OBS_COLUMNS);
        assert_eq!([0, 47, 48, 63].map(observation), [16, 63, 128, 143]);
        assert_eq!(column::id(column::obs(3), 3), 64);
    }
}
