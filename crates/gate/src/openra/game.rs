//! A game behind the bridge: a lane, what its newest row showed, and how it is advanced.

use rollhouse_codec::openra::{Advance, Command, GameObservation, Interrupt};
use rollhouse_core::{ColumnRef, GameResult};

use super::observing::{Players, bytes, integer};
use super::ordering::{Ground, MAX_CHECK_EVERY, Order, Ordered, ordered};
use super::shape::Shape;
use crate::lanes::{Lane, LaneError, LaneRow};

/// A game. Its calls block.
pub(crate) struct Game {
    lane: Box<dyn Lane>,
    players: Players,
    scene: Scene,
}

/// What the newest row showed, as far as commands and answers need it.
#[derive(Debug, Clone, Default)]
struct Scene {
    tick: i32,
    side: i64,
    /// Ids and cells of units of one's own.
    units: Vec<(i64, (i64, i64))>,
    /// A cell for the building that is ready.
    place: Option<(i64, i64)>,
    events: [bool; Interrupt::ALL.len()],
    ticks: u32,
    stop_reason: i32,
    rejected: u32,
    is_over: bool,
}

/// What an advance came to.
#[derive(Debug)]
pub(crate) struct Advanced {
    pub(crate) message: GameObservation,
    /// How the game ended, if it has.
    pub(crate) result: Option<GameResult>,
    /// Commands that changed nothing.
    pub(crate) rejected: u32,
}

/// Reason of a stop that is an event's, less the event's number.
const FIRST_EVENT: i32 = 3;

impl Game {
    /// Begins a game on a lane that was made for it.
    pub(crate) fn begin(
        mut lane: Box<dyn Lane>,
        shape: &Shape,
        players: Players,
        seed: Option<u64>,
    ) -> Result<Self, LaneError> {
        lane.begin(seed, &[])?;
        let mut game = Self { lane, players, scene: Scene::default() };
        game.look(shape, &mut |_| {})?;
        Ok(game)
    }

    /// Returns the message of the newest row.
    pub(crate) fn observation(&mut self, shape: &Shape) -> Result<GameObservation, LaneError> {
        let players = self.players.clone();
        let mut message = GameObservation::default();
        self.lane.look(&mut |shown| message = shape.obs.message(shown, &players))?;
        Ok(message)
    }

    /// Carries out commands and advances, until its ticks are over or something of what it looks for has happened. Commands
    /// beyond those that fit into a step are carried out in the ticks that follow.
    pub(crate) fn advance(&mut self, shape: &Shape, advance: &Advance) -> Result<Advanced, LaneError> {
        let most = shape.action.most_orders.max(1);
        let mut commands = advance.commands.chunks(most).peekable();
        let (mut done, mut rejected, mut reward) = (0, 0, 0.0);
        let mut reason = None;
        loop {
            let orders = match commands.next() {
                Some(commands) => self.orders(commands, &mut rejected)?,
                None => Vec::new(),
            };
            let ticks = if commands.peek().is_some() { 1 } else { advance.ticks - done };
            self.lane.step(ColumnRef::I64(&shape.action.row(&orders, ticks, advance)))?;
            self.look(shape, &mut |shown| reward += shown.reward)?;
            done += self.scene.ticks;
            rejected += self.scene.rejected;
            reason = self.interrupt(advance, reason);
            if done >= advance.ticks || reason.is_some() || self.scene.is_over {
                break;
            }
        }
        let mut message = self.observation(shape)?;
        message.reward = reward as f32;
        message.actual_ticks_advanced = done as i32;
        let result = if self.scene.is_over { Some(self.result()) } else { None };
        message.done = result.is_some();
        message.result = result.and_then(GameResult::word).unwrap_or_default().to_owned();
        if let Some(reason) = reason.filter(|_| done < advance.ticks) {
            message.interrupted = true;
            reason.name().clone_into(&mut message.interrupt_reason);
        }
        Ok(Advanced { message, result, rejected })
    }

    /// Ends it.
    pub(crate) fn close(self) {
        self.lane.close();
    }

    /// Returns what the commands come to; what is no order is done at once.
    fn orders(&mut self, commands: &[Command], rejected: &mut u32) -> Result<Vec<Order>, LaneError> {
        let mut orders = Vec::with_capacity(commands.len());
        for command in commands {
            match ordered(command, &self.scene) {
                Ordered::Order(order) => orders.push(order),
                Ordered::Surrender => drop(self.lane.call("surrender", "{}")?),
                Ordered::Nothing => {}
                Ordered::Rejected => *rejected += 1,
            }
        }
        Ok(orders)
    }

