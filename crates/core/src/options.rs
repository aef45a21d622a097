//! Options with which an env is made.

mod distribution;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use crate::Start;
use crate::limits::{
    MAX_CHOICES_OF_LANE, MAX_OPTION_CHOICES, MAX_OPTION_NUMBERS, MAX_OPTION_TEXT_BYTES, MAX_OPTIONS,
};

use distribution::DISTRIBUTIONS;
pub use distribution::Distribution;

/// Value of an option, or a distribution of which each episode draws a value of its own. An env only ever gets values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// True or false.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// A double.
    Float(f64),
    /// A text of at most [`MAX_OPTION_TEXT_BYTES`].
    Text(String),
    /// A list of at most [`MAX_OPTION_NUMBERS`] doubles.
    List(Vec<f64>),
    /// A distribution.
    Drawn(Distribution),
}

/// Description of one option of an env.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptionSpec {
    /// Name of the option: Gymnasium's where it has one.
    pub name: String,
    /// Value of an option that is not given. Its kind is the kind that the option takes; it is no distribution.
    pub default: OptionValue,
    /// What the option does, with its unit.
    pub summary: String,
}

impl OptionSpec {
    /// Returns `given` as a value of this option's kind.
    fn accept(&self, given: &OptionValue) -> Result<OptionValue, OptionError> {
        let name = || self.name.clone();
        let value = self.default.accept(given).ok_or_else(|| OptionError::Kind {
            name: name(),
            wanted: self.default.kind(),
            given: given.to_string(),
        })?;
        value.check_lengths().map_err(|(what, count, limit)| OptionError::TooLong {
            name: name(),
            what,
            count,
            limit,
        })?;
        if let OptionValue::Drawn(distribution) = &value {
            distribution.check().map_err(|fault| OptionError::Distribution { name: name(), fault })?;
        }
        Ok(value)
    }
}

/// Checked options of one lane, with a value or a distribution for every name of the env's schema.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Options(BTreeMap<String, OptionValue>);

impl Options {
    /// Checks `given` against the schema and adds the defaults of options that are not given.
    ///
    /// # Errors
    /// If a name is unknown, a value is of another kind (an integer is taken where a float is wanted), not finite or too
    /// long, a distribution has no values or some of another kind, or there are too many; nothing is kept then.
    pub fn check(schema: &[OptionSpec], given: &[(String, OptionValue)]) -> Result<Self, OptionError> {
        if given.len() > MAX_OPTIONS {
            return Err(OptionError::TooMany { count: given.len() });
        }
        let mut values: BTreeMap<_, _> = schema.iter().map(|s| (s.name.clone(), s.default.clone())).collect();
        for (name, value) in given {
            let Some(spec) = schema.iter().find(|spec| spec.name == *name) else {
                let known = schema.iter().map(|s| s.name.clone()).collect();
                return Err(OptionError::Unknown { name: name.clone(), known });
            };
            values.insert(name.clone(), spec.accept(value)?);
        }
        let options = Self(values);
        match options.choices() {
            0..=MAX_CHOICES_OF_LANE => Ok(options),
            count => Err(OptionError::TooManyChoices { count }),
        }
    }

    /// Returns the number of values that the distributions of all options choose from.
    fn choices(&self) -> usize {
        self.drawn().map(|(_, distribution)| distribution.choices()).sum()
    }

    /// Returns whether each episode draws one of the options at least.
    pub fn are_drawn(&self) -> bool {
        self.drawn().next().is_some()
    }

    /// Returns the name of each option that is drawn, and its distribution.
    pub fn drawn(&self) -> impl Iterator<Item = (&str, &Distribution)> {
        self.0.iter().filter_map(|(name, value)| match value {
            OptionValue::Drawn(distribution) => Some((name.as_str(), distribution)),
            _ => None,
        })
    }

    /// Returns the options of the episode that begins at `start`, in which every distribution has become a value. They
    /// depend on nothing else, and take nothing from the lane's generator: who knows an episode's start knows them. This
    /// is a part of the replay format.
    #[must_use]
    pub fn of_episode(&self, start: Start) -> Self {
        let values = (0..).zip(&self.0).map(|(rank, (name, value))| {
            let value = match value {
                OptionValue::Drawn(distribution) => distribution.draw(start.option_bits(rank)),
                value => value.clone(),
            };
            (name.clone(), value)
        });
        Self(values.collect())
    }

