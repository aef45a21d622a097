//! What HTTP's routes say of a server and its env.

use rollhouse_core::EnvSpec;
use serde_json::{Map, Value, json};

use super::observation::text;
use super::schema;

/// Returns the answer of `/metadata`.
pub fn metadata(spec: &EnvSpec, version: &str) -> Vec<u8> {
    text(&json!({
        "name": spec.id,
        "description": spec.summary,
        "readme_content": null,
        "version": version,
        "author": null,
        "documentation_url": null,
    }))
}

/// Returns the answer of `/schema`.
pub fn schemas(spec: &EnvSpec) -> Vec<u8> {
    let observation = schema::observation(spec);
    text(&json!({
        "action": schema::action(spec),
        "observation": observation,
        "reset_observation": observation,
        "state": schema::state(),
    }))
}

/// Returns the answer of `/openapi.json`: which routes there are, of version 1 of OpenEnv's HTTP.
pub fn openapi(spec: &EnvSpec, routes: &[(&str, &str)]) -> Vec<u8> {
    let mut paths: Map<String, Value> = Map::new();
    for (method, path) in routes {
        let answer = json!({ "responses": { "200": { "description": "see /schema" } } });
        let methods = paths.entry((*path).to_owned()).or_insert_with(|| json!({}));
        methods[method.to_ascii_lowercase()] = answer;
    }
    text(&json!({
        "openapi": "3.1.0",
        "info": { "title": "OpenEnv Environment HTTP API", "description": spec.summary, "version": "1.0.0" },
        "paths": paths,
    }))
}

/// Returns the answer of `/health`.
pub fn health() -> Vec<u8> {
    text(&json!({ "status": "healthy" }))
}

/// Returns the answer of `/list_environments`.
pub fn environments(spec: &EnvSpec) -> Vec<u8> {
    text(&json!([spec.id]))
}

/// Returns the answer that says why there is no other.
pub fn detail(why: &str) -> Vec<u8> {
    text(&json!({ "detail": why }))
}
