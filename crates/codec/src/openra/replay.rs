//! The metadata at the end of an `.orarep` file. What is before it are orders, which need the engine that wrote them.
//!
//! ```text
//! orders | i32 -1 | i32 1 | i32 bytes of the text | text, UTF-8 | i32 4 + bytes of the text | i32 -2
//!        '------------------- the block -------------------------' '--------- the tail ---------'
//! ```
//!
//! All integers are little-endian. The text is MiniYaml: a key, a colon and a value a line, children one tab (or four blanks)
//! further in. `Root` has the game, `Player@N` the players.

/// Number of bytes of the tail.
pub const TAIL_BYTES: usize = 8;
/// Maximum number of bytes of the text.
pub const MAX_METADATA_BYTES: usize = 100 << 10;
/// Maximum number of players that are read.
const MAX_PLAYERS: usize = 64;
/// Bytes of a block before its text.
const HEAD_BYTES: usize = 12;

/// The last bytes of a file: where its metadata begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    text: usize,
}

/// Reason for which a file is no replay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file does not end as a replay does.
    #[error(
        "it does not end with the mark -2, but with {0}: the game that wrote it did not end, or it is no replay"
    )]
    NoMark(i32),
    /// The length of the metadata cannot be.
    #[error("metadata of {0} bytes; they have 4 to {most}", most = MAX_METADATA_BYTES + 4)]
    Length(i32),
    /// The file is shorter than its metadata.
    #[error("{bytes} bytes, fewer than the {wanted} of its metadata")]
    Short {
        /// Number of bytes of the file, or of the block.
        bytes: u64,
        /// Number of bytes that there should be.
        wanted: u64,
    },
    /// The metadata do not begin with their mark.
    #[error("the metadata do not begin with the mark -1, but with {0}")]
    NoBegin(i32),
    /// The metadata are of another version.
    #[error("metadata of version {0}; version 1 is read")]
    Version(i32),
    /// The text has another length than the tail says.
    #[error("a text of {text} bytes in metadata that have {tail}")]
    Differs {
        /// Length before the text.
        text: i32,
        /// Length by the tail.
        tail: usize,
    },
    /// The text is no UTF-8.
    #[error("the text of the metadata is no UTF-8 at byte {0}")]
    NoText(usize),
    /// The text has no game.
    #[error("the metadata have no `Root`")]
    NoRoot,
    /// The text has too many players.
    #[error("metadata of more than {MAX_PLAYERS} players")]
    Players,
}

/// What a replay says of its game. A part that is not there is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Mod, such as `ra`.
    pub mod_name: String,
    /// Version of the engine and mod that can play it.
    pub version: String,
    /// Hash of the map.
    pub map_uid: String,
    /// Title of the map.
    pub map_title: String,
    /// When the game began, as the file has it: `2026-11-30 18-20-21`, UTC.
    pub start: String,
    /// When it ended.
    pub end: String,
    /// Last tick, of newer engines.
    pub final_tick: String,
    /// The players, in the file's order.
    pub players: Vec<PlayerMetadata>,
}

/// What a replay says of a player.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlayerMetadata {
    /// Name.
    pub name: String,
    /// Faction.
    pub faction: String,
    /// Whether a bot plays it.
    pub is_bot: bool,
    /// Team; 0 is none.
    pub team: String,
    /// How it ended: `Won`, `Lost` or `Undefined`.
    pub outcome: String,
}

impl Tail {
    /// Reads the last [`TAIL_BYTES`] of a file of that many bytes.
    ///
    /// # Errors
    /// If no metadata can stand before them.
    pub fn of(tail: [u8; TAIL_BYTES], file_bytes: u64) -> Result<Self, ReplayError> {
        let [length, mark] = *tail.as_chunks().0 else { return Err(ReplayError::NoMark(0)) };
        let (length, mark) = (i32::from_le_bytes(length), i32::from_le_bytes(mark));
        if mark != -2 {
            return Err(ReplayError::NoMark(mark));
        }
        let text = usize::try_from(length).ok().and_then(|length| length.checked_sub(4));
        let text = text.filter(|text| *text <= MAX_METADATA_BYTES).ok_or(ReplayError::Length(length))?;
        let tail = Self { text };
        let wanted = (tail.block_bytes() + TAIL_BYTES) as u64;
        if file_bytes < wanted {
            return Err(ReplayError::Short { bytes: file_bytes, wanted });
        }
        Ok(tail)
    }

