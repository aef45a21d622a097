//! The nodes that a coordinator knows, saved in its folder for the next coordinator, which waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::messages;
use rollhouse_replay::Disk;
use rollhouse_wire::control;
use serde::{Deserialize, Serialize};

use crate::limits::{ASK_PORT_EVERY, MAX_PORTS_ASKED};

/// The names of nodes and the addresses at which owners reach them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Roster(pub(crate) BTreeMap<String, String>);

messages!(Roster);

impl Roster {
    /// Reads the roster in the folder; `None` if there is none that can be read. Blocks for the disk.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Option<Self> {
        let file = disk.open(&dir.join(FILE)).ok()?;
        let bytes = usize::try_from(file.len().ok()?).ok()?;
        let mut word = [0; 4];
        fill(&*file, &mut word, 0)?;
        // A length that is not the file's is torn.
        let length = control::length(word, bytes.checked_sub(word.len())?).ok()?;
        let mut message = vec![0; length];
        fill(&*file, &mut message, word.len() as u64)?;
        control::decode(&message).ok()
    }

    /// Saves the roster in place of the earlier one. Blocks for the disk.
    ///
    /// # Errors
    /// The error of the operating system; nothing is saved then, and the next coordinator waits as if it knew no nodes.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let (path, new) = (dir.join(FILE), dir.join(NEW));
        let mut bytes = Vec::new();
        control::encode(self, &mut bytes).map_err(io::Error::other)?;
        let written = (|| {
            if let Err(error) = disk.remove(&new)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            disk.create(&new)?.append_all(&bytes)?;
            disk.rename(&new, &path)
        })();
        if written.is_err() {
            // What is out of date would have the next one wait for too few.
            let _gone = disk.remove(&path);
        }
        written
    }
}

fn fill(file: &dyn rollhouse_replay::DiskFile, mut buffer: &mut [u8], mut from: u64) -> Option<()> {
    while !buffer.is_empty() {
        let read = file.read_at(buffer, from).ok().filter(|&read| read > 0)?;
        buffer = &mut buffer[read..];
        from += read as u64;
    }
    Some(())
}

/// The nodes of an earlier coordinator that this one has still to hear of.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// The nodes by name; `None` if it is not known which they are.
    nodes: Option<BTreeMap<Arc<str>, Away>>,
    /// Nodes that have not told of what they run and have, waited for or not; `None` if it is not known which they are.
    unheard: Option<BTreeSet<Arc<str>>>,
}

#[derive(Debug)]
struct Away {
    address: String,
    asked: Option<Duration>,
}

impl Awaited {
    /// Makes the set of nodes in an earlier coordinator's roster, if there is one.
    pub(crate) fn new(roster: Option<Roster>) -> Self {
        let away = |(name, address): (String, String)| (name.into(), Away { address, asked: None });
        let nodes: Option<BTreeMap<Arc<str>, Away>> =
            roster.map(|Roster(nodes)| nodes.into_iter().map(away).collect());
        let unheard = nodes.as_ref().map(|nodes| nodes.keys().cloned().collect());
        Self { nodes, unheard }
    }

    /// Returns whether every one of them has been heard of.
    pub(crate) fn are_all_here(&self) -> bool {
        self.nodes.as_ref().is_some_and(BTreeMap::is_empty)
    }

