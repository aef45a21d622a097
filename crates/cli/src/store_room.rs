//! How much room is left to a store: its operator learns that it gets full before anything is dropped.

use std::path::Path;

use rollhouse_wire::StoreStatus;

use crate::human::Bytes;

/// Returns the bytes that are free on a folder's disk.
pub(crate) fn free_bytes(folder: &Path) -> rustix::io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// A look-out for a store that gets full. Each warning comes once, and again after there was room.
#[derive(Debug, Default)]
pub(crate) struct StoreRoom {
    /// Whether the disk was too small for the budget, and whether the store was nearly full, when it was looked last.
    is_short: bool,
    is_near: bool,
}

impl StoreRoom {
    /// Returns what has to be said now of a store on a disk with so many free bytes.
    pub(crate) fn look(&mut self, store: &StoreStatus, free: Option<u64>) -> Option<String> {
        let room = store.budget.saturating_sub(store.bytes);
        let (was_short, was_near) = (self.is_short, self.is_near);
        self.is_short = free.is_some_and(|free| free < room);
        self.is_near = store.bytes >= store.budget - store.budget / 5;
        if self.is_short && !was_short {
            // That is said when it is looked next.
            self.is_near &= was_near;
            let free = Bytes(free.unwrap_or_default());
            return Some(format!(
                "the store's disk has {free} free, and store.budget lets it grow by {}: set it lower, or the disk is full \
                 before the oldest goes",
                Bytes(room)
            ));
        }
        (self.is_near && !was_near).then(|| {
            format!(
                "the store has {} of store.budget = {}, beyond which the oldest segments leave its disk; `rollhouse status` \
                 says what a step costs, and who records a sample of episodes records less",
                Bytes(store.bytes),
                Bytes(store.budget)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_gets_full_is_warned_of_once_before_it_is_and_again_after_there_was_room() {
        let mut room = StoreRoom::default();
        let mut look = |gigabytes: u64, free: u64| {
            let store = StoreStatus { bytes: gigabytes << 30, budget: 100 << 30, ..StoreStatus::default() };
            room.look(&store, Some(free << 30)).map(|words| words.contains("disk has"))
        };
        assert_eq!(
            [look(0, 200), look(79, 200), look(80, 200), look(99, 200)],
            [None, None, Some(false), None]
        );
        assert_eq!([look(50, 200), look(85, 200)], [None, Some(false)]);
        // The disk has less than the budget lets the store take.
        assert_eq!(
            [look(10, 89), look(20, 79), look(20, 90), look(20, 70)],
            [Some(true), None, None, Some(true)]
        );
        assert_eq!([look(20, 200), look(90, 5), look(90, 5)], [None, Some(true), Some(false)]);
    }

    #[test]
    fn a_folders_disk_has_room() {
        assert!(free_bytes(&std::env::temp_dir()).is_ok());
        assert!(free_bytes(Path::new("/nowhere/at/all")).is_err());
    }
}
