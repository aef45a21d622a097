//! Episodes as tables, read again by the reader of the crate that writes them. (Python's reader looks at them in
//! crates/python/tests/test_exports.py.)
#![cfg(feature = "parquet")]
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::stage;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use rollhouse_core::{ColumnData, ColumnSpec, RecordRule};
use rollhouse_env::Registry;
use rollhouse_export::{ExportError, Format, ParquetFile, Settings, write};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Episode, Playback, Query, Replays};
use stage::{Play, play};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

/// Every episode of a play, the longest first.
fn recorded(one: &Play) -> Vec<Episode> {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
    play(Arc::new(disk.clone()), dir, one);
    let replays = Replays::open(Arc::new(disk), dir).unwrap();
    let query = Query { sort: "-length".parse().unwrap(), all_outcomes: true, ..Query::default() };
    let infos = replays.list(&query).unwrap();
    replays.load_many(&infos).map(Result::unwrap).collect()
}

fn read(bytes: Vec<u8>) -> Vec<Row> {
    let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn field<'r>(row: &'r Row, name: &str) -> &'r Field {
    row.get_column_iter().find(|(column, _)| *column == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// All numbers of a field, as their bits.
fn bits(field: &Field) -> Vec<u64> {
    match field {
        Field::Bool(value) => vec![u64::from(*value)],
        Field::UByte(value) => vec![u64::from(*value)],
        Field::Int(value) => vec![*value as u64],
        Field::Long(value) => vec![*value as u64],
        Field::Float(value) => vec![u64::from(value.to_bits())],
        Field::Double(value) => vec![value.to_bits()],
        Field::Bytes(bytes) => bytes.data().iter().map(|&byte| u64::from(byte)).collect(),
        Field::ListInternal(list) => list.elements().iter().flat_map(bits).collect(),
        Field::Null => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn bits_of(column: &ColumnData) -> Vec<u64> {
    match column {
        ColumnData::U8(values) => values.iter().map(|&value| u64::from(value)).collect(),
        ColumnData::I32(values) => values.iter().map(|&value| value as u64).collect(),
        ColumnData::I64(values) => values.iter().map(|&value| value as u64).collect(),
        ColumnData::F32(values) => values.iter().map(|value| u64::from(value.to_bits())).collect(),
        ColumnData::F64(values) => values.iter().map(|value| value.to_bits()).collect(),
    }
}

/// All elements of the columns whose names begin so, in their order.
fn below(row: &Row, root: &str) -> Vec<u64> {
    let belongs = |name: &str| name == root || name.starts_with(&format!("{root}/"));
    row.get_column_iter().filter(|(name, _)| belongs(name)).flat_map(|(_, field)| bits(field)).collect()
}

/// Asserts that these rows are those of the episode.
fn assert_rows(rows: &[Row], episode: &Episode) {
    assert_eq!(rows.len() as u64, episode.info.length + 1);
    let mut playback = Playback::new(&*REGISTRY, episode).unwrap();
    for row in rows {
        let step = playback.next_step().unwrap().unwrap();
        assert_eq!(field(row, "episode"), &Field::Str(episode.info.name.to_string()));
        assert_eq!(field(row, "t"), &Field::Long(step.t as i64));
        let obs: Vec<u64> = step.obs.iter().flat_map(bits_of).collect();
        assert_eq!(below(row, "obs"), obs, "{} step {}", episode.info.env(), step.t);
        assert_eq!(below(row, "action"), step.action.as_ref().map_or_else(Vec::new, bits_of));
        assert_eq!(field(row, "reward"), &step.reward.map_or(Field::Null, Field::Double));
        let noted = episode.step_columns.iter().zip(episode.info.run.step_columns.specs());
        let row_of = |(column, spec): (&ColumnData, &ColumnSpec)| {
            let at = (step.t as usize).checked_sub(1)?;
            column.row(at, spec.elements()).map(|row| bits_of(&row.into()))
        };
        assert_eq!(below(row, "step"), noted.filter_map(row_of).flatten().collect::<Vec<_>>());
        assert_eq!(field(row, "terminated"), &Field::Bool(step.terminated));
        assert_eq!(field(row, "truncated"), &Field::Bool(step.truncated));
    }
}

#[test]
fn a_table_has_a_row_of_the_reset_and_of_each_step_to_the_bit() {
    for env in ["CartPole-v1", "Pendulum-v1", "GridBreakout-v0", "Echo-v0"] {
        for (record, noted) in [(RecordRule::All, false), (RecordRule::Trace, false), (RecordRule::All, true)]
        {
            let one = Play { lanes: 2, record, noted, ..Play::new(env, 90) };
            let episode = Arc::new(recorded(&one).swap_remove(0));
            let mut bytes = Vec::new();
            write(&Settings::new(Format::Parquet), &REGISTRY, &episode, &mut bytes, &mut |_| true).unwrap();
            assert_rows(&read(bytes), &episode);
        }
    }
}

#[test]
fn many_episodes_are_one_table_in_their_order_and_those_that_are_not_as_recorded_are_left_out() {
    let mut episodes = recorded(&Play { lanes: 64, ..Play::new("CartPole-v1", 120) });
    assert!(episodes.len() > 100, "{}", episodes.len());
    episodes[40].end_hash = episodes[40].end_hash.map(|hash| hash ^ 1);
    let mut bytes = Vec::new();
    let mut file = ParquetFile::new(&REGISTRY, &episodes[0].info.run, &mut bytes).unwrap();
    let mut left_out = Vec::new();
    for episode in &episodes {
        left_out.extend(file.add(episode.clone(), &mut |_| true).unwrap());
    }
    left_out.extend(file.finish(&mut |_| true).unwrap());
    assert_eq!(left_out.len(), 1);
    assert_eq!(left_out[0].0, episodes[40].info.name);
    assert!(left_out[0].1.to_string().contains("gives another state"), "{}", left_out[0].1);
    let rows = read(bytes);
    let mut from = 0;
    for (_, episode) in episodes.iter().enumerate().filter(|(at, _)| *at != 40) {
        let to = from + episode.info.length as usize + 1;
        assert_rows(&rows[from..to], episode);
        from = to;
    }
    assert_eq!(from, rows.len());
}

#[test]
fn an_episode_longer_than_a_row_group_is_written_part_by_part_and_can_be_stopped() {
    let one = Play { lanes: 1, max_steps: 70_000, noted: true, ..Play::new("Pendulum-v1", 70_001) };
    let episode = Arc::new(recorded(&one).swap_remove(0));
    let (mut bytes, mut told) = (Vec::new(), Vec::new());
    let mut watch = |step| {
        told.push(step);
        true
    };
    write(&Settings::new(Format::Parquet), &REGISTRY, &episode, &mut bytes, &mut watch).unwrap();
    assert_eq!(told, [65_535, 70_000]);
    assert_rows(&read(bytes), &episode);
    let settings = Settings::new(Format::Parquet);
    let stopped = write(&settings, &REGISTRY, &episode, &mut Vec::new(), &mut |_| false);
    assert!(matches!(stopped, Err(ExportError::Stopped)), "{stopped:?}");
}
