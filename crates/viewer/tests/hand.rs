//! What stands on the screen of a game that is played by hand, and what keys do to it.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;
use rollhouse_core::limits::MAX_ELEMENT_NAMES;
use rollhouse_core::{ColumnData, EpisodeName, LaneSet, Options, Outcome};
use rollhouse_env::{BatchEnv, BlockStep, EnvEntry, Image, ImageSize, Registry, RenderError};
use rollhouse_replay::PlayedStep;
use rollhouse_viewer::{Deed, Event, Game, GameError, Hand, Key, Look, Standing, Table, draw_hand};

/// One lane of an env, as the engine steps it, and a time limit.
struct Lane {
    entry: Arc<EnvEntry>,
    env: Box<dyn BatchEnv>,
    obs: Vec<ColumnData>,
    infos: Vec<ColumnData>,
    stands: Standing,
}

impl Lane {
    fn new(id: &str) -> Self {
        let entry = Registry::builtin().get(id).unwrap();
        let spec = entry.spec();
        let options = Options::check(&spec.options, &[]).unwrap();
        let env = entry.make_block(&[options]).unwrap();
        let zeros = |spec: &rollhouse_core::ColumnSpec| ColumnData::zeros(spec.dtype, spec.elements());
        let obs: Vec<_> = spec.obs_columns().iter().map(zeros).collect();
        let infos = spec.info_channels.iter().map(zeros).collect();
        let step = PlayedStep {
            t: 0,
            action: None,
            reward: None,
            total_reward: 0.0,
            obs: obs.clone(),
            infos: Vec::new(),
            terminated: false,
            truncated: false,
            state: None,
        };
        let name: EpisodeName = "k3f9q2tz-0-0".parse().unwrap();
        let stands = Standing { name, step, outcome: None };
        let mut lane = Self { entry, env, obs, infos, stands };
        lane.env.seed(0, 5);
        lane.reset();
        lane
    }

    fn reset(&mut self) {
        let mut obs: Vec<_> = self.obs.iter_mut().map(ColumnData::as_mut).collect();
        assert_eq!(self.env.reset(LaneSet::one(0), &mut obs), LaneSet::NONE);
        self.stands.step.obs.clone_from(&self.obs);
    }

    fn hand(&self, can_begin_anew: bool) -> Hand {
        let table = Table {
            spec: self.entry.spec(),
            form: self.entry.render_size(),
            about: "played by hand, seed 5, recorded in ./here",
            steps_per_second: 50.0,
            can_begin_anew,
        };
        Hand::new(&table, self.stands.clone())
    }
}

impl Game for Lane {
    fn step(&mut self, action: &ColumnData) -> Result<Standing, GameError> {
        assert!(self.stands.outcome.is_none(), "a step after the end");
        let (mut rewards, step) = ([0.0], &mut self.stands.step);
        let mut obs: Vec<_> = self.obs.iter_mut().map(ColumnData::as_mut).collect();
        let mut infos: Vec<_> = self.infos.iter_mut().map(ColumnData::as_mut).collect();
        let ended = self.env.step(BlockStep {
            skip: LaneSet::NONE,
            reset: LaneSet::NONE,
            actions: action.as_ref(),
            obs: &mut obs,
            infos: &mut infos,
            rewards: &mut rewards,
        });
        step.t += 1;
        (step.terminated, step.truncated) = (ended.terminated.has(0), step.t >= LIMIT);
        (step.reward, step.action) = (Some(rewards[0]), Some(action.clone()));
        step.total_reward += rewards[0];
        step.obs.clone_from(&self.obs);
        let (terminated, truncated) = (step.terminated, step.truncated);
        self.stands.outcome =
            (terminated || truncated).then_some(Outcome::Finished { terminated, truncated });
        Ok(self.stands.clone())
    }

    fn begin_anew(&mut self) -> Result<Standing, GameError> {
        self.stands.name.number += 1;
        self.stands.outcome = None;
        let step = &mut self.stands.step;
        (step.t, step.total_reward, step.reward, step.action) = (0, 0.0, None, None);
        self.reset();
        Ok(self.stands.clone())
    }

    fn command(&mut self, line: &str) -> Result<String, GameError> {
        let (method, payload) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        Ok(self.env.call(0, method, payload)?)
    }

    fn render(&mut self, size: ImageSize) -> Result<Image, RenderError> {
        self.env.render(0, size)
    }

    fn text(&mut self, columns: usize) -> Result<String, RenderError> {
        self.env.text(0, columns)
    }

    fn close(&mut self) {}
}

const LIMIT: u64 = 120;

/// Does what the hand wants done; false if that is to end.
fn carry_out(hand: &mut Hand, game: &mut Lane, event: Event) -> bool {
    match hand.on(event) {
        None => {}
        Some(Deed::Quit) => return false,
        Some(Deed::Step) => {
            let stands = game.step(&hand.action()).unwrap();
            hand.come_to(stands);
        }
        Some(Deed::Command) => {
            let answer = game.command(hand.command()).unwrap_or_else(|error| error.to_string());
            hand.hear(&answer);
        }
        Some(Deed::BeginAnew) => {
            let stands = game.begin_anew().unwrap();
            hand.come_to(stands);
        }
    }
    true
}

