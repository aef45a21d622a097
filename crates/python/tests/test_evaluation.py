"""Evaluation: policies play the same episodes, each to its end."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import rollhouse
from rollhouse.policies import policy_of


def _leaning(strength: float) -> dict[str, np.ndarray]:
    weights = np.zeros((2, 4), np.float32)
    weights[0], weights[1] = [0, 0, -strength, -strength], [0, 0, strength, strength]
    return {"policy.0.weight": weights, "policy.0.bias": np.zeros(2, np.float32)}


def _return_of(seed: int) -> float:
    """What the net that leans makes of one episode of Gymnasium's."""
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    total = 0.0
    while True:
        observation, reward, terminated, truncated, _ = env.step(int(observation[2] + observation[3] > 0))
        total += float(reward)
        if terminated or truncated:
            env.close()
            return total


def test_scores_are_the_returns_of_the_same_episodes_in_the_order_of_the_policies():
    seen: list[float] = []
    policies = [policy_of(_leaning(1.0), deterministic=True), "random", policy_of(_leaning(-1.0), deterministic=True)]
    best, random, worst = rollhouse.evaluate(
        "CartPole-v1", policies, episodes=5, seed=11, progress=lambda score: seen.append(score.mean)
    )
    np.testing.assert_array_equal(best.returns, [_return_of(seed) for seed in range(11, 16)])
    np.testing.assert_array_equal(best.lengths, best.returns)
    assert best.mean > random.mean > worst.mean and seen == [best.mean, random.mean, worst.mean]
    assert best.spread == pytest.approx(np.std(best.returns, ddof=1)) and best.lost == 0


def test_a_cluster_scores_as_this_process_does(cluster_url: str):
    (here,) = rollhouse.evaluate("CartPole-v1", ["random"], episodes=6, seed=3)
    with rollhouse.connect(cluster_url) as cluster:
        (there,) = rollhouse.evaluate("CartPole-v1", ["random"], episodes=6, seed=3, cluster=cluster)
    np.testing.assert_array_equal(here.returns, there.returns)


def test_an_episode_whose_lane_is_lost_is_no_zero():
    lost = rollhouse.evaluation.Score(policy_of("random"), np.array([3.0, np.nan, 5.0]), np.array([3, 0, 5]))
    assert (lost.mean, lost.lost) == (4.0, 1)
    with pytest.raises(ValueError, match="episodes=0"):
        rollhouse.evaluate("CartPole-v1", ["random"], episodes=0)
    with pytest.raises(rollhouse.errors.PolicyError, match="greedy"):
        rollhouse.evaluate("CartPole-v1", ["greedy"])


def test_a_score_is_compared_with_another_of_the_same_episodes():
    leaning, random = rollhouse.evaluate("CartPole-v1", [_leaning(1.0), "random"], episodes=40, seed=2)
    difference = leaning.over(random)
    assert difference.pairs == 40 and difference.low > 0 and difference.mean == pytest.approx(leaning.mean - random.mean)
    back = random.over(leaning)
    assert back.mean == pytest.approx(-difference.mean) and back.high < 0
    (few,) = rollhouse.evaluate("CartPole-v1", ["random"], episodes=1)
    with pytest.raises(ValueError, match="fewer than two"):
        few.over(few)
    with pytest.raises(ValueError, match="which are not the same"):
        few.over(random)


def test_an_evaluation_goes_on_where_it_stood_and_plays_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    played: list[str] = []
    begin = rollhouse.evaluation.rollouts
    monkeypatch.setattr(
        rollhouse.evaluation, "rollouts", lambda env, lanes, **of: played.append(of["policy"].name) or begin(env, lanes, **of)
    )
    results = tmp_path / "scores.jsonl"
    candidates = [policy_of(_leaning(lean), name=f"lean {lean}") for lean in (0.5, 1.0, 2.0)]
    arguments = dict(episodes=4, seed=3, results=results)
    first = rollhouse.evaluate("CartPole-v1", candidates, progress=lambda score: score.policy.name == "lean 1.0", **arguments)
    assert [score.policy.name for score in first] == played == ["lean 0.5", "lean 1.0"], "it stopped early"
    # A crash has torn the line that was being written.
    with results.open("a") as file:
        file.write('{"key": "abc", "retu')
    again = rollhouse.evaluate("CartPole-v1", candidates, **arguments)
    assert played == ["lean 0.5", "lean 1.0", "lean 2.0"], "what was played is not played again"
    for score, before in zip(again, first, strict=False):
        np.testing.assert_array_equal(score.returns, before.returns)
    rollhouse.evaluate("CartPole-v1", candidates, **arguments)
    assert len(played) == 3, "the line behind the torn one is read"
    rollhouse.evaluate("CartPole-v1", candidates[:1], **{**arguments, "seed": 4})
    assert len(played) == 4, "other episodes are played"


def test_each_policy_plays_from_each_of_the_options_that_are_given():
    inits = [{"low": -0.01, "high": 0.01}, {"low": -0.2, "high": 0.2}]
    scores = rollhouse.evaluate("CartPole-v1", [_leaning(1.0), "random"], episodes=6, inits=inits, seed=1)
    assert [(score.policy.name, score.init) for score in scores] == [
        (name, init) for name in ("policy", "random") for init in inits
    ]
    for score, init in zip(scores, inits, strict=False):
        (alone,) = rollhouse.evaluate("CartPole-v1", [_leaning(1.0)], episodes=6, options=init, seed=1)
        np.testing.assert_array_equal(score.returns, alone.returns)
    assert not np.array_equal(scores[0].returns, scores[1].returns)
