//! What a lane says beside its rows: infos, pictures, the reason for which it failed.

use crate::record::{LaneRecord, Nonsense};

/// What a lane has said that nobody has taken yet. Workers of other programs say nothing.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// Whether the lane's last command was a step.
    steps: bool,
    stepped: Words,
    begun: Words,
    /// What came with the worker's answer and belongs to a row that is not collected yet.
    later: Option<Vec<u8>>,
    /// Action that is no column, for the next command.
    pub(super) item: Vec<u8>,
    why: Reason,
    scratch: Vec<u8>,
}

/// Words about one row.
#[derive(Debug, Default)]
struct Words {
    there: bool,
    words: Vec<u8>,
    picture: Vec<u8>,
}

/// Reason for which a lane was lost.
#[derive(Debug, Default)]
struct Reason {
    hung: bool,
    detail: String,
    raised: Vec<u8>,
}

impl Talk {
    /// Forgets what was said about the row before, as the lane begins the next one.
    pub(super) fn begin(&mut self, steps: bool) {
        self.steps = steps;
        self.later = None;
        if steps {
            self.stepped.clear();
        }
        self.begun.clear();
    }

    /// Returns whether what comes with the worker's answer is there.
    pub(super) const fn has_come(&self) -> bool {
        self.later.is_some()
    }

    /// Keeps what came with the worker's answer.
    pub(super) fn come(&mut self, words: &[u8]) {
        self.later = Some(words.to_vec());
    }

    /// Takes what the lane says about the row that is collected, of which `flags` say where it is.
    pub(super) fn hear(&mut self, flags: u64, record: LaneRecord<'_>) -> Result<(), Nonsense> {
        if flags & SAYS_LATER != 0 {
            self.scratch = self.later.take().unwrap_or_default();
        } else {
            record.said(&mut self.scratch)?;
        }
        let Some((len, rest)) = self.scratch.split_first_chunk() else { return Err(Nonsense::Said(0)) };
        let len = u32::from_le_bytes(*len) as usize;
        let Some((picture, words)) = rest.split_at_checked(len) else {
            return Err(Nonsense::Said(len as u64));
        };
        let to = if self.steps { &mut self.stepped } else { &mut self.begun };
        to.there = true;
        to.picture.extend_from_slice(picture);
        to.words.extend_from_slice(words);
        Ok(())
    }

    /// Notes that the lane's env failed; what it said of the row is the reason.
    pub(super) fn raised(&mut self) {
        let said = if self.steps { &mut self.stepped } else { &mut self.begun };
        let raised = std::mem::take(&mut said.words);
        said.clear();
        self.why = Reason { hung: false, detail: String::new(), raised };
    }

    /// Notes that the lane's env failed, for a reason that it gives.
    pub(super) fn fail(&mut self, raised: Vec<u8>) {
        self.why = Reason { hung: false, detail: String::new(), raised };
    }

    /// Notes that the lane was lost for what it wrote.
    pub(super) fn nonsense(&mut self, nonsense: &Nonsense) {
        self.why = Reason { hung: false, detail: format!("it gives {nonsense}"), raised: Vec::new() };
    }

    /// Notes that the lane's worker has ended.
    pub(super) fn end(&mut self, hung: bool, detail: &str) {
        self.why = Reason { hung, detail: detail.to_owned(), raised: Vec::new() };
    }

    pub(super) const fn is_hung(&self) -> bool {
        self.why.hung
    }

    /// Returns how and why the lane was lost the last time.
    pub(super) fn why(&self) -> super::Why {
        let Reason { hung, detail, raised } = &self.why;
        super::Why { hung: *hung, detail: detail.clone(), raised: raised.clone() }
    }

    /// Takes what was said of a step, and of the beginning of an episode.
    pub(super) fn take(&mut self) -> (Option<&[u8]>, Option<&[u8]>) {
        let [stepped, begun] = [&mut self.stepped, &mut self.begun].map(|words| {
            let there = std::mem::take(&mut words.there) && !words.words.is_empty();
            there.then_some(&words.words[..])
        });
        (stepped, begun)
    }

