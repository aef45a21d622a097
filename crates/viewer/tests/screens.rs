//! What stands on the screen, and what keys do to it.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::stage;

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;
use rollhouse_core::{ObservationSpace, RecordRule, Space, split_mix64};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Comparison, Episode, LabelChange, Library, Query, RecorderConfig, Replays};
use rollhouse_viewer::{
    Ask, Browser, Choice, Event, Key, Live, LiveAsk, LiveFrame, LiveSource, Look, Pair, Player, draw,
    draw_list, draw_live, draw_pair, rows_of,
};
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
    let mut player = Player::new(&*REGISTRY, episode, at, 0);
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
    let mut found = screen(&player, 80, 24);
    // How the env draws itself is its own matter.
    let rows = &mut found[3..17];
    let picture: Vec<String> = rows.iter().map(|row| row.chars().take(39).collect()).collect();
    assert!(picture.iter().filter(|row| row.trim() != "").count() > 5, "{picture:#?}");
    rows.iter_mut().for_each(|row| *row = row.chars().skip(40).collect());
    assert_eq!(found.join("\n"), GAME.trim_start_matches('\n').trim_end());
}

#[test]
fn an_env_without_a_picture_says_so_and_shows_its_numbers() {
    let player = player(recorded(&Play { lanes: 2, ..Play::new("test/Faulty-v0", 60) }), 12);
    assert_screen(&player, NUMBERS);
}

#[test]
fn a_recording_in_full_is_shown_from_what_was_recorded() {
    let episode = recorded(&Play { lanes: 2, ..Play::new("test/Noise-v0", 60) });
    let recorded = episode.steps.as_ref().unwrap();
    let (position, noise) = (recorded.obs[0].number(2), recorded.infos[0].number(2));
    let shown = screen(&player(episode, 3), 80, 24).join("\n");
    assert!(shown.contains("and this is what was"), "{shown}");
    assert!(shown.contains(&format!("position        {position:.4}")), "{shown}");
    assert!(shown.contains(&format!("info/noise      {noise:.4}")), "{shown}");
}

#[test]
fn where_another_version_of_the_policy_acts_is_marked_and_can_be_gone_to() {
    let episode = recorded(&Play { lanes: 1, version_rows: 60, ..Play::new("Pendulum-v1", 150) });
    let mut player = player(episode, 0);
    let marked = |player: &Player<'_>| screen(player, 80, 24).join("\n").matches('▾').count();
    assert_eq!(marked(&player), 2);
    press(&mut player, [Key::Char(']')]);
    let found = screen(&player, 80, 24).join("\n");
    assert!(found.contains("60 of 149"), "{found}");
}

#[test]
fn two_episodes_are_shown_at_the_same_step_and_where_they_part_is_marked_and_can_be_gone_to() {
    let play = Play { lanes: 1, ..Play::new("Pendulum-v1", 40) };
    let (a, b) = (recorded(&play), recorded(&Play { lie_from: Some(9), rows: 30, ..play }));
    let mut both = Comparison::new(&*REGISTRY, &a, &b).unwrap();
    let found = both.first_difference().unwrap().unwrap();
    assert_eq!(found.step, 9);
    let mut pair = Pair::new(Player::new(&*REGISTRY, a, 0, 0), Player::new(&*REGISTRY, b, 0, 0), Some(found));
    assert!(pair.pass(u64::MAX));
    let shown = |pair: &Pair<'_>| {
        let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
        terminal
            .draw(|frame| draw_pair(pair, Look::Plain, &|ms| ms.to_string(), frame.buffer_mut()))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..100).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..30).map(row).collect::<Vec<_>>().join("\n")
    };
    pair.on(Event::Key(Key::Char(' ')));
    pair.on(Event::Key(Key::Char('d')));
    let screen = shown(&pair);
    assert!(screen.contains("step 9 of 39") && screen.contains("step 9 of 29"), "{screen}");
    assert!(screen.contains("≠ they part at step 9: torque "), "{screen}");
    pair.on(Event::Key(Key::End));
    let screen = shown(&pair);
    assert!(screen.contains("step 39 of 39") && screen.contains("step 29 of 29"), "{screen}");
    assert_eq!(pair.on(Event::Key(Key::Char('n'))), None);
    assert_eq!(pair.on(Event::Key(Key::Char('q'))), Some(Ask::Quit));
}

