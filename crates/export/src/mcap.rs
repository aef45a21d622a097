//! Writes an episode as an MCAP file, for Foxglove, Rerun and other programs that play recordings of robots.
//!
//! Each message is JSON, with a schema that describes it. Pictures are PNGs in Foxglove's own form of message.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use ::mcap::records::{MessageHeader, Metadata};
use ::mcap::write::NoSeek;
use ::mcap::{McapError, WriteOptions, Writer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rollhouse_core::{ColumnData, ColumnSpec};
use rollhouse_env::{Image, Registry};
use rollhouse_replay::{Episode, Playback, PlayedStep};
use serde_json::{Map, Number, Value, json};

use crate::error::ExportError;
use crate::names::{MAX_NAMED_ELEMENTS, check_different, column_name, element_names};
use crate::noted::noted_of;
use crate::pictures::Pictures;
use crate::png;
use crate::settings::{Settings, USUAL_FPS};
use crate::watch::{Watch, tell, tell_at_once};

pub(crate) fn write(
    settings: &Settings,
    registry: &Registry,
    episode: &Arc<Episode>,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<(), ExportError> {
    let mut pictures = match Pictures::new(settings, registry, episode) {
        Ok(pictures) => Some(pictures),
        Err(ExportError::NoPicture { .. }) => None,
        Err(error) => return Err(error),
    };
    let mut playback = Playback::new(registry, episode)?;
    let mut file = File::new(episode, nanos_of(settings, registry, episode), pictures.is_some(), out)?;
    while let Some(step) = playback.next_step()? {
        file.put_step(&step)?;
        let has_picture = step.t.is_multiple_of(settings.every.max(1)) || step.t == episode.info.length;
        match pictures.as_mut().filter(|_| has_picture) {
            Some(pictures) => {
                tell_at_once(watch, step.t)?;
                let (_, image) = pictures.at(step.t)?;
                // Where pictures were recorded, not each step has its own.
                if pictures.seeker().picture_step() == Some(step.t) {
                    file.put_picture(step.t, &image)?;
                }
            }
            None => tell(watch, step.t)?,
        }
    }
    file.finish()
}

/// Returns the nanoseconds from one step to the next, from the pictures a second that were chosen, or else from the
/// env's own speed.
fn nanos_of(settings: &Settings, registry: &Registry, episode: &Episode) -> u64 {
    let own = registry.get(&episode.info.run.spec.id).ok().and_then(|entry| entry.render_fps());
    let steps_per_second = match settings.fps {
        Some(fps) => u64::from(fps).saturating_mul(settings.every),
        None => u64::from(own.unwrap_or(USUAL_FPS)),
    };
    NANOS / steps_per_second.max(1)
}

const NANOS: u64 = 1_000_000_000;

/// The file and its channels.
struct File<'a> {
    writer: Writer<NoSeek<&'a mut dyn Write>>,
    episode: &'a Episode,
    started: u64,
    nanos: u64,
    obs: Vec<Field>,
    action: Field,
    noted: Vec<Field>,
    channels: Channels,
}

struct Channels {
    obs: u16,
    action: u16,
    reward: u16,
    end: u16,
    noted: Option<u16>,
    picture: Option<u16>,
}

/// A column as fields of a message: one field for each element if there are not too many, else a list.
enum Field {
    Elements(Vec<String>),
    List(String),
}

impl<'a> File<'a> {
    fn new(
        episode: &'a Episode,
        nanos: u64,
        has_pictures: bool,
        out: &'a mut dyn Write,
    ) -> Result<Self, ExportError> {
        let spec = &episode.info.run.spec;
        // Nothing is sought in it, so that a pipe will do.
        let options = WriteOptions::new()
            .library(concat!("rollhouse ", env!("CARGO_PKG_VERSION")))
            .compression(None)
            .disable_seeking(true);
        let obs: Vec<_> = spec.obs_columns().iter().map(Field::of).collect();
        let action = Field::of(&spec.action_column());
        let noted: Vec<_> = episode.info.run.step_columns.specs().iter().map(Field::of).collect();
        for fields in [&obs[..], std::slice::from_ref(&action), &noted[..]] {
            check_different(fields.iter().flat_map(Field::names).cloned())?;
        }
        let mut writer = options.create(NoSeek::new(out))?;
        let number = json!({"type": "number"});
        let channels = Channels {
            obs: add_channel(&mut writer, "observation", &properties(&obs))?,
            action: add_channel(&mut writer, "action", &properties(std::slice::from_ref(&action)))?,
            reward: add_channel(&mut writer, "reward", &json!({"reward": number, "return": number}))?,
            end: add_channel(
                &mut writer,
                "end",
                &json!({
                    "terminated": {"type": "boolean"},
                    "truncated": {"type": "boolean"},
                    "outcome": {"type": "string"},
                }),
            )?,
            noted: match noted.is_empty() {
                true => None,
                false => Some(add_channel(&mut writer, "step", &properties(&noted))?),
            },
            picture: match has_pictures {
                true => {
                    let schema = writer.add_schema(
                        "foxglove.CompressedImage",
                        "jsonschema",
                        picture_schema().to_string().as_bytes(),
                    )?;
                    Some(writer.add_channel(schema, "/picture", "json", &BTreeMap::new())?)
                }
                false => None,
            },
        };
        writer.write_metadata(&Metadata {
            name: "rollhouse.episode".to_owned(),
            metadata: facts_of(episode),
        })?;
        let started = episode.info.started_ms.saturating_mul(NANOS / 1000);
        Ok(Self { writer, episode, started, nanos, obs, action, noted, channels })
    }

    fn put_step(&mut self, step: &PlayedStep) -> Result<(), ExportError> {
        let mut obs = Map::new();
        for (field, column) in self.obs.iter().zip(&step.obs) {
            field.put(column, &mut obs);
        }
        self.put(self.channels.obs, step.t, &Value::Object(obs))?;
        if let Some(column) = &step.action {
            let mut action = Map::new();
            self.action.put(column, &mut action);
            self.put(self.channels.action, step.t, &Value::Object(action))?;
        }
        if let (Some(channel), Some(before)) = (self.channels.noted, step.t.checked_sub(1)) {
            let mut message = Map::new();
            for (field, (_, column)) in self.noted.iter().zip(noted_of(self.episode, before)) {
                field.put(&column, &mut message);
            }
            self.put(channel, step.t, &Value::Object(message))?;
        }
        if let Some(reward) = step.reward {
            let message = json!({"reward": reward, "return": step.total_reward});
            self.put(self.channels.reward, step.t, &message)?;
        }
        if step.t == self.episode.info.length {
            let outcome = self.episode.info.outcome;
            let (terminated, truncated) = outcome.flags();
            let message =
                json!({"terminated": terminated, "truncated": truncated, "outcome": outcome.word()});
            self.put(self.channels.end, step.t, &message)?;
        }
        Ok(())
    }

    fn put_picture(&mut self, t: u64, image: &Image) -> Result<(), ExportError> {
        let Some(channel) = self.channels.picture else { return Ok(()) };
        let mut bytes = Vec::new();
        png::encode(image, &mut bytes)?;
        let time = self.time(t);
        let message = json!({
            "timestamp": {"sec": time / NANOS, "nsec": time % NANOS},
            "frame_id": self.episode.info.env(),
            "data": STANDARD.encode(&bytes),
            "format": "png",
        });
        self.put(channel, t, &message)
    }

    /// Returns the time of a step in nanoseconds since 1970, as if the env had run at its usual speed.
    const fn time(&self, t: u64) -> u64 {
        self.started.saturating_add(t.saturating_mul(self.nanos))
    }

    fn put(&mut self, channel_id: u16, t: u64, message: &Value) -> Result<(), ExportError> {
        let log_time = self.time(t);
        let header = MessageHeader { channel_id, sequence: t as u32, log_time, publish_time: log_time };
        let bytes = serde_json::to_vec(message).map_err(io::Error::from)?;
        Ok(self.writer.write_to_known_channel(&header, &bytes)?)
    }

    fn finish(mut self) -> Result<(), ExportError> {
        self.writer.finish()?;
        Ok(())
    }
}

impl Field {
    fn of(column: &ColumnSpec) -> Self {
        let plain = column.path.is_empty() && column.shape.is_empty();
        match column.elements() {
            _ if plain => Self::Elements(vec!["value".to_owned()]),
            0..=MAX_NAMED_ELEMENTS => Self::Elements(element_names("", column)),
            _ if column.path.is_empty() => Self::List("values".to_owned()),
            _ => Self::List(column_name("", column)),
        }
    }

    fn names(&self) -> &[String] {
        match self {
            Self::Elements(names) => names,
            Self::List(name) => std::slice::from_ref(name),
        }
    }

    fn put(&self, column: &ColumnData, message: &mut Map<String, Value>) {
        match self {
            Self::Elements(names) => {
                message.extend(names.iter().enumerate().map(|(at, name)| (name.clone(), number(column, at))));
            }
            Self::List(name) => {
                let values = (0..column.len()).map(|at| number(column, at)).collect();
                message.insert(name.clone(), Value::Array(values));
            }
        }
    }
}

/// Writes an element with as many digits as its type needs; a value that is not finite is null.
fn number(column: &ColumnData, at: usize) -> Value {
    let float = |value: f64| Number::from_f64(value).map_or(Value::Null, Value::Number);
    match column {
        ColumnData::U8(values) => values[at].into(),
        ColumnData::I32(values) => values[at].into(),
        ColumnData::I64(values) => values[at].into(),
        // By its own shortest digits, which are fewer than those of the double that it is.
        ColumnData::F32(values) => float(values[at].to_string().parse().unwrap_or(f64::NAN)),
        ColumnData::F64(values) => float(values[at]),
    }
}

fn properties(fields: &[Field]) -> Value {
    let number = json!({"type": ["number", "null"]});
    let mut properties = Map::new();
    for field in fields {
        match field {
            Field::Elements(names) => {
                properties.extend(names.iter().map(|name| (name.clone(), number.clone())));
            }
            Field::List(name) => {
                properties.insert(name.clone(), json!({"type": "array", "items": number}));
            }
        }
    }
    Value::Object(properties)
}

fn add_channel<W: Write + io::Seek>(
    writer: &mut Writer<W>,
    name: &str,
    properties: &Value,
) -> Result<u16, ExportError> {
    let schema = json!({"type": "object", "properties": properties});
    let schema =
        writer.add_schema(&format!("rollhouse.{name}"), "jsonschema", schema.to_string().as_bytes())?;
    Ok(writer.add_channel(schema, &format!("/{name}"), "json", &BTreeMap::new())?)
}

/// Returns the schema of Foxglove's images.
fn picture_schema() -> Value {
    json!({
        "title": "foxglove.CompressedImage",
        "type": "object",
        "properties": {
            "timestamp": {
                "type": "object",
                "title": "time",
                "properties": {
                    "sec": {"type": "integer", "minimum": 0},
                    "nsec": {"type": "integer", "minimum": 0, "maximum": NANOS - 1},
                },
            },
            "frame_id": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
            "format": {"type": "string"},
        },
    })
}

/// Returns the facts about the episode beside its steps; their names are part of the interface.
fn facts_of(episode: &Episode) -> BTreeMap<String, String> {
    let info = &episode.info;
    let facts = [
        ("id", info.name.to_string()),
        ("env", info.env().to_owned()),
        ("length", info.length.to_string()),
        ("return", info.total_reward.map_or_else(String::new, |total| total.to_string())),
        ("outcome", info.outcome.word().to_owned()),
        ("seed", info.seed().map_or_else(String::new, |seed| seed.to_string())),
        ("policy", info.policy().name.clone()),
        ("policy_version", info.policy().version.to_string()),
        ("dynamics", format!("{:016x}", info.dynamics())),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

impl From<McapError> for ExportError {
    fn from(error: McapError) -> Self {
        Self::Write(match error {
            McapError::Io(error) => error,
            error => io::Error::other(error),
        })
    }
}
