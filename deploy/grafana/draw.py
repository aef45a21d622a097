"""Draws the dashboards as they look over a real cluster that works: docs/pictures/overview.png and internals.png.

    python3 deploy/grafana/draw.py PROGRAM [--minutes 4]

It starts a coordinator, two nodes and Prometheus with our rules on this machine, has rollouts and a trainer play, a stranger
knock, a user ask for what it may not and a node be killed and started again, asks Prometheus for every panel's queries, and draws
the answers in Grafana's layout. It fails if a panel has no series. Needs Prometheus, and Python with matplotlib and the package
`rollhouse`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PICTURES = ROOT / "docs" / "pictures"
BACKGROUND, PANEL, TEXT, GRID = "#111217", "#181b1f", "#ccccdc", "#2c3235"
COLOURS = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#37872d"]

# Steps of all lanes, and of some, by an owner over QUIC; and fragments by a policy that is updated behind each.
TRAINER = """
import os, numpy, rollhouse
cluster = rollhouse.connect(os.environ["ROLLHOUSE_CONNECT"])
while True:
    envs = cluster.make_vec("CartPole-v1", 256, transport="quic", spread="even")
    envs.reset()
    for _ in range(4000):
        envs.step(envs.action_space.sample())
    envs.close()
    envs = cluster.make_vec("CartPole-v1", 64, transport="quic")
    envs.reset()
    for _ in range(500):
        envs.send(numpy.zeros(32, numpy.int64), numpy.arange(32))
        envs.recv(32)
    envs.close()
    net = {"policy.0.weight": numpy.zeros((2, 4), numpy.float32), "policy.0.bias": numpy.zeros(2, numpy.float32)}
    with cluster.rollouts("CartPole-v1", 64, policy=net, fragment=64, staleness=1, spread="even") as rollouts:
        for _ in range(400):
            next(rollouts)
            rollouts.update(net)
"""

# An env that gives scores, as no built-in one does.
GAMES = """
import gymnasium

