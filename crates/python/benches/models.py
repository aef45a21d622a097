"""Policies of ONNX files beside onnxruntime and PyTorch: microseconds of a request, on one thread each.

    cargo build --release -p rollhouse-policy --features onnx --example model_times
    python benches/models.py ../../target/release/examples/model_times [--json] [--lanes 1 64 1024] [--repeats 9]

Three nets, written by PyTorch's exporter: two layers of 64, the convolutions of the DQN paper on 84x84x4, and a recurrent layer (LSTM) of
128. Ours is what a policy takes: observations into inputs, the net, drawing, log-probabilities; the others' is the net alone. All contestants take
turns within one run, so that whatever else the machine does meets them alike; a figure is the median of the turns with its spread, a
ratio is the median of the ratios of the turns. ``pip install torch onnxscript onnxruntime`` has the peers.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import nn

SECONDS_PER_TURN = 0.1


class Pixels(nn.Module):
    """The net of the DQN paper."""

    def __init__(self) -> None:
        super().__init__()
        convolutions = nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1)
        self.net = nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.net(obs.float() / 255)


class Recurrent(nn.Module):
    """A recurrent layer with a linear one behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.LSTM(16, 128), nn.Linear(128, 4)

    def forward(self, obs: torch.Tensor, h_in: torch.Tensor, c_in: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shown, (h_out, c_out) = self.layer(obs.unsqueeze(0), (h_in, c_in))
        return self.out(shown.squeeze(0)), h_out, c_out


def nets() -> dict[str, tuple[nn.Module, dict[str, tuple[int | None, ...]], list[str]]]:
    """Nets, the shapes of their inputs with None for the lanes, and the names of their outputs."""
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    state = (1, None, 128)
    return {
        "MLP 64-64": (dense, {"obs": (None, 4)}, ["logits"]),
        "CNN 84x84x4": (Pixels(), {"obs": (None, 4, 84, 84)}, ["logits"]),
        "LSTM 128": (Recurrent(), {"obs": (None, 16), "h_in": state, "c_in": state}, ["logits", "h_out", "c_out"]),
    }


def given(shapes: dict[str, tuple[int | None, ...]], lanes: int) -> dict[str, torch.Tensor]:
    def tensor(shape: tuple[int | None, ...]) -> torch.Tensor:
        extents = [lanes if extent is None else extent for extent in shape]
        is_picture = len(extents) == 4
        return torch.randint(0, 256, extents, dtype=torch.uint8) if is_picture else torch.rand(extents) * 2 - 1

    return {name: tensor(shape) for name, shape in shapes.items()}


def export(folder: Path, name: str) -> Path:
    net, shapes, outputs = nets()[name]
    axes = {key: {shape.index(None): "lanes"} for key, shape in shapes.items()}
    axes |= {"logits": {0: "lanes"}} | {key: {1: "lanes"} for key in outputs[1:]}
    path = folder / f"{name.replace(' ', '-')}.onnx"
    names = {"input_names": list(shapes), "output_names": outputs, "dynamic_axes": axes}
    torch.onnx.export(net.eval(), tuple(given(shapes, 3).values()), path, opset_version=17, dynamo=False, **names)
    return path


def timed(run: Callable[[], Any]) -> Callable[[], float]:
    """Returns a turn: microseconds of a run."""

    def turn() -> float:
        begun, runs = time.perf_counter(), 0
        while runs < 2 or time.perf_counter() - begun < SECONDS_PER_TURN:
            run()
            runs += 1
        return (time.perf_counter() - begun) * 1e6 / runs

    return turn


def contestants(program: subprocess.Popen[str], path: Path, name: str, lanes: int) -> dict[str, Callable[[], float]]:
    net, shapes, _ = nets()[name]
    tensors = given(shapes, lanes)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {key: tensor.numpy() for key, tensor in tensors.items()}
    module = net.eval()

    def ours() -> float:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(f"{path} {lanes}\n")
        program.stdin.flush()
        return float(program.stdout.readline())

    def theirs() -> None:
        with torch.inference_mode():
            module(*tensors.values())

    return {"rollhouse": ours, "onnxruntime": timed(lambda: session.run(None, feed)), "PyTorch": timed(theirs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program model_times")
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen([args.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in nets():
            path = export(Path(folder), name)
            for lanes in args.lanes:
                turns = contestants(program, path, name, lanes)
                for turn in turns.values():
                    turn()
                times = [{key: turn() for key, turn in turns.items()} for _ in range(args.repeats)]
                for key in turns:
                    own = sorted(time[key] for time in times)
                    ratio = statistics.median(time[key] / time["onnxruntime"] for time in times)
                    rows.append(
                        {"net": name, "lanes": lanes, "runtime": key, "us": statistics.median(own), "least": own[0]}
                        | {"most": own[-1], "of_onnxruntime": ratio}
                    )
        assert program.stdin is not None
        program.stdin.close()
        program.wait()
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{platform.processor() or platform.machine()}, onnxruntime {onnxruntime.__version__}, torch {torch.__version__}")
    for row in rows:
        spread = f"{row['least']:,.1f} to {row['most']:,.1f}"
        print(
            f"{row['net']:12} {row['lanes']:5} lanes  {row['runtime']:12} {row['us']:12,.1f} us"
            f"  ({spread})  {row['of_onnxruntime']:.2f} of onnxruntime's"
        )


if __name__ == "__main__":
    main()