    /// Returns the number of bytes of the block, which stands before the tail.
    pub const fn block_bytes(self) -> usize {
        HEAD_BYTES + self.text
    }

    /// Reads the block.
    ///
    /// # Errors
    /// If it is not what the tail says, or its text is none.
    pub fn metadata(self, block: &[u8]) -> Result<Metadata, ReplayError> {
        let short = || ReplayError::Short { bytes: block.len() as u64, wanted: self.block_bytes() as u64 };
        let (head, text) = block.split_first_chunk::<HEAD_BYTES>().ok_or_else(short)?;
        let [begin, version, length] = *head.as_chunks().0 else { return Err(short()) };
        let [begin, version, length] = [begin, version, length].map(i32::from_le_bytes);
        if begin != -1 {
            return Err(ReplayError::NoBegin(begin));
        }
        if version != 1 {
            return Err(ReplayError::Version(version));
        }
        if usize::try_from(length) != Ok(self.text) {
            return Err(ReplayError::Differs { text: length, tail: self.text });
        }
        let text = text.get(..self.text).ok_or_else(short)?;
        let text = std::str::from_utf8(text).map_err(|error| ReplayError::NoText(error.valid_up_to()))?;
        Metadata::of_text(text)
    }
}

impl Metadata {
    /// Reads the text of metadata. Keys that are not known are passed over.
    ///
    /// # Errors
    /// [`ReplayError::NoRoot`] and [`ReplayError::Players`].
    pub fn of_text(text: &str) -> Result<Self, ReplayError> {
        let mut read = Self::default();
        let mut part = Part::Other;
        let mut has_root = false;
        for (depth, key, value) in text.lines().filter_map(line) {
            match (depth, &part) {
                (0, _) if key == "Root" => (part, has_root) = (Part::Game, true),
                (0, _) if key == "Player" || key.starts_with("Player@") => {
                    if read.players.len() == MAX_PLAYERS {
                        return Err(ReplayError::Players);
                    }
                    read.players.push(PlayerMetadata::default());
                    part = Part::Player;
                }
                (0, _) => part = Part::Other,
                (1, Part::Game) => read.take(key, value),
                (1, Part::Player) => {
                    if let Some(player) = read.players.last_mut() {
                        player.take(key, value);
                    }
                }
                _ => {}
            }
        }
        if has_root { Ok(read) } else { Err(ReplayError::NoRoot) }
    }

    fn take(&mut self, key: &str, value: &str) {
        let part = match key {
            "Mod" => &mut self.mod_name,
            "Version" => &mut self.version,
            "MapUid" => &mut self.map_uid,
            "MapTitle" => &mut self.map_title,
            "StartTimeUtc" => &mut self.start,
            "EndTimeUtc" => &mut self.end,
            "FinalGameTick" => &mut self.final_tick,
            _ => return,
        };
        value.clone_into(part);
    }
}

impl PlayerMetadata {
    fn take(&mut self, key: &str, value: &str) {
        let part = match key {
            "Name" => &mut self.name,
            "FactionName" => &mut self.faction,
            "Team" => &mut self.team,
            "Outcome" => &mut self.outcome,
            "IsBot" => {
                self.is_bot = value.eq_ignore_ascii_case("true");
                return;
            }
            _ => return,
        };
        value.clone_into(part);
    }
}

/// What the lines below a key without a tab are about.
enum Part {
    Game,
    Player,
    Other,
}

