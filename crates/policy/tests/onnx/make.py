"""Makes the ONNX files of these tests, and what onnxruntime computes of them.

    pip install torch onnx onnxscript onnxruntime stable-baselines3 gymnasium rsl-rl-lib torchrl
    pip install --no-deps godot-rl
    python make.py [NAME ...]

Files of libraries that can be installed are written by their own exporters, at the versions that ``README.md`` names; those of ML-Agents,
Unreal's plug-in and RLlib are graphs with the names, shapes and types that these write. Beside each ``NAME.onnx``
stands ``NAME.f32``: singles, little-endian, the outputs of 1,000 observations, one after the other. Observation ``k`` has the
numbers ``number(k, 0)``, ``number(k, 1)``, ... of this file, which the tests have too. Of recurrent files they are 25 steps of
40 lanes, and a lane begins an episode where ``begins`` says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
OBSERVATIONS = 1000
STEPS, LANES = 25, 40
FLOAT, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8


def split_mix64(z: int) -> int:
    mask = (1 << 64) - 1
    z = (z + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def number(seed: int, at: int) -> float:
    """A number of [-1, 1) from a counter."""
    return (split_mix64((seed << 32) + at) >> 40) / (1 << 23) - 1.0


def observation(k: int, numbers: int) -> np.ndarray:
    return np.array([[number(k, at) for at in range(numbers)]], np.float32)


def begins(lane: int, step: int) -> bool:
    return step == 0 or (7 * step + lane) % 11 == 0


# Graphs.

Shape = Sequence[int | str]


class Graph:
    """A graph that is built node by node."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, array: np.ndarray) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, **attributes: object) -> str:
        names = outputs if not isinstance(outputs, int) else [f"value_{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), list(names), **attributes))
        return names[0]

    def linear(self, value: str, inputs: int, outputs: int, name: str | None = None) -> str:
        weights = self.weight((self.random.standard_normal((outputs, inputs)) / inputs**0.5).astype(np.float32))
        bias = self.weight(self.random.standard_normal(outputs).astype(np.float32) * 0.1)
        return self.add("Gemm", [value, weights, bias], [name] if name else 1, transB=1)

    def net(self, value: str, sizes: Sequence[int], name: str | None = None, activation: str = "Tanh") -> str:
        for inputs, outputs in zip(sizes[:-2], sizes[1:-1], strict=True):
            value = self.add(activation, [self.linear(value, inputs, outputs)])
        return self.linear(value, sizes[-2], sizes[-1], name)

    def save(
        self,
        name: str,
        inputs: Sequence[tuple[str, int, Shape]],
        outputs: Sequence[tuple[str, int, Shape]],
        opset: int,
        **metadata: str,
    ) -> None:
        def ports(of: Sequence[tuple[str, int, Shape]]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in of]

        graph = helper.make_graph(self.nodes, name, ports(inputs), ports(outputs), self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        onnx.save(model, HERE / f"{name}.onnx")


# What onnxruntime computes.


def session(name: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(HERE / f"{name}.onnx", providers=["CPUExecutionProvider"])


def expect(name: str, outputs: Sequence[str], feed: Callable[[int], dict[str, np.ndarray]]) -> None:
    """Writes what the outputs are for each observation."""
    run = session(name)
    rows = [np.concatenate([part.ravel() for part in run.run(list(outputs), feed(k))]) for k in range(OBSERVATIONS)]
    write(name, rows)


def expect_recurrent(
    name: str,
    output: str,
    states: dict[str, tuple[str, tuple[int, ...]]],
    feed: Callable[[int, bool], dict[str, np.ndarray]],
) -> None:
    run = session(name)
    held = [{key: np.zeros(shape, np.float32) for key, (_, shape) in states.items()} for _ in range(LANES)]
    rows = []
    for step in range(STEPS):
        for lane in range(LANES):
            begun = begins(lane, step)
            if begun:
                held[lane] = {key: np.zeros(shape, np.float32) for key, (_, shape) in states.items()}
            given = feed(step * LANES + lane, begun) | held[lane]
            action, *after = run.run([output, *(to for to, _ in states.values())], given)
            held[lane] = dict(zip(states, after, strict=True))
            rows.append(action.ravel())
    write(name, rows)


def write(name: str, rows: Sequence[np.ndarray]) -> None:
    numbers = np.concatenate([row.astype("<f4") for row in rows])
    assert np.isfinite(numbers).all()
    (HERE / f"{name}.f32").write_bytes(numbers.tobytes())
    size = (HERE / f"{name}.onnx").stat().st_size
    assert size < 20 << 10, f"{name} has {size} bytes"
    print(f"{name}: {size} bytes, {len(numbers)} numbers")


# Files that libraries write.


def sb3_ppo() -> None:
    """Stable-Baselines3's documented recipe."""
    import torch
    from stable_baselines3 import PPO

    torch.manual_seed(1)
    model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [16, 16]}, seed=1, device="cpu")

    class OnnxableSB3Policy(torch.nn.Module):
        def __init__(self, policy: torch.nn.Module) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            return self.policy(observation, deterministic=True)

    with torch.no_grad():
        # Untrained nets of PPO have outputs that are nearly the same for all.
        model.policy.action_net.weight *= 50
    torch.onnx.export(
        OnnxableSB3Policy(model.policy).eval(),
        (torch.zeros(1, 4),),
        HERE / "sb3_ppo.onnx",
        opset_version=17,
        input_names=["input"],
        dynamo=False,
    )
    outputs = [output.name for output in session("sb3_ppo").get_outputs()]
    expect("sb3_ppo", outputs, lambda k: {"input": observation(k, 4)})


def rsl_rl(name: str, model: object) -> None:
    """Writes a model as the runner of rsl_rl does, which Isaac Lab uses (``OnPolicyRunner.export_policy_to_onnx``)."""
    import torch

    exported = model.as_onnx(verbose=False).eval()
    ports = {"input_names": exported.input_names, "output_names": exported.output_names}
    path = HERE / f"{name}.onnx"
    torch.onnx.export(exported, exported.get_dummy_inputs(), path, export_params=True, opset_version=18, **ports)
    in_one_file(path)


def in_one_file(path: Path) -> None:
    """Moves weights that were written beside a file into it, and takes out what the exporter says of the places in its code."""
    model = onnx.load(path)
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, model.graph, model):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    path.with_name(path.name + ".data").unlink(missing_ok=True)
    onnx.save(model, path)


