//! What stands on the screen, and what keys do to it.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;
use rollhouse_core::split_mix64;
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Episode, Query, RecordMode, Replays};
use rollhouse_viewer::{Ask, Event, Key, Look, Player, draw};
use stage::{Play, play};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

/// The longest episode of a play.
fn recorded(one: &Play) -> Episode {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
    play(Arc::new(disk.clone()), dir, one);
    let replays = Replays::open(Arc::new(disk), dir).unwrap();
    let sort = "-length".parse().unwrap();
    let query = Query { sort, all_outcomes: true, limit: Some(1), ..Query::default() };
    replays.load(&replays.list(&query).unwrap()[0]).unwrap()
}

/// A paused player of an episode that was passed as a whole.
fn player(episode: Episode, at: u64) -> Player<'static> {
    let mut player = Player::new(&REGISTRY, episode, at, 0);
    if at < player.info().length {
        press(&mut player, [Key::Char(' ')]);
    }
    assert!(player.pass(u64::MAX));
    player
}

fn press(player: &mut Player<'_>, keys: impl IntoIterator<Item = Key>) -> Option<Ask> {
    keys.into_iter().filter_map(|key| player.on(Event::Key(key))).last()
}

fn typed(text: &str) -> impl Iterator<Item = Key> {
    text.chars().map(Key::Char).chain([Key::Enter])
}

