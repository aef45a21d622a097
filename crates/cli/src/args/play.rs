//! The arguments of `rollhouse replay play`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rollhouse_core::EpisodeName;
use rollhouse_viewer::{Pictures, Protocol};

use super::{DataArgs, HostingArgs, PluginArgs, number};

#[derive(Debug, Args)]
pub(crate) struct PlayArgs {
    /// The episode, as `replay ls` prints it, e.g. k3f9q2tz-17-203 [default: chosen from a list]
    #[arg(value_name = "NAME", value_parser = super::episode)]
    pub(crate) name: Option<EpisodeName>,
    /// Play an episode that is still being recorded, as far as it goes, and follow it: the longest one so far. A named
    /// episode is always played in this way
    #[arg(long, conflicts_with_all = ["name", "svg"])]
    pub(crate) live: bool,
    /// Begin at this step instead of 0; at the last one if there are fewer
    #[arg(long, value_name = "STEP", default_value_t = 0, value_parser = number::any::<u64>)]
    pub(crate) at: u64,
    /// Speed at first: 1/16, 1/8, 1/4, 1/2, 1, 2, 4, 8, 16, 32 or 64 times 30 steps a second
    #[arg(long, value_name = "X", default_value = "1", value_parser = speed)]
    pub(crate) speed: Speed,
    /// Way of drawing the env's picture: pixels by a terminal's protocol, or its cells; by default the terminal is asked
    #[arg(long, value_name = "HOW", default_value = "asked", value_parser = pictures())]
    pub(crate) pictures: Pictures,
    /// Show this episode beside it, at the same step, with the first difference marked
    #[arg(long, value_name = "NAME", requires = "name", conflicts_with = "svg")]
    pub(crate) compare: Option<EpisodeName>,
    /// Write the screen into this file as an SVG picture instead of showing it
    #[arg(long, value_name = "FILE", requires = "name")]
    pub(crate) svg: Option<PathBuf>,
    /// Columns and rows of that picture
    #[arg(long, value_name = "CxR", default_value = "100x30", value_parser = size, requires = "svg")]
    pub(crate) size: (u16, u16),
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) hosting: HostingArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

/// The speed of playing an episode, as a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Speed(pub(crate) i32);

fn speed(text: &str) -> Result<Speed, String> {
    let number = text.strip_suffix('x').unwrap_or(text);
    let (number, sign) = number.strip_prefix("1/").map_or((number, 1), |number| (number, -1));
    let power = number.parse::<u64>().ok().filter(|n| n.is_power_of_two()).map(|n| sign * n.ilog2() as i32);
    let power = power.filter(|power| (rollhouse_viewer::SLOWEST..=rollhouse_viewer::FASTEST).contains(power));
    power.map(Speed).ok_or_else(|| "a power of two from 1/16 to 64 is wanted".to_owned())
}

/// Reads columns and rows of a screen that the viewer can draw.
fn size(text: &str) -> Result<(u16, u16), String> {
    let (least, most) = (rollhouse_viewer::LEAST, MOST_CELLS);
    let numbers =
        text.split_once('x').and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    numbers
        .filter(|&(columns, rows)| {
            (least.0..=most.0).contains(&columns) && (least.1..=most.1).contains(&rows)
        })
        .ok_or_else(|| {
            format!("columns and rows from {}x{} to {}x{} are wanted", least.0, least.1, most.0, most.1)
        })
}

/// Columns and rows of the largest picture of a screen.
const MOST_CELLS: (u16, u16) = (400, 200);

/// The words of `--pictures`.
const PICTURES: [(&str, Pictures); 5] = [
    ("asked", Pictures::Asked),
    ("cells", Pictures::Cells),
    ("kitty", Pictures::Pixels(Protocol::Kitty)),
    ("iterm", Pictures::Pixels(Protocol::Iterm)),
    ("sixel", Pictures::Pixels(Protocol::Sixel)),
];

/// Returns a parser for the words of [`PICTURES`].
pub(super) fn pictures() -> impl TypedValueParser<Value = Pictures> {
    let words = PossibleValuesParser::new(PICTURES.map(|(word, _)| word));
    words.map(|word| {
        let found = PICTURES.into_iter().find(|(known, _)| *known == word);
        found.map_or(Pictures::Asked, |(_, pictures)| pictures)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_screens() {
        assert_eq!(size("100x30"), Ok((100, 30)));
        for bad in ["", "100", "79x24", "80x23", "401x30", "80x-1", "x", "99999x24"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn speeds_are_powers_of_two_within_their_bounds() {
        for (text, power) in [("1", 0), ("2x", 1), ("64", 6), ("1/16", -4), ("1/2x", -1)] {
            assert_eq!(speed(text), Ok(Speed(power)), "{text}");
        }
        for bad in ["", "0", "3", "128", "1/32", "-1", "1/", "2/4", "x"] {
            assert!(speed(bad).is_err(), "{bad}");
        }
    }
}