fn press(hand: &mut Hand, game: &mut Lane, keys: &[Key]) {
    for &key in keys {
        assert!(carry_out(hand, game, Event::Key(key)));
    }
}

/// The screen as text, without what is empty at the right.
fn screen(hand: &Hand, game: &mut Lane, look: Look, width: u16, height: u16) -> Vec<String> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw_hand(hand, game, look, &mut buffer);
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

#[test]
fn keys_and_actions_stand_below_the_picture() {
    let mut game = Lane::new("GridBreakout-v0");
    let mut hand = game.hand(true);
    press(&mut hand, &mut game, &[Key::Left, Key::Right, Key::Char('.')]);
    let mut found = screen(&hand, &mut game, Look::Plain, 80, 24);
    // How the env draws itself is its own matter.
    let picture: Vec<String> = found[3..18].iter().map(|row| row.chars().take(39).collect()).collect();
    assert!(picture.iter().filter(|row| row.trim() != "").count() > 5, "{picture:#?}");
    found[3..18].iter_mut().for_each(|row| *row = row.chars().skip(40).collect());
    assert_eq!(found.join("\n"), GAME.trim_start_matches('\n').trim_end(), "\n{}", found.join("\n"));
}

#[test]
fn elements_of_an_action_stand_between_their_bounds() {
    let mut game = Lane::new("Pendulum-v1");
    let mut hand = game.hand(false);
    press(&mut hand, &mut game, &[Key::Right; 5]);
    assert_eq!(hand.stands().step.t, 0, "pushing takes no step");
    let found = screen(&hand, &mut game, Look::Plain, 80, 24);
    assert_eq!(found[18..].join("\n"), SLIDER.trim_start_matches('\n').trim_end(), "\n{}", found.join("\n"));
    press(&mut hand, &mut game, &[Key::Enter]);
    assert_eq!(hand.stands().step.action, Some(ColumnData::F32(vec![1.0])));
}

#[test]
fn time_takes_a_step_when_one_is_due_and_makes_up_for_no_pause() {
    let mut game = Lane::new("MountainCar-v0");
    let mut hand = game.hand(true);
    assert_eq!(hand.wait(), None);
    let tick = |ms| Event::Tick(Duration::from_millis(ms));
    assert_eq!(hand.on(tick(1000)), None, "it is paused at first");
    press(&mut hand, &mut game, &[Key::Char(' ')]);
    assert_eq!(hand.wait(), Some(Duration::from_millis(20)));
    assert_eq!((hand.on(tick(15)), hand.on(tick(5))), (None, Some(Deed::Step)));
    // A minute in which nothing was drawn.
    assert_eq!(hand.on(tick(60_000)), Some(Deed::Step));
    assert_eq!((hand.on(tick(1)), hand.on(tick(1))), (Some(Deed::Step), None));
    // A key while time goes on chooses, and takes no step.
    assert_eq!(hand.on(Event::Key(Key::Left)), None);
    assert_eq!(hand.action(), ColumnData::I64(vec![0]));
    press(&mut hand, &mut game, &[Key::Char('-')]);
    assert!(hand.wait() > Some(Duration::from_millis(20)));
}

#[test]
fn an_episode_that_is_over_stands_still_until_the_next_one_is_begun() {
    let mut game = Lane::new("CartPole-v1");
    let mut hand = game.hand(true);
    while hand.stands().outcome.is_none() {
        press(&mut hand, &mut game, &[Key::Left]);
    }
    let steps = hand.stands().step.t;
    press(&mut hand, &mut game, &[Key::Char('.'), Key::Right, Key::Char(' '), Key::Enter]);
    assert_eq!((hand.stands().step.t, hand.is_playing()), (steps, false));
    let shown = screen(&hand, &mut game, Look::Plain, 80, 24).join("\n");
    assert!(shown.contains(&format!("over: terminated after {steps} steps; r next episode")), "{shown}");
    press(&mut hand, &mut game, &[Key::Char('r')]);
    assert_eq!((hand.stands().step.t, hand.stands().name.number), (0, 1));
    press(&mut hand, &mut game, &[Key::Right]);
    assert_eq!(hand.stands().step.t, 1);
}

