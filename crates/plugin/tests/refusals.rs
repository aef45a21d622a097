//! What a plug-in may get wrong is refused with what is wrong, before any of it is used.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::stage;

use std::path::Path;

use rollhouse_core::{ColumnMut, ColumnRef, Determinism, LaneSet, OptionValue, Options};
use rollhouse_env::{BlockStep, RenderError, StateError};
use rollhouse_plugin::{load, load_untried};
use stage::{Folder, compiled};

const FAULTY: &str = "tests/stage/faulty.c";

/// Returns why a plug-in is not loaded.
fn refusal(path: &Path) -> String {
    let error = load(path).map(drop).unwrap_err().to_string();
    assert!(error.starts_with(&format!("plug-in {}: ", path.display())), "{error}");
    error
}

#[test]
fn each_fault_of_table_and_description_is_refused_by_name() {
    let folder = Folder::new();
    for (fault, wanted) in [
        ("NO_SYMBOL", "it exports no `rollhouse_plugin`"),
        ("NO_TABLE", "`rollhouse_plugin` returned NULL"),
        ("VERSION", "it has version 2 of the interface, must have 1"),
        ("TABLE_SIZE", "the `size` of its table is 21"),
        ("SHORT_TABLE", "its table has no `step`"),
        ("NO_STEP", "its table has no `step`"),
        ("SEED_ALONE", "its table has no `position`, which comes with `seed`, `position` and `restore`"),
        ("STATE_ALONE", "its table has no `set_state`"),
        ("NO_ENVS", "it has 0 envs, must have 1 to 256"),
        ("ENV_COUNT", "it has 4000000000 envs, must have 1 to 256"),
        ("UNDEFINED", "it cannot be loaded: "),
        ("FLUSHES_TO_ZERO", "it makes the processor take tiny numbers for 0"),
        ("NO_DESCRIPTION", "env 0: `describe()` is NULL"),
        ("DESCRIPTION_SIZE", "the `size` of its description is 13"),
        ("NO_ID", "env 0: `id` is NULL"),
        ("ENDLESS_ID", "`id` is no text of 1 to 128 bytes"),
        ("ID_IN_LATIN_1", "`id` is no text of 1 to 128 bytes"),
        ("ID_WITH_ESCAPES", "`id` is no text of 1 to 128 bytes"),
        ("ID_WITH_A_COLON", "env id `my_envs:Maze` has a colon"),
        ("OBSERVATION_COUNT", "`observation` has 4000000000, may have at most 512"),
        ("NO_OBSERVATION", "`observation_count` is 0, must be larger"),
        ("NULL_OBSERVATION", "`observation` is NULL"),
        ("SPACES_WITHOUT_PARTS", "`observation_count` is 3, must be larger"),
        ("DTYPE", "`observation[1].dtype` is 77"),
        ("BOUNDS", "`observation[1].bounds` is 1000000, must be 1 or 2"),
        ("NAME_COUNT", "`action_names, their number` is 60000, must be 0 or 2"),
        ("NULL_NAME", "`action_names[1]` is NULL"),
        ("ACTION_WITH_PARTS", "`action_count` is 1, must be larger"),
        ("SEQUENCE_WITHOUT_ITEM", "`observation[0].parts` is 0, must be 1: the space of its items"),
        ("CHARACTER_TWICE", "`action[0].shape` is 97, must be another character's code point"),
        (
            "ENDLESS_STRING",
            "`action[0].n` is 1099511627776, must be at most 1099511627776 items of 1 elements",
        ),
        ("OPTION_COUNT", "`options` has 65, may have at most 64"),
        ("NULL_OPTIONS", "`options` is NULL"),
        ("NO_RENDER", "its table has no `render`"),
        ("PICTURE_SIZE", "`render_width` is 100000, must be"),
        ("HUGE_SHAPE", "`observation[0].shape` has"),
        ("LOW_ABOVE_HIGH", "`observation[0].low[0]` is 1000000000, must be at most 0"),
        ("METHOD_COUNT", "`methods` has 4000000000, may have at most 128"),
        ("NULL_METHODS", "`methods` is NULL"),
        ("METHOD_NAME", "method name `push it` must have 1 to 64 letters, digits and `_-.`"),
        ("LONG_METHOD_NAME", "`methods[1].name` is no text of 1 to 64 bytes"),
        ("METHOD_TWICE", "method `look` is there twice"),
        ("METHOD_CHANGES", "`methods[1].changes` is 7, must be 0 or 1"),
        ("ENDLESS_PARAMS", "`methods[1].params` is no text of 1 to 4096 bytes"),
        ("METHODS_WITHOUT_CALL", "its table has no `call`, which an env with methods needs"),
        ("MASK_SIZE", "action space: a mask of 3 actions, it has 2"),
        ("MASK_TYPE", "action space: a mask of uint8, must be of bool"),
        ("TWO_MASKS", "action space: 2 masks, may have one"),
        ("MASK_WITHOUT_BEGINNING", "its table has no `first_infos`, which an env with an action mask needs"),
        ("NO_ACTIONS", "`action[0].n` is 0, must be"),
        // No env is made before all are known to be described well.
        ("SECOND_WITHOUT_ID", "env 1: `id` is NULL"),
        ("MAKE_FAILS", "env `c/Counter-v0` cannot be made: no licence is left"),
        ("NO_BLOCK", "its `make` succeeded and gave no block"),
        ("NOT_DETERMINISTIC", "env `c/Counter-v0` is declared deterministic, but two runs"),
        ("FAILS_IN_STEP", "it was tried out and failed: the plug-in's `step` returned 1"),
        ("LOSES_LANES", "the plug-in's `step` lost lanes and has no `revive`"),
        ("STRAY_DRAW", "the plug-in's `reset` drew for lane 1003 of a block of 4"),
    ] {
        // The control word is that of one architecture.
        if fault == "FLUSHES_TO_ZERO" && cfg!(not(target_arch = "x86_64")) {
            continue;
        }
        let Some(path) = compiled(&folder, FAULTY, &[&format!("-DFAULT_{fault}")]) else { return };
        let refused = refusal(&path);
        assert!(refused.contains(wanted), "{fault}: {refused}");
    }
}

