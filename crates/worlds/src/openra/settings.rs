//! What a world's arguments say: the engine, who plays, what is shown, what is worth what.

use std::sync::Arc;

use rollhouse_codec::openra::{MAX_BOTS_BYTES, MAX_OBSERVATION_BYTES, PLANES};
use serde_json::{Map, Value};

use super::rewards::{COUNTERS, Weights};
use super::words::{MAX_WORD_BYTES, MAX_WORDS, Words};

/// The arguments of a world.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Address of the engine, `HOST:PORT`.
    pub(crate) engine: String,
    pub(crate) bots: String,
    pub(crate) weights: Weights,
    pub(crate) sight: Arc<Sight>,
}

/// What is declared of what a world shows and takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Columns and rows of the map.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) words: Words,
    /// Greatest id of an actor that an order names.
    pub(crate) max_actor_id: u32,
}

/// Reason for which arguments are refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum BadArguments {
    #[error("there is no argument `{name}`; known are {}", NAMES.join(", "))]
    Unknown { name: String },
    #[error("argument `{0}` is wanted: {1}")]
    Missing(&'static str, &'static str),
    #[error("argument `{0}` must be {1}")]
    Wrong(&'static str, &'static str),
    #[error("weight `{name}` is none, or no number of at most 1e9; known are {}, win, lose", COUNTERS.join(", "))]
    Weight { name: String },
}

const NAMES: [&str; 6] = ["engine", "bots", "weights", "map_size", "words", "max_actor_id"];
const ENGINE: &str = "HOST:PORT of the engine";
const BOTS: &str = "SLOT:BOT,SLOT:BOT of at most 1024 bytes, one of whose bots is rl-agent";
const MAP_SIDES: &str = "[WIDTH, HEIGHT] of the map in cells, each 1 to 512";
const LIST: &str = "a list of at most 4096 words of 1 to 64 bytes";
const ACTOR: &str = "a whole number from 1 to 2147483647";

/// The agent against an easy bot.
const USUAL_BOTS: &str = "Multi1:rl-agent,Multi0:easy";
/// Most cells of a map's side.
pub(crate) const MAX_SIDE: usize = 512;
const USUAL_MAX_ACTOR_ID: u32 = 65_535;
const MAX_ENGINE_BYTES: usize = 260;
const MAX_WEIGHT: f64 = 1e9;
/// Most bytes of an observation without its map.
const MAX_BESIDE_MAP: usize = 4 << 20;
const _: () =
    assert!(MAX_SIDE * MAX_SIDE * PLANES * size_of::<f32>() + MAX_BESIDE_MAP <= MAX_OBSERVATION_BYTES);
const _: () = assert!(MAX_SIDE == 512 && MAX_WORDS == 4096 && MAX_WORD_BYTES == 64 && MAX_BOTS_BYTES == 1024);

impl Settings {
    /// Reads the arguments.
    pub(crate) fn of(arguments: &Map<String, Value>) -> Result<Self, BadArguments> {
        if let Some(name) = arguments.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(BadArguments::Unknown { name: name.chars().take(MAX_WORD_BYTES).collect() });
        }
        let engine = arguments.get("engine").ok_or(BadArguments::Missing("engine", ENGINE))?;
        let engine = engine.as_str().filter(|it| is_address(it));
        let bots = match arguments.get("bots") {
            Some(given) => given.as_str().filter(|it| are_bots(it)),
            None => Some(USUAL_BOTS),
        };
        let sides = arguments.get("map_size").ok_or(BadArguments::Missing("map_size", MAP_SIDES))?;
        let (width, height) = sides_of(sides).ok_or(BadArguments::Wrong("map_size", MAP_SIDES))?;
        let words = match arguments.get("words") {
            Some(given) => words_of(given).ok_or(BadArguments::Wrong("words", LIST))?,
            None => Words::usual(),
        };
        let max_actor_id = match arguments.get("max_actor_id") {
            Some(given) => given.as_u64().filter(|id| (1..=i32::MAX as u64).contains(id)),
            None => Some(USUAL_MAX_ACTOR_ID.into()),
        };
        let max_actor_id = max_actor_id.ok_or(BadArguments::Wrong("max_actor_id", ACTOR))? as u32;
        Ok(Self {
            engine: engine.ok_or(BadArguments::Wrong("engine", ENGINE))?.to_owned(),
            bots: bots.ok_or(BadArguments::Wrong("bots", BOTS))?.to_owned(),
            weights: arguments.get("weights").map_or(Ok(Weights::default()), weights_of)?,
            sight: Arc::new(Sight { width, height, words, max_actor_id }),
        })
    }
}

impl Sight {
    /// Returns the most bytes of an observation that shows what is declared: the planes of the map, and beside them as much
    /// as the longest lists and names take.
    pub(crate) const fn most_bytes(&self) -> usize {
        self.width * self.height * PLANES * size_of::<f32>() + MAX_BESIDE_MAP
    }
}