    /// Returns for what the last step ended early, or, of steps of one tick, what of it has happened.
    fn interrupt(&self, advance: &Advance, before: Option<Interrupt>) -> Option<Interrupt> {
        if before.is_some() || advance.check_every.is_none() {
            return before;
        }
        let event = usize::try_from(self.scene.stop_reason - FIRST_EVENT).ok();
        let event = event.and_then(|event| Interrupt::ALL.get(event)).copied();
        let happened = || {
            let is_look = advance.check_every.is_some_and(|every| every.min(MAX_CHECK_EVERY) == 1);
            let mut events = Interrupt::ALL.into_iter().zip(self.scene.events);
            events.find(|(it, has)| *has && is_look && advance.interrupts.has(*it)).map(|(it, _)| it)
        };
        event.or_else(happened)
    }

    fn look(&mut self, shape: &Shape, more: &mut dyn FnMut(&LaneRow<'_>)) -> Result<(), LaneError> {
        let scene = &mut self.scene;
        self.lane.look(&mut |shown| {
            scene.see(shape, shown);
            more(shown);
        })
    }

    /// Returns how the game ended, by what the world says of it.
    fn result(&mut self) -> GameResult {
        let said = self.lane.call("get_game_state", "{}").unwrap_or_default();
        let is = |word: &str| said.contains(&format!("\"result\":\"{word}\""));
        match (is("win"), is("lose")) {
            (true, _) => GameResult::Win,
            (_, true) => GameResult::Lose,
            _ => GameResult::Draw,
        }
    }
}

impl Scene {
    fn see(&mut self, shape: &Shape, shown: &LaneRow<'_>) {
        let (obs, columns) = (shown.obs, &shape.obs);
        self.tick = integer(obs[columns.tick]);
        self.side = columns.planes.side as i64;
        self.units.clear();
        let units = columns.units.of(obs);
        self.units.extend(units.map(|[id, _, _, _, cell_x, cell_y, ..]| (id, (cell_x, cell_y))));
        let first = columns.buildings.of(obs).next().map(|[_, _, cell_x, cell_y, ..]| (cell_x, cell_y));
        self.place = place_near(bytes(obs[columns.masks.place]), columns.planes.side, first);
        let events = bytes(obs[columns.events]);
        self.events = std::array::from_fn(|event| events.get(event) == Some(&1));
        let [ticks, reason, rejected] = shape.infos.map(|info| integer(shown.infos[info]));
        (self.ticks, self.stop_reason) = (ticks.max(1).unsigned_abs(), reason);
        self.rejected = rejected.max(0).unsigned_abs();
        self.is_over = shown.terminated || shown.truncated;
    }
}

impl Ground for Scene {
    fn cell_of_unit(&self, id: i64) -> Option<(i64, i64)> {
        self.units.iter().find(|(known, _)| *known == id).map(|(_, cell)| *cell)
    }

    fn free_place(&self) -> Option<(i64, i64)> {
        self.place
    }

    fn side(&self) -> i64 {
        self.side
    }
}

/// Returns the cell of a mask that is nearest to another.
fn place_near(mask: &[u8], side: usize, to: Option<(i64, i64)>) -> Option<(i64, i64)> {
    let (to_x, to_y) = to?;
    let free = mask.iter().enumerate().filter(|(_, is_free)| **is_free == 1);
    let cells = free.map(|(at, _)| ((at % side) as i64, (at / side) as i64));
    cells.min_by_key(|(x, y)| (x - to_x).pow(2) + (y - to_y).pow(2))
}

#[cfg(test)]
mod tests {
    use rollhouse_codec::openra::{ActionKind, FastAdvanceRequest};
    use rollhouse_core::OptionValue;
    use rollhouse_env::Registry;

    use super::*;
    use crate::lanes::{EmbeddedLanes, Lanes};

    fn game(options: &[(&str, OptionValue)]) -> (Game, Shape) {
        let entry = Registry::builtin().get("Skirmish-v0").unwrap();
        let shape = Shape::of(entry.spec()).unwrap();
        let lanes = EmbeddedLanes::new(entry, Vec::new(), None).unwrap();
        let options: Vec<_> =
            options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let players = Players { own: "Multi1".into(), enemy: "Multi0".into() };
        (Game::begin(lanes.make(&options).unwrap(), &shape, players, Some(7)).unwrap(), shape)
    }

    fn advance(ticks: i32, commands: Vec<Command>, every: i32, interrupts: &[&str]) -> Advance {
        let enabled_interrupts = interrupts.iter().map(|name| (*name).to_owned()).collect();
        let session_id = String::new();
        let request =
            FastAdvanceRequest { ticks, commands, session_id, check_events_every: every, enabled_interrupts };
        Advance::of(request, 16).unwrap().1
    }

