//! The routes: which request gets which answer.

use std::sync::Arc;

use http::header::ORIGIN;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use rollhouse_codec::openenv::{
    BadBody, Fault, ResetRequest, StateView, StepBody, TaskQuestion, body_faults, environments, health,
    metadata, observation_of, openapi, read_action, schemas, state,
};

use super::counts::Refusal;
use super::http::{Answer, NoBody, body, detail, handshake, json, not_allowed, unauthorized};
use super::player::{PlayError, Player};
use super::server::{Done, NoSession, OpenenvServer, blocking, close};
use super::socket::{Purpose, serve};

/// The routes and their methods, as `/openapi.json` has them.
const ROUTES: [(&str, &str); 14] = [
    ("GET", "/list_environments"),
    ("GET", "/{env_name}/splits"),
    ("POST", "/{env_name}/tasks"),
    ("POST", "/{env_name}/num_tasks"),
    ("POST", "/{env_name}/task"),
    ("POST", "/{env_name}/task_range"),
    ("POST", "/reset"),
    ("POST", "/step"),
    ("GET", "/state"),
    ("GET", "/metadata"),
    ("GET", "/health"),
    ("GET", "/schema"),
    ("GET", "/openapi.json"),
    ("POST", "/mcp"),
];

impl OpenenvServer {
    /// Answers a request. Cancelled, what an env has begun ends all the same.
    pub(super) async fn respond(self: Arc<Self>, mut request: Request<Incoming>) -> Answer {
        if !self.bearer.admits(request.headers()) {
            self.counts.refuse(Refusal::Token);
            return unauthorized();
        }
        // Pages of the web can reach the loopback, and no client of the protocol says where it comes from.
        if !self.bearer.is_wanted() && request.headers().contains_key(ORIGIN) {
            self.counts.refuse(Refusal::WebPage);
            return detail(StatusCode::FORBIDDEN, "requests of web pages are answered with a token alone");
        }
        let path = request.uri().path().to_owned();
        if matches!(&*path, "/ws" | "/mcp") && *request.method() == Method::GET {
            return self.socket(&mut request, &path);
        }
        match (request.method().as_str(), &*path) {
            ("GET", "/health") => json(StatusCode::OK, health()),
            ("GET", "/metadata") => json(StatusCode::OK, metadata(self.spec(), env!("CARGO_PKG_VERSION"))),
            ("GET", "/schema") => json(StatusCode::OK, schemas(self.spec())),
            ("GET", "/openapi.json") => json(StatusCode::OK, openapi(self.spec(), &ROUTES)),
            // Each request has an env of its own, in which nothing has begun.
            ("GET", "/state") => json(StatusCode::OK, state(&StateView::default())),
            ("GET", "/list_environments") => json(StatusCode::OK, environments(self.spec())),
            ("POST", "/reset" | "/step" | "/mcp") => self.posted(request, &path).await,
            (method, _) => match self.tasks(method, &path) {
                Some(Ok(question)) => self.ask_tasks(request, question).await,
                Some(Err(answer)) => answer,
                None => self.no_route(&path),
            },
        }
    }

    /// Begins a socket.
    fn socket(self: Arc<Self>, request: &mut Request<Incoming>, path: &str) -> Answer {
        let begun = match handshake(request.headers()) {
            Some(Ok(answer)) => answer,
            Some(Err(refused)) => {
                self.counts.refuse(Refusal::Route);
                return refused;
            }
            None => return self.no_route(path),
        };
        let query = request.uri().query().unwrap_or_default();
        let name = query.split('&').find_map(|pair| pair.strip_prefix("session_id="));
        let purpose = match path {
            "/mcp" => Purpose::Rpc,
            _ => Purpose::Play(name.filter(|name| !name.is_empty()).map(str::to_owned)),
        };
        let upgrade = hyper::upgrade::on(request);
        let server = Arc::clone(&self);
        let alive = self.alive();
        // Task: socket.
        tokio::spawn(async move {
            if let Ok(upgraded) = upgrade.await {
                serve(server, upgraded, purpose).await;
            }
            drop(alive);
        });
        begun
    }

    async fn posted(self: Arc<Self>, request: Request<Incoming>, path: &str) -> Answer {
        let text = match body(request.into_body(), self.most_bytes()).await {
            Ok(text) => text,
            Err(why) => return self.no_body(why),
        };
        match path {
            "/mcp" => json(StatusCode::OK, self.rpc(&text).await),
            "/step" => self.step(&text).await,
            _ => self.reset(if text.is_empty() { "{}" } else { &text }).await,
        }
    }

    /// Shows the first observation of an episode, in a lane for this answer alone.
    async fn reset(&self, text: &str) -> Answer {
        match ResetRequest::read(text) {
            Ok(request) => self.once(Done::Reset, move |player| player.reset(&request)).await,
            Err(bad) => self.unprocessable(bad, true),
        }
    }