/// Returns whether a text is `HOST:PORT`: a name or an address, the latter of IPv6 in brackets, and a port.
pub(crate) fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map_or_else(
        || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)).then_some(host),
        |inner| inner.parse::<std::net::Ipv6Addr>().ok().map(|_| inner),
    );
    let has_host = host.is_some_and(|host| !host.is_empty());
    text.len() <= MAX_ENGINE_BYTES
        && has_host
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn are_bots(text: &str) -> bool {
    let is_pair = |pair: &str| {
        pair.trim().split_once(':').is_some_and(|(slot, bot)| !slot.is_empty() && !bot.is_empty())
    };
    let agents = text.split(',').filter(|pair| pair.trim().ends_with(":rl-agent")).count();
    text.len() <= MAX_BOTS_BYTES && text.split(',').all(is_pair) && agents == 1
}

fn sides_of(given: &Value) -> Option<(usize, usize)> {
    let [width, height] = given.as_array()?.as_slice() else { return None };
    let side = |value: &Value| {
        let side = usize::try_from(value.as_u64()?).ok()?;
        (1..=MAX_SIDE).contains(&side).then_some(side)
    };
    Some((side(width)?, side(height)?))
}

fn words_of(given: &Value) -> Option<Words> {
    let given = given.as_array().filter(|words| words.len() <= MAX_WORDS)?;
    let word = |word: &Value| {
        word.as_str().filter(|word| (1..=MAX_WORD_BYTES).contains(&word.len())).map(str::to_owned)
    };
    given.iter().map(word).collect::<Option<Vec<_>>>().map(Words::new)
}

/// Reads weights; those that are not named are nought.
fn weights_of(given: &Value) -> Result<Weights, BadArguments> {
    let given = given.as_object().ok_or(BadArguments::Wrong("weights", "an object of numbers"))?;
    let mut weights = Weights { counters: [0.0; COUNTERS.len()], win: 0.0, lose: 0.0 };
    for (name, value) in given {
        let place = match name.as_str() {
            "win" => Some(&mut weights.win),
            "lose" => Some(&mut weights.lose),
            name => {
                let place = COUNTERS.iter().position(|known| *known == name);
                place.map(|place| &mut weights.counters[place])
            }
        };
        let value = value.as_f64().filter(|value| value.abs() <= MAX_WEIGHT);
        let (Some(place), Some(value)) = (place, value) else {
            return Err(BadArguments::Weight { name: name.chars().take(MAX_WORD_BYTES).collect() });
        };
        *place = value;
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(arguments: &Value) -> Result<Settings, BadArguments> {
        Settings::of(arguments.as_object().unwrap())
    }

    fn with(name: &str, value: Value) -> Value {
        let mut arguments = json!({"engine": "127.0.0.1:9999", "map_size": [44, 40]});
        arguments[name] = value;
        arguments
    }

    #[test]
    fn an_engine_and_the_size_of_the_map_are_all_that_has_to_be_said() {
        let settings = of(&with("bots", json!("Multi1:rl-agent,Multi0:rush"))).unwrap();
        assert_eq!((settings.sight.width, settings.sight.height), (44, 40));
        assert_eq!(settings.weights, Weights::default());
        assert_eq!(settings.sight.words, Words::usual());
        assert_eq!(of(&with("map_size", json!([44, 40]))).unwrap().bots, USUAL_BOTS);
        let weights = of(&with("weights", json!({"win": 5, "cash": 0.5}))).unwrap().weights;
        assert_eq!(
            (weights.win, weights.lose, weights.counters[7], weights.counters[4]),
            (5.0, 0.0, 0.5, 0.0)
        );
    }

    #[test]
    fn arguments_that_are_wrong_are_refused_by_name() {
        for (name, value) in [
            ("engine", json!("nowhere")),
            ("engine", json!("a/b:9999")),
            ("engine", json!("user@host:1")),
            ("engine", json!("host:0")),
            ("engine", json!("host:+80")),
            ("engine", json!(9999)),
            ("bots", json!("Multi0:easy")),
            ("bots", json!("Multi0:rl-agent,Multi1:rl-agent")),
            ("bots", json!("rl-agent")),
            ("map_size", json!([44])),
            ("map_size", json!([0, 44])),
            ("map_size", json!([44, 513])),
            ("map_size", json!("44x44")),
            ("words", json!(["e1", ""])),
            ("words", json!(vec!["w"; 4097])),
            ("max_actor_id", json!(0)),
            ("weights", json!([1])),
        ] {
            let refused = of(&with(name, value.clone())).unwrap_err().to_string();
            assert!(refused.contains(&format!("`{name}` must be")), "{name} {value}: {refused}");
        }
        let unknown = of(&with("bot", json!(1))).unwrap_err().to_string();
        assert!(unknown.contains("`bot`") && unknown.contains("map_size"), "{unknown}");
        for weights in [json!({"gold": 1}), json!({"cash": "1"}), json!({"cash": 1e300})] {
            assert!(of(&with("weights", weights)).unwrap_err().to_string().starts_with("weight `"));
        }
        let missing = of(&json!({"engine": "[::1]:9999"})).unwrap_err().to_string();
        assert!(missing.contains("`map_size` is wanted"), "{missing}");
    }
}
