//! Time of the processors, which says what a step costs on a machine that others use too.

use std::fs;
use std::time::Duration;

/// Returns what this process and all that it has waited for have taken so far; `None` if there is no `/proc`.
pub(crate) fn processor_time() -> Option<Duration> {
    in_stat(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Sums user and system time, own and of children, in a line of `/proc/<id>/stat`: the 12th to 15th field after the name,
/// which ends with the last parenthesis.
fn in_stat(stat: &str) -> Option<Duration> {
    let fields = stat.rsplit_once(") ")?.1.split(' ').skip(11).take(4);
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    (ticks.len() == 4).then(|| Duration::from_millis(ticks.iter().sum::<u64>() * 1000 / TICKS))
}

/// Ticks a second in what Linux tells, on every machine.
const TICKS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_and_that_of_children_are_summed() {
        let stat = "12 (a) b) S 7 12 12 0 -1 4194304 1 2 3 4 100 20 300 4 20 0 1 0 5";
        assert_eq!(in_stat(stat), Some(Duration::from_millis(4240)));
        assert_eq!(in_stat("12 (a) S 7"), None);
    }
}
