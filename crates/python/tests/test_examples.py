"""The examples learn: their exit code is 0 only when they have reached their goal, a mean return of 475 where no other is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, EXAMPLES / name, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.examples
@pytest.mark.adapters("torch")
def test_ppo_in_one_file_reaches_475(tmp_path: Path) -> None:
    said = run("ppo.py", "--record", cwd=tmp_path)
    assert re.search(r"mean return +\d+\.\d +[\d,]+ steps/s", said)
    trained = int(re.search(r"after ([\d,]+) steps", said).group(1).replace(",", ""))
    from rollhouse import replays

    recorded = replays.open(tmp_path / "rollhouse-data")
    assert sum(info.length for info in recorded) == trained
    assert max(info.return_ for info in recorded if info.finished) == 500


@pytest.mark.examples
@pytest.mark.adapters("torch")
@pytest.mark.parametrize("cluster", [False, True], ids=["here", "cluster"])
def test_ppo_learns_from_what_nodes_play(tmp_path: Path, cluster: bool, cluster_url: str) -> None:
    said = run("ppo_rollouts.py", *(["--connect", cluster_url] if cluster else []), cwd=tmp_path)
    assert re.search(r"mean return +\d+\.\d +[\d,]+ steps/s  lag 1\nreached 475 in ", said), said


@pytest.mark.examples
@pytest.mark.adapters("torch")
@pytest.mark.parametrize(
    ("example", "cluster"),
    [("grpo_rollouts.py", False), ("grpo_rollouts.py", True), ("vtrace_rollouts.py", True), ("dqn_rollouts.py", True)],
)
def test_other_ways_to_learn_reach_475(tmp_path: Path, example: str, cluster: bool, cluster_url: str) -> None:
    said = run(example, *(["--connect", cluster_url] if cluster else []), cwd=tmp_path)
    lag = 2 if example.startswith("vtrace") else 1
    assert re.search(rf"mean return +\d+\.\d +[\d,]+ steps/s  lag {lag}\n", said) and "reached 475 in " in said, said


@pytest.mark.examples
@pytest.mark.adapters("torch")
@pytest.mark.parametrize("cluster", [False, True], ids=["here", "cluster"])
def test_quantities_are_learned_until_the_pendulum_stands(tmp_path: Path, cluster: bool, cluster_url: str) -> None:
    said = run("ppo_pendulum.py", *(["--connect", cluster_url] if cluster else []), cwd=tmp_path)
    assert re.search(r"mean return +-\d+\.\d +[\d,]+ steps/s  lag 1  means +-1\d\d\.\d\nreached -200 in ", said), said


@pytest.mark.examples
@pytest.mark.adapters("torch", "onnx")
@pytest.mark.parametrize("cluster", [False, True], ids=["here", "cluster"])
def test_a_net_of_convolutions_learns_from_pixels(tmp_path: Path, cluster: bool, cluster_url: str) -> None:
    said = run("ppo_pixels.py", *(["--connect", cluster_url] if cluster else []), cwd=tmp_path)
    random = re.match(r"random actions have a mean return of (\d\.\d\d)\n", said)
    assert random is not None and float(random[1]) < 1, said
    assert re.search(r"mean return +1\d\.\d\d +[\d,]+ steps/s  lag 1\nreached 10 in ", said), said


@pytest.mark.examples
@pytest.mark.adapters("torch", "onnx")
@pytest.mark.parametrize("cluster", [False, True], ids=["here", "cluster"])
def test_a_recurrent_net_learns_to_balance_without_velocities(tmp_path: Path, cluster: bool, cluster_url: str) -> None:
    said = run("ppo_recurrent.py", *(["--connect", cluster_url] if cluster else []), cwd=tmp_path)
    assert re.search(r"mean return +\d+\.\d +[\d,]+ steps/s  lag 1\nreached 475 in ", said), said


@pytest.mark.examples
@pytest.mark.adapters("torch")
def test_an_agent_with_masks_learns_to_win_a_strategy_game_that_random_choices_do_not(tmp_path: Path) -> None:
    said = run("ppo_skirmish.py", cwd=tmp_path)
    final = re.search(r"greedy choices win (\d\.\d\d) of 64 new games, random ones (\d\.\d\d)", said)
    assert final is not None and float(final[1]) >= 0.9 and float(final[2]) < 0.3, said
    assert re.search(r"win rate \d\.\d\d  mean return +-?\d+\.\d\d +[\d,]+ steps/s", said), said


@pytest.mark.examples
@pytest.mark.parametrize("cluster", [False, True], ids=["here", "cluster"])
def test_a_genetic_algorithm_reaches_475_and_plays_nothing_twice(
    tmp_path: Path, cluster: bool, cluster_url: str
) -> None:
    arguments = ["--results", "scores.jsonl", *(["--connect", cluster_url] if cluster else [])]
    said = run("genetic.py", *arguments, cwd=tmp_path)
    scores = (tmp_path / "scores.jsonl").read_bytes()
    again = run("genetic.py", *arguments, cwd=tmp_path)
    best = re.compile(r"best +(\d+\.\d)")
    assert best.findall(again) == best.findall(said) and (tmp_path / "scores.jsonl").read_bytes() == scores


@pytest.mark.examples
@pytest.mark.adapters("cma")
def test_an_evolution_strategy_reaches_475_on_a_cluster(tmp_path: Path, cluster_url: str) -> None:
    assert "reached 475 in " in run("cma_es.py", "--connect", cluster_url, cwd=tmp_path)


@pytest.mark.examples
@pytest.mark.adapters("torch", "stable_baselines3")
def test_stable_baselines_reaches_475(tmp_path: Path) -> None:
    assert re.search(r"mean return +\d+\.\d +[\d,]+ steps/s", run("sb3.py", cwd=tmp_path))


@pytest.mark.examples
@pytest.mark.adapters("torch")
def test_giving_up_early_is_a_failure(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "ppo.py", "--steps", "4096"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.mark.examples
@pytest.mark.adapters("torch")
def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    def steps_and_returns() -> list[str]:
        command = [sys.executable, EXAMPLES / "ppo.py", "--steps", "65536", "--seed", "3"]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
        return re.findall(r"[\d,]+ steps  mean return +[\d.]+", said) + re.findall(r"greedy.*", said)

    first = steps_and_returns()
    assert len(first) >= 3
    assert steps_and_returns() == first