    /// Takes the picture of the last row, of a step or of what an episode began with.
    pub(super) fn take_picture(&mut self, begun: bool) -> Option<Vec<u8>> {
        let words = if begun { &mut self.begun } else { &mut self.stepped };
        if words.picture.is_empty() { None } else { Some(std::mem::take(&mut words.picture)) }
    }
}

impl Words {
    fn clear(&mut self) {
        self.there = false;
        self.words.clear();
        self.picture.clear();
    }
}

/// Flags in the low byte of a lane's number: it says something, in its record or with its worker's answer. What it says
/// is the length of a picture as u32, the picture, and words whose meaning is the caller's.
pub(super) const SAYS: u64 = 8;
pub(super) const SAYS_LATER: u64 = 16;

/// Flag in the low byte of a lane's number: its episode has ended, and it has begun the next one as a reset without a seed
/// does. The row of that is there, with what the lane says of it.
pub(super) const AHEAD: u64 = 32;

#[cfg(test)]
mod tests {
    use rollhouse_arena::SharedMemory;
    use rollhouse_core::{Determinism, EnvSource, EnvSpec, Space};

    use super::*;
    use crate::record::Record;

    fn record() -> (Record, SharedMemory, usize) {
        let record = Record::of_talking(&EnvSpec {
            id: "Talking".into(),
            source: EnvSource::BuiltIn,
            summary: String::new(),
            observation_space: Space::f32_box(&[0.0; 3], &[1.0; 3]).into(),
            action_space: Space::discrete(2),
            observation_names: vec![],
            action_names: vec![],
            max_episode_steps: None,
            determinism: Determinism::NonDeterministic,
            methods: Vec::new(),
            options: vec![],
            info_channels: vec![],
            dynamics_hash: 0,
        });
        let memory = SharedMemory::create("test", record.bytes(2).unwrap()).unwrap();
        let (at, _) = record.places(0).said.unwrap();
        (record, memory, at)
    }

    #[test]
    fn words_of_a_step_and_of_the_episode_after_it_are_told_once() {
        let (record, memory, at) = record();
        let mut talk = Talk::default();
        let say = |talk: &mut Talk, said: &[u8]| {
            memory.write(at + 8, said);
            memory.word(at).store(said.len() as u64, std::sync::atomic::Ordering::Relaxed);
            talk.hear(SAYS, record.lane(&memory, 0, 0)).unwrap();
        };
        talk.begin(true);
        say(&mut talk, b"\x03\0\0\0pngover");
        talk.begin(false);
        say(&mut talk, b"\0\0\0\0new");
        assert_eq!((talk.take_picture(false).unwrap(), talk.take_picture(true)), (b"png".to_vec(), None));
        assert_eq!(talk.take(), (Some(&b"over"[..]), Some(&b"new"[..])));
        assert_eq!(talk.take(), (None, None));
        talk.begin(true);
        assert_eq!(talk.take(), (None, None));
    }

    #[test]
    fn words_of_a_length_that_is_a_lie_are_refused() {
        let (record, memory, at) = record();
        let mut talk = Talk::default();
        talk.begin(true);
        for len in [0, 3, 1025, u64::MAX] {
            memory.word(at).store(len, std::sync::atomic::Ordering::Relaxed);
            assert!(talk.hear(SAYS, record.lane(&memory, 0, 0)).is_err(), "{len}");
        }
        memory.word(at).store(8, std::sync::atomic::Ordering::Relaxed);
        memory.write(at + 8, b"\x05\0\0\0four");
        assert!(talk.hear(SAYS, record.lane(&memory, 0, 0)).is_err(), "a picture longer than what is there");
        for later in [&b""[..], b"\xff\xff\xff\xff"] {
            talk.come(later);
            assert!(talk.hear(SAYS_LATER, record.lane(&memory, 0, 0)).is_err(), "{later:?}");
        }
        assert_eq!(talk.take(), (None, None));
    }
}