def rsl_rl_mlp() -> None:
    import torch
    from rsl_rl.models import MLPModel
    from tensordict import TensorDict

    torch.manual_seed(2)
    shown = TensorDict({"policy": torch.zeros(1, 6)}, [1])
    model = MLPModel(shown, {"actor": ["policy"]}, "actor", 2, (16, 16), obs_normalization=True)
    model.obs_normalizer.update(torch.randn(64, 6) * 3 + 1)
    rsl_rl("rsl_rl_mlp", model)
    expect("rsl_rl_mlp", ["actions"], lambda k: {"obs": observation(k, 6)})


def rsl_rl_lstm() -> None:
    import torch
    from rsl_rl.models import RNNModel
    from tensordict import TensorDict

    torch.manual_seed(3)
    shown = TensorDict({"policy": torch.zeros(1, 6)}, [1])
    model = RNNModel(shown, {"actor": ["policy"]}, "actor", 2, (8,), rnn_type="lstm", rnn_hidden_dim=8, rnn_num_layers=2)
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 3
    rsl_rl("rsl_rl_lstm", model)
    states = {"h_in": ("h_out", (2, 1, 8)), "c_in": ("c_out", (2, 1, 8))}
    expect_recurrent("rsl_rl_lstm", "actions", states, lambda k, begun: {"obs": observation(k, 6)})


