//! How the lanes of a session are spread over workers.

use std::ops::Range;

use crate::config::MAX_WORKERS;

/// Returns the parts of each worker, lanes or blocks of them: ranges of nearly equal length, in order. `workers` is the
/// most there may be; `None` stands for one for each core.
pub(crate) fn spread(parts: usize, workers: Option<usize>) -> Vec<Range<usize>> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let workers = workers.unwrap_or_else(cores).clamp(1, parts.clamp(1, MAX_WORKERS));
    (0..workers).map(|worker| parts * worker / workers..parts * (worker + 1) / workers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_has_one_worker_and_no_worker_is_without() {
        assert_eq!(spread(5, Some(2)), [0..2, 2..5]);
        assert_eq!(spread(2, Some(9)), [0..1, 1..2]);
        for (lanes, workers) in [(1, None), (64, Some(3)), (10_000, Some(5_000))] {
            let ranges = spread(lanes, workers);
            assert!(ranges.len() <= MAX_WORKERS && ranges.iter().all(|range| !range.is_empty()));
            assert!(ranges.into_iter().flatten().eq(0..lanes));
        }
    }
}
