//! Fetches recorded episodes for a node from its coordinator's store, as files of one episode each.

use std::time::Duration;

use rollhouse_replay::{Episode, Portable};
use rollhouse_wire::limits::MAX_REPLAY_BYTES;
use rollhouse_wire::{
    CallError, Connection, EpisodeBytes, FetchEpisode, Refusal, RefusalCode, ReplayOf, Request,
};
use tokio::time::timeout;

/// Fetches the file of an episode. When it is dropped, the coordinator stops sending.
///
/// # Errors
/// The coordinator's refusal, or `Busy` if the file does not come in time: another node may have more luck.
pub(crate) async fn fetch(coordinator: &Connection, of: &ReplayOf) -> Result<Vec<u8>, Refusal> {
    let episode = of.episode.clone();
    let fetched = timeout(FETCH_DEADLINE, fetch_now(coordinator, FetchEpisode { episode })).await;
    let why = match fetched {
        Ok(Ok(file)) => return Ok(file),
        Ok(Err(CallError::Refused(refusal))) => return Err(refusal),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it has not come within {} s", FETCH_DEADLINE.as_secs()),
    };
    Err(Refusal::busy(format!("episode {} cannot be fetched: {why}", of.episode), FETCH_RETRY_MS))
}

async fn fetch_now(coordinator: &Connection, fetch: FetchEpisode) -> Result<Vec<u8>, CallError> {
    let mut call = coordinator.open(&Request::FetchEpisode(fetch)).await?;
    call.finish()?;
    let EpisodeBytes { bytes } = call.answer().await?;
    if bytes > MAX_REPLAY_BYTES {
        let message = format!("{bytes} bytes of an episode, at most {MAX_REPLAY_BYTES} allowed");
        return Err(CallError::Refused(Refusal::new(RefusalCode::BadRequest, message)));
    }
    let mut file = vec![0; bytes as usize];
    call.receive.read_exact(&mut file).await?;
    Ok(file)
}

/// Reads a fetched file, and checks that it is the episode that was asked for. Blocks.
///
/// # Errors
/// If it is damaged, another episode, recorded with other dynamics than were said, or too large.
pub(crate) fn read(file: Vec<u8>, of: &ReplayOf) -> Result<Episode, Refusal> {
    let bad = |message: String| Refusal::new(RefusalCode::BadRequest, message);
    let episode = Portable::episode_of(file);
    let episode = episode.map_err(|error| bad(format!("the file of {}: {error}", of.episode)))?;
    let info = &episode.info;
    if info.name.to_string() != of.episode {
        return Err(bad(format!("the file of {} has {}", of.episode, info.name)));
    }
    if info.dynamics() != of.dynamics {
        let (said, recorded) = (of.dynamics, info.dynamics());
        return Err(bad(format!("{} was recorded with {recorded:016x}, not {said:016x}", of.episode)));
    }
    let bytes = info.bytes_in_memory();
    if bytes > MAX_REPLAY_BYTES {
        let most = MAX_REPLAY_BYTES;
        return Err(bad(format!("{} takes {bytes} bytes, {most} are the most that are shown", of.episode)));
    }
    Ok(episode)
}

/// Shorter than a coordinator waits for a session to be opened.
const FETCH_DEADLINE: Duration = Duration::from_secs(25);
const FETCH_RETRY_MS: u64 = 500;
