//! The filter that is typed over a list of episodes.

use rollhouse_core::{EpisodeName, GameResult, Outcome};
use rollhouse_replay::Query;

/// Narrows a query by words: part of an env's name, an outcome or result or its beginning, a run as names begin with it, and
/// `>=5`, the least return. Later words go before earlier ones.
///
/// # Errors
/// If a word is none of these; the error names it.
pub(crate) fn narrow(mut query: Query, typed: &str, envs: &[String]) -> Result<Query, String> {
    for word in typed.split_whitespace() {
        let lower = word.to_lowercase();
        let number = lower.trim_start_matches("return").strip_prefix('>');
        if let Some(number) = number.map(|number| number.strip_prefix('=').unwrap_or(number)) {
            // What is about to be typed narrows nothing yet.
            if !["", "-"].contains(&number) {
                let least = number.parse().ok().filter(|least: &f64| least.is_finite());
                query.min_return = Some(least.ok_or_else(|| format!("`{number}` is no return"))?);
            }
        } else if let Some(env) = envs.iter().find(|env| env.to_lowercase().contains(&lower)) {
            query.env = Some(env.clone());
        } else if let Some(outcome) =
            Outcome::ALL.into_iter().find(|outcome| outcome.word().starts_with(&lower))
        {
            (query.outcome, query.all_outcomes) = (Some(outcome), true);
        } else if let Some(result) = GameResult::ALL
            .into_iter()
            .find(|result| result.word().is_some_and(|word| word.starts_with(&lower)))
        {
            query.result = Some(result);
        } else if let Ok(name) = format!("{lower}-0-0").parse::<EpisodeName>() {
            query.run = Some(name.run);
        } else {
            return Err(format!("no env, outcome, result or run is like `{word}`"));
        }
    }
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_narrow_by_env_outcome_run_and_return() {
        let envs = ["Acrobot-v1".to_owned(), "CartPole-v1".to_owned()];
        let query = |typed: &str| narrow(Query::default(), typed, &envs).unwrap();
        assert_eq!(query(""), Query::default());
        let all = query("cart trunc wi >=10.5 q0z9m9q3");
        assert_eq!(all.result, Some(GameResult::Win));
        assert_eq!((all.env.as_deref(), all.min_return), (Some("CartPole-v1"), Some(10.5)));
        assert_eq!(all.outcome, Some(Outcome::TRUNCATED));
        assert_eq!(all.run, Some("q0z9m9q3-0-0".parse::<EpisodeName>().unwrap().run));
        assert_eq!(query("return>-3").min_return, Some(-3.0));
        assert_eq!(query(">").min_return, None);
        for bad in ["moon", ">x", ">=nan"] {
            assert!(narrow(Query::default(), bad, &envs).is_err(), "{bad}");
        }
    }
}
