//! Messages that OpenEnv's own server refuses are refused by the same codes, for the same fields.

use rollhouse_codec::openenv::{
    BadBody, BadMessage, BadRpc, ClientMessage, Code, ResetRequest, RpcCode, RpcRequest, StepBody,
    TaskQuestion, faults_reply, most_bytes, read_action, rpc_error,
};
use rollhouse_core::{OptionValue, Space};
use serde_json::Value;

/// Returns the code of a message to an env that takes 0 and 1, and the faults of its fields.
fn refusal(message: &str) -> (Code, Vec<Value>) {
    let faults = |faults: &[_]| {
        let reply: Value = serde_json::from_slice(&faults_reply(faults)).expect("JSON");
        reply["data"]["errors"].as_array().expect("a list").clone()
    };
    match ClientMessage::read(message) {
        Err(BadMessage::Json(_)) => (Code::InvalidJson, Vec::new()),
        Err(BadMessage::NoObject) => (Code::SessionError, Vec::new()),
        Err(BadMessage::Type(_)) => (Code::UnknownType, Vec::new()),
        Err(BadMessage::Fields(found)) => (Code::ValidationError, faults(&found)),
        Ok(ClientMessage::Step(data)) => match read_action(&Space::discrete(2), data) {
            Ok(_) => (Code::ExecutionError, Vec::new()),
            Err(BadBody::Json(_)) => (Code::InvalidJson, Vec::new()),
            Err(BadBody::Fields(found)) => (Code::ValidationError, faults(&found)),
        },
        Ok(other) => panic!("{message} is {other:?}"),
    }
}

#[test]
fn what_the_reference_server_refused_is_refused_alike() {
    let golden = include_str!("../../golden/openenv/refusals.json");
    let cases: Vec<Value> = serde_json::from_str(golden).unwrap();
    assert_eq!(cases.len(), 25);
    for case in cases {
        let message = case["message"].as_str().unwrap();
        let (code, faults) = refusal(message);
        assert_eq!(serde_json::to_value(code).unwrap(), case["code"], "{message}");
        let wanted = case["errors"].as_array().unwrap();
        assert_eq!(faults.len(), wanted.len(), "{message}");
        for (fault, wanted) in faults.iter().zip(wanted) {
            assert_eq!((&fault["type"], &fault["loc"]), (&wanted["type"], &wanted["loc"]), "{message}");
        }
    }
}

#[test]
fn resets_have_seed_name_and_options_and_pass_over_what_they_do_not_know() {
    let read = |text: &str| ResetRequest::read(text);
    let whole =
        read(r#"{"seed":7,"episode_id":"a","options":{"gravity":9.5,"map":"river"},"split":"train"}"#);
    let whole = whole.unwrap();
    assert_eq!((whole.seed, whole.episode_id.as_deref()), (Some(7), Some("a")));
    assert_eq!(whole.options[1], ("map".to_owned(), OptionValue::Text("river".to_owned())));
    assert_eq!(read(r#"{"seed":null,"episode_id":null,"options":null}"#), Ok(ResetRequest::default()));
    assert_eq!(read(r#"{"seed":3.0}"#).unwrap().seed, Some(3));
    let kind = |text: &str| match read(text) {
        Err(BadBody::Fields(faults)) => faults[0].kind(),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(kind(r#"{"seed":-1}"#), "greater_than_equal");
    assert_eq!(kind(r#"{"seed":1.5}"#), "int_from_float");
    assert_eq!(kind(r#"{"seed":"x"}"#), "int_type");
    assert_eq!(kind(&format!(r#"{{"episode_id":"{}"}}"#, "x".repeat(256))), "string_too_long");
    assert_eq!(kind(r#"{"options":[1]}"#), "value_error");
    let many: Vec<String> = (0..65).map(|number| format!("\"o{number}\":1")).collect();
    assert_eq!(kind(&format!(r#"{{"options":{{{}}}}}"#, many.join(","))), "value_error");
}

#[test]
fn bodies_of_steps_and_of_questions_about_tasks_are_checked() {
    assert!(
        StepBody::read(r#"{"action":{"action":1},"timeout_s":2.5,"request_id":"r","render":true}"#).is_ok()
    );
    for bad in ["{}", "[]", r#"{"action":{},"timeout_s":0}"#, r#"{"action":{},"timeout_s":"x"}"#] {
        assert!(matches!(StepBody::read(bad), Err(BadBody::Fields(_))), "{bad}");
    }
    assert!(matches!(StepBody::read("{"), Err(BadBody::Json(_))));
    use TaskQuestion::{Count, List, One, Range};
    for (question, good) in [
        (List, r#"{"split":"a"}"#),
        (Count, r#"{"split":"a"}"#),
        (One, r#"{"split":"a","index":0}"#),
        (Range, r#"{"split":"a","start":null,"stop":3}"#),
    ] {
        assert_eq!(question.check(good), Ok(()), "{good}");
    }
    for (question, bad) in [
        (List, "{}"),
        (List, r#"{"split":1}"#),
        (List, r#"{"split":"a","index":1}"#),
        (One, r#"{"split":"a"}"#),
        (One, r#"{"split":"a","index":null}"#),
        (Range, r#"{"split":"a","start":"x"}"#),
        (Count, r#"{"split":"a","other":1}"#),
    ] {
        assert!(question.check(bad).is_err(), "{question:?} {bad}");
    }
}

#[test]
fn requests_of_json_rpc_are_read_and_answered_by_their_ids() {
    let read = RpcRequest::read(r#"{"jsonrpc":"2.0","method":"tools/call","id":"a","params":{"name":"x"}}"#)
        .unwrap();
    assert_eq!((&*read.method, read.tool.as_deref(), read.session), ("tools/call", Some("x"), None));
    let answer: Value = serde_json::from_slice(&rpc_error(RpcCode::Method, "no", &read.id)).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&"a".into(), &(-32601).into()));
    for (bad, code) in [
        ("{", RpcCode::Parse),
        ("[]", RpcCode::Parse),
        ("{}", RpcCode::Request),
        (r#"{"jsonrpc":"2.0","method":"x","params":[]}"#, RpcCode::Request),
        (r#"{"jsonrpc":"2.0","method":"x","more":1}"#, RpcCode::Request),
        (r#"{"jsonrpc":"2.0","method":"x","id":[1]}"#, RpcCode::Request),
        (r#"{"jsonrpc":"2.0","method":1}"#, RpcCode::Request),
    ] {
        assert_eq!(RpcRequest::read(bad).as_ref().map_err(BadRpc::code), Err(code), "{bad}");
    }
}

#[test]
fn a_message_has_room_for_its_action_and_never_more_than_the_reference_servers() {
    assert_eq!(most_bytes(1), (1 << 20) + 40);
    assert_eq!(most_bytes(usize::MAX / 64), 16 << 20);
}
