//! The parts of the page around the steps.

use std::io::{self, Write};

use rollhouse_core::{Outcome, plain, plain_json};
use rollhouse_replay::{Episode, EpisodeInfo, RecomputeError, Seeker, SimulateError};
use serde::Serialize;

use super::group::{Column, Columns};
use crate::error::ExportError;
use crate::film::Film;
use crate::settings::Settings;

/// The parts of a page beside the steps.
pub(super) struct Page<'a> {
    pub(super) episode: &'a Episode,
    pub(super) settings: &'a Settings,
    pub(super) fps: f64,
    /// Number of steps in the page.
    pub(super) steps: u64,
    /// Number of the first step of each group.
    pub(super) groups: &'a [u64],
    pub(super) columns: &'a Columns,
    pub(super) film: Option<&'a Film>,
    pub(super) seeker: &'a Seeker<'a>,
    /// The reason why there are no pictures, if there are none.
    pub(super) missing: Option<&'a ExportError>,
}

/// Writes the part of the page before the steps.
pub(super) fn write_begin(info: &EpisodeInfo, out: &mut dyn Write) -> io::Result<()> {
    let title = escaped(&format!("{} {}", info.env(), info.name));
    out.write_all(HEAD.replace("{{title}}", &title).as_bytes())
}

/// Writes the part of the page after the steps.
pub(super) fn write_end(page: &Page<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let json = serde_json::to_string(&page.told()).map_err(io::Error::from)?;
    writeln!(
        out,
        "<script type=\"application/json\" id=\"episode\">{}</script>",
        harmless(&plain_json(json))
    )?;
    Ok(write!(out, "<script>\n{PLAYER}</script>\n</body>\n</html>\n")?)
}

const HEAD: &str = include_str!("head.html");
const PLAYER: &str = include_str!("player.js");

/// Escapes text for a page, that of names which others chose.
fn escaped(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Escapes JSON so that it ends no script and begins no comment: in JSON, `<` can stand in strings only.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// The facts for the script; it knows the field names.
#[derive(Debug, Serialize)]
struct ScriptFacts<'a> {
    facts: Vec<(&'static str, Fact)>,
    /// Number of steps of the episode.
    length: u64,
    /// Number of steps in the page.
    steps: u64,
    every: u64,
    fps: f64,
    groups: &'a [u64],
    columns: &'a [Column],
    /// The colours as six hexadecimal digits; none without pictures.
    palette: Vec<String>,
    size: (usize, usize),
    marks: Vec<Mark>,
    timeline: ToldTimeline,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// A fact about the episode.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Fact {
    Text(String),
    Number(f64),
    /// A moment in milliseconds since 1970.
    Time {
        ms: u64,
    },
}

#[derive(Debug, Serialize)]
struct Mark {
    at: u64,
    what: String,
}

#[derive(Debug, Serialize)]
struct ToldTimeline {
    /// Number of steps in a bucket.
    width: u64,
    returns: Vec<f64>,
    least: Vec<f64>,
    most: Vec<f64>,
}

impl Page<'_> {
    fn told(&self) -> ScriptFacts<'_> {
        let hex = |[red, green, blue]: &[u8; 3]| format!("{red:02x}{green:02x}{blue:02x}");
        let palette = self.film.map(|film| film.palette().colours().iter().map(hex).collect());
        let size = self.film.map(|film| (film.size().width(), film.size().height()));
        let buckets = self.seeker.timeline().buckets();
        ScriptFacts {
            facts: self.facts(),
            length: self.episode.info.length,
            steps: self.steps,
            every: self.settings.every.max(1),
            fps: self.fps,
            groups: self.groups,
            columns: &self.columns.shown,
            palette: palette.unwrap_or_default(),
            size: size.unwrap_or_default(),
            marks: self.marks(),
            timeline: ToldTimeline {
                width: self.seeker.timeline().width(),
                returns: buckets.iter().map(|bucket| bucket.total_reward).collect(),
                least: buckets.iter().map(|bucket| bucket.least).collect(),
                most: buckets.iter().map(|bucket| bucket.most).collect(),
            },
            warning: self.warning(),
        }
    }

    fn facts(&self) -> Vec<(&'static str, Fact)> {
        let info = &self.episode.info;
        let mut facts = vec![
            ("return", info.total_reward.map_or(Fact::Text("not known".into()), Fact::Number)),
            ("steps", Fact::Number(info.length as f64)),
            ("outcome", Fact::Text(info.outcome.word().into())),
            ("policy", Fact::Text(format!("{}, version {}", info.policy().name, info.policy().version))),
            ("started", Fact::Time { ms: info.started_ms }),
        ];
        facts.extend(info.parent().map(|parent| ("fork of", Fact::Text(parent.to_string()))));
        facts.extend(info.seed().map(|seed| ("seed", Fact::Text(seed.to_string()))));
        facts
    }

    /// Returns the steps that are worth going to.
    fn marks(&self) -> Vec<Mark> {
        let info = &self.episode.info;
        let end = match info.outcome {
            Outcome::Finished { .. } => "end",
            Outcome::Interrupted(_) => info.outcome.word(),
        };
        let mut marks =
            vec![Mark { at: 0, what: "start".into() }, Mark { at: info.length, what: end.to_owned() }];
        marks.extend(
            info.parent().map(|parent| Mark { at: parent.step.min(info.length), what: "fork".to_owned() }),
        );
        let found = self.seeker.divergence();
        marks.extend(
            found.map(|found| Mark {
                at: found.to.min(info.length),
                what: format!("{} differs", found.field),
            }),
        );
        marks.sort_by_key(|mark| mark.at);
        marks
    }

    fn warning(&self) -> Option<String> {
        if let Some(found) = self.seeker.divergence() {
            let (field, step) = (&found.field, found.to);
            return Some(format!("What is recomputed differs from the recording: {field} at step {step}."));
        }
        let why = |error: &dyn std::error::Error| {
            let source = error.source().map(|source| format!(": {source}"));
            format!("{error}{}", source.unwrap_or_default())
        };
        match (self.missing, self.seeker.refused()) {
            // It could be elsewhere, by commands that name an interpreter.
            (_, Some(RecomputeError::Simulate(SimulateError::NotHosted { env }))) => Some(format!(
                "The env is not recomputed: {env} is one of a Python package, which exports do not import, and this is \
                 what was recorded."
            )),
            (Some(missing), _) => Some(format!("No pictures: {}.", why(missing))),
            (None, Some(refused)) => Some(format!("The env is not recomputed: {}.", why(refused))),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_told_ends_the_script_it_stands_in() {
        let told = serde_json::to_string(&["</script><!--", "a & b"]).unwrap();
        let written = harmless(&told);
        assert!(!written.contains('<'), "{written}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&written).unwrap(), ["</script><!--", "a & b"]);
        assert_eq!(escaped("<b>&\"</b>"), "&lt;b&gt;&amp;&quot;&lt;/b&gt;");
    }

    #[test]
    fn the_page_asks_for_nothing_from_outside() {
        for part in [HEAD, PLAYER] {
            for outside in ["http:", "https:", "src=", "href=", "url(", "import ", "@import", "fetch("] {
                assert!(!part.contains(outside), "{outside}");
            }
        }
    }
}
