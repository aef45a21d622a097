//! A place for one value, in which the newest replaces the one before.

use std::sync::Arc;

/// The newest of the values that were put here, with their count.
#[derive(Debug)]
pub(super) struct Newest<T> {
    serial: u64,
    value: Option<Arc<T>>,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self { serial: 0, value: None }
    }
}

impl<T> Newest<T> {
    /// Puts a value in the place of the one before; `make` is given its serial number, which is 1 for the first.
    pub(super) fn put(&mut self, make: impl FnOnce(u64) -> T) {
        self.serial += 1;
        self.value = Some(Arc::new(make(self.serial)));
    }

    /// Returns the serial number of the newest value; 0 if there is none.
    pub(super) const fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the newest value, if it came after the one with the serial number `seen`, and how many came between the
    /// two. A reader that has seen none (0) has missed none.
    pub(super) fn after(&self, seen: u64) -> Option<(Arc<T>, u64)> {
        let value = self.value.as_ref().filter(|_| self.serial > seen)?;
        let missed = if seen == 0 { 0 } else { self.serial - seen - 1 };
        Some((Arc::clone(value), missed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is put and looked at in between: a watcher sees growing things, never one twice, always the newest,
        /// and what it saw and what it missed are all that were put since it began to look.
        #[test]
        fn what_was_seen_and_what_was_missed_is_all_there_was(script in prop::collection::vec(any::<bool>(), 0..200)) {
            let mut newest = Newest::default();
            let (mut put, mut seen, mut first, mut counted) = (0u64, 0u64, None, 0u64);
            for puts in script {
                if puts {
                    put += 1;
                    newest.put(|serial| serial);
                } else if let Some((value, missed)) = newest.after(seen) {
                    prop_assert_eq!(*value, put);
                    prop_assert!(*value > seen);
                    first.get_or_insert(*value);
                    counted += missed + 1;
                    seen = *value;
                } else {
                    prop_assert_eq!(seen, put);
                }
            }
            if let Some(first) = first {
                prop_assert_eq!(counted, seen - first + 1);
            }
        }
    }
}
