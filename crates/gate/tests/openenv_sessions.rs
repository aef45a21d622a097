//! OpenEnv's protocol over a socket.

use serde_json::{Value, json};

use crate::openenv_client::{PING, PONG, Socket, code, get, lanes, post, run, settings, with_server};

const RESET: &str = r#"{"type":"reset","data":{"seed":7}}"#;

#[test]
fn an_episode_is_played_by_a_socket_and_is_the_same_from_the_same_seed() {
    with_server(lanes("CartPole-v1"), settings(2), |address| async move {
        let mut all = Vec::new();
        for _ in 0..2 {
            let mut socket = Socket::open(address).await;
            let begun = socket.ask(r#"{"type":"reset","data":{"seed":7,"episode_id":"ep"}}"#).await;
            assert_eq!((&begun["data"]["reward"], &begun["data"]["done"]), (&Value::Null, &false.into()));
            let mut shown = vec![begun];
            for step in 1.. {
                let answer = socket.ask(r#"{"type":"step","data":{"action":1}}"#).await;
                assert_eq!(answer["data"]["reward"], 1.0);
                let state = socket.ask(r#"{"type":"state"}"#).await;
                let done = answer["data"]["done"] == true;
                assert_eq!(state["data"], json!({ "episode_id": "ep", "step_count": step, "done": done }));
                shown.push(answer);
                if done {
                    break;
                }
            }
            assert!(shown.len() < 20, "one way alone tips the pole over");
            let last = &shown[shown.len() - 1]["data"]["observation"];
            assert_eq!((&last["terminated"], &last["truncated"]), (&true.into(), &false.into()));
            assert_eq!(socket.refused(r#"{"type":"step","data":{"action":1}}"#).await, "EXECUTION_ERROR");
            socket.ask(RESET).await;
            socket.send(r#"{"type":"close"}"#).await;
            assert_eq!(socket.closed().await, 1000);
            all.push(shown);
        }
        assert_eq!(all[0], all[1]);
    });
}

#[test]
fn a_reset_takes_options_and_one_that_is_refused_leaves_the_episode() {
    with_server(lanes("Skirmish-v0"), settings(1), |address| async move {
        let mut socket = Socket::open(address).await;
        let begun = socket.ask(r#"{"type":"reset","data":{"options":{"map":"river"}}}"#).await;
        assert_eq!(begun["type"], "observation", "{begun}");
        let state = socket.ask(r#"{"type":"state"}"#).await;
        assert_eq!(state["data"]["episode_id"].as_str().unwrap().len(), 12, "it is drawn");
        for bad in [r#"{"none":1}"#, r#"{"map":3}"#] {
            let reset = format!("{{\"type\":\"reset\",\"data\":{{\"options\":{bad}}}}}");
            assert_eq!(socket.refused(&reset).await, "EXECUTION_ERROR");
        }
        assert_eq!(socket.ask(r#"{"type":"state"}"#).await, state);
    });
}

#[test]
fn http_shows_the_server_and_plays_in_a_lane_for_each_request() {
    with_server(lanes("CartPole-v1"), settings(1), |address| async move {
        assert_eq!(get(address, "/health").await, (200, json!({ "status": "healthy" })));
        let (_, metadata) = get(address, "/metadata").await;
        assert_eq!(metadata["name"], "CartPole-v1");
        let (_, schema) = get(address, "/schema").await;
        let action = &schema["action"]["properties"]["action"];
        assert_eq!((&action["minimum"], &action["maximum"]), (&0.into(), &1.into()));
        let state = json!({ "episode_id": null, "step_count": 0, "done": false });
        assert_eq!(get(address, "/state").await, (200, state));
        assert_eq!(get(address, "/list_environments").await, (200, json!(["CartPole-v1"])));
        let (_, openapi) = get(address, "/openapi.json").await;
        assert_eq!(openapi["info"]["version"], "1.0.0");
        assert!(["/reset", "/step", "/state"].iter().all(|path| openapi["paths"][path].is_object()));
        let (status, first) = post(address, "/reset", r#"{"seed":7}"#).await;
        assert_eq!((status, post(address, "/reset", r#"{"seed":7}"#).await.1), (200, first.clone()));
        assert_eq!((&first["reward"], &first["done"]), (&Value::Null, &false.into()));
        assert_eq!(post(address, "/reset", "").await.0, 200);
        let (status, second) = post(address, "/step", r#"{"action":{"action":0}}"#).await;
        assert_eq!((status, &second["reward"]), (200, &1.0.into()));
    });
}

#[test]
fn questions_about_tasks_and_tools_are_answered_as_of_an_env_without_any() {
    with_server(lanes("CartPole-v1"), settings(1), |address| async move {
        assert_eq!(get(address, "/cartpole-v1/splits").await.0, 501);
        assert_eq!(get(address, "/Pong/splits").await.0, 404);
        for (path, body) in [
            ("tasks", r#"{"split":"train"}"#),
            ("num_tasks", r#"{"split":"train"}"#),
            ("task", r#"{"split":"train","index":0}"#),
            ("task_range", r#"{"split":"train"}"#),
        ] {
            let path = format!("/CartPole-v1/{path}");
            assert_eq!(post(address, &path, body).await.0, 501, "{path}");
            assert_eq!(post(address, &path, "{}").await.0, 422, "{path}");
            assert_eq!(get(address, &path).await.0, 405, "{path}");
        }
        let rpc = |method: &str, params: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"{method}","id":3,"params":{params}}}"#)
        };
        let mut socket = Socket::open(address).await;
        let mut rpc_socket = Socket::at(address, "/mcp").await;
        for (method, params, code) in [
            ("tools/list", "{}", -32603),
            ("tools/call", r#"{"name":"x"}"#, -32603),
            ("tools/call", "{}", -32602),
            ("tools/list", r#"{"session_id":"none"}"#, -32602),
            ("openenv/session/close", r#"{"session_id":"none"}"#, -32602),
            ("openenv/session/create", "{}", -32000),
            ("other", "{}", -32601),
            ("tools/list", "[]", -32600),
        ] {
            let text = rpc(method, params);
            let (status, answer) = post(address, "/mcp", &text).await;
            assert_eq!((status, &answer["error"]["code"]), (200, &code.into()), "{text}");
            assert_eq!(rpc_socket.ask(&text).await, answer);
            let wrapped = socket.ask(&format!(r#"{{"type":"mcp","data":{text}}}"#)).await;
            assert_eq!(wrapped, json!({ "type": "mcp", "data": answer }));
        }
        assert_eq!(post(address, "/mcp", "{").await.1["error"]["code"], -32700);
    });
}

#[test]
fn a_session_of_json_rpc_is_played_by_sockets_one_after_the_other_until_it_is_closed() {
    with_server(lanes("CartPole-v1"), settings(1), |address| async move {
        let create = r#"{"jsonrpc":"2.0","method":"openenv/session/create","id":1}"#;
        let (_, created) = post(address, "/mcp", create).await;
        let name = created["result"]["session_id"].as_str().unwrap().to_owned();
        let path = format!("/ws?session_id={name}");
        let mut socket = Socket::at(address, &path).await;
        socket.ask(RESET).await;
        let mut second = Socket::at(address, &path).await;
        assert_eq!(code(&second.answer().await), "SESSION_ERROR");
        assert_eq!(second.closed().await, 1000);
        socket.send(r#"{"type":"close"}"#).await;
        assert_eq!(socket.closed().await, 1000);
        // Its socket gives it back after that.
        let mut socket = Socket::at(address, &path).await;
        while !socket.is_answered(r#"{"type":"state"}"#, "state").await {
            socket = Socket::at(address, &path).await;
        }
        let state = socket.ask(r#"{"type":"state"}"#).await;
        assert_eq!(state["data"]["episode_id"].as_str().unwrap().len(), 12, "its episode goes on");
        let close = format!(
            r#"{{"jsonrpc":"2.0","method":"openenv/session/close","params":{{"session_id":"{name}"}}}}"#
        );
        assert_eq!(post(address, "/mcp", &close).await.1["result"]["closing"], true);
        socket.send(r#"{"type":"close"}"#).await;
        assert_eq!(socket.closed().await, 1000);
        while post(address, "/mcp", &close).await.1["error"].is_null() {}
        assert!(post(address, "/mcp", create).await.1["result"].is_object(), "its place is free");
    });
}

#[test]
fn pings_are_answered_and_a_message_that_comes_early_has_its_turn() {
    with_server(lanes("CartPole-v1"), settings(1), |address| async move {
        let mut socket = Socket::open(address).await;
        socket.frame(PING, b"here").await.unwrap();
        assert_eq!(socket.read().await, Some((PONG, b"here".to_vec())));
        for text in [RESET, r#"{"type":"step","data":{"action":0}}"#, r#"{"type":"state"}"#] {
            socket.send(text).await;
        }
        assert_eq!(socket.answer().await["data"]["reward"], Value::Null);
        assert_eq!(socket.answer().await["data"]["reward"], 1.0);
        assert_eq!(socket.answer().await["data"]["step_count"], 1);
    });
}

#[test]
fn a_gate_that_stops_says_goodbye_to_its_sockets() {
    let address = "127.0.0.1:0".parse().unwrap();
    let gate = rollhouse_gate::Gate::openenv(address, None, lanes("CartPole-v1"), settings(2)).unwrap();
    let address = gate.address();
    run(async move {
        let mut socket = Socket::open(address).await;
        socket.ask(RESET).await;
        let stopping = std::thread::spawn(move || gate.stop());
        assert_eq!(socket.closed().await, 1001);
        drop(socket);
        stopping.join().unwrap();
    });
}

#[test]
fn a_token_is_wanted_by_every_route_and_pages_of_the_web_are_answered_with_it_alone() {
    use crate::openenv_client::request;
    let address = "127.0.0.1:0".parse().unwrap();
    let token = Some("0123456789abcdef");
    let gate = rollhouse_gate::Gate::openenv(address, token, lanes("CartPole-v1"), settings(1)).unwrap();
    let open = rollhouse_gate::Gate::openenv(address, None, lanes("CartPole-v1"), settings(1)).unwrap();
    let (closed, open_address) = (gate.address(), open.address());
    run(async move {
        assert_eq!(get(closed, "/health").await.0, 401);
        let socket =
            "GET /ws HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13";
        assert_eq!(request(closed, socket, b"").await.0, 401);
        let bearer = "GET /health HTTP/1.1\r\nauthorization: Bearer 0123456789abcdef\r\norigin: http://here";
        assert_eq!(request(closed, bearer, b"").await.0, 200);
        assert_eq!(request(open_address, "GET /health HTTP/1.1\r\norigin: http://there", b"").await.0, 403);
    });
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = rollhouse_gate::Gate::openenv(everywhere, None, lanes("CartPole-v1"), settings(1));
    assert!(refused.unwrap_err().to_string().contains("a token is wanted"));
}
