"""Envs that are clients of a game or simulator which is not there yet: they try again, in workers of this process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hosted_envs import ClientEnv, CountEnv

import rollhouse
from rollhouse.connecting import Connector
from rollhouse.errors import LaneLostError, NotConnectedError

FINE = np.zeros(2, np.int64)


def clients(folder: Path, *, refused: dict[str, Any], **options: Any) -> rollhouse.HostedVectorEnv:
    """Two clients in one worker."""
    fn: Callable[[], Any] = partial(ClientEnv, str(folder), **refused)
    return rollhouse.vectorize([fn] * 2, workers=1, **options)


def test_envs_that_are_refused_while_they_are_made_try_again(tmp_path: Path) -> None:
    envs = clients(tmp_path, refused={"making": 3})
    assert (tmp_path / "made").stat().st_size == 3 + 2
    assert envs.reset(seed=1)[0].tolist() == [[0.0], [0.0]]
    envs.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_resets_that_are_refused_are_tried_again_for_longer_than_a_reset_may_take(tmp_path: Path, mode: str) -> None:
    envs = clients(tmp_path, refused={"resetting": 8}, autoreset_mode=mode, reset_timeout=0.3, step_timeout=0.3)
    assert envs.reset(seed=1)[0].tolist() == [[0.0], [0.0]]
    assert envs.np_random_seed == (1, 2)
    assert envs.step(FINE)[0].tolist() == [[1.0], [1.0]]
    # Refused once more, in the reset that follows an episode's end.
    (tmp_path / "reset").write_bytes(b"xxxx")
    ending = np.array([CountEnv.END, CountEnv.FINE])
    observations, _, terminations, _, _ = envs.step(ending)
    assert terminations.tolist() == [True, False]
    if mode == "SameStep":
        assert observations.tolist() == [[0.0], [2.0]]
    elif mode == "NextStep":
        assert envs.step(FINE)[0].tolist() == [[0.0], [3.0]]
    else:
        mask = np.array([True, False])
        assert envs.reset(options={"reset_mask": mask})[0].tolist() == [[0.0], [2.0]]
    assert (tmp_path / "reset").stat().st_size == 8 + 1
    envs.close()


def test_one_that_is_out_of_retries_tells_how_often_it_tried_and_the_last_failure(tmp_path: Path) -> None:
    with pytest.raises(NotConnectedError, match="2 retries .* call 3 is refused") as refused:
        clients(tmp_path, refused={"making": 9}, connect_retries=2)
    assert refused.value.retries == 2 and isinstance(refused.value, ConnectionError)
    assert isinstance(refused.value.__cause__, LaneLostError)
    (tmp_path / "made").unlink()
    with pytest.raises(ConnectionRefusedError, match="call 1 is refused"):
        clients(tmp_path, refused={"making": 9}, connect_retries=0)


def test_a_lane_that_is_out_of_retries_in_a_reset_is_lost_with_the_reason_and_comes_back(tmp_path: Path) -> None:
    envs = clients(tmp_path, refused={"resetting": 3}, connect_retries=1, valid="always")
    with pytest.raises(NotConnectedError, match="could not connect: 1 retries"):
        envs.reset(seed=1)
    # The lane has another env by then.
    assert envs.reset(seed=1)[0].tolist() == [[0.0], [0.0]]
    envs.close()


def test_an_env_that_hangs_as_it_connects_is_killed_at_the_deadline_for_that(tmp_path: Path) -> None:
    with pytest.raises(LaneLostError, match="connect_timeout=0.5 s .* after 1 retries") as lost:
        clients(tmp_path, refused={"making": 1, "hangs": True}, connect_timeout=0.5, launch_timeout=6.0)
    assert lost.value.outcome == "hung"


@pytest.mark.parametrize("options", [{"connect_retries": -1}, {"connect_retries": 10_001}, {"connect_timeout": 0}])
def test_numbers_that_cannot_be_are_refused_by_name(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        clients(tmp_path, refused={}, **options)


class Told:
    def __init__(self) -> None:
        self.retries: list[int] = []

    def connecting(self, retries: int) -> None:
        self.retries.append(retries)


def test_the_time_to_connect_is_bounded_however_many_retries_are_left() -> None:
    def refuse() -> None:
        raise TimeoutError("no answer")

    told = Told()
    with pytest.raises(NotConnectedError, match="no answer") as gone:
        Connector(told, 10_000, 0.2).make(refuse)
    assert told.retries == [*range(1, gone.value.retries + 1), 0] and gone.value.retries < 5


def test_what_is_no_failure_to_connect_is_raised_at_once() -> None:
    told = Told()
    with pytest.raises(ZeroDivisionError):
        Connector(told, 9, None).make(lambda: 1 // 0)
    assert told.retries == []
