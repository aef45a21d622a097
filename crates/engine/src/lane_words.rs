//! The method that asks what lanes say in words, beside their rows.

use rollhouse_core::messages;
use serde::{Deserialize, Serialize};

use crate::command::{CommandError, CommandLanes, Effect, Method};
use crate::words::LaneWords;

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