    fn command(action: ActionKind, actor_id: u32) -> Command {
        Command { action: action as i32, actor_id, ..Command::default() }
    }

    #[test]
    fn a_game_begins_with_a_yard_and_units_and_its_map_is_cut_to_its_size() {
        let (mut game, shape) = game(&[]);
        let seen = game.observation(&shape).unwrap();
        assert_eq!(seen.tick, 0);
        assert_eq!(seen.buildings[0].r#type, "fact");
        let kinds: Vec<_> = seen.units.iter().map(|unit| unit.r#type.as_str()).collect();
        assert_eq!(kinds, ["e1", "e1", "e1", "jeep"]);
        let map = seen.map_info.unwrap();
        assert_eq!((map.width, map.height, map.map_name.as_str()), (24, 24, "duel"));
        assert_eq!(seen.spatial_map.len(), 24 * 24 * 9 * 4);
        assert_eq!(seen.available_production, ["powr"]);
        assert_eq!(seen.buildings[0].can_produce, ["powr"]);
        let unit = &seen.units[0];
        assert_eq!((unit.pos_x / 1024, unit.pos_y / 1024), (unit.cell_x, unit.cell_y));
        assert_eq!((unit.owner.as_str(), unit.hp_percent, unit.attack_range), ("Multi1", 1.0, 4096));
    }

    #[test]
    fn ticks_pass_as_asked_and_commands_take_effect_with_the_first() {
        let (mut game, shape) = game(&[]);
        let build = Command { item_type: "powr".into(), ..command(ActionKind::Build, 0) };
        let done = game.advance(&shape, &advance(50, vec![build], 0, &[])).unwrap();
        assert_eq!((done.message.tick, done.message.actual_ticks_advanced, done.rejected), (50, 50, 0));
        assert!(!done.message.interrupted && done.result.is_none());
        assert_eq!(done.message.production[0].item, "powr");
        assert!(done.message.economy.unwrap().cash <= 3700);
    }

    #[test]
    fn orders_to_others_units_change_nothing_and_are_counted() {
        let (mut game, shape) = game(&[]);
        let commands = vec![
            command(ActionKind::Stop, 64),
            command(ActionKind::Stop, 97),
            command(ActionKind::Deploy, 1),
            command(ActionKind::NoOp, 0),
        ];
        let done = game.advance(&shape, &advance(1, commands, 0, &[])).unwrap();
        assert_eq!((done.rejected, done.message.tick), (3, 1));
    }

    #[test]
    fn commands_beyond_sixteen_are_carried_out_in_the_ticks_that_follow() {
        let (mut game, shape) = game(&[]);
        let mut commands = vec![command(ActionKind::NoOp, 0); 32];
        commands.push(Command { item_type: "powr".into(), ..command(ActionKind::Build, 0) });
        let done = game.advance(&shape, &advance(5, commands, 0, &[])).unwrap();
        assert_eq!((done.message.tick, done.message.actual_ticks_advanced), (5, 5));
        assert_eq!(done.message.production.len(), 1);
    }

    #[test]
    fn an_advance_is_interrupted_by_what_it_names_and_says_so() {
        let (mut game, shape) = game(&[]);
        let build = Command { item_type: "powr".into(), ..command(ActionKind::Build, 0) };
        let asked = advance(5000, vec![build], 1, &["production_complete"]);
        let done = game.advance(&shape, &asked).unwrap().message;
        assert!(done.interrupted && done.actual_ticks_advanced < 5000, "{}", done.actual_ticks_advanced);
        assert_eq!(done.interrupt_reason, "production_complete");
        assert_eq!(done.tick, done.actual_ticks_advanced);
    }

    #[test]
    fn who_surrenders_loses_and_whose_time_is_over_has_a_draw() {
        let (mut first, shape) = game(&[]);
        let done =
            first.advance(&shape, &advance(9, vec![command(ActionKind::Surrender, 0)], 0, &[])).unwrap();
        assert_eq!((done.result, done.message.result.as_str()), (Some(GameResult::Lose), "lose"));
        assert!(done.message.done && done.message.tick == 1);
        let (mut second, shape) = game(&[("time_limit", OptionValue::Int(20))]);
        let done = second.advance(&shape, &advance(50, vec![], 0, &[])).unwrap();
        assert_eq!(
            (done.result, done.message.result.as_str(), done.message.tick),
            (Some(GameResult::Draw), "draw", 20)
        );
    }
}
