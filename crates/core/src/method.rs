//! The methods of an env, which are called by name on single lanes between two steps.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_METHOD_NAME_BYTES, MAX_METHOD_TEXT_BYTES, MAX_METHODS};

/// Description of one method of an env.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodSpec {
    /// Name of the method, of at most [`MAX_METHOD_NAME_BYTES`].
    pub name: String,
    /// What the method does, in one sentence.
    #[serde(default)]
    pub summary: String,
    /// JSON schema of the payload; empty if the summary says enough.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub params: String,
    /// Whether a call may change what the lane does afterwards. Such a call needs an open episode, and is recorded with its
    /// step. Any other is answered and forgotten.
    pub changes: bool,
    /// Maximum number of calls a second on one lane; `None` if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_second: Option<NonZeroU32>,
}

impl MethodSpec {
    /// Makes the description of a method that changes nothing and may be called at any rate.
    pub fn reading(name: &str, summary: &str) -> Self {
        Self {
            name: name.to_owned(),
            summary: summary.to_owned(),
            params: String::new(),
            changes: false,
            max_per_second: None,
        }
    }

    /// Makes the description of a method that changes its lane.
    pub fn changing(name: &str, summary: &str) -> Self {
        Self { changes: true, ..Self::reading(name, summary) }
    }

    /// Returns the same method with a JSON schema of its payload.
    #[must_use]
    pub fn with_params(self, schema: &str) -> Self {
        Self { params: schema.to_owned(), ..self }
    }

    /// Returns the same method with a limit of calls a second on one lane.
    #[must_use]
    pub fn at_most(self, per_second: NonZeroU32) -> Self {
        Self { max_per_second: Some(per_second), ..self }
    }

    /// Checks the methods of one env.
    ///
    /// # Errors
    /// If there are too many, a name is empty, too long, taken or of other characters than letters, digits and `_-.`, or
    /// a text is too long.
    pub fn check_all(methods: &[Self]) -> Result<(), BadMethod> {
        if methods.len() > MAX_METHODS {
            return Err(BadMethod::Count { count: methods.len() });
        }
        let mut names = BTreeSet::new();
        for Self { name, summary, params, .. } in methods {
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            if name.is_empty() || name.len() > MAX_METHOD_NAME_BYTES || !name.bytes().all(letters) {
                let end = name.floor_char_boundary(MAX_METHOD_NAME_BYTES);
                return Err(BadMethod::Name { name: name[..end].to_owned() });
            }
            if !names.insert(name) {
                return Err(BadMethod::Twice { name: name.clone() });
            }
            let bytes = summary.len().max(params.len());
            if bytes > MAX_METHOD_TEXT_BYTES {
                return Err(BadMethod::Text { name: name.clone(), bytes });
            }
        }
        Ok(())
    }
}

/// A call of a method of an env.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Name of the method.
    pub method: String,
    /// What the method is given, as JSON; envs get the text as it is, and must take any. It has at most
    /// [`MAX_CALL_BYTES`](crate::limits::MAX_CALL_BYTES).
    pub payload: String,
}

impl Call {
    /// The method of a call that calls nothing: it is recorded as calls are, and no env has it. Its payload is the text with
    /// which an owner has ended the planning of a live lane.
    pub const PLAN: &str = ":plan";

    /// Returns whether it is recorded beside a step and no env is asked for it.
    pub fn is_note(&self) -> bool {
        // No name of a method begins so.
        self.method.starts_with(':')
    }
}

/// Reason for which the methods of an env are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMethod {
    /// There are more methods than an env may have.
    #[error("{count} methods, an env may have at most {MAX_METHODS}")]
    Count {
        /// Number of methods.
        count: usize,
    },
    /// The name is no name of a method.
    #[error("method name `{name}` must have 1 to {MAX_METHOD_NAME_BYTES} letters, digits and `_-.`")]
    Name {
        /// Name that was given, cut.
        name: String,
    },
    /// Two methods have the same name.
    #[error("method `{name}` is there twice")]
    Twice {
        /// Name of both.
        name: String,
    },
    /// Summary or schema are too long.
    #[error("method `{name}` is described in {bytes} bytes, may be in at most {MAX_METHOD_TEXT_BYTES}")]
    Text {
        /// Name of the method.
        name: String,
        /// Number of bytes in the longer text.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_without_a_name_with_one_name_twice_or_with_too_much_text_are_refused() {
        let method = |name: &str| MethodSpec::reading(name, "");
        assert_eq!(MethodSpec::check_all(&[method("a"), method("b.c-d_1")]), Ok(()));
        for name in ["", "two words", "ümlaut", Call::PLAN, &"x".repeat(MAX_METHOD_NAME_BYTES + 1)] {
            assert!(matches!(MethodSpec::check_all(&[method(name)]), Err(BadMethod::Name { .. })), "{name}");
        }
        let twice = MethodSpec::check_all(&[method("a"), method("a")]);
        assert_eq!(twice, Err(BadMethod::Twice { name: "a".into() }));
        let long = method("a").with_params(&"x".repeat(MAX_METHOD_TEXT_BYTES + 1));
        assert!(matches!(MethodSpec::check_all(&[long]), Err(BadMethod::Text { .. })));
        let many: Vec<_> = (0..=MAX_METHODS).map(|index| method(&index.to_string())).collect();
        assert_eq!(MethodSpec::check_all(&many), Err(BadMethod::Count { count: MAX_METHODS + 1 }));
    }

    #[test]
    fn what_a_method_does_not_say_is_left_out_and_a_spec_without_it_is_read() {
        let plain = MethodSpec::reading("look", "looks");
        let text = serde_json::to_string(&plain).unwrap();
        assert_eq!(text, r#"{"name":"look","summary":"looks","changes":false}"#);
        assert_eq!(serde_json::from_str::<MethodSpec>(&text).unwrap(), plain);
        let limited = MethodSpec::changing("push", "pushes").at_most(NonZeroU32::MIN).with_params("{}");
        let text = serde_json::to_string(&limited).unwrap();
        assert_eq!(serde_json::from_str::<MethodSpec>(&text).unwrap(), limited);
        assert!(serde_json::from_str::<MethodSpec>(&text.replace("\":1}", "\":0}")).is_err());
    }
}