    /// Returns the options with which a lane is made, which has them until its first episode begins.
    #[must_use]
    pub fn before_episodes(&self) -> Self {
        self.of_episode(Start::default())
    }

    /// Returns options in which each distribution is replaced by values at its ends: every combination of them if there
    /// are at most `most`, otherwise each end once beside the first ends of the others. Of options without distributions
    /// that is one set, of no more than `most` distributions at most twice as many and one.
    pub fn corners(&self, most: usize) -> Vec<Self> {
        let ends: Vec<_> =
            self.drawn().map(|(name, distribution)| (name.to_owned(), distribution.ends())).collect();
        let product = ends.iter().try_fold(1usize, |product, (_, ends)| {
            product.checked_mul(ends.len()).filter(|&product| product <= most)
        });
        let mut first = self.clone();
        for (name, ends) in &ends {
            first.0.extend(ends.first().map(|end| (name.clone(), end.clone())));
        }
        let mut corners = vec![first];
        for (name, ends) in &ends {
            let bases = if product.is_some() { corners.len() } else { 1 };
            for end in &ends[1..] {
                for base in 0..bases {
                    let mut corner = corners[base].clone();
                    corner.0.insert(name.clone(), end.clone());
                    corners.push(corner);
                }
            }
        }
        corners
    }

    /// Returns whether the options have these values; an integer stands for the float that it is.
    pub fn have(&self, wanted: &[(String, OptionValue)]) -> bool {
        wanted.iter().all(|(name, value)| {
            self.0.get(name).is_some_and(|own| own.accept(value).is_some_and(|value| value == *own))
        })
    }

