//! Episodes as messages, read again by the reader of the crate that writes them. (Python's reader looks at them in
//! crates/python/tests/test_exports.py.)
#![cfg(feature = "mcap")]
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::stage;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rollhouse_env::{ImageSize, Registry};
use rollhouse_export::{Format, Settings, write};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Episode, Playback, Query, Replays, SeekBounds, Seeker};
use serde_json::Value;
use stage::{Play, play};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

/// The longest episode of a play.
fn recorded(one: &Play) -> Arc<Episode> {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
    play(Arc::new(disk.clone()), dir, one);
    let replays = Replays::open(Arc::new(disk), dir).unwrap();
    let query = Query { sort: "-length".parse().unwrap(), all_outcomes: true, ..Query::default() };
    Arc::new(replays.load(&replays.list(&query).unwrap()[0]).unwrap())
}

fn written(settings: &Settings, episode: &Arc<Episode>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(settings, &REGISTRY, episode, &mut bytes, &mut |_| true).unwrap();
    bytes
}

/// The messages of each channel, with step and time; their schemas are what describes their fields.
fn messages(bytes: &[u8]) -> BTreeMap<String, Vec<(u32, u64, Value)>> {
    let mut messages: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for message in mcap::MessageStream::new(bytes).unwrap() {
        let message = message.unwrap();
        let schema = message.channel.schema.as_ref().unwrap();
        assert_eq!((&*schema.encoding, &*message.channel.message_encoding), ("jsonschema", "json"));
        let schema: Value = serde_json::from_slice(&schema.data).unwrap();
        let value: Value = serde_json::from_slice(&message.data).unwrap();
        let described = schema["properties"].as_object().unwrap();
        assert!(value.as_object().unwrap().keys().eq(described.keys()), "{value} is not {schema}");
        let of_channel = messages.entry(message.channel.topic.clone()).or_default();
        of_channel.push((message.sequence, message.log_time, value));
    }
    messages
}

#[test]
fn messages_say_what_each_step_was_at_the_time_it_would_have_had() {
    let episode = recorded(&Play { lanes: 1, ..Play::new("CartPole-v1", 40) });
    let size = ImageSize::new(60, 40).unwrap();
    let settings = Settings { every: 10, size: Some(size), ..Settings::new(Format::Mcap) };
    let messages = messages(&written(&settings, &episode));
    let length = episode.info.length;
    let topics: Vec<&str> = messages.keys().map(String::as_str).collect();
    assert_eq!(topics, ["/action", "/end", "/observation", "/picture", "/reward"]);
    let mut playback = Playback::new(&*REGISTRY, &episode).unwrap();
    for (at, (sequence, time, obs)) in messages["/observation"].iter().enumerate() {
        let step = playback.next_step().unwrap().unwrap();
        assert_eq!((u64::from(*sequence), at as u64), (step.t, step.t));
        // 50 steps a second.
        assert_eq!(*time, episode.info.started_ms * 1_000_000 + step.t * 20_000_000);
        let names = &episode.info.run.spec.observation_names;
        for (element, name) in names.iter().enumerate() {
            assert_eq!(obs[name].as_f64().unwrap() as f32, step.obs[0].number(element) as f32, "{name}");
        }
        if at > 0 {
            let (_, _, action) = &messages["/action"][at - 1];
            let (_, _, reward) = &messages["/reward"][at - 1];
            assert_eq!(action["value"].as_f64(), step.action.map(|action| action.number(0)));
            assert_eq!(reward["reward"].as_f64(), step.reward);
            assert_eq!(reward["return"].as_f64(), Some(step.total_reward));
        }
    }
    assert_eq!(messages["/observation"].len() as u64, length + 1);
    let (at, _, end) = &messages["/end"][0];
    assert_eq!((u64::from(*at), end["outcome"].as_str()), (length, Some(episode.info.outcome.word())));
    let mut seeker = Seeker::new(&*REGISTRY, Arc::clone(&episode), &SeekBounds::default()).unwrap();
    let pictures = &messages["/picture"];
    let shown: Vec<u64> = pictures.iter().map(|(t, _, _)| u64::from(*t)).collect();
    let wanted: Vec<u64> = (0..=length).filter(|t| t % 10 == 0 || *t == length).collect();
    assert_eq!(shown, wanted);
    for (t, _, picture) in pictures {
        let png = STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        let mut reader = png::Decoder::new(Cursor::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        seeker.seek(u64::from(*t)).unwrap();
        assert!(pixels == seeker.render(size).unwrap().pixels(), "step {t}");
    }
}

#[test]
fn what_was_noted_of_a_step_stands_beside_its_action() {
    let episode = recorded(&Play { lanes: 2, noted: true, ..Play::new("CartPole-v1", 40) });
    let messages = messages(&written(&Settings::new(Format::Mcap), &episode));
    let at = |channel: &str| messages[channel].iter().map(|(t, time, _)| (*t, *time)).collect::<Vec<_>>();
    assert_eq!(at("/step"), at("/action"));
    let specs = episode.info.run.step_columns.specs();
    for (row, (_, _, message)) in messages["/step"].iter().enumerate() {
        let shown: usize = message.as_object().unwrap().len();
        assert_eq!(shown, specs.iter().map(rollhouse_core::ColumnSpec::elements).sum::<usize>());
        for (spec, column) in specs.iter().zip(&episode.step_columns) {
            for element in 0..spec.elements() {
                let name = match spec.shape[..] {
                    [] => spec.path.clone(),
                    _ => format!("{}/{element}", spec.path),
                };
                let noted = column.number(row * spec.elements() + element);
                assert_eq!(message[&name].as_f64(), Some(noted).filter(|noted| noted.is_finite()), "{name}");
            }
        }
    }
}

#[test]
fn an_episode_without_pictures_has_values_and_long_columns_are_lists() {
    let episode = recorded(&Play { lanes: 1, ..Play::new("Echo-v0", 5) });
    let messages = messages(&written(&Settings::new(Format::Mcap), &episode));
    let mut playback = Playback::new(&*REGISTRY, &episode).unwrap();
    let step = playback.next_step().unwrap().unwrap();
    let (_, _, first) = &messages["/observation"][0];
    let numbers = first.as_object().unwrap().values().map(|value| value.as_array().map_or(1, Vec::len));
    assert_eq!(numbers.sum::<usize>(), step.obs.iter().map(rollhouse_core::ColumnData::len).sum::<usize>());
}
