//! The structures of `include/rollhouse.h`, which says what each member means. A test compares every size and offset
//! with what a C compiler makes of the header.
#![allow(missing_docs, reason = "the header documents them")]

use std::ffi::{c_char, c_void};

/// The version of the interface.
pub(crate) const VERSION: u32 = 1;
/// Name of the one symbol that a plug-in exports.
pub(crate) const SYMBOL: &str = "rollhouse_plugin";

pub(crate) const BOX: u32 = 1;
pub(crate) const DISCRETE: u32 = 2;
pub(crate) const DICT: u32 = 3;
pub(crate) const TUPLE: u32 = 4;
pub(crate) const ACTION_MASK: u32 = 5;
pub(crate) const STRING: u32 = 6;
pub(crate) const SEQUENCE: u32 = 7;

pub(crate) const FLAG: u32 = 1;
pub(crate) const INTEGER: u32 = 2;
pub(crate) const NUMBER: u32 = 3;
pub(crate) const TEXT: u32 = 4;
pub(crate) const LIST: u32 = 5;

pub(crate) const OK: i32 = 0;
pub(crate) const FAILED: i32 = 1;
pub(crate) const UNSUPPORTED: i32 = 2;
pub(crate) const REFUSED: i32 = 3;

/// What stands behind a plug-in's pointer to a block.
#[repr(C)]
pub(crate) struct Block {
    _private: [u8; 0],
}

macro_rules! structures {
    ($($(#[$about:meta])* $vis:vis struct $name:ident = $c_name:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$about])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            $vis struct $name {
                $(pub(crate) $field: $type,)*
            }
        )*

        /// Returns each structure's name in C, its size and the offsets of its members.
        #[cfg(test)]
        fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                $c_name,
                size_of::<$name>(),
                vec![$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
            ),)*]
        }
    };
}

structures! {
    pub(crate) struct Space = "rollhouse_space" {
        name: *const c_char,
        kind: u32,
        dtype: u32,
        parts: u32,
        axes: u32,
        shape: *const u64,
        low: *const f64,
        high: *const f64,
        bounds: u64,
        start: i64,
        n: u64,
    }

    pub(crate) struct Value = "rollhouse_value" {
        integer: i64,
        number: f64,
    }

    pub(crate) struct Sequence = "rollhouse_sequence" {
        text: *const c_char,
        numbers: *const f64,
    }

    pub(crate) struct OptionOf = "rollhouse_option" {
        name: *const c_char,
        summary: *const c_char,
        kind: u32,
        reserved: u32,
        default_value: Value,
    }

    pub(crate) struct Method = "rollhouse_method" {
        name: *const c_char,
        summary: *const c_char,
        params: *const c_char,
        changes: u32,
        max_per_second: u32,
    }

    pub(crate) struct Description = "rollhouse_description" {
        size: u32,
        deterministic: u32,
        id: *const c_char,
        summary: *const c_char,
        observation: *const Space,
        action: *const Space,
        infos: *const Space,
        options: *const OptionOf,
        observation_names: *const *const c_char,
        action_names: *const *const c_char,
        observation_count: u32,
        info_count: u32,
        option_count: u32,
        observation_name_count: u32,
        action_name_count: u32,
        max_episode_steps: u32,
        render_width: u32,
        render_height: u32,
        render_fps: u32,
        action_count: u32,
        option_defaults: *const Sequence,
        no_verdicts: u32,
        method_count: u32,
        methods: *const Method,
    }

    pub(crate) struct Random = "rollhouse_random" {
        size: u32,
        reserved: u32,
        context: *mut c_void,
        word: unsafe extern "C" fn(*mut c_void, u32) -> u64,
        half: unsafe extern "C" fn(*mut c_void, u32) -> u32,
        uniform: unsafe extern "C" fn(*mut c_void, u32, f64, f64) -> f64,
    }

    pub(crate) struct Position = "rollhouse_start" {
        seed: u64,
        words: u64,
        half: u32,
        has_half: u32,
    }

    pub(crate) struct Verdict = "rollhouse_verdict" {
        result: u32,
        has_score: u32,
        score: f64,
    }

    pub(crate) struct Make = "rollhouse_make" {
        size: u32,
        env: u32,
        lanes: u32,
        option_count: u32,
        values: *const Value,
        error: *mut c_char,
        error_bytes: usize,
        sequences: *const Sequence,
    }

    pub(crate) struct Reset = "rollhouse_reset" {
        size: u32,
        lanes_in_block: u32,
        lanes: u64,
        obs: *const *mut c_void,
        random: *const Random,
        lost: u64,
    }

    pub(crate) struct Step = "rollhouse_step" {
        size: u32,
        lanes_in_block: u32,
        skip: u64,
        reset: u64,
        actions: *const c_void,
        obs: *const *mut c_void,
        infos: *const *mut c_void,
        rewards: *mut f64,
        random: *const Random,
        terminated: u64,
        truncated: u64,
        lost: u64,
    }

    pub(crate) struct Call = "rollhouse_call" {
        size: u32,
        lane: u32,
        method: u32,
        lost: u32,
        payload: *const c_char,
        payload_bytes: u64,
        random: *const Random,
        answer: *mut c_char,
        answer_room: u64,
        answer_bytes: u64,
    }

    /// The table of functions that a plug-in exports: `rollhouse_plugin_table` of the header.
    pub struct Table = "rollhouse_plugin_table" {
        version: u32,
        size: u32,
        env_count: u32,
        reserved: u32,
        describe: Option<unsafe extern "C" fn(u32) -> *const Description>,
        make: Option<unsafe extern "C" fn(*const Make, *mut *mut Block) -> i32>,
        close: Option<unsafe extern "C" fn(*mut Block)>,
        reset: Option<unsafe extern "C" fn(*mut Block, *mut Reset) -> i32>,
        step: Option<unsafe extern "C" fn(*mut Block, *mut Step) -> i32>,
        state_hash: Option<unsafe extern "C" fn(*const Block, u32) -> u32>,
        seed: Option<unsafe extern "C" fn(*mut Block, u32, u64)>,
        position: Option<unsafe extern "C" fn(*const Block, u32, *mut Position)>,
        restore: Option<unsafe extern "C" fn(*mut Block, u32, *const Position)>,
        revive: Option<unsafe extern "C" fn(*mut Block, u64) -> u64>,
        state: Option<unsafe extern "C" fn(*const Block, u32, *mut f64, u32) -> u32>,
        set_state: Option<unsafe extern "C" fn(*mut Block, u32, *const f64, u32) -> i32>,
        render: Option<unsafe extern "C" fn(*const Block, u32, u32, u32, *mut u8) -> i32>,
        text: Option<unsafe extern "C" fn(*const Block, u32, *mut c_char, u32) -> i32>,
        verdict: Option<unsafe extern "C" fn(*const Block, u32, *mut Verdict)>,
        set_options: Option<unsafe extern "C" fn(*mut Block, u32, *const Value, *const Sequence) -> i32>,
        first_infos: Option<unsafe extern "C" fn(*mut Block, u64, *const *mut c_void) -> u64>,
        call: Option<unsafe extern "C" fn(*mut Block, *mut Call) -> i32>,
        failed: Option<unsafe extern "C" fn(*const Block) -> u32>,
    }
}