    /// Returns those of these options that are others than in `base`.
    #[must_use]
    pub fn difference(&self, base: &Self) -> Self {
        let others = self.0.iter().filter(|(name, value)| base.0.get(*name) != Some(*value));
        Self(others.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Returns these options with those of `change` instead of their own.
    #[must_use]
    pub fn changed_by(&self, change: &Self) -> Self {
        let mut changed = self.clone();
        changed.0.extend(change.0.iter().map(|(name, value)| (name.clone(), value.clone())));
        changed
    }

    /// Returns about how many bytes the options take in a message or a file.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + size_of::<f64>() + value.heap_bytes()).sum()
    }

    /// Returns the float of that name. The schema's own names always have one.
    pub fn float(&self, name: &str) -> Option<f64> {
        match self.0.get(name) {
            Some(OptionValue::Float(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns the integer of that name.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.0.get(name) {
            Some(OptionValue::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns the flag of that name.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.0.get(name) {
            Some(OptionValue::Bool(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns the text of that name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(OptionValue::Text(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the list of that name.
    pub fn list(&self, name: &str) -> Option<&[f64]> {
        match self.0.get(name) {
            Some(OptionValue::List(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of that name.
    pub fn get(&self, name: &str) -> Option<&OptionValue> {
        self.0.get(name)
    }

    /// Returns every name and value, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &OptionValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl OptionValue {
    /// Converts `given` to the kind of this value; `None` if it cannot be.
    pub(crate) fn accept(&self, given: &Self) -> Option<Self> {
        match (self, given) {
            (Self::Bool(_), Self::Bool(_))
            | (Self::Int(_), Self::Int(_))
            | (Self::Text(_), Self::Text(_)) => Some(given.clone()),
            (Self::Float(_), Self::Float(float)) if float.is_finite() => Some(given.clone()),
            (Self::Float(_), Self::Int(int)) => Some(Self::Float(*int as f64)),
            (Self::List(_), Self::List(list)) if list.iter().all(|number| number.is_finite()) => {
                Some(given.clone())
            }
            (_, Self::Drawn(distribution)) => distribution.accepted_by(self).map(Self::Drawn),
            _ => None,
        }
    }

    /// Returns about how many bytes of memory the value has beside itself.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::List(list) => size_of_val(&**list),
            Self::Drawn(Distribution::Choice(choices)) => {
                size_of_val(&**choices) + choices.iter().map(Self::heap_bytes).sum::<usize>()
            }
            Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Drawn(_) => 0,
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "true or false",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a finite number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list of finite numbers",
            Self::Drawn(_) => "a distribution",
        }
    }

    /// Returns what is too long in the value, how long it is and the limit.
    fn check_lengths(&self) -> Result<(), (&'static str, usize, usize)> {
        let (what, count, limit) = match self {
            Self::Text(text) => ("bytes", text.len(), MAX_OPTION_TEXT_BYTES),
            Self::List(list) => ("numbers", list.len(), MAX_OPTION_NUMBERS),
            Self::Drawn(Distribution::Choice(choices)) => {
                choices.iter().try_for_each(Self::check_lengths)?;
                ("choices", choices.len(), MAX_OPTION_CHOICES)
            }
            Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Drawn(_) => return Ok(()),
        };
        if count <= limit { Ok(()) } else { Err((what, count, limit)) }
    }
}

/// Reads a value by hand, because the code that serde derives keeps a copy of whatever stands in the place of a value.
impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor { plain: false })
    }
}

/// Reader of a value: of a plain one, or of one that may be a distribution.
struct ValueVisitor {
    pub(crate) plain: bool,
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = OptionValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, a number, a text or a list of numbers")?;
        if self.plain { Ok(()) } else { write!(f, ", or a distribution: {DISTRIBUTIONS}") }
    }

    fn visit_bool<E>(self, value: bool) -> Result<OptionValue, E> {
        Ok(OptionValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<OptionValue, E> {
        Ok(OptionValue::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<OptionValue, E> {
        let fits = i64::try_from(value).map(OptionValue::Int);
        fits.map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E>(self, value: f64) -> Result<OptionValue, E> {
        Ok(OptionValue::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<OptionValue, E> {
        if value.len() > MAX_OPTION_TEXT_BYTES {
            return Err(E::custom(format_args!("a text of more than {MAX_OPTION_TEXT_BYTES} bytes")));
        }
        Ok(OptionValue::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OptionValue, A::Error> {
        let mut list = Vec::new();
        while let Some(number) = seq.next_element()? {
            if list.len() == MAX_OPTION_NUMBERS {
                return Err(A::Error::custom(format_args!(
                    "a list of more than {MAX_OPTION_NUMBERS} numbers"
                )));
            }
            list.push(number);
        }
        Ok(OptionValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OptionValue, A::Error> {
        if self.plain {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        Distribution::read(map).map(OptionValue::Drawn)
    }
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(OptionsVisitor)
    }
}

struct OptionsVisitor;

impl<'de> Visitor<'de> for OptionsVisitor {
    type Value = Options;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of at most {MAX_OPTIONS} options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Options, A::Error> {
        let mut values = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            if values.len() == MAX_OPTIONS {
                return Err(A::Error::custom(format_args!("more than {MAX_OPTIONS} options")));
            }
            values.insert(name, value);
        }
        let options = Options(values);
        match options.choices() {
            0..=MAX_CHOICES_OF_LANE => Ok(options),
            count => Err(A::Error::custom(OptionError::TooManyChoices { count })),
        }
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::List(value) => write!(f, "{value:?}"),
            Self::Drawn(distribution) => distribution.fmt(f),
        }
    }
}

/// Reason for which options were refused.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionError {
    /// The env has no option of that name.
    Unknown {
        /// Name that was given.
        name: String,
        /// Names of the options that the env has.
        known: Vec<String>,
    },
    /// The value is of another kind.
    Kind {
        /// Name of the option.
        name: String,
        /// Kind of value that the option takes.
        wanted: &'static str,
        /// Value that was given.
        given: String,
    },
    /// The value is too long.
    TooLong {
        /// Name of the option.
        name: String,
        /// What the value has too many of.
        what: &'static str,
        /// Number of them.
        count: usize,
        /// Maximum number of them.
        limit: usize,
    },
    /// No value can be drawn of the distribution.
    Distribution {
        /// Name of the option.
        name: String,
        /// Fault of the distribution.
        fault: &'static str,
    },
    /// The distributions of all options choose from more values than [`MAX_CHOICES_OF_LANE`].
    TooManyChoices {
        /// Number of values.
        count: usize,
    },
    /// There are more options than [`MAX_OPTIONS`].
    TooMany {
        /// Number of options that were given.
        count: usize,
    },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } if known.is_empty() => {
                write!(f, "unknown option `{name}`; this env takes none")
            }
            Self::Unknown { name, known } => {
                write!(f, "unknown option `{name}`; known are {}", known.join(", "))
            }
            Self::Kind { name, wanted, given } => write!(f, "option `{name}` takes {wanted}, got {given}"),
            Self::TooLong { name, what, count, limit } => {
                write!(f, "option `{name}` has {count} {what}, may have at most {limit}")
            }
            Self::Distribution { name, fault } => write!(f, "option `{name}` cannot be drawn: {fault}"),
            Self::TooManyChoices { count } => {
                write!(f, "the options choose from {count} values, may from at most {MAX_CHOICES_OF_LANE}")
            }
            Self::TooMany { count } => write!(f, "{count} options given, at most {MAX_OPTIONS} allowed"),
        }
    }
}

impl std::error::Error for OptionError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Vec<OptionSpec> {
        let option = |name: &str, default| OptionSpec { name: name.into(), default, summary: String::new() };
        vec![
            option("g", OptionValue::Float(10.0)),
            option("shaped", OptionValue::Bool(false)),
            option("level", OptionValue::Int(1)),
            option("map", OptionValue::Text("flat".into())),
            option("gates", OptionValue::List(vec![])),
        ]
    }

    fn check(name: &str, value: OptionValue) -> Result<Options, OptionError> {
        Options::check(&schema(), &[(name.into(), value)])
    }

    fn uniform(low: f64, high: f64) -> OptionValue {
        OptionValue::Drawn(Distribution::Uniform([low, high]))
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let options = check("g", OptionValue::Int(3)).unwrap();
        assert_eq!(options.float("g"), Some(3.0));
        assert_eq!((options.flag("shaped"), options.text("map")), (Some(false), Some("flat")));
        assert_eq!(options.list("gates"), Some(&[][..]));
    }

    #[test]
    fn unknown_names_wrong_kinds_and_nan_are_refused() {
        assert!(matches!(check("gee", OptionValue::Int(3)), Err(OptionError::Unknown { .. })));
        assert!(matches!(check("shaped", OptionValue::Int(1)), Err(OptionError::Kind { .. })));
        assert!(matches!(check("g", OptionValue::Float(f64::NAN)), Err(OptionError::Kind { .. })));
        assert!(matches!(check("map", OptionValue::Int(1)), Err(OptionError::Kind { .. })));
        assert!(matches!(check("gates", OptionValue::List(vec![f64::NAN])), Err(OptionError::Kind { .. })));
        assert!(matches!(check("level", uniform(1.0, 2.0)), Err(OptionError::Kind { .. })));
    }

    #[test]
    fn what_is_too_long_is_refused_by_check_and_by_reading() {
        let long = "m".repeat(MAX_OPTION_TEXT_BYTES + 1);
        let many = vec![0.0; MAX_OPTION_NUMBERS + 1];
        let choices = vec![OptionValue::Float(1.0); MAX_OPTION_CHOICES + 1];
        for (name, value) in [
            ("map", OptionValue::Text(long)),
            ("gates", OptionValue::List(many)),
            ("g", OptionValue::Drawn(Distribution::Choice(choices))),
        ] {
            let json = serde_json::to_string(&value).unwrap();
            assert!(serde_json::from_str::<OptionValue>(&json).is_err(), "{name}");
            assert!(matches!(check(name, value), Err(OptionError::TooLong { .. })), "{name}");
        }
    }

    #[test]
    fn so_many_choices_of_one_option_are_taken_and_of_all_options_no_more_than_their_limit() {
        let choices = |count: usize| {
            OptionValue::Drawn(Distribution::Choice(
                (0..count).map(|at| OptionValue::Float(at as f64)).collect(),
            ))
        };
        let options = check("g", choices(MAX_OPTION_CHOICES)).unwrap();
        assert!(options.are_drawn());
        let count = MAX_CHOICES_OF_LANE / MAX_OPTION_CHOICES + 1;
        let names: Vec<_> = (0..count).map(|at| format!("g{at}")).collect();
        let option = |name: &String| OptionSpec {
            name: name.clone(),
            default: OptionValue::Float(0.0),
            summary: String::new(),
        };
        let schema: Vec<_> = names.iter().map(option).collect();
        let given: Vec<_> = names.iter().map(|name| (name.clone(), choices(MAX_OPTION_CHOICES))).collect();
        let refused = Options::check(&schema, &given).unwrap_err();
        assert_eq!(refused, OptionError::TooManyChoices { count: count * MAX_OPTION_CHOICES });
        assert!(Options::check(&schema, &given[1..]).is_ok());
        let json = serde_json::to_string(&given.into_iter().collect::<BTreeMap<_, _>>()).unwrap();
        let read = serde_json::from_str::<Options>(&json).unwrap_err().to_string();
        assert!(read.contains("at most 4096"), "{read}");
    }

    #[test]
    fn options_are_those_of_a_base_and_what_differs_from_it() {
        let (base, other) =
            (Options::check(&schema(), &[]).unwrap(), check("g", OptionValue::Float(3.0)).unwrap());
        let difference = other.difference(&base);
        assert_eq!(difference.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["g"]);
        assert_eq!(base.changed_by(&difference), other);
        assert_eq!(base.difference(&base).bytes(), 0);
    }

    #[test]
    fn values_and_distributions_are_read_as_they_are_written() {
        for (value, json) in [
            (OptionValue::Text("flat".into()), r#""flat""#),
            (OptionValue::List(vec![1.0, 2.5]), "[1.0,2.5]"),
            (uniform(9.0, 10.5), r#"{"uniform":[9.0,10.5]}"#),
            (OptionValue::Drawn(Distribution::Integers([-1, 3])), r#"{"integers":[-1,3]}"#),
            (
                OptionValue::Drawn(Distribution::Choice(vec![
                    OptionValue::Int(1),
                    OptionValue::Text("a".into()),
                ])),
                r#"{"choice":[1,"a"]}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
            assert_eq!(serde_json::from_str::<OptionValue>(json).unwrap(), value);
        }
        assert_eq!(serde_json::from_str::<OptionValue>(r#"{"uniform":[9,10]}"#).unwrap(), uniform(9.0, 10.0));
    }

    #[test]
    fn an_episode_has_the_same_values_whoever_draws_them_and_another_start_has_others() {
        let given = [
            ("g".to_owned(), uniform(9.0, 10.5)),
            ("level".to_owned(), OptionValue::Drawn(Distribution::Integers([2, 9]))),
        ];
        let options = Options::check(&schema(), &given).unwrap();
        assert!(options.are_drawn());
        let start = Start { seed: 7, words: 12, half: None };
        let drawn = options.of_episode(start);
        // Frozen: recordings do not hold the values.
        assert_eq!(drawn.float("g"), Some(GRAVITY));
        assert_eq!(drawn.int("level"), Some(LEVEL));
        assert_eq!((drawn.text("map"), drawn.are_drawn()), (Some("flat"), false));
        for other in
            [Start { seed: 8, ..start }, Start { words: 13, ..start }, Start { half: Some(0), ..start }]
        {
            assert_ne!(options.of_episode(other).float("g"), Some(GRAVITY));
        }
    }

    const GRAVITY: f64 = 9.724541322231543;
    const LEVEL: i64 = 6;

    #[test]
    fn corners_are_all_combinations_of_ends_or_each_end_once_if_those_are_too_many() {
        let given = [
            ("g".to_owned(), uniform(9.0, 10.5)),
            ("level".to_owned(), OptionValue::Drawn(Distribution::Integers([2, 9]))),
        ];
        let options = Options::check(&schema(), &given).unwrap();
        let corners = |most| -> Vec<_> {
            let corners = options.corners(most).into_iter();
            corners.map(|corner| (corner.float("g").unwrap(), corner.int("level").unwrap())).collect()
        };
        assert_eq!(corners(4), [(9.0, 2), (10.5, 2), (9.0, 9), (10.5, 9)]);
        assert_eq!(corners(3), [(9.0, 2), (10.5, 2), (9.0, 9)]);
        let fixed = Options::check(&schema(), &[]).unwrap();
        assert_eq!(fixed.corners(4), [fixed]);
    }
}
