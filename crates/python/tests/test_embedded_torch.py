"""The embedded vector env in tensors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rollhouse
from rollhouse import errors

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("copy", [True, False])
def test_tensors_are_what_arrays_are(copy: bool) -> None:
    view = rollhouse.make_vec("CartPole-v1", 4, copy=copy, valid="always").torch()
    arrays = rollhouse.make_vec("CartPole-v1", 4, valid="always")
    obs, _ = view.reset(seed=0)
    expected, _ = arrays.reset(seed=0)
    assert np.array_equal(obs.numpy(), expected)
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(0, 2, 4)
        *tensors, infos = view.step(torch.from_numpy(actions))
        *others, their_infos = arrays.step(actions)
        assert [tensor.dtype for tensor in tensors] == [torch.float32, torch.float64, torch.bool, torch.bool]
        assert all(np.array_equal(a.numpy(), b) for a, b in zip(tensors, others, strict=True))
        assert np.array_equal(infos["valid"].numpy(), their_infos["valid"])


def test_tensors_share_the_engines_memory_without_a_warning() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 4, copy=False)
    view = envs.torch("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        view.reset(seed=0)
        actions = torch.ones(4, dtype=torch.int64)
        steps = [view.step(actions) for _ in range(6)]
    assert steps[2][0] is steps[4][0]
    assert steps[3][0] is steps[5][0]
    assert steps[4][0].data_ptr() != steps[5][0].data_ptr()
    arrays = [envs.step(np.ones(4, dtype=np.int64))[0] for _ in range(2)]
    assert {array.ctypes.data for array in arrays} == {steps[4][0].data_ptr(), steps[5][0].data_ptr()}


def test_other_dtypes_masks_and_first_done() -> None:
    view = rollhouse.make_vec("CartPole-v1", 4, autoreset_mode="Disabled", valid="always").torch()
    view.reset(seed=0)
    view.step(torch.ones(4, dtype=torch.int32))
    with pytest.raises(errors.ActionTypeError, match="float32"):
        view.step(torch.ones(4))
    obs, _ = view.reset(options={"reset_mask": torch.tensor([True, False, False, False])})
    assert obs.shape == (4, 4)
    view.send(torch.tensor([1, 0]), torch.tensor([3, 1]))
    obs, rewards, *_, infos = view.recv(2)
    assert sorted(infos["env_id"].tolist()) == [1, 3]
    assert obs.shape == (2, 4) and rewards.tolist() == [1.0, 1.0] and infos["valid"].all()


def test_lost_lanes_do_not_leave_tensors_behind(capfd) -> None:
    envs = rollhouse.make_vec("test/Faulty-v0", 2, lane_options=[{}, {"panic_at": 2}], copy=False)
    view = envs.torch()
    view.reset(seed=0)
    actions = torch.zeros(2, dtype=torch.int64)
    view.step(actions)
    *_, truncations, infos = view.step(actions)
    assert truncations.tolist() == [False, True]
    assert infos["valid"].tolist() == [True, False]
    assert view.step(actions)[3].tolist() == [False, False]
    capfd.readouterr()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_results_arrive_on_the_device() -> None:
    view = rollhouse.make_vec("CartPole-v1", 256, copy=False, valid="always").torch("cuda")
    assert view.pinned
    arrays = rollhouse.make_vec("CartPole-v1", 256)
    view.reset(seed=0)
    arrays.reset(seed=0)
    for _ in range(50):
        actions = torch.randint(0, 2, (256,), device="cuda")
        *tensors, infos = view.step(actions)
        others = arrays.step(actions.cpu().numpy())[:4]
        assert all(np.array_equal(a.cpu().numpy(), b) for a, b in zip(tensors, others, strict=True))
        assert infos["valid"].device.type == "cuda"
