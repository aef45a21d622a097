//! The layout of a pool's lanes: they are laid over nodes and cut into sessions.
//!
//! Lanes are light where a node is full of lanes before they have used up its CPU or memory. Light lanes are laid by their
//! number alone. Heavy ones are laid so that the dimension in which each node is fullest (lanes, CPU, memory) fills evenly;
//! CPU and memory may be filled beyond what there is, and evenly as well, when the lanes have no other place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_wire::Spread;

use crate::limits::MAX_SESSION_LANES;

/// A node that could take lanes of an env.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) node: Arc<str>,
    /// Most lanes that it could take now.
    pub(crate) free: u32,
    /// The node's lanes.
    pub(crate) lanes: Dimension,
    /// The node's CPU and memory.
    pub(crate) budget: [Dimension; 2],
}

/// A dimension of a node, in which each lane takes the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Dimension {
    pub(crate) taken: u64,
    /// The part that a lane takes.
    pub(crate) lane: u64,
    /// All that there is; 0 if nobody goes by it.
    pub(crate) of: u64,
}

impl Dimension {
    /// Returns how full it is with so many more lanes; [`FULL`] is full.
    fn filled(self, lanes: u32) -> u128 {
        let taken = u128::from(self.taken) + u128::from(self.lane) * u128::from(lanes);
        (taken * FULL).checked_div(u128::from(self.of)).unwrap_or(0)
    }

    /// Returns the number of lanes that use it up.
    fn left(self) -> u64 {
        let left = self.of.saturating_sub(self.taken);
        if self.of == 0 { u64::MAX } else { left.checked_div(self.lane).unwrap_or(u64::MAX) }
    }
}

impl Room {
    /// Returns how full the node is with so many more lanes, in the dimension in which it is fullest.
    fn filled(&self, lanes: u32) -> u128 {
        let [cpu, memory] = self.budget.map(|dimension| dimension.filled(lanes));
        self.lanes.filled(lanes).max(cpu).max(memory)
    }

    /// Returns the number of lanes that it takes before its CPU or memory is used up.
    fn unfilled(&self) -> u32 {
        let left = self.budget.iter().map(|dimension| dimension.left()).min().unwrap_or(u64::MAX);
        self.free.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Returns whether so many lanes as the node takes use up its CPU or memory.
    fn is_heavy(&self) -> bool {
        let all = u128::from(self.lanes.of);
        self.budget.iter().any(|of| of.of > 0 && u128::from(of.lane) * all > u128::from(of.of))
    }

    /// Returns what decides among nodes that are filled alike: whoever has more goes first.
    fn rank(&self) -> impl Ord + use<> {
        let [cpu, memory] = self.budget;
        let more = [u64::from(self.free), self.lanes.of, cpu.of, memory.of].map(Reverse);
        (more, [self.lanes.taken, cpu.taken, memory.taken], Arc::clone(&self.node))
    }
}

/// Lanes that go to one node; after the cut, those of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) node: Arc<str>,
    pub(crate) lanes: u32,
}

/// Lays `lanes` over the nodes and cuts them into sessions; `None` if there is no room for all.
///
/// The order of the sessions is the order of the pool's lanes. Lanes that fit in one session stay one session when they
/// are packed and one node has room.
pub(crate) fn place(mut rooms: Vec<Room>, lanes: u32, spread: Spread) -> Option<Vec<Share>> {
    rooms.retain(|room| room.free > 0);
    let heavy = rooms.iter().any(Room::is_heavy);
    let shares = match spread {
        Spread::Single => {
            let node = emptiest(rooms, lanes)?;
            return Some(vec![Share { node, lanes }]);
        }
        Spread::Pack if heavy => fill(fewest(rooms, lanes), lanes)?,
        Spread::Even if heavy => fill(rooms, lanes)?,
        Spread::Pack => pack(rooms, lanes)?,
        Spread::Even => even(rooms, lanes)?,
    };
    Some(shares.into_iter().flat_map(cut).collect())
}

/// Returns the emptiest of the nodes that can take all of the lanes: the one with most free lanes, or the least filled one
/// once heavy lanes are there.
pub(crate) fn emptiest(mut rooms: Vec<Room>, lanes: u32) -> Option<Arc<str>> {
    rooms.retain(|room| room.free >= lanes);
    let heavy = rooms.iter().any(Room::is_heavy);
    let filled = |room: &Room| if heavy { room.filled(lanes) } else { 0 };
    let room =
        rooms.into_iter().min_by_key(|room| (filled(room), Reverse(room.free), Arc::clone(&room.node)));
    room.map(|room| room.node)
}

