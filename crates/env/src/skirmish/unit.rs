//! A unit: where it is, what it does, and what it is to do afterwards.

use arrayvec::ArrayVec;

use super::actor::Target;
use super::kinds::{UnitKind, UnitRules, Weapon};
use super::map::{Cell, WAYS};

/// A unit of a side.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(crate) struct Unit {
    pub(crate) kind: UnitKind,
    /// Number by which no other unit or building of the game has ever gone.
    pub(crate) serial: u32,
    pub(crate) hp: i32,
    /// Hit points at the last report of an attack.
    pub(crate) marked_hp: i32,
    pub(crate) cell: Cell,
    pub(crate) motion: Motion,
    /// Ticks until it can shoot.
    pub(crate) cooldown: u16,
    /// Ticks for which it remembers that it was hit.
    pub(crate) hurt: u16,
    /// Loads of ore that a harvester carries.
    pub(crate) cargo: u8,
    pub(crate) stance: Stance,
    pub(crate) kills: u16,
    pub(crate) task: Task,
    /// Tasks that come after the current one.
    pub(crate) queued: ArrayVec<Task, MAX_QUEUED>,
    /// What it has found to shoot at.
    pub(crate) aim: Option<Target>,
    /// Whether its task was given by an order, so that its end is reported.
    pub(crate) is_ordered: bool,
}

/// Maximum number of tasks that wait behind a unit's current one.
pub(crate) const MAX_QUEUED: usize = 4;
/// Loads of ore that a harvester carries at most.
pub(crate) const MAX_CARGO: u8 = 20;

/// How a unit moves from one cell to the next. It takes the next cell as it sets out.
#[derive(Debug, Clone, Copy, PartialEq, Default, Hash)]
pub(crate) struct Motion {
    /// Cell that it comes from, while it is on its way to its own.
    pub(crate) from: Option<Cell>,
    /// Thousandths (1/1024) of the way that it has done.
    pub(crate) progress: u16,
    /// Place of where it faces among [`WAYS`].
    pub(crate) facing: u8,
    /// Ticks for which no cell nearer to its goal was free.
    pub(crate) stuck: u8,
}

/// Which enemies a unit shoots at without an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stance {
    /// None.
    HoldFire = 0,
    /// Those in range, after it was hit.
    ReturnFire = 1,
    /// Those in range.
    Defend = 2,
    /// All that it sees: it goes after them.
    AttackAnything = 3,
}

impl Stance {
    pub(crate) const ALL: [Self; 4] = [Self::HoldFire, Self::ReturnFire, Self::Defend, Self::AttackAnything];
    pub(crate) const NAMES: [&str; 4] = ["hold_fire", "return_fire", "defend", "attack_anything"];
}

/// What a unit does.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub(crate) enum Task {
    Idle,
    Move {
        to: Cell,
    },
    /// Move, and fight what is met.
    AttackMove {
        to: Cell,
    },
    Attack {
        target: Target,
    },
    /// Stay with a unit or building of its own side.
    Guard {
        target: Target,
    },
    Patrol {
        to: Cell,
        back: Cell,
    },
    /// Mine ore near a cell and bring it to a refinery.
    Harvest {
        near: Cell,
    },
}

impl Task {
    /// Names of what a unit does, by [`Task::number`].
    pub(crate) const NAMES: [&str; 7] =
        ["idle", "move", "attack_move", "attack", "guard", "patrol", "harvest"];

    /// Returns the number of the task in observations.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::Move { .. } => 1,
            Self::AttackMove { .. } => 2,
            Self::Attack { .. } => 3,
            Self::Guard { .. } => 4,
            Self::Patrol { .. } => 5,
            Self::Harvest { .. } => 6,
        }
    }
}

impl Unit {
    /// Makes a unit that has just left its producer.
    pub(crate) fn new(kind: UnitKind, serial: u32, cell: Cell) -> Self {
        let hp = kind.rules().hp;
        Self {
            kind,
            serial,
            hp,
            marked_hp: hp,
            cell,
            motion: Motion::default(),
            cooldown: 0,
            hurt: 0,
            cargo: 0,
            stance: Stance::Defend,
            kills: 0,
            task: Task::Idle,
            queued: ArrayVec::new(),
            aim: None,
            is_ordered: false,
        }
    }

    #[inline]
    pub(crate) const fn rules(&self) -> &'static UnitRules {
        self.kind.rules()
    }

    #[inline]
    pub(crate) const fn weapon(&self) -> Option<&'static Weapon> {
        self.kind.rules().weapon.as_ref()
    }

    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.task, Task::Idle)
    }

    /// Returns the hit points in percent, at least 1 while it lives.
    pub(crate) fn hp_percent(&self) -> i64 {
        i64::from((self.hp * 100 / self.rules().hp).max(1))
    }

    /// Returns the experience: 0 to 3, for 0, 2, 5 and 10 kills.
    pub(crate) const fn level(&self) -> u8 {
        match self.kills {
            0..2 => 0,
            2..5 => 1,
            5..10 => 2,
            _ => 3,
        }
    }

    /// Takes a task in place of everything that it does.
    pub(crate) fn take_on(&mut self, task: Task, is_ordered: bool) {
        self.queued.clear();
        (self.task, self.aim, self.is_ordered) = (task, None, is_ordered);
        self.motion.stuck = 0;
    }

    /// Ends the task and takes the next one. Returns whether the last one of an order has ended.
    pub(crate) fn be_done(&mut self) -> bool {
        self.motion.stuck = 0;
        self.aim = None;
        let was_ordered = self.is_ordered;
        self.task = self.queued.pop_at(0).unwrap_or(Task::Idle);
        self.is_ordered = was_ordered && !self.is_idle();
        was_ordered && self.is_idle()
    }

    /// Returns its place in 1/256 of a cell: the middle of its cell, or a point on the way to it.
    pub(crate) fn place(&self) -> (i64, i64) {
        let point = |cell: Cell| (i64::from(cell.x) * 256 + 128, i64::from(cell.y) * 256 + 128);
        let (to, from) = (point(self.cell), point(self.motion.from.unwrap_or(self.cell)));
        let done = i64::from(self.motion.progress);
        let between = |from: i64, to: i64| from + (to - from) * done / 1024;
        if self.motion.from.is_none() { to } else { (between(from.0, to.0), between(from.1, to.1)) }
    }

    /// Returns where it faces, as columns and rows.
    pub(crate) fn way(&self) -> (f64, f64) {
        let (x, y) = WAYS[usize::from(self.motion.facing) % WAYS.len()];
        (f64::from(x), f64::from(y))
    }

    /// Turns to a cell.
    pub(crate) fn face(&mut self, cell: Cell) {
        let (x, y) = (i32::from(cell.x) - i32::from(self.cell.x), i32::from(cell.y) - i32::from(self.cell.y));
        // A way is straight where one side is more than twice the other.
        let (x, y) = (
            if x.abs() * 2 >= y.abs() { x.signum() } else { 0 },
            if y.abs() * 2 >= x.abs() { y.signum() } else { 0 },
        );
        if let Some(way) = WAYS.iter().position(|&way| way == (x, y)) {
            self.motion.facing = way as u8;
        }
    }
}
