//! Whatever comes is read or refused, and what is written is read back.

use proptest::prelude::*;
use rollhouse_codec::openenv::{
    ClientMessage, ResetRequest, RpcRequest, StepBody, TaskQuestion, read_action,
};
use rollhouse_core::{BoxSpace, ColumnData, ColumnMut, ColumnRef, Drawing, ElementRange, Space};
use serde_json::json;

use super::spaces::{nested, shown};

fn space() -> BoxSpace {
    BoxSpace::of_parts(nested()).expect("float64 has them all")
}

/// Texts that are nearly messages.
fn near() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"type\"",
        "\"data\"",
        "\"step\"",
        "\"reset\"",
        "\"mcp\"",
        "\"action\"",
        "\"seed\"",
        "\"options\"",
        "\"units\"",
        "\"kind\"",
        "\"push\"",
        "\"says\"",
        "\"pair\"",
        "\"flag\"",
        "1",
        "-1",
        "0.5",
        "1e999",
        "1e400000",
        "null",
        "true",
        "\"a\"",
        "\"\\ud800\"",
        "\"\\u0000\"",
        " ",
    ]);
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in prop_oneof![any::<String>(), near()]) {
        let space = Space::Box(space());
        if let Ok(ClientMessage::Step(data)) = ClientMessage::read(&text) {
            let _read = read_action(&space, data);
        }
        if let Ok(row) = read_action(&space, &text) {
            prop_assert_eq!(row.len(), space.elements());
        }
        let _reset = ResetRequest::read(&text);
        let _body = StepBody::read(&text);
        let _rpc = RpcRequest::read(&text);
        for question in [TaskQuestion::List, TaskQuestion::Count, TaskQuestion::One, TaskQuestion::Range] {
            let _checked = question.check(&text);
        }
    }

    #[test]
    fn every_action_comes_back_to_the_bit(draws in prop::collection::vec(0.0_f64..1.0, 22)) {
        let space = space();
        let drawing = Drawing::of(&space);
        let draw = |(place, range): (usize, &ElementRange)| {
            let number = range.low + draws[place] * (range.high - range.low);
            // Bytes and booleans stand last, which are drawn as quantities.
            let is_whole = range.whole || place >= 15;
            if is_whole { (number + draws[place]).floor().min(range.high) } else { f64::from(number as f32) }
        };
        let mut row: Vec<f64> = drawing.elements.iter().enumerate().map(draw).collect();
        prop_assert_eq!(row.len(), draws.len());
        drawing.settling.settle(ColumnMut::F64(&mut row));
        let value = shown(&Space::Box(space.clone()).into(), &[ColumnRef::F64(&row)]);
        let read = read_action(&Space::Box(space), &json!({ "action": value }).to_string());
        prop_assert_eq!(read.unwrap(), ColumnData::F64(row));
    }
}