/// The screen as text, without what is empty at the right.
fn screen(player: &Player<'_>, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(player, Look::Plain, &|ms| format!("at {ms}"), frame.buffer_mut())).unwrap();
    let buffer: &Buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn assert_screen(player: &Player<'_>, wanted: &str) {
    let found = screen(player, 80, 24).join("\n");
    assert_eq!(found.trim_end(), wanted.trim_start_matches('\n').trim_end(), "\n{found}");
}

#[test]
fn a_game_is_shown_with_its_picture_values_and_timeline() {
    let player = player(recorded(&Play { lanes: 4, ..Play::new("GridBreakout-v0", 60) }), 7);
    assert_screen(&player, "");
}

#[test]
fn an_env_without_a_picture_says_so_and_shows_its_numbers() {
    let player = player(recorded(&Play { lanes: 2, ..Play::new("Echo-v0", 60) }), 30);
    assert_screen(&player, "");
}

#[test]
fn a_recording_in_full_is_shown_from_what_was_recorded() {
    let player = player(recorded(&Play { lanes: 2, ..Play::new("test/Noise-v0", 60) }), 3);
    assert_screen(&player, "");
}

#[test]
fn help_lies_over_the_screen_and_any_key_takes_it_away() {
    let mut player = player(recorded(&Play { lanes: 2, ..Play::new("test/Noise-v0", 60) }), 3);
    let before = screen(&player, 80, 24);
    press(&mut player, [Key::Char('?')]);
    let help = screen(&player, 80, 24).join("\n");
    assert!(help.contains("go to a step (120) or a percentage (50%)"), "{help}");
    assert_eq!(press(&mut player, [Key::Escape]), None);
    assert_eq!(screen(&player, 80, 24), before);
}

#[test]
fn a_screen_that_is_too_small_says_what_is_wanted() {
    let player = player(recorded(&Play { lanes: 2, ..Play::new("CartPole-v1", 60) }), 0);
    for (width, height) in [(79, 24), (80, 23), (79, 1)] {
        let found = screen(&player, width, height);
        assert_eq!(found[0], format!("{width}x{height} is too small: 80x24 is wanted"));
        assert!(found[1..].iter().all(String::is_empty));
    }
    screen(&player, 1, 1);
}

#[test]
fn an_env_of_other_dynamics_is_not_recomputed_and_both_hashes_are_shown() {
    let changed = Registry::empty();
    let original = REGISTRY.get("CartPole-v1").unwrap();
    let mut spec = original.spec().clone();
    spec.dynamics_hash ^= 1;
    let hashes = [original.spec().dynamics_hash, spec.dynamics_hash].map(|hash| format!("{hash:016x}"));
    changed.register(EnvEntry::new(spec, move |set, options| original.make_block_on(set, options))).unwrap();
    for registry in [&changed, &Registry::empty()] {
        for mode in [RecordMode::All, RecordMode::Trace] {
            let episode = recorded(&Play { mode, ..Play::new("CartPole-v1", 100) });
            let name = episode.info.name.to_string();
            let mut player = Player::new(registry, episode, 0, 0);
            assert!(player.pass(u64::MAX));
            press(&mut player, [Key::Right]);
            assert_eq!(player.at(), u64::from(mode == RecordMode::Trace));
            let shown = screen(&player, 120, 24).join(" ");
            assert!(shown.contains(&name) && shown.contains("Not recomputed"), "{shown}");
            if registry.get("CartPole-v1").is_ok() {
                assert!(hashes.iter().all(|hash| shown.contains(hash)), "{shown}");
            }
        }
    }
}

#[test]
fn keys_play_pause_step_and_jump() {
    let episode = recorded(&Play { lanes: 2, ..Play::new("Pendulum-v1", 150) });
    let length = episode.info.length;
    assert_eq!(length, 149);
    let mut player = player(episode, 0);
    let mut at = |keys: &[Key]| {
        press(&mut player, keys.iter().copied());
        player.at()
    };
    assert_eq!(at(&[Key::Right, Key::Char('l'), Key::Right]), 3);
    assert_eq!(at(&[Key::Left]), 2);
    assert_eq!(at(&[Key::Char('h'), Key::Left, Key::Left]), 0);
    assert_eq!(at(&[Key::PageDown]), length / 10);
    assert_eq!(at(&[Key::End, Key::Right]), length);
    assert_eq!(at(&[Key::PageUp]), length - length / 10);
    assert_eq!(at(&[Key::Home]), 0);
    assert_eq!(at(&[Key::Char(']')]), length);
    assert_eq!(at(&[Key::Char('[')]), 0);
    press(&mut player, [Key::Char('g')].into_iter().chain(typed("120")));
    assert_eq!(player.at(), 120);
    press(&mut player, [Key::Char('g')].into_iter().chain(typed("50%")));
    assert_eq!(player.at(), 75);
    press(&mut player, [Key::Char('g'), Key::Char('9'), Key::Escape, Key::Char(' ')]);
    assert_eq!(player.on(Event::Tick(Duration::from_millis(500))), None);
    assert_eq!(player.at(), 75 + 15);
    press(&mut player, [Key::Char('+')]);
    player.on(Event::Tick(Duration::from_millis(500)));
    assert_eq!(player.at(), 90 + 30);
    press(&mut player, [Key::Char('-'); 9]);
    player.on(Event::Tick(Duration::from_secs(1)));
    assert_eq!((player.at(), player.speed()), (121, -4));
    press(&mut player, [Key::Char('+'); 20]);
    player.on(Event::Tick(Duration::from_secs(1)));
    assert_eq!((player.at(), player.speed()), (length, 6));
    // At the end it has stopped, and plays from the beginning again.
    player.on(Event::Tick(Duration::from_secs(1)));
    press(&mut player, [Key::Char(' ')]);
    assert_eq!(player.at(), 0);
    for (key, ask) in [
        (Key::Char('q'), Ask::Quit),
        (Key::Ctrl('c'), Ask::Quit),
        (Key::Escape, Ask::Leave),
        (Key::Char('n'), Ask::Next),
        (Key::Char('p'), Ask::Previous),
    ] {
        assert_eq!(press(&mut player, [key]), Some(ask));
    }
}

#[test]
fn a_divergence_is_marked_named_and_can_be_gone_to() {
    let lie = Play { lie_from: Some(70), ..Play::new("MountainCar-v0", 400) };
    let mut player = player(recorded(&lie), 0);
    press(&mut player, [Key::Char(']')]);
    assert_eq!(player.at(), 128);
    let shown = screen(&player, 100, 30).join("\n");
    assert!(shown.contains("≠ state differs in step 65 to 128"), "{shown}");
}

#[test]
fn an_element_is_shown_at_the_same_step_the_same_whichever_way_it_was_come_to() {
    let episode = recorded(&Play { lanes: 2, ..Play::new("Acrobot-v1", 250) });
    let mut forward = player(episode.clone(), 0);
    press(&mut forward, [Key::Right; 130]);
    let mut back = player(episode, 0);
    press(&mut back, [Key::End].into_iter().chain([Key::Left; 19]).chain([Key::Home, Key::Char('g')]));
    press(&mut back, typed("131").chain([Key::Left]));
    assert_eq!((forward.at(), back.at()), (130, 130));
    assert_eq!(screen(&forward, 120, 40), screen(&back, 120, 40));
}

/// Every env, random keys, random sizes.
#[test]
fn whatever_is_pressed_on_whatever_screen_nothing_panics_and_the_step_is_one_of_the_episode() {
    let keys = [
        [Key::Left, Key::Right, Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Home, Key::End],
        [
            Key::Enter,
            Key::Escape,
            Key::Backspace,
            Key::Tab,
            Key::BackTab,
            Key::Ctrl('l'),
            Key::Char('é'),
            Key::Char('?'),
        ],
        ['g', '5', '%', '9', ' ', '+', '-', ','].map(Key::Char),
        ['[', ']', 'n', 'p', 'h', 'l', ':', '0'].map(Key::Char),
    ];
    let keys: Vec<Key> = keys.into_iter().flatten().collect();
    for id in REGISTRY.ids() {
        let episode = recorded(&Play { lanes: 3, ..Play::new(id.clone().leak(), 120) });
        let mut player = Player::new(&REGISTRY, episode, 0, 0);
        let mut seed = 7;
        for turn in 0..400 {
            seed = split_mix64(seed);
            let key = keys[(seed >> 8) as usize % keys.len()];
            player.on(Event::Key(key));
            player.on(Event::Tick(Duration::from_millis(seed >> 56)));
            player.pass(seed % 5);
            assert!(player.at() <= player.info().length, "{id}: {turn}");
            if turn % 8 == 0 {
                let area = Rect::new(0, 0, (seed >> 20) as u16 % 200 + 1, (seed >> 40) as u16 % 60 + 1);
                for look in [Look::Colour, Look::Plain] {
                    draw(&player, look, &|ms| ms.to_string(), &mut Buffer::empty(area));
                }
            }
        }
    }
}
