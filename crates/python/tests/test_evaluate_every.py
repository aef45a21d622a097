"""Versions of a policy that are evaluated beside the rollouts of a learner."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollhouse
from local_cluster import LocalCluster, rollhouse_program
from rollhouse import evaluations, replays
from rollhouse.errors import ClusterError, EpisodeNotFoundError
from rollhouse.policies import policy_of


def _leaning(lean: float) -> dict[str, np.ndarray]:
    return {"policy.0.weight": np.array([[0, 0, -lean, -lean], [0, 0, lean, lean]], np.float32)}


LEANS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@contextmanager
def _held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Evaluations that wait before each batch: an event that says that one does, and one that lets all go on."""
    first, waits, go_on = evaluations.first_episodes, threading.Event(), threading.Event()

    def held(played: Any, episodes: int, look: Any) -> Any:
        waits.set()
        go_on.wait()
        return first(played, episodes, look)

    monkeypatch.setattr(evaluations, "first_episodes", held)
    try:
        yield waits, go_on
    finally:
        go_on.set()


def test_every_kth_version_has_the_score_that_an_evaluation_of_its_own_gives():
    arguments = dict(evaluate_every=3, evaluate_episodes=6, evaluate_seed=40)
    with rollhouse.rollouts("CartPole-v1", 8, policy=_leaning(LEANS[0]), fragment=8, seed=1, **arguments) as played:
        for lean in LEANS[1:]:
            next(played)
            played.update(_leaning(lean))
        scores = played.wait_scores()
        assert played.scores == scores
    assert [score.policy.version for score in scores] == [0, 3, 6]
    own = [policy_of(_leaning(LEANS[version]), version=version) for version in (0, 3, 6)]
    for score, alone in zip(scores, rollhouse.evaluate("CartPole-v1", own, episodes=6, seed=40), strict=True):
        np.testing.assert_array_equal(score.returns, alone.returns)
        assert (score.mean, score.spread, score.lost) == (alone.mean, alone.spread, 0)
    assert "rollhouse-evaluations" not in _threads()


def test_a_cluster_evaluates_as_this_process_does(cluster_url: str):
    arguments = dict(policy=_leaning(1.0), fragment=8, record=False, evaluate_every=1, evaluate_episodes=5)
    with rollhouse.connect(cluster_url) as cluster:
        with cluster.rollouts("CartPole-v1", 4, **arguments) as there:
            there.update(_leaning(2.0))
            scores = there.wait_scores()
    here = rollhouse.evaluate(
        "CartPole-v1", [_leaning(1.0), _leaning(2.0)], episodes=5, seed=evaluations.EVALUATION_SEED
    )
    for score, alone in zip(scores, here, strict=True):
        np.testing.assert_array_equal(score.returns, alone.returns)


def test_a_learner_goes_on_while_a_version_is_evaluated_and_waits_when_it_is_far_ahead(monkeypatch: pytest.MonkeyPatch):
    with (
        _held(monkeypatch) as (waits, go_on),
        rollhouse.rollouts("CartPole-v1", 4, policy=_leaning(1.0), fragment=8, evaluate_every=1) as played,
    ):
        assert waits.wait(60)
        for number in range(1, evaluations.WAITING):
            next(played)
            assert played.update(_leaning(1.0)) == number
        assert played.scores == []
        with pytest.raises(TimeoutError, match=r"versions \[0, 1, 2, 3\] are not evaluated yet"):
            played.wait_scores(timeout=0)
        ahead = threading.Thread(target=played.update, args=(_leaning(1.0),))
        ahead.start()
        assert ahead.is_alive(), "it waits for room"
        go_on.set()
        ahead.join()
        assert [score.policy.version for score in played.wait_scores()] == [0, 1, 2, 3, 4]


def test_closing_ends_what_is_evaluated_and_drops_what_waits(monkeypatch: pytest.MonkeyPatch):
    with _held(monkeypatch) as (waits, go_on):
        played = rollhouse.rollouts("CartPole-v1", 4, policy=_leaning(1.0), fragment=8, evaluate_every=1)
        played.update(_leaning(2.0))
        assert waits.wait(60)
        played._evaluations._is_closing = True
        go_on.set()
        played.close()
        assert played.scores == [] and played.wait_scores() == []
        played.close()
    assert "rollhouse-evaluations" not in _threads()