/// Returns depth, key and value of a line; `None` of an empty one and of a comment.
fn line(line: &str) -> Option<(usize, &str, &str)> {
    let (mut depth, mut rest) = (0, line);
    while let Some(inner) = rest.strip_prefix('\t').or_else(|| rest.strip_prefix("    ")) {
        (depth, rest) = (depth + 1, inner);
    }
    let rest = rest.trim();
    if rest.is_empty() || rest.starts_with('#') {
        return None;
    }
    let (key, value) = rest.split_once(':').unwrap_or((rest, ""));
    Some((depth, key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Root:\n\tMod: ra\n\tVersion: release-20250330\n\tMapUid: 0d3f\n\tMapTitle: Haos: Ridges\n\
                        \tStartTimeUtc: 2026-11-30 18-20-21\n\tEndTimeUtc: 2026-11-30 18-41-02\n\
                        Player@0:\n\tName: ada\n\tFactionName: Russia\n\tIsBot: False\n\tTeam: 0\n\tOutcome: Won\n\
                        Player@1:\n\tName: Rush AI\n\tFactionName: England\n\tIsBot: True\n\tOutcome: Lost\n";

    fn file(text: &[u8]) -> Vec<u8> {
        let length = text.len() as i32;
        let words = [[-1, 1, length].map(i32::to_le_bytes).concat(), text.to_vec()].concat();
        [b"orders".to_vec(), words, [length + 4, -2].map(i32::to_le_bytes).concat()].concat()
    }

    fn read(file: &[u8]) -> Result<Metadata, ReplayError> {
        let tail = *file.last_chunk().unwrap();
        let tail = Tail::of(tail, file.len() as u64)?;
        let end = file.len() - TAIL_BYTES;
        tail.metadata(&file[end - tail.block_bytes()..end])
    }

    #[test]
    fn a_replay_says_its_game_and_its_players() {
        let read = read(&file(TEXT.as_bytes())).unwrap();
        assert_eq!((read.mod_name.as_str(), read.map_title.as_str()), ("ra", "Haos: Ridges"));
        assert_eq!(read.end, "2026-11-30 18-41-02");
        let players: Vec<_> =
            read.players.iter().map(|it| (&*it.name, &*it.faction, it.is_bot, &*it.outcome)).collect();
        assert_eq!(players, [("ada", "Russia", false, "Won"), ("Rush AI", "England", true, "Lost")]);
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_before_anything_is_read() {
        let tail = |length: i32, mark: i32| {
            let bytes = [length, mark].map(i32::to_le_bytes).concat();
            Tail::of(*bytes.first_chunk().unwrap(), 1 << 40)
        };
        assert_eq!(tail(9, 0), Err(ReplayError::NoMark(0)));
        for length in [i32::MIN, -1, 3, (100 << 10) + 5, i32::MAX] {
            assert_eq!(tail(length, -2), Err(ReplayError::Length(length)));
        }
        assert_eq!(tail((100 << 10) + 4, -2).unwrap().block_bytes(), (100 << 10) + HEAD_BYTES);
        let short = Tail::of([54, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff], 20);
        assert_eq!(short, Err(ReplayError::Short { bytes: 20, wanted: 70 }));
    }

    #[test]
    fn every_replay_that_was_cut_or_changed_is_refused_or_read_and_never_panics() {
        let whole = file(TEXT.as_bytes());
        for end in TAIL_BYTES..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x80;
            let _read = read(&changed);
        }
        assert_eq!(read(&file(&[0xff, 0xfe])), Err(ReplayError::NoText(0)));
        assert_eq!(read(&file(b"Player@0:\n\tName: x\n")), Err(ReplayError::NoRoot));
    }

    #[test]
    fn more_players_than_can_be_are_refused_and_unknown_keys_passed_over() {
        let many = format!("Root:\n{}", "Player@0:\n".repeat(MAX_PLAYERS + 1));
        assert_eq!(Metadata::of_text(&many), Err(ReplayError::Players));
        let odd = "# a comment\nRoot:\n    Mod: cnc\n\t\tDeep: 1\nOther: x\n\tMod: no\n";
        assert_eq!(Metadata::of_text(odd).unwrap().mod_name, "cnc");
    }
}
