//! The scripts against each other.

use super::*;

/// Ticks after which a game counts as drawn.
const LIMIT: u32 = 15_000;
/// Games of each pair on each map.
const GAMES: u64 = 8;

#[test]
fn each_strength_beats_the_one_below_it() {
    for (weaker, stronger) in Strength::ALL.into_iter().zip(Strength::ALL.into_iter().skip(1)) {
        let (mut won, mut lost) = (0, 0);
        for (map, seed) in (0..3).flat_map(|map| (0..GAMES).map(move |seed| (map, seed))) {
            // Either has each side as often.
            let (strengths, victory, defeat) = match seed % 2 {
                0 => ([stronger, weaker], GameResult::Win, GameResult::Lose),
                _ => ([weaker, stronger], GameResult::Lose, GameResult::Win),
            };
            let result = play(Setup { map, ..SETUP }, seed, strengths, LIMIT).result;
            won += u64::from(result == Some(victory));
            lost += u64::from(result == Some(defeat));
        }
        assert!(
            won >= 2 * GAMES && won >= 3 * lost,
            "{stronger:?} against {weaker:?}: {won} won, {lost} lost"
        );
    }
}

#[test]
fn a_player_that_does_nothing_loses_to_every_strength() {
    for strength in Strength::ALL {
        let mut game = Game::new(SETUP, 1);
        let mut script = Script::new(strength, 1);
        while game.result.is_none() && game.tick < LIMIT {
            script.play(&mut game);
            game.tick();
        }
        assert_eq!(game.result, Some(GameResult::Lose), "{strength:?}");
    }
}