def godot_rl() -> None:
    """A model of Stable-Baselines3 as Godot RL exports it."""
    import importlib.util

    import gymnasium
    import torch
    from stable_baselines3 import PPO

    # The package imports a game's sockets; its exporter needs none of them.
    place = Path(importlib.util.find_spec("godot_rl").origin).parent / "wrappers/onnx/stable_baselines_export.py"
    spec = importlib.util.spec_from_file_location("export", place)
    export = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(export)

    class World(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict({"obs": gymnasium.spaces.Box(-1, 1, (5,), np.float32)})
        action_space = gymnasium.spaces.Discrete(3)

    torch.manual_seed(4)
    model = PPO("MultiInputPolicy", World(), policy_kwargs={"net_arch": [16]}, seed=1, device="cpu")
    with torch.no_grad():
        model.policy.action_net.weight *= 100
    # It verifies its file by actions, which it draws from other spaces than this one's.
    export.verify_onnx_export = lambda *given, **named: None
    export.export_model_as_onnx(model, str(HERE / "godot_rl.onnx"))
    in_one_file(HERE / "godot_rl.onnx")
    expect("godot_rl", ["output"], lambda k: {"obs": observation(k, 5), "state_ins": np.zeros(1, np.float32)})


# Graphs in the names of others.


def unreal() -> None:
    graph = Graph(2)
    graph.net("obs", [6, 16, 2], "actions")
    graph.save("unreal", [("obs", FLOAT, [1, 6])], [("actions", FLOAT, [1, 2])], 17)
    expect("unreal", ["actions"], lambda k: {"obs": observation(k, 6)})


def rllib() -> None:
    graph = Graph(4)
    hidden = graph.add("Tanh", [graph.linear("onnx::Gemm_0", 3, 16)])
    graph.linear(hidden, 16, 2, "9")
    graph.linear(hidden, 16, 1, "10")
    graph.save("rllib", [("onnx::Gemm_0", FLOAT, [1, 3])], [("9", FLOAT, [1, 2]), ("10", FLOAT, [1, 1])], 18)
    expect("rllib", ["9"], lambda k: {"onnx::Gemm_0": observation(k, 3)})


def ml_agents() -> None:
    """Two branches of choices, drawn and likeliest, with masks."""
    graph = Graph(5)
    hidden = graph.add("Sigmoid", [graph.linear("obs_0", 8, 16)])
    branches, drawn = [], []
    masked = graph.add("Mul", [graph.add("Sub", [graph.weight(np.float32([1])), "action_masks"]), graph.weight(np.float32([-1e8]))])
    for first, values in ((0, 3), (3, 2)):
        logits = graph.linear(hidden, 16, values)
        mask = graph.add("Slice", [masked], axes=[1], starts=[first], ends=[first + values])
        logits = graph.add("Add", [logits, mask])
        branches.append(graph.add("ArgMax", [logits], axis=1, keepdims=1))
        drawn.append(graph.add("Multinomial", [logits], dtype=INT64, sample_size=1))
    graph.add("Concat", drawn, ["discrete_actions"], axis=1)
    graph.add("Concat", branches, ["deterministic_discrete_actions"], axis=1)
    for name, value in (("version_number", 3.0), ("memory_size", 0.0)):
        graph.add("Constant", [], [name], value=numpy_helper.from_array(np.float32([value])))
    graph.save(
        "ml_agents",
        [("obs_0", FLOAT, ["batch", 8]), ("action_masks", FLOAT, ["batch", 5])],
        [
            ("version_number", FLOAT, [1]),
            ("memory_size", FLOAT, [1]),
            ("discrete_actions", INT64, ["batch", 2]),
            ("deterministic_discrete_actions", INT64, ["batch", 2]),
        ],
        9,
    )

    def feed(k: int) -> dict[str, np.ndarray]:
        mask = [[1, k % 2, k // 2 % 2, 1, k // 4 % 2]]
        return {"obs_0": observation(k, 8), "action_masks": np.array(mask, np.float32)}

    expect("ml_agents", ["deterministic_discrete_actions"], feed)


def lstm(graph: Graph, value: str, inputs: int, hidden: int, states: tuple[str, str], after: tuple[str, str]) -> str:
    """A layer of one step: `value` is [1, rows, inputs]."""
    shape = (1, 4 * hidden)
    weights = graph.weight(graph.random.uniform(-0.5, 0.5, (*shape, inputs)).astype(np.float32))
    again = graph.weight(graph.random.uniform(-0.5, 0.5, (*shape, hidden)).astype(np.float32))
    bias = graph.weight(graph.random.uniform(-0.5, 0.5, (1, 8 * hidden)).astype(np.float32))
    names = [f"sequence_{len(graph.nodes)}", *after]
    graph.add("LSTM", [value, weights, again, bias, "", *states], names, hidden_size=hidden)
    return names[0]


def isaac_lstm() -> None:
    graph = Graph(6)
    step = graph.add("Unsqueeze", ["obs"], axes=[0])
    sequence = lstm(graph, step, 6, 8, ("h_in", "c_in"), ("h_out", "c_out"))
    hidden = graph.add("Squeeze", [graph.add("Squeeze", [sequence], axes=[1])], axes=[0])
    graph.net(hidden, [8, 8, 2], "actions", "Elu")
    state = ("h_in", FLOAT, [1, 1, 8]), ("c_in", FLOAT, [1, 1, 8])
    after = ("h_out", FLOAT, [1, 1, 8]), ("c_out", FLOAT, [1, 1, 8])
    graph.save("isaac_lstm", [("obs", FLOAT, [1, 6]), *state], [("actions", FLOAT, [1, 2]), *after], 11)
    states = {"h_in": ("h_out", (1, 1, 8)), "c_in": ("c_out", (1, 1, 8))}
    expect_recurrent("isaac_lstm", "actions", states, lambda k, begun: {"obs": observation(k, 6)})


def torchrl_gru(name: str = "torchrl_gru", actions: int = 3, seed: int = 7) -> None:
    """One unbatched step with a state and whether an episode begins."""
    graph = Graph(seed)
    zero = graph.weight(np.float32([0]))
    state = graph.add("Where", ["is_init", zero, "recurrent_state_h"])
    step = graph.add("Unsqueeze", ["observation", graph.weight(np.int64([0, 1]))])
    before = graph.add("Unsqueeze", [state, graph.weight(np.int64([0]))])
    weights = graph.weight(graph.random.uniform(-0.5, 0.5, (1, 24, 4)).astype(np.float32))
    again = graph.weight(graph.random.uniform(-0.5, 0.5, (1, 24, 8)).astype(np.float32))
    bias = graph.weight(graph.random.uniform(-0.5, 0.5, (1, 48)).astype(np.float32))
    graph.add("GRU", [step, weights, again, bias, "", before], ["sequence", "last"], hidden_size=8, linear_before_reset=1)
    flat = graph.add("Reshape", ["last", graph.weight(np.int64([1, 8]))])
    graph.add("Squeeze", ["last", graph.weight(np.int64([0]))], ["next_recurrent_state_h"])
    best = graph.add("ArgMax", [graph.linear(flat, 8, actions)], axis=1, keepdims=0)
    hot = graph.add("OneHot", [best, graph.weight(np.int64([actions])), graph.weight(np.int64([0, 1]))])
    graph.add("Squeeze", [hot, graph.weight(np.int64([0]))], ["action"])
    graph.save(
        name,
        [("observation", FLOAT, [4]), ("is_init", TensorProto.BOOL, [1]), ("recurrent_state_h", FLOAT, [1, 8])],
        [("action", INT64, [actions]), ("next_recurrent_state_h", FLOAT, [1, 8])],
        18,
    )
    states = {"recurrent_state_h": ("next_recurrent_state_h", (1, 8))}

    def feed(k: int, begun: bool) -> dict[str, np.ndarray]:
        return {"observation": observation(k, 4)[0], "is_init": np.array([begun])}

    expect_recurrent(name, "action", states, feed)


def cartpole_gru() -> None:
    """The same for an env of this program, with weights by which its actions vary."""
    torchrl_gru("cartpole_gru", 2, 3)


def pixels() -> None:
    """Channels first, of bytes, beside numbers: two parts of an observation."""
    graph = Graph(8)
    image = graph.add("Div", [graph.add("Cast", ["image"], to=FLOAT), graph.weight(np.float32([255]))])
    weights = graph.weight((graph.random.standard_normal((4, 3, 3, 3)) / 5).astype(np.float32))
    image = graph.add("Relu", [graph.add("Conv", [image, weights], kernel_shape=[3, 3], strides=[2, 2], dilations=[1, 1])])
    image = graph.add("Flatten", [graph.add("MaxPool", [image], kernel_shape=[2, 2], strides=[2, 2])])
    both = graph.add("Concat", [image, "speed"], axis=1)
    graph.net(both, [4 * 2 * 2 + 2, 8, 4], "logits")
    graph.linear(both, 4 * 2 * 2 + 2, 1, "value")
    graph.save(
        "pixels",
        [("image", UINT8, ["rows", 3, 10, 10]), ("speed", FLOAT, ["rows", 2])],
        [("logits", FLOAT, ["rows", 4]), ("value", FLOAT, ["rows", 1])],
        21,
    )

    def feed(k: int) -> dict[str, np.ndarray]:
        image = [int((number(k, at) + 1) * 128) for at in range(300)]
        speed = [[number(k, 300), number(k, 301)]]
        last = np.array(image, np.uint8).reshape(1, 10, 10, 3)
        return {"image": last.transpose(0, 3, 1, 2), "speed": np.array(speed, np.float32)}

    expect("pixels", ["logits", "value"], feed)


def refused() -> None:
    """Files of one layer, with something each for which they are refused."""

    def layer(name: str, change: Callable[[onnx.ModelProto], None]) -> None:
        graph = Graph(9)
        graph.linear("obs", 4, 2, "actions")
        ports = [helper.make_tensor_value_info(port, FLOAT, [1, numbers]) for port, numbers in (("obs", 4), ("actions", 2))]
        made = helper.make_graph(graph.nodes, name, ports[:1], ports[1:], graph.weights)
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        change(model)
        (HERE / "refused").mkdir(exist_ok=True)
        (HERE / "refused" / f"{name}.onnx").write_bytes(model.SerializeToString())

    def numbers(change: Callable[[np.ndarray], None]) -> Callable[[onnx.ModelProto], None]:
        def changed(model: onnx.ModelProto) -> None:
            weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
            change(weights)
            model.graph.initializer[0].raw_data = weights.tobytes()

        return changed

    def external(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "/etc/hostname"), ("offset", "0"), ("length", "32")):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value

    def branch(model: onnx.ModelProto) -> None:
        inner = helper.make_graph([helper.make_node("Identity", ["actions"], ["x"])], "inner", [], [])
        model.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner))

    layer("none", lambda model: None)
    layer("nan", numbers(lambda weights: weights.__setitem__((1, 2), np.nan)))
    layer("infinite", numbers(lambda weights: weights.__setitem__((0, 3), -np.inf)))
    layer("external", external)
    layer("rank", lambda model: model.graph.input[0].type.tensor_type.ClearField("shape"))
    layer("opset", lambda model: setattr(model.opset_import[0], "version", 22))
    layer("branch", branch)
    layer("operator", lambda model: setattr(model.graph.node[0], "op_type", "Gamm"))
    layer("domain", lambda model: setattr(model.graph.node[0], "domain", "com.example"))
    layer("short", lambda model: model.graph.initializer[0].dims.__setitem__(0, 3))
    layer("texts", lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", TensorProto.STRING))
    layer("unfit", lambda model: setattr(model.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 5))


MAKERS = (refused, sb3_ppo, rsl_rl_mlp, rsl_rl_lstm, godot_rl, unreal, rllib, ml_agents, isaac_lstm, torchrl_gru)
MAKERS += (cartpole_gru, pixels)

if __name__ == "__main__":
    for maker in MAKERS:
        if len(sys.argv) == 1 or maker.__name__ in sys.argv[1:]:
            maker()