/// Returns the fewest nodes whose CPU and memory suffice for heavy lanes, the emptiest first; all if those of all do not.
fn fewest(mut rooms: Vec<Room>, lanes: u32) -> Vec<Room> {
    rooms.sort_by_cached_key(|room| (Reverse(room.unfilled()), room.rank()));
    let mut sum = 0;
    let enough = rooms.iter().position(|room| {
        sum += u64::from(room.unfilled());
        sum >= u64::from(lanes)
    });
    rooms.truncate(enough.map_or(rooms.len(), |last| last + 1));
    rooms
}

/// Lays heavy lanes so that nodes fill evenly: each lane goes where it makes a node least full.
fn fill(mut rooms: Vec<Room>, lanes: u32) -> Option<Vec<Share>> {
    rooms.sort_by_cached_key(Room::rank);
    let mut shares: Vec<Share> =
        rooms.iter().map(|room| Share { node: Arc::clone(&room.node), lanes: 0 }).collect();
    let next = |at: usize, taken: u32| {
        let room = rooms.get(at).filter(|room| taken < room.free)?;
        Some(Reverse((room.filled(taken + 1), at)))
    };
    let mut nexts: BinaryHeap<_> = (0..rooms.len()).filter_map(|at| next(at, 0)).collect();
    for _ in 0..lanes {
        let Reverse((_, at)) = nexts.pop()?;
        let share = shares.get_mut(at)?;
        share.lanes += 1;
        nexts.extend(next(at, share.lanes));
    }
    shares.retain(|share| share.lanes > 0);
    Some(shares)
}

/// Lays lanes on the emptiest nodes first, which are the fewest that suffice.
fn pack(mut rooms: Vec<Room>, lanes: u32) -> Option<Vec<Share>> {
    rooms.sort_by(|a, b| b.free.cmp(&a.free).then_with(|| a.node.cmp(&b.node)));
    let mut left = lanes;
    let mut shares = Vec::new();
    for room in rooms {
        if left == 0 {
            break;
        }
        let taken = room.free.min(left);
        left -= taken;
        shares.push(Share { node: room.node, lanes: taken });
    }
    (left == 0).then_some(shares)
}

/// Lays equal shares on all nodes; the others take the lanes for which the fullest nodes have no room.
fn even(mut rooms: Vec<Room>, lanes: u32) -> Option<Vec<Share>> {
    rooms.sort_by(|a, b| a.free.cmp(&b.free).then_with(|| a.node.cmp(&b.node)));
    let mut left = lanes;
    let mut shares = Vec::new();
    let nodes = rooms.len() as u32;
    for (room, others) in rooms.into_iter().zip((1..=nodes).rev()) {
        let taken = room.free.min(left.div_ceil(others));
        left -= taken;
        if taken > 0 {
            shares.push(Share { node: room.node, lanes: taken });
        }
    }
    (left == 0).then_some(shares)
}

/// Cuts a share into sessions of about the same size, between blocks.
fn cut(share: Share) -> impl Iterator<Item = Share> {
    let Share { node, lanes } = share;
    let sessions = lanes.div_ceil(MAX_SESSION_LANES).max(1);
    let size = lanes.div_ceil(sessions).next_multiple_of(BLOCK_LANES as u32);
    (0..sessions).filter_map(move |index| {
        let first = index * size;
        let here = lanes.saturating_sub(first).min(size);
        (here > 0).then(|| Share { node: Arc::clone(&node), lanes: here })
    })
}