#[test]
fn help_lies_over_the_screen_and_any_key_takes_it_away() {
    let mut player = player(recorded(&Play { lanes: 2, ..Play::new("test/Noise-v0", 60) }), 3);
    let before = screen(&player, 80, 24);
    press(&mut player, [Key::Char('?')]);
    let help = screen(&player, 80, 24).join("\n");
    // Symptom: on 80 columns the ends of the longest lines were cut off. Fix: the window is as wide as they are.
    for whole in ["go to a step (120) or a percentage (50%)", "action=1, …", "● so far ≠ differs"] {
        assert!(help.contains(whole), "{help}");
    }
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
        for mode in [RecordRule::All, RecordRule::Trace] {
            let episode = recorded(&Play { record: mode, ..Play::new("CartPole-v1", 100) });
            let name = episode.info.name.to_string();
            let mut player = Player::new(registry, episode, 0, 0);
            assert!(player.pass(u64::MAX));
            press(&mut player, [Key::Right]);
            assert_eq!(player.at(), u64::from(mode == RecordRule::Trace));
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

fn library() -> Library {
    library_of(&[("CartPole-v1", 1), ("Pendulum-v1", 2), ("Acrobot-v1", 3)])
}

fn library_of(runs: &[(&'static str, u64)]) -> Library {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
    for &(env, seed) in runs {
        play(Arc::new(disk.clone()), dir, &Play { lanes: 7, seed, ..Play::new(env, 300) });
    }
    Library::open(Arc::new(disk), dir).unwrap()
}

fn browser(library: &Library, height: usize) -> Browser {
    let mut browser = Browser::new(["Acrobot-v1", "CartPole-v1", "Pendulum-v1"].map(String::from).to_vec());
    browser.set_height(height);
    browser.fill(library);
    browser
}

fn tap(browser: &mut Browser, library: &Library, keys: impl IntoIterator<Item = Key>) -> Option<Choice> {
    let tapped = keys.into_iter().filter_map(|key| {
        let choice = browser.on(key);
        browser.fill(library);
        choice
    });
    tapped.last()
}

#[test]
fn going_down_and_up_a_list_shows_every_episode_in_its_order_whatever_fits() {
    let library = library();
    let sort = "-return".parse().unwrap();
    let all = library.list(&Query { sort, all_outcomes: true, ..Query::default() }).unwrap();
    let names: Vec<String> = all.iter().map(|row| row.info.name.to_string()).collect();
    assert!(names.len() > 40, "{}", names.len());
    for height in [1, 2, 7, 1000] {
        let mut browser = browser(&library, height);
        tap(&mut browser, &library, [Key::Tab]);
        let name = |browser: &Browser| browser.chosen().unwrap().info.name.to_string();
        let mut down = vec![name(&browser)];
        for _ in 1..names.len() {
            tap(&mut browser, &library, [Key::Down]);
            down.push(name(&browser));
        }
        assert_eq!(down, names, "{height}");
        tap(&mut browser, &library, [Key::Down]);
        assert_eq!(name(&browser), names[names.len() - 1]);
        let mut up = vec![name(&browser)];
        for _ in 1..names.len() {
            tap(&mut browser, &library, [Key::Up]);
            up.push(name(&browser));
        }
        up.reverse();
        assert_eq!(up, names, "{height}");
        tap(&mut browser, &library, [Key::PageDown, Key::PageDown, Key::PageUp, Key::PageUp, Key::Up]);
        assert_eq!(name(&browser), names[0]);
    }
}

#[test]
fn a_list_is_narrowed_by_what_is_typed_and_says_where_nothing_is_like_it() {
    let library = library();
    let mut browser = browser(&library, 5);
    tap(&mut browser, &library, "pend".chars().map(Key::Char));
    assert_eq!(browser.chosen().unwrap().info.env(), "Pendulum-v1");
    tap(&mut browser, &library, " zebra".chars().map(Key::Char));
    assert!(browser.chosen().is_none());
    assert_eq!(tap(&mut browser, &library, [Key::Enter]), None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    draw_list(&browser, "a\u{1b}[2Jfolder", Look::Plain, &|ms| ms.to_string(), &mut buffer);
    let text: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
    assert!(text.contains("no env, outcome, result or run is like `zebra`"), "{text}");
    assert!(text.contains("a\\u{1b}[2Jfolder") && !text.contains('\u{1b}'), "{text}");
    assert_eq!(tap(&mut browser, &library, [Key::Escape, Key::Enter]), Some(Choice::Show));
    assert_eq!(tap(&mut browser, &library, [Key::Escape]), Some(Choice::Quit));
}

#[test]
fn a_list_marks_what_is_pinned_and_has_what_is_said_of_the_chosen_episode_below_it() {
    // Runs of this test's recordings share their short id; one alone has names that stand for one episode each.
    let library = library_of(&[("CartPole-v1", 1)]);
    let name = browser(&library, 20).chosen().unwrap().info.name;
    for change in [
        LabelChange::Pin(true),
        LabelChange::Tag(vec!["best".parse().unwrap()]),
        LabelChange::Note(Some("\u{1b}[2Jlook".parse().unwrap())),
    ] {
        library.label(name, &change).unwrap();
    }
    let rows = |browser: &Browser| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        draw_list(browser, "/data", Look::Plain, &|_| "2026-11-24 12:00:00".into(), &mut buffer);
        let row = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..24).map(row).collect::<Vec<_>>()
    };
    let before = rows(&browser(&library, 20));
    let after = rows(&browser(&library, 20).with_labels(library.labels().unwrap()));
    assert!(after[3].starts_with(&name.to_string()) && after[3].ends_with("12:00:00*"), "{:?}", after[3]);
    assert!(after[4].ends_with("12:00:00 "), "{:?}", after[4]);
    assert!(after[22].starts_with("* pinned  best  \"\\u{1b}[2Jlook\"  policy"), "{:?}", after[22]);
    assert_eq!(
        (&before[3][..79], &before[4..22]),
        (&after[3][..79], &after[4..22]),
        "nothing else is different"
    );
}

#[test]
fn whatever_is_pressed_in_a_list_of_whatever_height_nothing_panics() {
    let library = library();
    let mut browser = browser(&library, 5);
    let keys =
        [Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Tab, Key::BackTab, Key::Home, Key::Backspace];
    let keys: Vec<Key> =
        keys.into_iter().chain("cpt >1-ré".chars().map(Key::Char)).chain([Key::Escape]).collect();
    let mut seed = 3;
    for turn in 0..600 {
        seed = split_mix64(seed);
        browser.on(keys[(seed >> 8) as usize % keys.len()]);
        if turn % 5 == 0 {
            let area = Rect::new(0, 0, (seed >> 20) as u16 % 200 + 1, (seed >> 40) as u16 % 60 + 1);
            browser.set_height(rows_of(area.height));
            draw_list(&browser, "/data", Look::Colour, &|ms| ms.to_string(), &mut Buffer::empty(area));
        }
        if turn % 3 == 0 {
            browser.fill(&library);
        }
    }
}

#[test]
fn the_next_step_that_meets_a_condition_is_come_to() {
    let episode = recorded(&Play { lanes: 4, ..Play::new("GridBreakout-v0", 60) });
    let mut player = player(episode, 0);
    let look = |player: &mut Player<'_>, text: &str| {
        press(player, [Key::Char('/')].into_iter().chain(typed(text)));
        while !player.pass(3) && screen(player, 80, 24).join("").contains("looking for") {}
    };
    look(&mut player, "reward>0");
    assert_eq!(player.at(), 10, "{}", screen(&player, 80, 24).join("\n"));
    assert!(screen(&player, 80, 24).join("\n").contains("reward          1"));
    // The same once more: there is no further one, and it stays.
    look(&mut player, "");
    assert_eq!(player.at(), 10);
    assert!(screen(&player, 80, 24).join("\n").contains("no later step has reward>0"));
    for (text, says) in
        [("moon>1", "`moon` is neither"), ("reward", "no condition"), ("reward>x", "no number")]
    {
        look(&mut player, text);
        assert!(screen(&player, 80, 24).join("\n").contains(says), "{text}");
    }
}

#[test]
fn an_episode_that_is_being_recorded_grows_while_it_is_played_until_it_has_ended() {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
    let one = Play { lanes: 1, max_steps: 80, ..Play::new("Pendulum-v1", 90) };
    let mut live: Option<Player<'static>> = None;
    let under_way = |disk: &FaultyDisk| {
        let library = Library::open(Arc::new(disk.clone()), dir).unwrap();
        let open = library.under_way().unwrap();
        open.first().map(|one| one.folder.load(&one.info).unwrap())
    };
    stage::play_with(Arc::new(disk.clone()), dir, RecorderConfig::default(), &one, |row, recorder, block| {
        if ![20, 60].contains(&row) {
            return;
        }
        block.flush();
        recorder.sync().unwrap();
        let episode = under_way(&disk).expect("it is under way");
        match &mut live {
            None => {
                let mut player = Player::new(&*REGISTRY, episode, 5, 0);
                player.set_growing(true);
                assert!(player.pass(u64::MAX));
                // It waits at the end of what there is.
                player.on(Event::Tick(Duration::from_secs(9)));
                live = Some(player);
            }
            Some(player) => {
                let was = player.info().length;
                assert_eq!(player.at(), was);
                player.extend(episode);
                assert!(player.info().length > was);
                player.on(Event::Tick(Duration::from_secs(9)));
                assert_eq!(player.at(), player.info().length);
                let shown = screen(player, 80, 24).join("\n");
                assert!(shown.contains("● being recorded") && !shown.contains("differs"), "{shown}");
            }
        }
    });
    let library = Library::open(Arc::new(disk.clone()), dir).unwrap();
    assert!(library.under_way().unwrap().is_empty());
    let mut player = live.unwrap();
    let ended = library.find(player.info().name).unwrap();
    player.extend(ended.folder.load(&ended.info).unwrap());
    player.set_growing(false);
    assert!(player.pass(u64::MAX));
    press(&mut player, [Key::End]);
    let shown = screen(&player, 80, 24).join("\n");
    assert_eq!(player.at(), 80);
    assert!(shown.contains("truncated") && !shown.contains("differs"), "{shown}");
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
        ['/', 'x', '>', '=', 'r', 'e', '<', '1'].map(Key::Char),
    ];
    let keys: Vec<Key> = keys.into_iter().flatten().collect();
    for id in REGISTRY.ids() {
        let episode = recorded(&Play { lanes: 3, ..Play::new(id.clone().leak(), 120) });
        let mut player = Player::new(&*REGISTRY, episode, 0, 0);
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

const GAME: &str = "
93xyd363-0-2  GridBreakout-v0  terminated  return 1  16 steps
recorded at 1700000000000 UTC by policy random, version 1, stage

step            7 of 16 (43.8 %)
action          0 none
return          0
reward          0            ▅▅▅▅▅▅▅










return 0 to 1   reward 0 to 1
                                  │          ███████████████████████████████████
                                  │          ███████████████████████████████████
▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁███████████████████████████████████
▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁█████▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
├─────────────────────────────────▲────────────────────────────────────────────■
 ‖ paused      1x  ? help  q quit  space play  ←→ step  +- speed  g go to  n p e
";

const NUMBERS: &str = "
13wjy3vc-0-0  test/Faulty-v0  cancelled  return 59  59 steps
recorded at 1700000000000 UTC by policy random, version 1, stage

                                        step            12 of 59 (20.3 %)
                                        action          1 right
                                        return          12
                                        reward          1           ▅▅▅▅▅▅▅▅▅▅▅▅

                                        position        2.1432      ▂▄▂▁▃▅▇▅▃▅▆█
  test/Faulty-v0 draws no picture of
                itself.






return 1 to 59   reward 1 to 1
                │                                      ▁▁▂▂▂▂▂▃▃▄▄▄▄▅▅▅▆▆▆▆▇▇▇██
                │         ▁▁▁▁▂▂▂▃▃▃▃▄▄▄▅▅▅▅▆▆▆▆▇▇▇█████████████████████████████
▁▁▁▂▂▂▃▃▃▃▄▄▄▅▅▅▅▆▆▇▇▇▇▇████████████████████████████████████████████████████████
▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅
├───────────────▲──────────────────────────────────────────────────────────────✗
 ‖ paused      1x  ? help  q quit  space play  ←→ step  +- speed  g go to  n p e
";

#[test]
fn an_episode_that_cannot_be_recomputed_shows_the_image_that_was_observed() {
    let mut seen =
        recorded(&Play { lanes: 1, record: RecordRule::Trace, ..Play::new("GridBreakout-v0", 10) });
    // As a grey image of 40 x 10 pixels.
    let mut run = rollhouse_replay::RunInfo::clone(&seen.info.run);
    if let ObservationSpace::Plain(Space::Box(image)) = &mut run.spec.observation_space {
        image.shape = vec![10, 40];
    }
    seen.info.run = Arc::new(run);
    let nothing = Registry::empty();
    let player = Player::new(&nothing, seen, 2, 0);
    let text = screen(&player, 100, 30).join("\n");
    assert!(!text.contains("Not recomputed: unknown env") && !text.contains("draws no picture"), "{text}");
    let mut buffer = Buffer::empty(Rect::new(0, 0, 100, 30));
    draw(&player, Look::Colour, &|ms| ms.to_string(), &mut buffer);
    assert!(buffer.content().iter().any(|cell| cell.symbol() == "▀"));
}

/// One episode as if it were played on lanes just now.
struct OneEpisode(Episode);

impl LiveSource for OneEpisode {
    fn lanes(&self) -> u32 {
        3
    }

    fn name(&self, _: u32) -> String {
        "session k3f9q2tz/0 on n1".into()
    }

    fn look(&mut self, _: u32, _: Duration) -> Result<Option<LiveFrame>, String> {
        // Its reset.
        let mut episode = self.0.clone();
        (episode.info.length, episode.end_hash, episode.windows) = (0, None, Vec::new());
        episode.actions.clear();
        Ok(Some(LiveFrame { episode, action: None, reward: 0.0, ended: (false, false) }))
    }

    fn so_far(&mut self, _: u32) -> Result<Episode, String> {
        Ok(self.0.clone())
    }
}

fn live_screen(live: &Live<'_>) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw_live(live, Look::Plain, frame.buffer_mut())).unwrap();
    let buffer: &Buffer = terminal.backend().buffer();
    let row = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>() + "\n";
    (0..24).map(row).collect()
}

#[test]
fn a_watched_lane_is_gone_back_in_and_comes_live_again_at_its_end() {
    let episode = recorded(&Play { lanes: 2, ..Play::new("CartPole-v1", 60) });
    let length = episode.info.length;
    let mut source = OneEpisode(episode);
    let mut live = Live::new(&*REGISTRY, &source, 1);
    assert!(live_screen(&live).contains("nothing of this lane was seen yet"));
    live.take(source.look(1, Duration::ZERO).unwrap().unwrap());
    let shown = live_screen(&live);
    assert!(shown.contains("lane 2 of 3") && shown.contains("● live"), "{shown}");
    assert!(shown.contains("k3f9q2tz/0 on n1") && shown.contains("CartPole-v1"), "{shown}");
    // A single frame has no timeline.
    assert!(!shown.contains('▲'), "{shown}");
    let press = |live: &mut Live<'_>, key| live.on(Event::Key(key), &OneEpisode(source.0.clone()));
    press(&mut live, Key::Char('?'));
    assert!(live_screen(&live).contains("live again; Esc while live quits"));
    assert_eq!(press(&mut live, Key::Escape), None);
    assert!(!live_screen(&live).contains("live again"));
    assert_eq!(press(&mut live, Key::Left), Some(LiveAsk::SoFar(1)));
    live.go_back(source.0.clone(), 1);
    assert!(live.pass(u64::MAX) && !live.is_live());
    let shown = live_screen(&live);
    assert!(shown.contains("‖ paused") && shown.contains(&format!("{} of {length}", length - 1)), "{shown}");
    for key in [Key::Home, Key::Right, Key::End] {
        assert_eq!(press(&mut live, key), None);
        assert!(!live.is_live(), "{key:?}");
    }
    press(&mut live, Key::Right);
    assert!(live.is_live(), "past its end the lane is live again");
    live.go_back(source.0.clone(), 0);
    press(&mut live, Key::Escape);
    assert!(live.is_live());
    assert_eq!(press(&mut live, Key::Char('p')), Some(LiveAsk::Turned));
    assert_eq!(live.lane(), 0);
    press(&mut live, Key::Char('p'));
    assert_eq!(live.lane(), 2);
    assert_eq!(press(&mut live, Key::Escape), Some(LiveAsk::Quit));
}
