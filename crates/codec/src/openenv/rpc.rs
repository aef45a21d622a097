//! JSON-RPC 2.0, in which tools are asked for and called.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::fault::{BadBody, Fault, shown};
use super::observation::text;
use super::parts::Parts;

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcRequest {
    /// Name of the method.
    pub method: String,
    /// Name of the tool that is called, if the params have one.
    pub tool: Option<String>,
    /// Name of the session that is meant, if the params have one.
    pub session: Option<String>,
    /// What the answer has as its id.
    pub id: RpcId,
}

/// What an answer has as its id: that of its request, or null.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RpcId(Value);

/// Reason for which a request cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRpc {
    /// It is no JSON, or no object.
    #[error("Parse error")]
    Parse,
    /// It is none of JSON-RPC 2.0.
    #[error("Invalid request: {0}")]
    Request(String),
}

/// Code of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcCode {
    /// It is no JSON.
    Parse = -32700,
    /// It is no request.
    Request = -32600,
    /// There is no such method.
    Method = -32601,
    /// The params are not as they have to be.
    Params = -32602,
    /// The env has no tools.
    Internal = -32603,
    /// The server cannot do it now.
    Server = -32000,
}

impl BadRpc {
    /// Returns the code.
    pub const fn code(&self) -> RpcCode {
        match self {
            Self::Parse => RpcCode::Parse,
            Self::Request(_) => RpcCode::Request,
        }
    }
}

impl RpcRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// See [`BadRpc`].
    pub fn read(body: &str) -> Result<Self, BadRpc> {
        let parts = Parts::of(body, ["jsonrpc", "method", "params", "id"]).map_err(|_| BadRpc::Parse)?;
        let request = |why: &str| BadRpc::Request(why.to_owned());
        let [version, method, params, id] = parts.only().map_err(|error| match error {
            BadBody::Json(_) => BadRpc::Parse,
            BadBody::Fields(faults) => request(faults.first().map_or("fields", Fault::kind)),
        })?;
        if version.map(RawValue::get) != Some("\"2.0\"") {
            return Err(request("`jsonrpc` has to be \"2.0\""));
        }
        let method = method.and_then(|method| serde_json::from_str::<String>(method.get()).ok());
        let method = method.ok_or_else(|| request("`method` has to be a text"))?;
        let id = match id.map(|id| id.get()).filter(|id| id.len() <= MAX_ID_BYTES) {
            None => Value::Null,
            Some(id) => serde_json::from_str(id).map_err(|_| BadRpc::Parse)?,
        };
        if !(id.is_null() || id.is_string() || id.is_i64() || id.is_u64()) {
            return Err(request("`id` has to be a text or an integer"));
        }
        let params = params.map_or("{}", RawValue::get);
        let names = Parts::of(params, ["name", "session_id"]);
        let [tool, session] = names.map_err(|_| request("`params` has to be an object"))?.values;
        let name = |part: Option<&RawValue>| {
            part.and_then(|part| serde_json::from_str::<String>(part.get()).ok())
                .filter(|name| !name.is_empty())
        };
        Ok(Self { method: shown(&method), tool: name(tool), session: name(session), id: RpcId(id) })
    }
}

/// Bytes of the longest id that is given back.
const MAX_ID_BYTES: usize = 1024;

/// Returns the answer of a session that was created.
pub fn rpc_created(session: &str, id: &RpcId) -> Vec<u8> {
    rpc_result(&json!({ "session_id": session }), id)
}

/// Returns the answer of a session that is closed, or is closed once the socket that has it ends.
pub fn rpc_closed(session: &str, is_closed: bool, id: &RpcId) -> Vec<u8> {
    let result = match is_closed {
        true => json!({ "session_id": session, "closed": true }),
        false => json!({ "session_id": session, "closed": false, "closing": true }),
    };
    rpc_result(&result, id)
}

fn rpc_result(result: &Value, id: &RpcId) -> Vec<u8> {
    text(&json!({ "jsonrpc": "2.0", "id": id.0, "result": result }))
}

/// Returns an answer that says why nothing was.
pub fn rpc_error(code: RpcCode, message: &str, id: &RpcId) -> Vec<u8> {
    let error = json!({ "code": code as i32, "message": message, "data": null });
    text(&json!({ "jsonrpc": "2.0", "id": id.0, "error": error }))
}

/// Returns an answer as the socket `/ws` has it.
pub fn mcp_reply(answer: &[u8]) -> Vec<u8> {
    [b"{\"type\":\"mcp\",\"data\":", answer, b"}"].concat()
}
