//! Conditions by which a step is searched for: `reward>0`, `x>=1.5`, `action=2`.

use std::fmt;

use rollhouse_replay::PlayedStep;

use crate::element::{Element, ElementPlace};
use crate::numbers::plain;

/// A condition that a step must meet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    quantity: Quantity,
    /// Text of the condition, as it is shown.
    name: String,
    relation: Relation,
    number: f64,
}

/// The value that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Reward,
    Return,
    Action,
    /// An element of the observation or of the infos.
    Element(ElementPlace),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Less,
    AtMost,
    Equal,
    Other,
    AtLeast,
    More,
}

impl Condition {
    /// Parses a condition. A name is `reward`, `return`, `action` or that of an element of the observation or
    /// infos; the beginning of an element's name is enough if no other begins so.
    ///
    /// # Errors
    /// If it is no condition; the error says what is wrong with it.
    pub(crate) fn parse(typed: &str, elements: &[Element]) -> Result<Self, String> {
        let at = typed.find(['<', '>', '=', '!', '≤', '≥', '≠']);
        let (name, rest) = at
            .map(|at| typed.split_at(at))
            .ok_or_else(|| format!("`{}` is no condition: one is like reward>0", plain(typed)))?;
        let (sign, relation) = RELATIONS
            .into_iter()
            .find(|(sign, _)| rest.starts_with(sign))
            .ok_or_else(|| format!("`{}` compares nothing", plain(rest)))?;
        let number = rest[sign.len()..].trim();
        let number: f64 = number.parse().map_err(|_| format!("`{}` is no number", plain(number)))?;
        let (name, quantity) = quantity_of(name.trim(), elements)?;
        Ok(Self { quantity, name, relation, number })
    }

    /// Returns whether a step meets the condition.
    pub(crate) fn meets(&self, step: &PlayedStep) -> bool {
        let value = match self.quantity {
            Quantity::Reward => step.reward,
            Quantity::Return => Some(step.total_reward),
            Quantity::Action => step.action.as_ref().map(|action| action.number(0)),
            Quantity::Element(place) => place.value(step),
        };
        value.is_some_and(|value| self.relation.holds(value, self.number))
    }
}

fn quantity_of(name: &str, elements: &[Element]) -> Result<(String, Quantity), String> {
    let fixed = [("reward", Quantity::Reward), ("return", Quantity::Return), ("action", Quantity::Action)];
    if let Some((name, quantity)) = fixed.into_iter().find(|(known, _)| *known == name) {
        return Ok((name.to_owned(), quantity));
    }
    let found = |element: &Element| (element.name.clone(), Quantity::Element(element.place));
    if let Some(element) = elements.iter().find(|element| element.name == name) {
        return Ok(found(element));
    }
    let mut like = elements.iter().filter(|element| !name.is_empty() && element.name.starts_with(name));
    match (like.next(), like.next()) {
        (Some(element), None) => Ok(found(element)),
        (Some(a), Some(b)) => Err(format!("`{}` may be {} or {}", plain(name), a.name, b.name)),
        (None, _) => Err(format!("`{}` is neither reward, return, action nor an element", plain(name))),
    }
}

impl Relation {
    fn holds(self, value: f64, number: f64) -> bool {
        match self {
            Self::Less => value < number,
            Self::AtMost => value <= number,
            Self::Equal => value == number,
            Self::Other => value != number,
            Self::AtLeast => value >= number,
            Self::More => value > number,
        }
    }

    const fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Equal => "=",
            Self::Other => "!=",
            Self::AtLeast => ">=",
            Self::More => ">",
        }
    }
}

/// Signs of relations; those of more characters come first.
const RELATIONS: [(&str, Relation); 10] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("!=", Relation::Other),
    ("==", Relation::Equal),
    ("≤", Relation::AtMost),
    ("≥", Relation::AtLeast),
    ("≠", Relation::Other),
    ("<", Relation::Less),
    (">", Relation::More),
    ("=", Relation::Equal),
];

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.name, self.relation.sign(), self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::StepPart;

    fn parse(typed: &str) -> Result<String, String> {
        let place = |index| ElementPlace { part: StepPart::Observation, column: 0, index };
        let element = |name: &str, index| Element { name: name.into(), place: place(index) };
        let elements = [element("angle", 0), element("angular_velocity", 1), element("x", 2)];
        Condition::parse(typed, &elements).map(|condition| condition.to_string())
    }

    #[test]
    fn conditions_name_something_of_a_step_a_relation_and_a_number() {
        for (typed, shown) in [
            ("reward>0", "reward>0"),
            (" return >= 9.5", "return>=9.5"),
            ("action==2", "action=2"),
            ("x≠-1e3", "x!=-1000"),
            ("angu<1", "angular_velocity<1"),
        ] {
            assert_eq!(parse(typed).as_deref(), Ok(shown), "{typed}");
        }
        for (typed, says) in [
            ("", "no condition"),
            ("reward", "no condition"),
            ("reward>", "no number"),
            ("reward!3", "compares nothing"),
            ("ang>1", "angle or angular_velocity"),
            ("y>1", "neither"),
            (">1", "neither"),
        ] {
            assert!(parse(typed).is_err_and(|why| why.contains(says)), "{typed}");
        }
    }
}
