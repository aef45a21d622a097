//! A store sets an episode of a segment aside when it has another of the same name, which came first.
//!
//! The segment stays whole; a file beside it says which of its episodes readers leave out. The file is written before
//! the segment gets its name, so that no reader ever sees the segment without it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, read_all};
use crate::limits::MAX_ASIDE_BYTES;
use crate::stored::summary::EpisodeKey;

/// The set of episodes of one segment that are set aside. It is empty for nearly every segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAside {
    episodes: BTreeSet<AsideEpisode>,
}

/// An episode that is set aside; it ended in the segment. A segment may have a name twice, from two placements of a
/// lane: the place of the end tells the two apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AsideEpisode {
    /// Offset in the segment of the chunk in which it ended.
    pub offset: u64,
    /// Run, lane and number of the episode.
    pub key: EpisodeKey,
}

impl SetAside {
    /// Reads the set of segment `number` of the folder `dir`; it is empty if there is no file beside the segment.
    /// Blocks for the disk.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged: of kind `InvalidData` then.
    pub fn load(disk: &dyn Disk, dir: &Path, number: u64) -> io::Result<Self> {
        let file = match disk.open(&aside_path(dir, number)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        if file.len()? > MAX_ASIDE_BYTES {
            return Err(damaged("it has more bytes than any store writes"));
        }
        Self::decode(&read_all(&*file)?)
    }

    /// Writes the set beside segment `number` of the folder `dir` and replaces an earlier one. It is durable on return.
    /// Blocks for the disk.
    ///
    /// # Errors
    /// If a file operation fails; the earlier set may still be there.
    pub fn store(&self, disk: &dyn Disk, dir: &Path, number: u64) -> io::Result<()> {
        let (inside, path) = (asides_dir(dir), aside_path(dir, number));
        let new = path.with_extension("new");
        disk.create_dir(&inside)?;
        match disk.remove(&new) {
            // Left by an attempt that was cut short.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(&new)?;
        file.append_all(&self.encode())?;
        file.sync_data()?;
        disk.rename(&new, &path)?;
        disk.sync_dir(&inside)?;
        disk.sync_dir(dir)
    }

    /// Adds all episodes of another set.
    pub fn extend(&mut self, other: &Self) {
        self.episodes.extend(&other.episodes);
    }

    /// Adds an episode.
    pub fn insert(&mut self, episode: AsideEpisode) {
        self.episodes.insert(episode);
    }

    /// Returns whether no episode is set aside.
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty()
    }

    /// Returns the number of episodes that are set aside.
    pub fn len(&self) -> usize {
        self.episodes.len()
    }

    /// Returns the episodes, in the order of their places in the segment.
    pub fn episodes(&self) -> impl ExactSizeIterator<Item = &AsideEpisode> {
        self.episodes.iter()
    }

    /// Returns whether the episode that ended in the chunk at `offset` is set aside.
    pub fn has(&self, offset: u64, key: EpisodeKey) -> bool {
        self.episodes.contains(&AsideEpisode { offset, key })
    }

    /// Returns the contents of the set's file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        for AsideEpisode { offset, key } in &self.episodes {
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&key.run.to_le_bytes());
            bytes.extend_from_slice(&key.lane.to_le_bytes());
            bytes.extend_from_slice(&key.number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a set from the contents of its file.
    ///
    /// # Errors
    /// If the bytes are damaged: of kind `InvalidData`.
    pub fn decode(bytes: &[u8]) -> io::Result<Self> {
        let Some((crc, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(damaged("it is too short"));
        };
        if crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
            return Err(damaged("its checksum is another"));
        }
        let (rows, []) = rest.as_chunks::<ROW_BYTES>() else {
            return Err(damaged("it ends within an entry"));
        };
        Ok(Self { episodes: rows.iter().map(decode_row).collect() })
    }
}

fn decode_row(row: &[u8; ROW_BYTES]) -> AsideEpisode {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| row[at + byte]));
    let run = u128::from(word(8)) | u128::from(word(16)) << 64;
    let lane = u32::from_le_bytes(std::array::from_fn(|byte| row[24 + byte]));
    AsideEpisode { offset: word(0), key: EpisodeKey { run, lane, number: word(28) } }
}

/// Returns the folder with the files of what is set aside in the segments of `dir`.
pub(crate) fn asides_dir(dir: &Path) -> PathBuf {
    dir.join("aside")
}

/// Returns the path of the file that says which episodes of segment `number` in the folder `dir` are set aside.
pub fn aside_path(dir: &Path, number: u64) -> PathBuf {
    asides_dir(dir).join(format!("{number:010}.set"))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a list of episodes that are set aside is damaged: {what}"),
    )
}

/// Bytes of a row of the file: offset, run, lane and number.
const ROW_BYTES: usize = 8 + 16 + 4 + 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FaultyDisk;

    fn some() -> SetAside {
        let mut aside = SetAside::default();
        for number in 0..20 {
            let key =
                EpisodeKey { run: u128::MAX - 5 * u128::from(number), lane: u32::MAX, number: number << 40 };
            aside.insert(AsideEpisode { offset: number * 7, key });
        }
        aside
    }

    #[test]
    fn what_is_set_aside_is_read_as_it_was_written_and_survives_a_power_cut() {
        let (disk, dir) = (FaultyDisk::new(), Path::new("/store/a"));
        assert_eq!(SetAside::load(&disk, dir, 3).unwrap(), SetAside::default());
        some().store(&disk, dir, 3).unwrap();
        let left = disk.after_power_cut(|_, _| 0);
        assert_eq!(SetAside::load(&left, dir, 3).unwrap(), some());
        SetAside::default().store(&disk, dir, 3).unwrap();
        assert_eq!(SetAside::load(&disk, dir, 3).unwrap(), SetAside::default());
    }

    #[test]
    fn a_list_that_was_cut_or_flipped_anywhere_is_damaged_and_nothing_else() {
        let bytes = some().encode();
        for len in 0..bytes.len() {
            assert_eq!(
                SetAside::decode(&bytes[..len]).unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "{len}"
            );
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(SetAside::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
