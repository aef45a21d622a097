//! Pruning takes away what it was asked to, and nothing else, whatever happens meanwhile.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rollhouse_core::EpisodeName;
use rollhouse_replay::testing::{Faults, FaultyDisk};
use rollhouse_replay::{
    BlockRecorder, Disk, Episode, EpisodeInfo, LabelChange, Library, PruneError, PruneRules, Query, Recorder,
    RecorderConfig, Sort, SortKey, plan_prune, prune,
};

use crate::stage::{Play, play_into, play_with};

const DIR: &str = "/data";

fn library(disk: &FaultyDisk) -> Library {
    Library::open_scanning(Arc::new(disk.clone()), Path::new(DIR)).unwrap()
}

fn shared(disk: &FaultyDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// Every episode that is listed, with all that can be read of it.
fn episodes(disk: &FaultyDisk) -> BTreeMap<EpisodeName, String> {
    let library = library(disk);
    assert_eq!(library.damage().count(), 0);
    let listed = library.list(&Query::default()).unwrap();
    let facts = listed.iter().map(|one| (one.info.name, facts(&one.folder.load(&one.info).unwrap())));
    let all: BTreeMap<_, _> = facts.collect();
    assert_eq!(all.len(), listed.len(), "an episode is listed twice");
    assert_eq!(library.count().unwrap(), listed.len() as u64);
    all
}

/// All that was recorded of an episode but where it stands.
fn facts(episode: &Episode) -> String {
    let Episode { info, actions, windows, end_hash, policy_versions, step_columns, calls, steps, from } =
        episode;
    let rest = format!(
        "{actions:?} {windows:?} {end_hash:?} {policy_versions:?} {step_columns:?} {calls:?} {steps:?} {from:?}"
    );
    let hash = rest.bytes().fold(0, |sum, byte| rollhouse_core::split_mix64(sum ^ u64::from(byte)));
    let EpisodeInfo { start, length, total_reward, outcome, result, score, started_ms, .. } = info;
    format!("{start:?} {length} {total_reward:?} {outcome:?} {result:?} {score:?} {started_ms} {hash:016x}")
}

fn config() -> RecorderConfig {
    RecorderConfig::default()
}

/// Has every so many rows in a segment of their own.
fn sealing(every: u64) -> impl FnMut(u64, &Recorder, &mut BlockRecorder) {
    move |row, recorder, block| {
        if row % every == every - 1 {
            block.flush();
            recorder.seal().unwrap();
        }
    }
}

/// A folder of several segments with many episodes, of which some lie in two of them.
fn recorded() -> FaultyDisk {
    let disk = FaultyDisk::new();
    let one = Play { lanes: 6, ..Play::new("CartPole-v1", 9000) };
    play_with(shared(&disk), Path::new(DIR), config(), &one, sealing(1500));
    let other = Play { lanes: 3, per_episode: false, noted: true, ..Play::new("Pendulum-v1", 2500) };
    play_with(shared(&disk), Path::new(DIR), config(), &other, sealing(600));
    assert!(segments(&disk) > 5, "{}", segments(&disk));
    disk.after_power_cut(|_, _| 0)
}

fn segments(disk: &FaultyDisk) -> usize {
    disk.paths().iter().filter(|path| path.to_string_lossy().ends_with(".seg")).count()
}

fn best(count: usize) -> PruneRules {
    PruneRules { keep_best: Some(count), ..PruneRules::default() }
}

#[test]
fn the_best_stay_as_they_were_and_the_disk_has_room_again() {
    let disk = recorded();
    let before = episodes(&disk);
    let mut wanted = BTreeMap::new();
    for env in ["CartPole-v1", "Pendulum-v1"] {
        let sort = Sort { key: SortKey::Return, descending: true };
        let query = Query { env: Some(env.into()), sort, limit: Some(4), ..Query::default() };
        for one in library(&disk).list(&query).unwrap() {
            wanted.insert(one.info.name, before[&one.info.name].clone());
        }
    }
    let used = disk.used();
    let plan = plan_prune(&shared(&disk), Path::new(DIR), &best(4)).unwrap().sum();
    assert_eq!(disk.used(), used, "a plan changes nothing");
    let done = prune(&shared(&disk), Path::new(DIR), &best(4)).unwrap().sum();
    assert_eq!((done.episodes, done.segments, done.bytes), (plan.episodes, plan.segments, plan.bytes));
    assert_eq!(done.stuck, 0);
    assert_eq!(episodes(&disk), wanted);
    assert_eq!(done.episodes, (before.len() - wanted.len()) as u64);
    assert!(disk.used() < used / 4, "{} of {used}", disk.used());
    // What is durable of it is all of it.
    assert_eq!(episodes(&disk.after_power_cut(|_, _| 0)), wanted);
    // And there is no more to do.
    let again = prune(&shared(&disk), Path::new(DIR), &best(4)).unwrap();
    assert_eq!(again.sum().segments, 0, "{again:?}");
    assert_eq!(episodes(&disk), wanted);
    // Recording goes on under new numbers.
    let more = Play { lanes: 1, seed: 99, ..Play::new("CartPole-v1", 100) };
    play_with(shared(&disk), Path::new(DIR), config(), &more, |_, _, _| {});
    assert!(wanted.keys().all(|name| episodes(&disk).contains_key(name)));
}

#[test]
fn nothing_that_is_pinned_goes_and_its_label_goes_along() {
    let disk = recorded();
    let before = episodes(&disk);
    let pinned: Vec<EpisodeName> = before.keys().copied().step_by(before.len() / 3).collect();
    for &name in &pinned {
        library(&disk).label(name, &LabelChange::Pin(true)).unwrap();
    }
    let tagged = *before.keys().find(|name| !pinned.contains(name)).unwrap();
    library(&disk).label(tagged, &LabelChange::Tag(vec!["t".parse().unwrap()])).unwrap();
    let all = PruneRules { before_ms: Some(u64::MAX), ..PruneRules::default() };
    let done = prune(&shared(&disk), Path::new(DIR), &all).unwrap().sum();
    assert_eq!(done.pinned, pinned.len() as u64);
    assert_eq!(episodes(&disk).keys().copied().collect::<Vec<_>>(), pinned);
    assert!(pinned.iter().all(|name| episodes(&disk)[name] == before[name]));
    let labels = library(&disk).labels().unwrap();
    assert_eq!(labels.iter().filter(|(_, label)| label.pinned).count(), pinned.len());
    assert_eq!(labels.iter().count(), pinned.len(), "of what is gone nothing is said");
    // A budget drops nothing pinned from where it lies now.
    let tight = RecorderConfig { segment_bytes: 64 * 1024, budget_bytes: 84 * 1024, ..config() };
    let more = Play { lanes: 6, seed: 5, ..Play::new("CartPole-v1", 9000) };
    let recorded = play_with(shared(&disk), Path::new(DIR), tight, &more, sealing(1000));
    assert!(recorded.dropped_segments > 1, "{recorded:?}");
    assert!(pinned.iter().all(|name| episodes(&disk).contains_key(name)));
}

#[test]
fn the_oldest_segments_go_until_the_rest_has_the_size_that_is_kept() {
    let disk = recorded();
    let before = episodes(&disk);
    let keep = 70 * 1024;
    let rules = PruneRules { keep_bytes: Some(keep), ..PruneRules::default() };
    let done = prune(&shared(&disk), Path::new(DIR), &rules).unwrap().sum();
    assert!(done.segments > 0 && done.episodes > 0, "{done:?}");
    let paths = disk.paths().into_iter().filter(|path| path.to_string_lossy().ends_with(".seg"));
    let left: u64 = paths.map(|path| disk.read(&path).unwrap().len() as u64).sum();
    // What lies across the border is recorded again.
    assert!(left <= keep + done.again_bytes, "{left}");
    let after = episodes(&disk);
    assert!(after.iter().all(|(name, facts)| before[name] == *facts) && after.len() < before.len());
}

#[test]
fn segments_that_hold_much_that_stays_are_left_whole() {
    let disk = recorded();
    let before = episodes(&disk);
    let used = disk.used();
    // Half of all lanes' episodes, all over the segments: short ones.
    let query = Query { env: Some("CartPole-v1".into()), min_return: Some(26.0), ..Query::default() };
    let rules = PruneRules { filter: query, ..PruneRules::default() };
    let done = prune(&shared(&disk), Path::new(DIR), &rules).unwrap().sum();
    assert!(done.stuck > 0, "{done:?}");
    assert_eq!(done.segments, 0, "{done:?}");
    assert_eq!((episodes(&disk), disk.used() - used < 1000), (before, true));
}

#[test]
fn a_folder_that_somebody_records_into_is_left_alone() {
    let disk = recorded();
    let before = episodes(&disk);
    let recorder = Recorder::open(shared(&disk), Path::new(DIR), config()).unwrap();
    for plan in [
        plan_prune(&shared(&disk), Path::new(DIR), &best(1)),
        prune(&shared(&disk), Path::new(DIR), &best(1)),
    ] {
        let plan = plan.unwrap();
        assert_eq!((plan.busy.len(), plan.folders.len()), (1, 0), "{plan:?}");
    }
    recorder.finish().unwrap();
    assert_eq!(episodes(&disk), before);
}

#[test]
fn what_may_not_have_been_shipped_yet_is_left_alone_unless_it_is_to_go_as_well() {
    let disk = recorded();
    let before = episodes(&disk);
    rollhouse_replay::name_of_folder(&disk, Path::new(DIR)).unwrap();
    for plan in [
        plan_prune(&shared(&disk), Path::new(DIR), &best(1)),
        prune(&shared(&disk), Path::new(DIR), &best(1)),
    ] {
        let plan = plan.unwrap();
        assert_eq!((plan.unshipped.len(), plan.folders.len()), (1, 0), "{plan:?}");
    }
    assert_eq!(episodes(&disk), before);
    let rules = PruneRules { unshipped: true, ..best(1) };
    let done = prune(&shared(&disk), Path::new(DIR), &rules).unwrap();
    assert_eq!((done.unshipped.len(), done.folders.len()), (0, 1), "{done:?}");
    assert!(episodes(&disk).len() < before.len());
}

#[test]
fn damaged_segments_stay_with_all_that_is_in_them() {
    let disk = recorded();
    let path = Path::new("/data/segments/0000000002.seg");
    disk.flip(path, 3000, 3);
    let bytes = disk.read(path).unwrap();
    prune(&shared(&disk), Path::new(DIR), &best(1)).unwrap();
    assert_eq!(disk.read(path).as_ref(), Some(&bytes));
}

#[test]
fn a_store_is_pruned_by_its_coordinator_alone() {
    let disk = recorded();
    drop(rollhouse_replay::lock_store(&disk, Path::new(DIR)).unwrap());
    let refused = prune(&shared(&disk), Path::new(DIR), &best(1));
    assert!(matches!(refused, Err(PruneError::Store(_))), "{refused:?}");
}

#[test]
fn episodes_that_broke_off_stay_as_such() {
    let disk = FaultyDisk::new();
    let recorder = Recorder::open(shared(&disk), Path::new(DIR), config()).unwrap();
    let one = Play { lanes: 2, max_steps: 100_000, ..Play::new("Pendulum-v1", 3000) };
    let mut cut = None;
    let mut seal = sealing(1000);
    play_into(&recorder, &one, |row, recorder, block| {
        seal(row, recorder, block);
        if row == 2900 {
            block.flush();
            recorder.sync().unwrap();
            cut = Some(disk.after_power_cut(|_, _| 0));
        }
    });
    let cut = cut.unwrap();
    let before = episodes(&cut);
    assert_eq!(before.len(), 2);
    let names: Vec<EpisodeName> = before.keys().copied().collect();
    let only = |name: EpisodeName| {
        let found = library(&cut).find(name).unwrap();
        let key = rollhouse_replay::EpisodeKey::of(&found.info);
        PruneRules {
            filter: Query { only: Some(Arc::new([key].into())), ..Query::default() },
            ..PruneRules::default()
        }
    };
    let rules = only(names[0]);
    let done = prune(&shared(&cut), Path::new(DIR), &rules).unwrap().sum();
    let after = episodes(&cut);
    if done.episodes == 1 {
        assert_eq!(after.len(), 1);
    }
    assert_eq!(after[&names[1]], before[&names[1]]);
}

/// What is listed after whatever happened is what was there or what was to stay, each as it was.
fn assert_between(
    now: &BTreeMap<EpisodeName, String>,
    before: &BTreeMap<EpisodeName, String>,
    kept: &BTreeMap<EpisodeName, String>,
    what: &str,
) {
    for (name, facts) in now {
        assert_eq!(before.get(name), Some(facts), "{what}: {name} is another");
    }
    for name in kept.keys() {
        assert!(now.contains_key(name), "{what}: {name} is lost");
    }
}

#[test]
fn whichever_disk_operation_fails_or_is_the_last_before_the_power_goes_nothing_that_stays_is_lost() {
    let original = FaultyDisk::new();
    let one = Play { lanes: 4, ..Play::new("CartPole-v1", 5000) };
    play_with(shared(&original), Path::new(DIR), config(), &one, sealing(1200));
    let original = original.after_power_cut(|_, _| 0);
    let before = episodes(&original);
    let done = original.after_power_cut(|_, _| 0);
    library(&done).label(*before.keys().next().unwrap(), &LabelChange::Pin(true)).unwrap();
    let labelled = done.after_power_cut(|_, _| 0);
    assert!(prune(&shared(&done), Path::new(DIR), &best(3)).unwrap().sum().segments > 2);
    let (operations, kept) = (done.operations(), episodes(&done));
    assert!(kept.len() < before.len() && operations > 10);
    for at in 1..=operations {
        for tail in [0, 1] {
            let disk = labelled.after_power_cut(|_, _| 0);
            disk.set_faults(Faults { fail_at: Some(at), fail_on: true, ..Faults::default() });
            let pruned = prune(&shared(&disk), Path::new(DIR), &best(3));
            disk.set_faults(Faults::default());
            let what = format!("operation {at} of {operations}, {pruned:?}");
            // The process goes on living.
            assert_between(&episodes(&disk), &before, &kept, &what);
            // The power goes.
            let disk = disk.after_power_cut(|_, unsynced| unsynced * tail / 2);
            assert_between(&episodes(&disk), &before, &kept, &what);
            // Whoever comes next ends it.
            prune(&shared(&disk), Path::new(DIR), &best(3)).unwrap();
            assert_eq!(episodes(&disk), kept, "{what}");
            let pins = library(&disk).labels().unwrap().iter().filter(|(_, label)| label.pinned).count();
            assert_eq!(pins, 1, "{what}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_stays_is_just_what_the_rules_and_the_pins_keep_or_lies_in_segments_that_stay(
        env in prop::sample::select(vec!["CartPole-v1", "Pendulum-v1", "GridBreakout-v0", "test/Noise-v0"]),
        lanes in 1usize..6,
        rows in 200u64..1500,
        per_episode: bool,
        best_of in 1usize..6,
        pin_every in 1usize..40,
        every in 100u64..800,
    ) {
        let disk = FaultyDisk::new();
        let one = Play { lanes, per_episode, max_steps: 120, ..Play::new(env, rows) };
        play_with(shared(&disk), Path::new(DIR), config(), &one, sealing(every));
        let before = episodes(&disk);
        let pinned: Vec<EpisodeName> = before.keys().copied().step_by(pin_every).take(5).collect();
        for &name in &pinned {
            library(&disk).label(name, &LabelChange::Pin(true)).unwrap();
        }
        let sort = Sort { key: SortKey::Return, descending: true };
        let query = Query { sort, limit: Some(best_of), ..Query::default() };
        let kept: Vec<EpisodeName> = library(&disk).list(&query).unwrap().iter().map(|one| one.info.name).collect();
        let done = prune(&shared(&disk), Path::new(DIR), &best(best_of)).unwrap().sum();
        let after = episodes(&disk);
        for (name, facts) in &after {
            prop_assert_eq!(&before[name], facts);
        }
        prop_assert!(kept.iter().chain(&pinned).all(|name| after.contains_key(name)));
        prop_assert_eq!(after.len() as u64, before.len() as u64 - done.episodes);
        let wanted = before.keys().filter(|name| !kept.contains(name) && !pinned.contains(name)).count();
        prop_assert_eq!(done.episodes + done.stuck, wanted as u64);
    }
}
