//! The words of the bridge: interrupts, phases, stances, and the bots that a session is made with.

/// An event that ends an advance before its ticks are over, by priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say what happened")]
pub enum Interrupt {
    GameOver,
    EnemySpotted,
    UnitDestroyed,
    UnderAttack,
    BuildingDiscovered,
    EnemyBuildingDestroyed,
    OwnBuildingDestroyed,
    UnitArrived,
    ProductionComplete,
    ExplorationMilestone,
}

impl Interrupt {
    /// All interrupts, the one of the highest priority first.
    pub const ALL: [Self; 10] = [
        Self::GameOver,
        Self::EnemySpotted,
        Self::UnitDestroyed,
        Self::UnderAttack,
        Self::BuildingDiscovered,
        Self::EnemyBuildingDestroyed,
        Self::OwnBuildingDestroyed,
        Self::UnitArrived,
        Self::ProductionComplete,
        Self::ExplorationMilestone,
    ];

    const NAMES: [&str; 10] = [
        "game_over",
        "enemy_spotted",
        "unit_destroyed",
        "under_attack",
        "building_discovered",
        "enemy_building_destroyed",
        "own_building_destroyed",
        "unit_arrived",
        "production_complete",
        "exploration_milestone",
    ];

    /// Returns its name on the wire.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the interrupt of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|known| *known == name).map(|place| Self::ALL[place])
    }
}

/// A set of interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Interrupts(u16);

impl Interrupts {
    /// Returns the set of those that have one of the names. Names that are not known never happen, and are passed over.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let known = names.into_iter().filter_map(Interrupt::of_name);
        Self(known.fold(0, |set, it| set | 1 << it as u8))
    }

    /// Returns whether it is among them.
    pub const fn has(self, interrupt: Interrupt) -> bool {
        self.0 >> interrupt as u8 & 1 == 1
    }

    /// Returns whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Where a session stands, as `GetState` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// There is no such session, or not any more.
    NoBridge,
    /// Its world is being made.
    Waiting,
    /// It can be played.
    Playing,
    /// Its game is over.
    GameOver,
}

impl Phase {
    /// Returns its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoBridge => "no_bridge",
            Self::Waiting => "waiting",
            Self::Playing => "playing",
            Self::GameOver => "game_over",
        }
    }
}

/// Which enemies a unit shoots at without an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say which")]
pub enum Stance {
    HoldFire = 0,
    ReturnFire = 1,
    Defend = 2,
    AttackAnything = 3,
}

impl Stance {
    /// Returns the stance of that number.
    pub fn of_number(number: i32) -> Option<Self> {
        [Self::HoldFire, Self::ReturnFire, Self::Defend, Self::AttackAnything]
            .get(usize::try_from(number).ok()?)
            .copied()
    }
}

/// How well a bot plays, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// It does nothing.
    Dummy,
    /// `beginner`.
    Beginner,
    /// `easy`.
    Easy,
    /// `medium`.
    Medium,
    /// `hard`, or as an engine calls it `normal`.
    Hard,
    /// `brutal`, or as an engine calls it `rush`.
    Brutal,
}

impl Strength {
    /// Returns the strength of that name, of users or of engines.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "dummy" => Self::Dummy,
            "beginner" => Self::Beginner,
            "easy" => Self::Easy,
            "medium" => Self::Medium,
            "hard" | "normal" => Self::Hard,
            "brutal" | "rush" => Self::Brutal,
            _ => return None,
        })
    }
}

/// Who plays a session's game: the agent's slot and the one that a bot has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bots {
    /// Slot of the agent.
    pub agent: String,
    /// Slot of the bot and how well it plays; none says nothing of it.
    pub opponent: Option<(String, Strength)>,
}

/// Maximum number of bytes of a list of bots.
pub const MAX_BOTS_BYTES: usize = 1024;

/// Reason for which a list of bots is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadBots {
    /// The list is too long.
    #[error("a list of bots of {0} bytes; it has at most {MAX_BOTS_BYTES}")]
    TooLong(usize),
    /// Nobody is the agent.
    #[error("no slot has the bot `rl-agent`")]
    NoAgent,
    /// More than one slot has an agent, or a bot.
    #[error("two slots have {0}; a session has one")]
    Twice(&'static str),
    /// A part is no slot and bot.
    #[error("part {place} is not SLOT:BOT")]
    NoPair {
        /// Place of the part, from 1.
        place: usize,
    },
    /// There is no such bot.
    #[error(
        "slot {slot:?} has the unknown bot {bot:?}; known are rl-agent, dummy, beginner, easy, medium, hard, brutal"
    )]
    Unknown {
        /// The slot.
        slot: String,
        /// The name.
        bot: String,
    },
}

impl Bots {
    /// Reads `SLOT:BOT,SLOT:BOT`. An empty text is an agent in `Multi1`, whose opponent is not named.
    ///
    /// # Errors
    /// See [`BadBots`].
    pub fn of_text(text: &str) -> Result<Self, BadBots> {
        if text.len() > MAX_BOTS_BYTES {
            return Err(BadBots::TooLong(text.len()));
        }
        if text.trim().is_empty() {
            return Ok(Self { agent: "Multi1".to_owned(), opponent: None });
        }
        let (mut agent, mut opponent) = (None, None);
        for (place, part) in (1..).zip(text.split(',')) {
            let (slot, bot) = part.trim().split_once(':').ok_or(BadBots::NoPair { place })?;
            let slot = slot.to_owned();
            if bot == "rl-agent" {
                if agent.replace(slot).is_some() {
                    return Err(BadBots::Twice("an agent"));
                }
                continue;
            }
            let Some(strength) = Strength::of_name(bot) else {
                return Err(BadBots::Unknown { slot, bot: bot.to_owned() });
            };
            if opponent.replace((slot, strength)).is_some() {
                return Err(BadBots::Twice("a bot"));
            }
        }
        Ok(Self { agent: agent.ok_or(BadBots::NoAgent)?, opponent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_known_by_their_names_and_unknown_names_are_passed_over() {
        let set = Interrupts::of_names(["under_attack", "no_such", "game_over"]);
        let found: Vec<_> = Interrupt::ALL.into_iter().filter(|it| set.has(*it)).collect();
        assert_eq!(found, [Interrupt::GameOver, Interrupt::UnderAttack]);
        assert!(Interrupts::of_names([]).is_empty());
    }

    #[test]
    fn bots_name_an_agent_and_an_opponent_by_users_and_engines_words() {
        let bots = Bots::of_text("Multi1:rl-agent,Multi0:rush").unwrap();
        assert_eq!(
            (bots.agent.as_str(), bots.opponent),
            ("Multi1", Some(("Multi0".into(), Strength::Brutal)))
        );
        assert_eq!(Strength::of_name("normal"), Some(Strength::Hard));
        assert_eq!(Bots::of_text("").unwrap().opponent, None);
    }

    #[test]
    fn bots_without_an_agent_with_two_or_of_unknown_kinds_are_refused_by_name() {
        assert_eq!(Bots::of_text("Multi0:easy"), Err(BadBots::NoAgent));
        assert_eq!(Bots::of_text("a:rl-agent,b:rl-agent"), Err(BadBots::Twice("an agent")));
        assert_eq!(Bots::of_text("a:rl-agent,b"), Err(BadBots::NoPair { place: 2 }));
        let unknown = Bots::of_text("a:rl-agent,b:turtle").unwrap_err().to_string();
        assert!(unknown.contains("\"turtle\"") && unknown.contains("brutal"), "{unknown}");
        assert_eq!(Bots::of_text(&"x".repeat(1025)), Err(BadBots::TooLong(1025)));
    }
}