    /// Takes the first step of an episode, in a lane for this answer alone.
    async fn step(&self, text: &str) -> Answer {
        let read = if text.is_empty() { Err(Fault::no_body().into()) } else { StepBody::read(text) };
        let action = match read {
            Ok(StepBody { action }) => action,
            Err(bad) => return self.unprocessable(bad, true),
        };
        if !action.starts_with('{') {
            return self.unprocessable(Fault::no_object("action").into(), true);
        }
        let action = match read_action(self.actions(), action) {
            Ok(action) => action,
            Err(bad) => return self.unprocessable(bad, false),
        };
        self.once(Done::Step, move |player| {
            player.reset(&ResetRequest::default())?;
            player.step(&action)
        })
        .await
    }

    /// Has a player of a session of its own do something.
    async fn once(
        &self,
        what: Done,
        work: impl FnOnce(&mut Player) -> Result<Vec<u8>, PlayError> + Send + 'static,
    ) -> Answer {
        let mut session = match self.session().await {
            Ok(session) => session,
            Err(refused @ NoSession::Full(_)) => {
                return detail(StatusCode::SERVICE_UNAVAILABLE, &refused.to_string());
            }
            Err(refused) => return detail(StatusCode::INTERNAL_SERVER_ERROR, &refused.to_string()),
        };
        let done = blocking(move || {
            let answer = work(&mut session.player);
            (session, answer)
        });
        let Some((session, answer)) = done.await else {
            return detail(StatusCode::INTERNAL_SERVER_ERROR, "the thread of the env has failed");
        };
        close(session).await;
        match answer {
            Ok(reply) => {
                self.count(what);
                json(StatusCode::OK, observation_of(&reply).to_vec())
            }
            Err(refused) => {
                self.counts.refuse(Refusal::Execution);
                detail(StatusCode::INTERNAL_SERVER_ERROR, &refused.to_string())
            }
        }
    }

    /// Returns the question about tasks that a path asks, or why it is none; `None` for any other path.
    fn tasks(&self, method: &str, path: &str) -> Option<Result<Option<TaskQuestion>, Answer>> {
        let (name, what) = path.strip_prefix('/')?.rsplit_once('/')?;
        let (wanted, question) = match what {
            "splits" => ("GET", None),
            "tasks" => ("POST", Some(TaskQuestion::List)),
            "num_tasks" => ("POST", Some(TaskQuestion::Count)),
            "task" => ("POST", Some(TaskQuestion::One)),
            "task_range" => ("POST", Some(TaskQuestion::Range)),
            _ => return None,
        };
        if method != wanted {
            return Some(Err(not_allowed(wanted)));
        }
        let name = name.replace("%3A", ":").replace("%2F", "/");
        if !name.eq_ignore_ascii_case(&self.spec().id) {
            self.counts.refuse(Refusal::Route);
            let shown: String = name.chars().take(64).collect();
            return Some(Err(detail(StatusCode::NOT_FOUND, &format!("unknown environment '{shown}'"))));
        }
        Some(Ok(question))
    }

    /// Answers a question about tasks, which our envs have not.
    async fn ask_tasks(&self, request: Request<Incoming>, question: Option<TaskQuestion>) -> Answer {
        let method = match question {
            None => "list_splits",
            Some(question) => {
                let text = match body(request.into_body(), self.most_bytes()).await {
                    Ok(text) => text,
                    Err(why) => return self.no_body(why),
                };
                let checked =
                    if text.is_empty() { Err(Fault::no_body().into()) } else { question.check(&text) };
                if let Err(bad) = checked {
                    return self.unprocessable(bad, true);
                }
                question.method()
            }
        };
        let why = format!("{method} is not supported for this environment");
        detail(StatusCode::NOT_IMPLEMENTED, &why)
    }

    fn unprocessable(&self, bad: BadBody, is_of_body: bool) -> Answer {
        self.counts.refuse(match bad {
            BadBody::Json(_) => Refusal::Json,
            BadBody::Fields(_) => Refusal::Fields,
        });
        json(StatusCode::UNPROCESSABLE_ENTITY, body_faults(bad, is_of_body))
    }

    fn no_body(&self, why: NoBody) -> Answer {
        let (refusal, status, text) = match why {
            NoBody::Long => (Refusal::Long, StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"),
            NoBody::Late => (Refusal::Body, StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
            NoBody::Broken => (Refusal::Body, StatusCode::BAD_REQUEST, "the body is no text, or was cut off"),
        };
        self.counts.refuse(refusal);
        detail(status, text)
    }

    fn no_route(&self, path: &str) -> Answer {
        self.counts.refuse(Refusal::Route);
        let known = ROUTES.iter().find(|(_, known)| *known == path);
        match known {
            // `/mcp` begins a socket, too, and says so to nobody, as OpenEnv's own server.
            Some((method, _)) => not_allowed(method),
            None => detail(StatusCode::NOT_FOUND, "Not Found"),
        }
    }
}
