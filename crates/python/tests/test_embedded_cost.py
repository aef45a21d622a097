"""What a step costs in memory, and what importing costs in time."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

import rollhouse


def make(lanes: int, mode: str, copy: bool = False, id: str = "CartPole-v1") -> rollhouse.VectorEnv:
    envs = rollhouse.make_vec(id, lanes, autoreset_mode=mode, copy=copy, threads=1, valid="always")
    envs.reset(seed=0)
    return envs


def step_all(envs: rollhouse.VectorEnv, actions: list[np.ndarray], steps: int) -> None:
    disabled = envs.autoreset_mode.value == "Disabled"
    for step in range(steps):
        result = envs.step(actions[step % len(actions)])
        if disabled:
            over = result[2] | result[3]
            if over.any():
                envs.reset(options={"reset_mask": over})


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("copy", [True, False])
def test_nothing_grows_over_ten_thousand_steps(mode: str, copy: bool) -> None:
    envs = make(64, mode, copy)
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, 64) for _ in range(8)]
    step_all(envs, actions, 500)
    gc.collect()
    before = sys.getallocatedblocks()
    step_all(envs, actions, 10_000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 100


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_views_cost_no_array(mode: str) -> None:
    # NumPy tells tracemalloc of every array's data. The lanes never end here, so that DISABLED needs no reset.
    envs = make(4096, mode, id="Pendulum-v1" if mode == "NextStep" else "MountainCar-v0")
    dtype = np.float32 if mode == "NextStep" else np.int64
    actions = np.zeros((4096, 1) if mode == "NextStep" else 4096, dtype=dtype)
    for _ in range(4):
        envs.step(actions)
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        base = tracemalloc.get_traced_memory()[0]
        for _ in range(150):
            envs.step(actions)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # One array of flags alone would be 4096 bytes.
    assert peak - base < 4096


def test_copies_do_cost_arrays() -> None:
    # The test above can fail.
    envs = make(4096, "NextStep", copy=True)
    actions = np.zeros(4096, dtype=np.int64)
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        envs.step(actions)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - base > 4096 * (16 + 8 + 1 + 1)


def test_other_threads_run_while_a_large_batch_is_stepped() -> None:
    envs = make(16_384, "NextStep", id="Acrobot-v1")
    actions = np.zeros(16_384, dtype=np.int64)
    switch = sys.getswitchinterval()
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0)  # gives the lock back

    counter = threading.Thread(target=count)
    # Longer than the test: the counter gets the lock only when a step gives it back.
    sys.setswitchinterval(1000.0)
    try:
        counter.start()
        for _ in range(400):
            envs.step(actions)
            if counted:
                break
    finally:
        sys.setswitchinterval(switch)
        stop.set()
        counter.join()
    assert counted > 0


def test_importing_brings_nothing_heavy() -> None:
    program = (
        "import sys; import gymnasium; before = set(sys.modules); import rollhouse; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    new = set(subprocess.check_output([sys.executable, "-c", program], text=True).split())
    assert "rollhouse" in new
    assert not new & {"torch", "cloudpickle", "multiprocessing", "minari", "stable_baselines3", "pandas", "asyncio"}
    assert len(new) < 30, new
