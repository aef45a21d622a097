//! The layout of a pool's lanes: they are laid over nodes and cut into sessions.

use std::sync::Arc;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_wire::Spread;

use crate::limits::MAX_SESSION_LANES;

/// A node that could take lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) node: Arc<str>,
    /// Number of lanes that it could take now.
    pub(crate) free: u32,
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
    let shares = match spread {
        Spread::Single => return single(rooms, lanes).map(|share| vec![share]),
        Spread::Pack => pack(rooms, lanes)?,
        Spread::Even => even(rooms, lanes)?,
    };
    Some(shares.into_iter().flat_map(cut).collect())
}

/// Lays all lanes as one session on the emptiest node.
fn single(rooms: Vec<Room>, lanes: u32) -> Option<Share> {
    let room = rooms.into_iter().max_by(|a, b| a.free.cmp(&b.free).then_with(|| b.node.cmp(&a.node)))?;
    (room.free >= lanes).then_some(Share { node: room.node, lanes })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rooms(free: &[u32]) -> Vec<Room> {
        let named = |(index, &free)| Room { node: format!("node-{index:02}").into(), free };
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

    proptest! {
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