    /// Returns whether a node may be one of them of which nothing was heard.
    pub(crate) fn is_awaited(&self, name: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains_key(name))
    }

    /// Returns whether every one of them has told of what it runs and has.
    pub(crate) fn is_all_heard(&self) -> bool {
        self.unheard.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Removes a node that has told of what it runs and has.
    pub(crate) fn heard(&mut self, name: &str) {
        self.done(name);
        if let Some(unheard) = &mut self.unheard {
            unheard.remove(name);
        }
    }

    /// Removes a node that is here, or has ended, and returns whether it was awaited.
    pub(crate) fn done(&mut self, name: &str) -> bool {
        self.nodes.as_mut().is_some_and(|nodes| nodes.remove(name).is_some())
    }

    /// Stops waiting for all of them.
    pub(crate) fn give_up(&mut self) {
        self.nodes = Some(BTreeMap::new());
    }

    /// Returns the nodes whose hosts are to be asked now whether their processes have ended, with their addresses.
    pub(crate) fn doubtful(&mut self, now: Duration) -> Vec<(String, PortQuestion)> {
        let due = |away: &Away| away.asked.is_none_or(|at| now >= at + ASK_PORT_EVERY);
        let mut due: Vec<_> = self.nodes.iter_mut().flatten().filter(|(_, away)| due(away)).collect();
        due.sort_by_key(|(_, away)| away.asked);
        due.truncate(MAX_PORTS_ASKED);
        let ask = |(name, away): (&Arc<str>, &mut Away)| {
            away.asked = Some(now);
            (away.address.clone(), PortQuestion { node: Arc::clone(name), boot: None, at: now })
        };
        due.into_iter().map(ask).collect()
    }

    /// Returns the nodes with their addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &str)> {
        self.nodes.iter().flatten().map(|(name, away)| (name, &*away.address))
    }
}

const FILE: &str = "nodes";
const NEW: &str = "nodes.new";

/// The process whose port was asked about, and the time of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortQuestion {
    /// Name of the node.
    pub node: Arc<str>,
    /// The boot of the node; `None` for one that an earlier coordinator knew.
    pub boot: Option<u64>,
    /// The time of the question. Anything heard of the node since then counts for more.
    pub at: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_replay::testing::{Faults, FaultyDisk};

    const DIR: &str = "/data";

    fn roster(names: &[&str]) -> Roster {
        Roster(names.iter().map(|&name| (name.to_owned(), format!("{name}:7171"))).collect())
    }

    fn folder() -> FaultyDisk {
        let disk = FaultyDisk::new();
        disk.create_dir(Path::new(DIR)).unwrap();
        disk
    }

    #[test]
    fn the_next_coordinator_reads_what_was_kept_last() {
        let disk = folder();
        assert_eq!(Roster::read(&disk, Path::new(DIR)), None);
        for names in [&["a", "b"][..], &["b"], &[]] {
            roster(names).write(&disk, Path::new(DIR)).unwrap();
            assert_eq!(Roster::read(&disk, Path::new(DIR)), Some(roster(names)));
        }
    }

    #[test]
    fn a_roster_that_could_not_be_kept_leaves_none_that_is_out_of_date() {
        for fail_at in 1..6 {
            let disk = folder();
            roster(&["a"]).write(&disk, Path::new(DIR)).unwrap();
            let fail_at = Some(disk.operations() + fail_at);
            disk.set_faults(Faults { fail_at, ..Faults::default() });
            let kept = roster(&["a", "b"]).write(&disk, Path::new(DIR)).is_ok();
            disk.set_faults(Faults::default());
            let expected = kept.then(|| roster(&["a", "b"]));
            assert_eq!(Roster::read(&disk, Path::new(DIR)), expected, "failed at {fail_at:?}");
        }
    }

    #[test]
    fn a_torn_roster_is_none() {
        let disk = folder();
        let mut whole = Vec::new();
        control::encode(&roster(&["a", "b"]), &mut whole).unwrap();
        for length in 0..whole.len() {
            let path = Path::new(DIR).join(FILE);
            disk.create(&path).unwrap().append_all(&whole[..length]).unwrap();
            assert_eq!(Roster::read(&disk, Path::new(DIR)), None, "{length} of {} bytes", whole.len());
            disk.remove(&path).unwrap();
        }
    }

    #[test]
    fn hosts_of_those_who_are_away_are_asked_in_turn_some_at_a_time() {
        let names: Vec<String> = (0..MAX_PORTS_ASKED + 2).map(|index| format!("node-{index:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut awaited = Awaited::new(Some(roster(&names)));
        let mut asked = |ms| {
            let asked = awaited.doubtful(Duration::from_millis(ms));
            asked.iter().map(|(_, asked)| asked.node.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(asked(0), &names[..MAX_PORTS_ASKED]);
        assert_eq!(asked(1), &names[MAX_PORTS_ASKED..]);
        assert_eq!(asked(2), &names[..0]);
        assert!(names.iter().all(|name| awaited.done(name)) && awaited.are_all_here());
    }
}
