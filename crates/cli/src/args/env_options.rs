//! Options of an env on the command line.

use clap::Args;
use rollhouse_core::OptionValue;

/// Options of the env.
#[derive(Debug, Args)]
pub(crate) struct OptionArgs {
    /// Option of the environment; may be given again. VALUE is a number, true, false, a text or a list of numbers as
    /// JSON, or a distribution of which each episode draws: '{"uniform": [9, 10.5]}', '{"integers": [1, 6]}',
    /// '{"choice": [...]}'
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = option)]
    pub(crate) options: Vec<(String, OptionValue)>,
}

/// Reads `NAME=VALUE`. What is no JSON is a text.
fn option(text: &str) -> Result<(String, OptionValue), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is wanted")?;
    let read = match serde_json::from_str::<serde_json::Value>(value) {
        Ok(json) => serde_json::from_value(json).map_err(|error| error.to_string())?,
        Err(_) if value.starts_with(['{', '[', '"']) => {
            return Err(format!("`{value}` is neither JSON nor a word"));
        }
        Err(_) => OptionValue::Text(value.to_owned()),
    };
    Ok((name.to_owned(), read))
}

/// Reads `NAME=VALUE` of a value that an episode had.
pub(super) fn value_of_option(text: &str) -> Result<(String, OptionValue), String> {
    match option(text)? {
        (name, OptionValue::Drawn(_)) => {
            Err(format!("an episode has a value of `{name}`, and this is a distribution"))
        }
        named => Ok(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_json_or_a_word() {
        assert_eq!(option("g=9"), Ok(("g".into(), OptionValue::Int(9))));
        assert_eq!(option("map=flat=1"), Ok(("map".into(), OptionValue::Text("flat=1".into()))));
        assert_eq!(option("gates=[1, 2.5]"), Ok(("gates".into(), OptionValue::List(vec![1.0, 2.5]))));
        let drawn = option(r#"g={"uniform": [9, 10.5]}"#).unwrap().1;
        assert_eq!(drawn.to_string(), "uniform from 9 to 10.5");
        assert!(value_of_option(r#"g={"uniform": [9, 10.5]}"#).is_err() && value_of_option("g=9").is_ok());
        for bad in ["g", r#"g={"uniform": [2, 1]}"#, r#"g={"unifrom": [1, 2]}"#, "g={", "g=null"] {
            assert!(option(bad).is_err(), "{bad}");
        }
    }
}
