//! The method that asks what lanes say in words, beside their rows.

use rollhouse_core::limits::MAX_LANE_WORDS_BYTES;
use rollhouse_core::{bounded_text_or_none, messages};
use serde::{Deserialize, Serialize};

use crate::command::{CommandError, CommandLanes, Effect, Method};

/// Method that asks for the words of lanes: why they are lost, and infos of their last row that have no column.
#[derive(Debug, Clone, Copy)]
pub struct AskWords;

/// Params of [`AskWords`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WordsParams {
    /// Lanes that are asked.
    pub lanes: Vec<u32>,
}

/// Answer of [`AskWords`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WordsAnswer {
    /// Words of each of the lanes, in their order.
    pub words: Vec<LaneWords>,
}

/// What a lane says in words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaneWords {
    /// Why the lane is lost; absent of one that is not, and where nobody knows.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "bounded_text_or_none::<MAX_LANE_WORDS_BYTES, _>"
    )]
    pub lost: Option<String>,
    /// Numbers in the infos of the lane's last row that have no column, as JSON; absent if there are none.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "bounded_text_or_none::<MAX_LANE_WORDS_BYTES, _>"
    )]
    pub infos: Option<String>,
}

impl Method for AskWords {
    const NAME: &'static str = "words";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::None;
    type Params = WordsParams;
    type Answer = WordsAnswer;

    fn run(
        lanes: &mut CommandLanes<'_>,
        WordsParams { lanes: asked }: WordsParams,
    ) -> Result<WordsAnswer, CommandError> {
        let words = asked.into_iter().map(|lane| lanes.engine.words(lane as usize));
        Ok(WordsAnswer { words: words.collect::<Result<_, _>>()? })
    }
}

messages!(WordsAnswer, WordsParams);
