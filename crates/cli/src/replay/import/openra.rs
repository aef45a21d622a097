//! Replays of OpenRA: what they say of themselves at their end. They have orders alone, which only the engine that wrote them
//! can play, so that nothing of them is taken in.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use rollhouse_codec::openra::{Metadata, ReplayError, TAIL_BYTES, Tail};
use rollhouse_core::open_regular;
use serde::Serialize;

use crate::failure::{Failure, Status};
use crate::human::counted;
use crate::output::Output;

/// The output of `--json` for a replay of OpenRA; the field names are part of the interface.
#[derive(Debug, Serialize)]
pub(super) struct OpenraReplay {
    file: String,
    /// Always `openra`.
    format: &'static str,
    #[serde(rename = "mod")]
    mod_name: String,
    version: String,
    map: String,
    map_uid: String,
    started: String,
    ended: String,
    final_tick: Option<u64>,
    players: Vec<OpenraPlayer>,
}

#[derive(Debug, Serialize)]
struct OpenraPlayer {
    name: String,
    faction: String,
    bot: bool,
    team: String,
    outcome: String,
}

/// Reads the end of a file. Its length is checked before anything is taken into memory.
pub(super) fn read(file: &Path) -> Result<OpenraReplay, Failure> {
    let failed = |error: io::Error| Failure::new(Status::Failed, format_args!("it cannot be read: {error}"));
    let found = |error: ReplayError| Failure::of(Status::Found, &error);
    let mut opened = open_regular(file).map_err(failed)?;
    let bytes = opened.metadata().map_err(failed)?.len();
    let mut last = [0; TAIL_BYTES];
    if bytes < TAIL_BYTES as u64 {
        return Err(found(ReplayError::Short { bytes, wanted: TAIL_BYTES as u64 }));
    }
    opened.seek(SeekFrom::End(-(TAIL_BYTES as i64))).map_err(failed)?;
    opened.read_exact(&mut last).map_err(failed)?;
    let tail = Tail::of(last, bytes).map_err(found)?;
    let mut block = vec![0; tail.block_bytes()];
    opened.seek(SeekFrom::End(-((TAIL_BYTES + block.len()) as i64))).map_err(failed)?;
    opened.read_exact(&mut block).map_err(failed)?;
    Ok(OpenraReplay::of(file, tail.metadata(&block).map_err(found)?))
}

impl OpenraReplay {
    fn of(file: &Path, metadata: Metadata) -> Self {
        let players = metadata.players.into_iter().map(|player| OpenraPlayer {
            name: player.name,
            faction: player.faction,
            bot: player.is_bot,
            team: player.team,
            outcome: player.outcome,
        });
        Self {
            file: file.display().to_string(),
            format: "openra",
            mod_name: metadata.mod_name,
            version: metadata.version,
            map: metadata.map_title,
            map_uid: metadata.map_uid,
            started: metadata.start,
            ended: metadata.end,
            final_tick: metadata.final_tick.parse().ok(),
            players: players.collect(),
        }
    }

    pub(super) fn print(&self, json: bool, out: &mut Output) -> io::Result<()> {
        if json {
            return out.json(self);
        }
        let Self { file, mod_name, version, map, started, ended, players, .. } = self;
        let count = counted(players.len() as u64, "player");
        writeln!(out, "{file}  OpenRA {mod_name} {version}  {map}  {started} to {ended} UTC  {count}")?;
        for player in players {
            let OpenraPlayer { name, faction, outcome, .. } = player;
            let kind = if player.bot { "bot" } else { "person" };
            writeln!(out, "  {name}  {faction}  {kind}  {outcome}")?;
        }
        writeln!(out, "  orders alone: OpenRA plays it, with the same build and map; it is not taken in")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(text: &str, length: i32) -> Vec<u8> {
        let head = [-1, 1, text.len() as i32].map(i32::to_le_bytes).concat();
        [b"orders", &head[..], text.as_bytes(), &[length, -2].map(i32::to_le_bytes).concat()].concat()
    }

    fn read_bytes(bytes: &[u8]) -> Result<OpenraReplay, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("game.orarep");
        std::fs::write(&path, bytes).unwrap();
        read(&path)
    }

    #[test]
    fn a_replay_says_its_game_and_its_players() {
        let text = "Root:\n\tMod: ra\n\tMapTitle: Haos\n\tFinalGameTick: 1200\nPlayer@0:\n\tName: ada\n\tOutcome: Won\n";
        let read = read_bytes(&replay(text, text.len() as i32 + 4)).unwrap();
        let json = serde_json::to_value(&read).unwrap();
        assert_eq!((json["mod"].as_str(), json["final_tick"].as_u64()), (Some("ra"), Some(1200)));
        assert_eq!(json["players"][0]["outcome"], "Won");
    }

    #[test]
    fn ends_that_are_none_of_a_replay_are_damage_and_huge_lengths_are_not_believed() {
        for (bytes, why) in [
            (b"short".to_vec(), "5 bytes, fewer than the 8"),
            (b"no replay at all".to_vec(), "does not end with the mark -2"),
            (replay("Root:\n", i32::MAX), "metadata of 2147483647 bytes"),
            (replay("Root:\n", 90_000), "fewer than the 90016"),
            (replay("Root:\n", 9), "do not begin with the mark -1"),
        ] {
            let failure = read_bytes(&bytes).unwrap_err();
            assert_eq!(failure.status(), Status::Found);
            assert!(failure.message().contains(why), "{}", failure.message());
        }
    }
}
