//! Finds an episode by its name, and episodes with similar names.

use rollhouse_core::EpisodeName;
use rollhouse_replay::{Library, LibraryEpisode, Query, ReadError, Sort, SortKey};

use crate::failure::Failure;
use crate::replay::read_failure;

/// Returns the episode of that name. If there is none, the failure names the nearest ones.
pub(crate) fn find_or_nearest(library: &Library, name: EpisodeName) -> Result<LibraryEpisode, Failure> {
    library.find(name).map_err(|error| {
        let is_unknown = matches!(error, ReadError::NoEpisode(_));
        let failure = read_failure(error);
        // That they cannot be read is no answer to what was asked.
        let nearest = if is_unknown { nearest(library, name).unwrap_or_default() } else { Vec::new() };
        if nearest.is_empty() {
            return failure;
        }
        let names: Vec<String> = nearest.iter().map(EpisodeName::to_string).collect();
        failure.hint(format_args!("nearest are {}", names.join(", ")))
    })
}

/// Returns the episodes of the same run whose lane and number are nearest, else the newest of runs with a similar
/// spelling.
fn nearest(library: &Library, name: EpisodeName) -> Result<Vec<EpisodeName>, ReadError> {
    let newest = Sort { key: SortKey::Started, descending: true };
    let of_run = Query { run: Some(name.run), limit: Some(LOOKED_AT), ..Query::default() };
    let of_all = Query { sort: newest, limit: Some(LOOKED_AT), ..Query::default() };
    let mut found = library.list(&of_run)?;
    if found.is_empty() {
        found = library.list(&of_all)?;
    }
    let names = found.into_iter().map(|found| found.info.name);
    let mut ranked: Vec<_> = names
        .map(|other| (distance(name, other), other))
        .filter(|((letters, ..), _)| *letters <= MOST_LETTERS)
        .collect();
    ranked.sort();
    ranked.dedup();
    Ok(ranked.into_iter().take(NAMED).map(|(_, name)| name).collect())
}

/// Returns how many letters of the runs differ, then how far lanes and numbers are apart.
fn distance(a: EpisodeName, b: EpisodeName) -> (usize, u32, u64) {
    let letters = |name: EpisodeName| EpisodeName { lane: 0, number: 0, ..name }.to_string();
    let differing = letters(a).chars().zip(letters(b).chars()).filter(|(a, b)| a != b).count();
    (differing, a.lane.abs_diff(b.lane), a.number.abs_diff(b.number))
}

/// Number of episodes among which the nearest are searched: the first of the run, or the newest of all.
const LOOKED_AT: usize = 4096;
/// Number of names that are shown.
const NAMED: usize = 3;
/// Number of letters of a run that may be mistyped.
const MOST_LETTERS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_same_run_are_nearest_then_those_of_which_few_letters_differ() {
        let name = |text: &str| text.parse::<EpisodeName>().unwrap();
        let wanted = name("k3f9q2tz-17-203");
        let mut others =
            ["k3f9q2tz-17-200", "k3f9q2tx-17-203", "k3f9q2tz-1-203", "aaaaaaaa-17-203"].map(name);
        others.sort_by_key(|&other| distance(wanted, other));
        let shown = others.map(|other| other.to_string());
        assert_eq!(shown, ["k3f9q2tz-17-200", "k3f9q2tz-1-203", "k3f9q2tx-17-203", "aaaaaaaa-17-203"]);
    }
}