#[test]
fn methods_are_called_by_typed_commands_whose_answers_are_shown() {
    let mut game = Lane::new("Skirmish-v0");
    let mut hand = game.hand(true);
    let typed = |line: &str| line.chars().map(Key::Char).collect::<Vec<_>>();
    let shown = screen(&hand, &mut game, Look::Plain, 120, 40).join("\n");
    assert!(shown.contains("move_units") && shown.contains(":train_unit rifle"), "{shown}");
    press(&mut hand, &mut game, &[Key::Char(':')]);
    press(&mut hand, &mut game, &typed("get_eco"));
    press(&mut hand, &mut game, &[Key::Tab]);
    let shown = screen(&hand, &mut game, Look::Plain, 120, 40).join("\n");
    assert!(shown.contains(":get_economy _"), "{shown}");
    press(&mut hand, &mut game, &[Key::Enter]);
    let shown = screen(&hand, &mut game, Look::Plain, 120, 40).join("\n");
    assert!(shown.contains("\"cash\":4000"), "{shown}");
    press(&mut hand, &mut game, &[Key::Char(':')]);
    press(&mut hand, &mut game, &typed("fly q"));
    assert_eq!(hand.stands().step.t, 0, "keys that are typed are no other keys");
    press(&mut hand, &mut game, &[Key::Enter]);
    let shown = screen(&hand, &mut game, Look::Plain, 120, 40).join("\n");
    assert!(shown.contains("the env does not have it"), "{shown}");
    press(&mut hand, &mut game, &[Key::Char(':'), Key::Up, Key::Escape, Key::Char('.')]);
    assert_eq!((hand.command(), hand.stands().step.t), ("fly q", 1));
    let mut game = Lane::new("CartPole-v1");
    let mut hand = game.hand(true);
    press(&mut hand, &mut game, &[Key::Char(':'), Key::Left]);
    assert_eq!(hand.stands().step.t, 1, "an env without methods has no commands");
}

#[test]
fn names_that_a_terminal_would_obey_are_written_out() {
    let game = Lane::new("CartPole-v1");
    let mut spec = game.entry.spec().clone();
    spec.action_names = vec!["\x1b[2Jleft".into(); MAX_ELEMENT_NAMES.min(2)];
    let table = Table {
        spec: &spec,
        form: None,
        about: "\x1b]0;about\x07",
        steps_per_second: 50.0,
        can_begin_anew: true,
    };
    let hand = Hand::new(&table, game.stands.clone());
    let mut game = Lane::new("CartPole-v1");
    let shown = screen(&hand, &mut game, Look::Colour, 80, 24).join("\n");
    assert!(!shown.contains('\x1b') && shown.contains("\\u{1b}"), "{shown}");
}

/// Keys of a person, and of a cat.
fn keys() -> impl Strategy<Value = Vec<(Key, u16)>> {
    let key = prop_oneof![
        4 => prop::sample::select(vec![
            Key::Left, Key::Right, Key::Up, Key::Down, Key::Char(' '), Key::Char('.'), Key::Char('r'), Key::Tab,
        ]),
        2 => prop::sample::select(vec![
            Key::Home, Key::End, Key::PageUp, Key::PageDown, Key::BackTab, Key::Enter, Key::Backspace,
            Key::Char('+'), Key::Char('-'), Key::Char('?'), Key::Char('0'), Key::Char('9'),
        ]),
        1 => any::<char>().prop_map(Key::Char),
        1 => any::<char>().prop_map(Key::Ctrl),
    ];
    prop::collection::vec((key, 0u16..200), 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_keys_and_no_screen_break_it(
        env in prop::sample::select(vec!["CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "GridBreakout-v0", "test/Faulty-v0", "test/Called-v0"]),
        keys in keys(),
        size in (1u16..160, 1u16..50),
        coloured in any::<bool>(),
        can_begin_anew in any::<bool>(),
    ) {
        let mut game = Lane::new(env);
        let mut hand = game.hand(can_begin_anew);
        let look = if coloured { Look::Colour } else { Look::Plain };
        for (key, ms) in keys {
            let was = hand.stands().step.t;
            let goes_on = carry_out(&mut hand, &mut game, Event::Key(key));
            // Where help is shown, most keys only take it away.
            let ends = matches!(key, Key::Char('q') | Key::Ctrl('c') | Key::Escape);
            prop_assert!(goes_on || ends, "{key:?}");
            prop_assert!(!goes_on || key != Key::Ctrl('c'));
            carry_out(&mut hand, &mut game, Event::Tick(Duration::from_millis(ms.into())));
            let now = hand.stands().step.t;
            prop_assert!(now == 0 || now <= was + 2, "{} to {}", was, now);
            prop_assert!(can_begin_anew || hand.stands().name.number == 0);
            screen(&hand, &mut game, look, size.0, size.1);
        }
        // The backend refuses what is outside of it.
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw_hand(&hand, &mut game, look, frame.buffer_mut())).unwrap();
    }
}

const GAME: &str = "
k3f9q2tz-0-0  GridBreakout-v0
played by hand, seed 5, recorded in ./here

step            3
action          2 right
return          0
reward          0           ▅▅▅











────────────────────────────────────────────────────────────────────────────────
 ↓/0 none                ←/1 left                →/2 right



 ‖ paused      1x  ? help  q quit  space play  . one step  r next episode
";

const SLIDER: &str = "
────────────────────────────────────────────────────────────────────────────────
 torque                    1        -2 ─────────────────────█─────── 2


←→ push   0 nothing   Home End least, most
 ‖ paused      1x  ? help  q quit  space play  . one step
";