impl Sequence {
    /// The sequence of a value that is neither a text nor a list.
    pub(crate) const NONE: Self = Self { text: std::ptr::null(), numbers: std::ptr::null() };
}

/// Returns the `size` of a structure that this program writes.
pub(crate) const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

/// Maximum number of envs in one plug-in.
pub const MAX_ENVS: u32 = 256;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use rollhouse_core::GameResult;

    use super::*;

    #[test]
    fn the_structures_lie_in_memory_as_a_c_compiler_lays_those_of_the_header() {
        let mut text = String::from("#include \"rollhouse.h\"\n");
        for (name, size, members) in layouts() {
            writeln!(text, "_Static_assert(sizeof({name}) == {size}, \"{name}\");").unwrap();
            for (member, offset) in members {
                let held = format!("offsetof({name}, {member}) == {offset}");
                writeln!(text, "_Static_assert({held}, \"{name}.{member}\");").unwrap();
            }
        }
        for (name, value) in [
            ("VERSION", VERSION),
            ("BOX", BOX),
            ("DISCRETE", DISCRETE),
            ("DICT", DICT),
            ("TUPLE", TUPLE),
            ("ACTION_MASK", ACTION_MASK),
            ("STRING", STRING),
            ("SEQUENCE", SEQUENCE),
            ("FLAG", FLAG),
            ("INTEGER", INTEGER),
            ("NUMBER", NUMBER),
            ("TEXT", TEXT),
            ("LIST", LIST),
            ("OK", OK as u32),
            ("FAILED", FAILED as u32),
            ("UNSUPPORTED", UNSUPPORTED as u32),
            ("REFUSED", REFUSED as u32),
            ("NO_RESULT", GameResult::None.code().into()),
            ("WIN", GameResult::Win.code().into()),
            ("LOSE", GameResult::Lose.code().into()),
            ("DRAW", GameResult::Draw.code().into()),
        ] {
            writeln!(text, "_Static_assert(ROLLHOUSE_{name} == {value}, \"{name}\");").unwrap();
        }
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
        let arguments = ["-std=c11", "-fsyntax-only", "-xc", "-I", include, "-"];
        let compiler = Command::new("cc").args(arguments).stdin(Stdio::piped()).spawn();
        let Ok(mut compiler) = compiler else { return println!("skipped: there is no C compiler") };
        compiler.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(compiler.wait().unwrap().success());
    }
}
