//! JSON-RPC of `/mcp`: sessions are created and closed by it. Our envs have no tools, and the answers are those of OpenEnv's
//! own server for such an env.

use rollhouse_codec::openenv::{BadRpc, RpcCode, RpcId, RpcRequest, rpc_closed, rpc_created, rpc_error};

use super::counts::Refusal;
use super::server::OpenenvServer;

impl OpenenvServer {
    /// Answers a request. Cancelled, a session that was to be created or closed is created or closed all the same.
    pub(super) async fn rpc(&self, text: &str) -> Vec<u8> {
        let request = match RpcRequest::read(text) {
            Ok(request) => request,
            Err(error) => return self.rpc_refused(error.code(), &error.to_string(), &RpcId::default()),
        };
        let RpcRequest { method, tool, session, id } = request;
        let answer = match (&*method, session) {
            ("openenv/session/create", _) => match self.create().await {
                Ok(name) => Ok(rpc_created(&name, &id)),
                Err(error) => Err((RpcCode::Server, error.to_string())),
            },
            ("openenv/session/close", None) => {
                Err((RpcCode::Params, "Invalid params - 'session_id' is required".to_owned()))
            }
            ("openenv/session/close", Some(name)) => match self.close_named(&name).await {
                Some(is_closed) => Ok(rpc_closed(&name, is_closed, &id)),
                None => Err((RpcCode::Params, format!("Unknown session_id: {name}"))),
            },
            (_, Some(name)) if !self.has_named(&name) => {
                Err((RpcCode::Params, format!("Unknown session_id: {name}")))
            }
            ("tools/call", _) if tool.is_none() => {
                Err((RpcCode::Params, "Missing 'name' in params".to_owned()))
            }
            ("tools/list" | "tools/call", _) => {
                Err((RpcCode::Internal, "Environment does not support MCP".to_owned()))
            }
            _ => Err((RpcCode::Method, format!("Method not found: {method}"))),
        };
        answer.unwrap_or_else(|(code, message)| self.rpc_refused(code, &message, &id))
    }

    /// Returns the answer to a message of a socket that is no text.
    pub(super) fn rpc_no_text(&self) -> Vec<u8> {
        let error = BadRpc::Parse;
        self.rpc_refused(error.code(), &error.to_string(), &RpcId::default())
    }

    fn rpc_refused(&self, code: RpcCode, message: &str, id: &RpcId) -> Vec<u8> {
        self.counts.refuse(Refusal::Rpc);
        rpc_error(code, message, id)
    }
}