/// Symptom: an isolated plug-in without a function that its envs need failed in the worker's first call of it.
/// Cause: what the trying out needs was looked at beside it. Fix: it is looked at with the description.
#[test]
fn a_plugin_whose_envs_are_not_tried_out_has_to_have_what_they_need() {
    let folder = Folder::new();
    for (fault, wanted) in [
        ("NO_RENDER", "its table has no `render`"),
        ("METHODS_WITHOUT_CALL", "its table has no `call`"),
        ("MASK_SIZE", "action space: a mask of 3 actions, it has 2"),
        ("MASK_WITHOUT_BEGINNING", "its table has no `first_infos`"),
    ] {
        let Some(path) = compiled(&folder, FAULTY, &[&format!("-DFAULT_{fault}")]) else { return };
        let refused = load_untried(&path).map(drop).unwrap_err().to_string();
        assert!(refused.contains(wanted), "{fault}: {refused}");
    }
}

/// Symptom: a lane whose drawn options a plug-in refused never came back, though the plug-in makes lost lanes anew.
/// Cause: it was not noted as lost, and so not named to `revive`. Fix: it is.
#[test]
fn a_lane_whose_options_are_refused_is_made_anew_by_revive() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, FAULTY, &["-DODD_LENGTHS_FAIL"]) else { return };
    let entries = load(&path).unwrap();
    let length = |length| {
        Options::check(&entries[0].spec().options, &[("length".to_owned(), OptionValue::Int(length))])
            .unwrap()
    };
    let mut block = entries[0].make_block(&[length(2), length(2)]).unwrap();
    block.set_options(0, &length(4)).unwrap();
    block.set_options(1, &length(3)).unwrap_err();
    assert_eq!(block.revive(LaneSet::first(2)), LaneSet::one(1));
    let (mut boxes, mut numbers) = ([0.0; 4], [0; 2]);
    let mut obs = [ColumnMut::F64(&mut boxes), ColumnMut::I64(&mut numbers)];
    assert_eq!(block.reset(LaneSet::first(2), &mut obs), LaneSet::NONE);
}

#[test]
fn a_thread_computes_as_before_when_a_plugin_has_changed_its_own() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, FAULTY, &["-DFAULT_FLUSHES_TO_ZERO"]) else { return };
    if cfg!(target_arch = "x86_64") {
        refusal(&path);
    }
    assert!(std::hint::black_box(f64::MIN_POSITIVE) / 2.0 > 0.0);
}

#[test]
fn what_is_no_shared_object_is_refused() {
    let folder = Folder::new();
    assert!(refusal(&folder.path().join("nothing.so")).contains("No such file"));
    assert!(refusal(folder.path()).contains("it is not a file"));
    let text = folder.path().join("text.so");
    std::fs::write(&text, "no shared object").unwrap();
    assert!(refusal(&text).contains("it cannot be loaded"));
    // The loader would look for a bare name in the system's folders.
    assert!(refusal(Path::new("libc.so.6")).contains("No such file"));
}

#[test]
fn a_table_may_be_longer_than_this_program_knows() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, FAULTY, &["-DLARGER_TABLE"]) else { return };
    let entries = load(&path).unwrap();
    assert_eq!(entries[0].spec().id, "c/Counter-v0");
    assert_eq!(entries[0].spec().determinism, Determinism::Deterministic);
}

#[test]
fn a_table_from_before_verdicts_loads_and_says_none() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, FAULTY, &["-DOLDER_TABLE"]) else { return };
    let block = load(&path).unwrap()[0].make_block(&[Options::default()]).unwrap();
    assert!(!block.has_verdicts());
    assert!(block.verdict(0).is_none());
}

#[test]
fn answers_that_are_lies_are_not_taken_for_a_state_or_a_text() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, FAULTY, &["-DFAULT_STATE_LENGTH"]) else { return };
    let entries = load(&path).unwrap();
    let block = entries[0].make_block(&[Options::default()]).unwrap();
    assert_eq!(block.state(0), Err(StateError::Unsupported));
    assert_eq!(block.text(0, 40), Err(RenderError::Unsupported));
}

#[test]
fn flags_of_lanes_that_did_not_step_or_do_not_exist_are_dropped() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, FAULTY, &["-DFAULT_FLAGS_FOR_ALL"]) else { return };
    let entries = load(&path).unwrap();
    let mut block = entries[0].make_block(&vec![Options::default(); 4]).unwrap();
    let (mut boxes, mut numbers, mut rewards) = ([0.0; 8], [0; 4], [7.0; 4]);
    let ended = block.step(BlockStep {
        skip: LaneSet::one(1),
        reset: LaneSet::one(2),
        actions: ColumnRef::I64(&[1; 4]),
        obs: &mut [ColumnMut::F64(&mut boxes), ColumnMut::I64(&mut numbers)],
        infos: &mut [],
        rewards: &mut rewards,
    });
    assert_eq!(ended.terminated.into_iter().collect::<Vec<_>>(), [0, 3]);
    assert_eq!(rewards, [1.0, 0.0, 0.0, 1.0]);
}
