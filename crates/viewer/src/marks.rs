//! Steps of an episode that are worth going to.

use rollhouse_core::Outcome;
use rollhouse_replay::{Divergence, EpisodeInfo};

/// A step that is marked on the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: u64,
    pub(crate) kind: MarkKind,
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// The reset.
    Start,
    /// The recording and what was recomputed part here, or the episode and the one that it is compared with.
    Divergence,
    /// The env came to an end.
    End,
    /// The episode was cut from outside.
    Loss,
    /// What has been recorded so far ends here.
    Recording,
}

impl MarkKind {
    /// What stands for it, in the width of one column.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Start => "├",
            Self::Divergence => "≠",
            Self::End => "■",
            Self::Loss => "✗",
            Self::Recording => "●",
        }
    }
}

/// The marks of an episode, in the order of their steps; `difference` is where another one that it is compared with parts
/// from it.
pub(crate) fn marks_of(
    info: &EpisodeInfo,
    is_live: bool,
    divergence: Option<&Divergence>,
    difference: Option<u64>,
) -> Vec<Mark> {
    let end = match info.outcome {
        _ if is_live => MarkKind::Recording,
        Outcome::Finished { .. } => MarkKind::End,
        Outcome::Interrupted(_) => MarkKind::Loss,
    };
    let mut marks = vec![Mark { at: 0, kind: MarkKind::Start }, Mark { at: info.length, kind: end }];
    let parts = divergence.map(|found| found.to).into_iter().chain(difference);
    marks.extend(parts.map(|at| Mark { at: at.min(info.length), kind: MarkKind::Divergence }));
    marks.sort_by_key(|mark| mark.at);
    marks
}