def test_what_has_failed_is_raised_once_and_training_goes_on(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: Any) -> None:
        raise ClusterError("no room")

    monkeypatch.setattr(evaluations, "first_episodes", fails)
    with rollhouse.rollouts("CartPole-v1", 4, policy=_leaning(1.0), fragment=8, evaluate_every=1) as played:
        with pytest.raises(ClusterError, match="no room"):
            played.wait_scores()
        assert played.wait_scores() == []
        next(played)
        assert played.update(_leaning(2.0)) == 1
        next(played)


def test_lost_episodes_stand_apart(monkeypatch: pytest.MonkeyPatch):
    lost = np.array([3.0, np.nan, 5.0]), np.array([3, 0, 5])
    monkeypatch.setattr(evaluations, "first_episodes", lambda *_: lost)
    with rollhouse.rollouts("CartPole-v1", 4, policy="noop", evaluate_every=1, evaluate_episodes=3) as played:
        (score,) = played.wait_scores()
    assert (score.mean, score.lost, score.best) == (4.0, 1, None)


def _pinned(*place: str) -> dict[str, float]:
    """Returns of the pinned episodes, by name."""
    command = [str(rollhouse_program()), "replay", "ls", "--json", "--limit", "1000", *place]
    said = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    rows = [json.loads(line) for line in said.splitlines()]
    return {row["id"]: row["return"] for row in rows if row["pinned"]}


def test_the_best_episodes_of_the_best_evaluations_are_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluations, "MAX_PINNED", 2)
    recorded = dict(record=True, data=tmp_path, evaluate_every=1, evaluate_episodes=5)
    with rollhouse.rollouts("CartPole-v1", 4, policy=_leaning(-1.0), fragment=8, **recorded) as played:
        for lean in (1.0, -2.0, 2.0):
            next(played)
            played.update(_leaning(lean))
        scores = played.wait_scores()
    best = sorted((score.returns.max(), score.best) for score in scores)[-2:]
    assert _pinned("--data", str(tmp_path)) == {name: total for total, name in best}
    found = replays.open(tmp_path)
    for score in scores:
        assert found.find(score.best).return_ == score.returns.max()
    found.unpin(best[0][1])
    assert list(_pinned("--data", str(tmp_path))) == [best[1][1]]
    with pytest.raises(EpisodeNotFoundError):
        found.pin("aaaaaaaa-1-1")


def test_lanes_of_python_envs_are_evaluated_and_their_best_episode_is_named(tmp_path: Path):
    recorded = dict(record=True, data=tmp_path, evaluate_every=1, evaluate_episodes=3)
    with rollhouse.rollouts("gymnasium:CartPole-v1", 2, policy=_leaning(1.0), fragment=8, **recorded) as played:
        (score,) = played.wait_scores(120)
    assert _pinned("--data", str(tmp_path)) == {score.best: score.returns.max()}
    (built_in,) = rollhouse.evaluate("CartPole-v1", [_leaning(1.0)], episodes=3, seed=evaluations.EVALUATION_SEED)
    np.testing.assert_array_equal(score.returns, built_in.returns)


def test_a_trainer_pins_the_best_episodes_of_its_own_evaluations_in_the_store(two_nodes: LocalCluster):
    with rollhouse.connect(two_nodes.url) as cluster:
        with cluster.rollouts("CartPole-v1", 4, policy=_leaning(1.0), fragment=8, evaluate_every=1) as played:
            (score,) = played.wait_scores()
        assert _pinned("--connect", two_nodes.url) == {score.best: score.returns.max()}
        replays.open(cluster).unpin(score.best)
    assert _pinned("--connect", two_nodes.url) == {}


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(ValueError, match="evaluate_every=0 is below 1"):
        rollhouse.rollouts("CartPole-v1", 4, evaluate_every=0)
    with pytest.raises(ValueError, match="evaluate_episodes=0 is below 1"):
        rollhouse.rollouts("CartPole-v1", 4, evaluate_every=1, evaluate_episodes=0)
    with pytest.raises(ValueError, match="an evaluation has lanes of its own"):
        rollhouse.rollouts("CartPole-v1", 2, evaluate_every=1, lane_options=[{}, {}])
