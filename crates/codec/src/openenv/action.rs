//! Actions: JSON to a row of the column that an env takes.

use rollhouse_core::{ColumnData, Space};
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;

use super::fault::{BadBody, Fault};
use super::parts::Parts;
use super::value::{Form, Row, Value};

/// Reads an action out of the text of its object, `{"action": VALUE}`, as a row of the space's column. `metadata` may stand
/// beside it and is passed over.
///
/// # Errors
/// If the text is no such object, or the value lies outside the space: the fault says where, and what is wanted.
pub fn read_action(space: &Space, text: &str) -> Result<ColumnData, BadBody> {
    let [action, metadata] = Parts::of(text, ["action", "metadata"])?.only()?;
    let action = action.ok_or_else(|| Fault::missing("action"))?;
    if let Some(metadata) = metadata.map(RawValue::get)
        && !metadata.starts_with('{')
    {
        let fault = Fault::new("dict_type", "Input should be a valid dictionary");
        return Err(fault.within("metadata").into());
    }
    let mut row = Row::new(space);
    let form = Form::of(space);
    let read =
        Value { form, row: &mut row }.deserialize(&mut serde_json::Deserializer::from_str(action.get()));
    match read {
        Ok(()) => Ok(row.into_data()),
        Err(error) => {
            let fault = row.into_fault().unwrap_or_else(|| Fault::new("value_error", error.to_string()));
            Err(fault.within("action").into())
        }
    }
}
