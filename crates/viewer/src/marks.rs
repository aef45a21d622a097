//! Marks: steps of an episode that are worth going to.

use rollhouse_core::Outcome;
use rollhouse_replay::{Divergence, EpisodeInfo};

/// A step that is marked on the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: u64,
    pub(crate) kind: MarkKind,
}

/// The reason why a step is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// The reset.
    Start,
    /// The first step at which the recording and the repetition differ, or the episode and the one that it is compared
    /// with.
    Divergence,
    /// The step at which the episode was forked from another.
    Fork,
    /// The first step whose action another version of the policy chose.
    Version,
    /// The end of the episode, by the env or a limit.
    End,
    /// The episode was cut from outside.
    Loss,
    /// The last step that is recorded so far.
    Recording,
}

impl MarkKind {
    /// Returns the sign of the mark, one column wide.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Start => "├",
            Self::Divergence => "≠",
            Self::Fork => "┬",
            Self::Version => "▾",
            Self::End => "■",
            Self::Loss => "✗",
            Self::Recording => "●",
        }
    }
}

/// Returns the marks of an episode, in the order of their steps; `difference` is the first step at which it differs
/// from the one that it is compared with. `versions` has the steps before which the policy's version changed.
pub(crate) fn marks_of(
    info: &EpisodeInfo,
    is_growing: bool,
    versions: &[(u64, u64)],
    divergence: Option<&Divergence>,
    difference: Option<u64>,
) -> Vec<Mark> {
    let end = match info.outcome {
        _ if is_growing => MarkKind::Recording,
        Outcome::Finished { .. } => MarkKind::End,
        Outcome::Interrupted(_) => MarkKind::Loss,
    };
    let mut marks = vec![Mark { at: 0, kind: MarkKind::Start }, Mark { at: info.length, kind: end }];
    let versions = versions.iter().filter(|&&(before, _)| before > 0);
    marks.extend(versions.map(|&(before, _)| Mark { at: before + 1, kind: MarkKind::Version }));
    let parts = divergence.map(|found| found.to).into_iter().chain(difference);
    marks.extend(info.parent().map(|parent| Mark { at: parent.step.min(info.length), kind: MarkKind::Fork }));
    marks.extend(parts.map(|at| Mark { at: at.min(info.length), kind: MarkKind::Divergence }));
    marks.sort_by_key(|mark| mark.at);
    marks
}