/// What is full, as [`Dimension::filled`] counts.
const FULL: u128 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rooms(free: &[u32]) -> Vec<Room> {
        let lanes = |free: u32| Dimension { taken: 0, lane: 1, of: free.into() };
        let named = |(index, &free)| Room {
            node: format!("node-{index:02}").into(),
            free,
            lanes: lanes(free),
            budget: [Dimension::default(); 2],
        };
        free.iter().enumerate().map(named).collect()
    }

    fn laid(free: &[u32], lanes: u32, spread: Spread) -> Option<Vec<(String, u32)>> {
        let shares = place(rooms(free), lanes, spread)?;
        Some(shares.into_iter().map(|s| (s.node.to_string(), s.lanes)).collect())
    }

    fn on(node: u32, lanes: u32) -> (String, u32) {
        (format!("node-{node:02}"), lanes)
    }

    #[test]
    fn a_small_pool_is_one_session_on_the_emptiest_node() {
        assert_eq!(laid(&[100, 300, 200], 64, Spread::Pack), Some(vec![on(1, 64)]));
        assert_eq!(laid(&[2000], 1024, Spread::Pack), Some(vec![on(0, 1024)]));
    }

    #[test]
    fn a_pool_that_is_to_be_one_session_is_not_cut_and_goes_to_the_emptiest_node_or_none() {
        assert_eq!(laid(&[5000, 6000, 6000], 4096, Spread::Single), Some(vec![on(1, 4096)]));
        assert_eq!(laid(&[5000, 3000], 6000, Spread::Single), None);
        assert_eq!(laid(&[], 1, Spread::Single), None);
    }

    #[test]
    fn a_large_pool_is_cut_between_blocks_into_sessions_of_about_the_same_size() {
        assert_eq!(laid(&[5000], 1100, Spread::Pack), Some(vec![on(0, 576), on(0, 524)]));
        assert_eq!(laid(&[5000], 4096, Spread::Pack), Some(vec![on(0, 1024); 4]));
    }

    #[test]
    fn packing_takes_the_fewest_nodes_that_have_room() {
        assert_eq!(laid(&[10, 30, 20], 45, Spread::Pack), Some(vec![on(1, 30), on(2, 15)]));
    }

    #[test]
    fn even_shares_are_equal_where_nodes_have_room() {
        assert_eq!(laid(&[10, 100, 100], 90, Spread::Even), Some(vec![on(0, 10), on(1, 40), on(2, 40)]));
        assert_eq!(laid(&[9, 9, 9], 2, Spread::Even), Some(vec![on(0, 1), on(1, 1)]));
    }

    #[test]
    fn a_pool_that_does_not_fit_is_not_laid() {
        for spread in [Spread::Pack, Spread::Even] {
            assert_eq!(laid(&[10, 20], 31, spread), None);
            assert_eq!(laid(&[], 1, spread), None);
        }
    }

    /// A node of so many cores and so much memory, of which something is taken, for lanes of half a core and so much memory.
    fn heavy(node: u32, (cores, taken): (u64, u64), memory: (u64, u64)) -> Room {
        let cpu = Dimension { taken, lane: 500, of: cores * 1000 };
        let memory = Dimension { taken: 0, lane: memory.0, of: memory.1 };
        let lanes = Dimension { taken: 0, lane: 1, of: 4096 };
        Room { node: format!("node-{node:02}").into(), free: 4096, lanes, budget: [cpu, memory] }
    }

    fn shares(rooms: Vec<Room>, lanes: u32, spread: Spread) -> Vec<(String, u32)> {
        place(rooms, lanes, spread).unwrap().into_iter().map(|s| (s.node.to_string(), s.lanes)).collect()
    }

    #[test]
    fn heavy_lanes_fill_nodes_evenly_by_their_budgets() {
        let two = || vec![heavy(0, (2, 0), (0, 0)), heavy(1, (8, 0), (0, 0))];
        for spread in [Spread::Even, Spread::Pack] {
            assert_eq!(shares(two(), 20, spread), [on(1, 16), on(0, 4)], "{spread:?}");
            assert_eq!(shares(two(), 40, spread), [on(1, 32), on(0, 8)], "{spread:?}: beyond the cores");
        }
        assert_eq!(shares(two(), 10, Spread::Even), [on(1, 8), on(0, 2)]);
        assert_eq!(shares(two(), 16, Spread::Pack), [on(1, 16)], "the fewest nodes that suffice");
        let busy = || vec![heavy(0, (8, 6000), (0, 0)), heavy(1, (8, 0), (0, 0))];
        assert_eq!(shares(busy(), 12, Spread::Even), [on(1, 12)], "one has nothing to do");
        assert_eq!(shares(busy(), 16, Spread::Even), [on(1, 14), on(0, 2)]);
        assert_eq!(emptiest(busy(), 3).as_deref(), Some("node-01"));
    }

    #[test]
    fn the_fullest_dimension_of_a_node_decides() {
        // As many cores, but the second has memory for 4 lanes and the first for 12.
        let rooms = vec![heavy(0, (16, 0), (10, 120)), heavy(1, (16, 0), (10, 40))];
        assert_eq!(shares(rooms, 16, Spread::Even), [on(0, 12), on(1, 4)]);
        let light =
            |node| Room { lanes: Dimension { of: 4, ..Default::default() }, ..heavy(node, (2, 0), (0, 0)) };
        let free = |room: Room, free| Room { free, ..room };
        assert_eq!(shares(vec![free(light(0), 4), free(light(1), 3)], 6, Spread::Pack), [on(0, 4), on(1, 2)]);
    }

    fn any_room() -> impl Strategy<Value = Room> {
        let dimension = || (0u64..50, 0u64..9, 0u64..100);
        let of = |(taken, lane, of)| Dimension { taken, lane, of };
        (0u32..40, 1u64..60, dimension(), dimension()).prop_map(move |(free, all, cpu, memory)| Room {
            node: "".into(),
            free,
            lanes: Dimension { taken: all.saturating_sub(free.into()), lane: 1, of: all.max(free.into()) },
            budget: [of(cpu), of(memory)],
        })
    }

    fn named(rooms: Vec<Room>) -> Vec<Room> {
        let named = |(index, room)| Room { node: format!("node-{index:02}").into(), ..room };
        rooms.into_iter().enumerate().map(named).collect()
    }

    proptest! {
        #[test]
        fn heavy_lanes_are_all_laid_if_that_is_possible_never_beyond_a_limit_and_always_alike(
            rooms in proptest::collection::vec(any_room(), 0..8),
            lanes in 1u32..200,
            even: bool,
        ) {
            let (rooms, spread) = (named(rooms), if even { Spread::Even } else { Spread::Pack });
            let laid = place(rooms.clone(), lanes, spread);
            let free: u32 = rooms.iter().map(|room| room.free).sum();
            prop_assert_eq!(laid.is_some(), free >= lanes);
            prop_assert_eq!(&laid, &place(rooms.iter().rev().cloned().collect(), lanes, spread));
            let laid = laid.unwrap_or_default();
            let on = |room: &Room| laid.iter().filter(|s| s.node == room.node).map(|s| s.lanes).sum::<u32>();
            prop_assert!(rooms.iter().all(|room| on(room) <= room.free));
            if !laid.is_empty() {
                prop_assert_eq!(rooms.iter().map(on).sum::<u32>(), lanes);
            }
        }

        #[test]
        fn a_node_with_more_room_for_heavy_lanes_never_gets_fewer(
            rooms in proptest::collection::vec(any_room(), 2..6),
            more in (0u32..5, 0u64..30, 0u64..30, 0u64..20, 0u64..20),
            lanes in 1u32..100,
            even: bool,
        ) {
            let mut rooms = named(rooms);
            let grown = |of: Dimension, more, less| Dimension {
                of: if of.of == 0 { 0 } else { of.of + more },
                taken: of.taken.saturating_sub(less),
                ..of
            };
            // The last is as the first, with more of everything.
            let first = rooms[0].clone();
            let [cpu, memory] = first.budget;
            let last = Room {
                node: "node-99".into(),
                free: first.free + more.0,
                lanes: grown(first.lanes, more.0.into(), 0),
                budget: [grown(cpu, more.1, more.3), grown(memory, more.2, more.4)],
            };
            rooms.push(last.clone());
            prop_assume!(rooms.iter().any(Room::is_heavy) && rooms.iter().all(|room| room.free > 0));
            let free: u32 = rooms.iter().map(|room| room.free).sum();
            prop_assume!(lanes <= free && first.rank() != last.rank());
            let spread = if even { Spread::Even } else { Spread::Pack };
            let laid = place(rooms, lanes, spread).unwrap();
            let on = |node: &str| laid.iter().filter(|s| &*s.node == node).map(|s| s.lanes).sum::<u32>();
            let more = last.rank() < first.rank();
            prop_assert!(on("node-99") + u32::from(!more) >= on("node-00"));
        }

        #[test]
        fn what_fits_is_laid_within_every_limit(
            free in proptest::collection::vec(0u32..5000, 0..12),
            lanes in 1u32..20_000,
            even: bool,
        ) {
            let spread = if even { Spread::Even } else { Spread::Pack };
            let shares = place(rooms(&free), lanes, spread);
            prop_assert_eq!(shares.is_some(), free.iter().sum::<u32>() >= lanes);
            let shares = shares.unwrap_or_default();
            for room in rooms(&free) {
                let taken: u32 = shares.iter().filter(|s| s.node == room.node).map(|s| s.lanes).sum();
                prop_assert!(taken <= room.free);
            }
            prop_assert!(shares.iter().all(|s| (1..=MAX_SESSION_LANES).contains(&s.lanes)));
            if !shares.is_empty() {
                prop_assert_eq!(shares.iter().map(|s| s.lanes).sum::<u32>(), lanes);
            }
        }
    }
}
