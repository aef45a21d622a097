//! The echo of frames with lanes stepped behind it: a batch of actions stands at the front of each request, its result
//! at the front of each answer, and the rest goes back as it came.

use rollhouse_core::{ColumnRef, DType};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::Registry;
use rollhouse_wire::{FrameHeader, FrameKind, Responder};

use super::{ENV, LANES, MAX_COLUMNS, TAKEN};
use crate::seed::SEED;

/// Makes the columns of a request: each lane takes the other action of its neighbours.
pub(super) fn request(bytes: usize) -> Vec<u8> {
    let actions = (0..i64::from(LANES)).flat_map(|lane| (lane % 2).to_le_bytes());
    let mut request: Vec<u8> = actions.collect();
    request.resize(bytes.max(request.len()), 7);
    request
}

/// Answers at the other end.
pub(super) async fn answer(responder: Responder) -> Option<()> {
    let (mut reader, mut writer) = responder.accept_frames(TAKEN, MAX_COLUMNS).await.ok()?;
    let mut engine = engine()?;
    while let Ok(Some(header)) = reader.read().await {
        let sent = reader.columns();
        let actions = sent.column(&(0..LANES as usize * size_of::<i64>()), DType::I64);
        if !engine.actions().ok()?.copy_from(actions) {
            return None;
        }
        let frame = engine.step().ok()?;
        let rewards = ColumnRef::F64(frame.rewards()).bytes();
        let flags = [frame.terminated(), frame.truncated(), frame.reset()];
        let shown = [frame.obs(0).bytes(), rewards, flags[0], flags[1], flags[2]];
        let rest = sent.bytes().get(shown.iter().map(|column| column.len()).sum()..)?;
        let answer = FrameHeader { kind: FrameKind::Batch, ..header };
        writer.put(answer, &[shown[0], shown[1], shown[2], shown[3], shown[4], rest], &[]);
        writer.flush().await.ok()?;
    }
    Some(())
}

fn engine() -> Option<Engine> {
    let entry = Registry::builtin().get(ENV).ok()?;
    let mut engine = Engine::new(&entry, EngineConfig::new(LANES as usize), None).ok()?;
    engine.reset(&Reset::seeded(SEED, LANES as usize)).ok()?;
    Some(engine)
}