class Dice(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(7)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.score = 0
        return 0, {}

    def step(self, action):
        shown = int(self.np_random.integers(1, 7))
        self.score += shown
        return shown, float(shown), shown == 6, False, {"score": self.score} if shown == 6 else {}
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """Processes that end with this one."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder, self.running = program, folder, {}
        self.port = free_port()
        (folder / "games.py").write_text(GAMES)
        self.pages = {name: free_port() for name in ["coordinator", "node-1", "node-2"]}
        self.do("certs", "init", "--dir", "ca")
        for name in self.pages:
            role = "coordinator" if name == "coordinator" else "node"
            self.do("certs", "issue", "--dir", "ca", "--role", role, "--name", name, "--output", f"{name}/tls")
        token = self.do("token", "create", "--new", "--role", "trainer", "--name", "t", "--data", "coordinator").strip()
        self.connection = f"rollhouse://127.0.0.1:{self.port}?token={token}&ca={folder}/ca/ca.pem"
        for name in self.pages:
            self.serve(name)

    def do(self, *words: str, check: bool = True) -> str:
        return subprocess.run([self.program, *words], cwd=self.folder, check=check, capture_output=True, text=True).stdout

    def start(self, name: str, line: list[str]) -> None:
        environment = dict(os.environ, ROLLHOUSE_CONNECT=getattr(self, "connection", ""), PYTHONPATH=str(self.folder))
        with open(self.folder / f"{name}.log", "a") as log:
            self.running[name] = subprocess.Popen(line, cwd=self.folder, env=environment, stdout=log, stderr=log)

    def serve(self, name: str) -> None:
        settings = {"metrics.listen": f"127.0.0.1:{self.pages[name]}"}
        role = "coordinator" if name == "coordinator" else "node"
        settings |= {f"{role}.listen": f"127.0.0.1:{self.port if role == 'coordinator' else 0}"}
        if role == "node":
            settings |= {"node.coordinator": f"127.0.0.1:{self.port}", "spool.seal_after": "2 s"}
            settings |= {"python.interpreter": sys.executable, "python.allow": "games"}
        words = [word for key, value in settings.items() for word in ["--set", f"{key}={value}"]]
        self.start(name, [self.program, role, "--data", name, *words])

    def prometheus(self) -> str:
        roles = [{"labels": {"role": "coordinator" if name == "coordinator" else "node", "instance": name},
                  "targets": [f"127.0.0.1:{port}"]} for name, port in self.pages.items()]
        (self.folder / "targets.yml").write_text(json.dumps(roles))
        text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        text = text.replace("/etc/prometheus-targets/*.yml", str(self.folder / "targets.yml"))
        text = text.replace("rules.yml", str(ROOT / "deploy/prometheus/rules.yml")).replace("10s", "5s")
        (self.folder / "prometheus.yml").write_text(text)
        port = free_port()
        self.start("prometheus", ["prometheus", f"--config.file={self.folder}/prometheus.yml",
                                  f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address=127.0.0.1:{port}"])
        return f"http://127.0.0.1:{port}"

    def work(self, seconds: float) -> None:
        """Ordinary work, and a little of everything else."""
        self.start("trainer", [sys.executable, "-c", TRAINER])
        end, turn = time.monotonic() + seconds, 0
        killed = False
        while time.monotonic() < end:
            for env, lanes, episodes in [("Acrobot-v1", 32, 40), ("games:Dice", 8, 400)]:
                line = ["--env", env, "--lanes", str(lanes), "--episodes", str(episodes)]
                self.do("rollout", "--connect", self.connection, *line, check=False)
            if turn % 3 == 0:
                # Of a token that nobody has, and of a role that may not.
                stranger = re.sub(r"token=\w+", "token=rh_0123456789_nobody", self.connection)
                self.do("nodes", "--connect", stranger, check=False)
                self.do("drain", "node-1", "--connect", self.connection, check=False)
            if not killed and time.monotonic() > end - seconds / 2:
                killed = True
                self.running["node-2"].send_signal(signal.SIGKILL)
                self.running["node-2"].wait()
                self.serve("node-2")
            turn += 1

    def end(self) -> None:
        for process in reversed(self.running.values()):
            process.terminate()
            process.wait()


def asked(url: str, query: str, begin: float, end: float) -> list[dict]:
    words = {"query": query, "start": begin, "end": end, "step": 5}
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(words)}") as answer:
        return json.load(answer)["data"]["result"]


def short(value: float, unit: str) -> str:
    """A value as Grafana writes it, nearly."""
    if unit == "bool_yes_no":
        return "yes" if value > 0.5 else "no"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        for size, name in [(86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")]:
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return f"{value * 1e6:.3g} us" if value else "0 s"
    suffix = {"bytes": "B", "Bps": "B/s", "ops": "/s"}.get(unit, "")
    for size, name in [(1e9, "G"), (1e6, "M"), (1e3, "k")]:
        if abs(value) >= size:
            return f"{value / size:.3g} {name}{suffix}"
    return f"{value:.3g} {suffix}".strip()


def draw_panel(axes: pyplot.Axes, panel: dict, series: list[tuple[str, list[tuple[float, float]]]], begin: float) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.set_facecolor(PANEL)
    axes.set_title(panel["title"], color=TEXT, fontsize=8, loc="left", fontweight="bold", pad=4)
    for index, (name, points) in enumerate(series[:8]):
        times = [(at - begin) / 60 for at, _ in points]
        values = [value for _, value in points]
        axes.plot(times, values, color=COLOURS[index % 8], linewidth=1, label=name or "value")
        axes.fill_between(times, values, color=COLOURS[index % 8], alpha=0.08)
    # From nothing up, as the panels are.
    most = max((value for _, points in series for _, value in points), default=0)
    axes.set_ylim(0, most * 1.08 or 1)
    axes.yaxis.set_major_locator(pyplot.MaxNLocator(4))
    axes.yaxis.set_major_formatter(pyplot.FuncFormatter(lambda value, _: short(value, unit)))
    axes.tick_params(colors=TEXT, labelsize=6, length=0)
    axes.grid(color=GRID, linewidth=0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncol=3, fontsize=5.5, frameon=False, labelcolor=TEXT,
                handlelength=1, columnspacing=0.8)


def draw(board: Path, url: str, begin: float, end: float) -> list[str]:
    """Draws one dashboard, and gives the panels that have no series."""
    made, empty = json.loads(board.read_text()), []
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in made["panels"])
    inches = rows * 0.26
    figure = pyplot.figure(figsize=(13, inches), facecolor=BACKGROUND)
    for panel in made["panels"]:
        at = panel["gridPos"]
        left, top = at["x"] / 24, 1 - at["y"] / rows
        if panel["type"] == "row":
            figure.text(0.008, top - 0.7 / rows, panel["title"], color=TEXT, fontsize=11, va="center")
            continue
        series = []
        for target in panel["targets"]:
            query = target["expr"].replace("$cluster", ".*").replace("$node", ".*")
            for found in asked(url, query, begin, end):
                labels = found["metric"]
                name = re.sub(r"{{(\w+)}}", lambda word: labels.get(word[1], ""), target["legendFormat"])  # noqa: B023
                points = [(float(at), float(value)) for at, value in found["values"]]
                points = [(at, value) for at, value in points if math.isfinite(value)]
                series += [(name, points)] if points else []
        if not series:
            empty.append(f"{board.stem}: {panel['title']}")
        axes = figure.add_axes((left + 0.035, top - (at["h"] - 1.6) / rows, at["w"] / 24 - 0.045, (at["h"] - 2.8) / rows))
        draw_panel(axes, panel, series, begin)
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / f"{board.stem}.png", dpi=90, facecolor=BACKGROUND, pil_kwargs={"optimize": True})
    return empty


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=4.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(str(Path(args.program).resolve()), Path(folder))
        try:
            url, began = cluster.prometheus(), time.time()
            cluster.work(args.minutes * 60)
            boards = sorted((HERE / "dashboards").glob("*.json"))
            empty = [panel for board in boards for panel in draw(board, url, began, time.time())]
        finally:
            cluster.end()
    if empty:
        print("no series:", *empty, sep="\n  ", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
