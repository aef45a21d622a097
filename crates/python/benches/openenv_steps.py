"""A step of CartPole-v1 over OpenEnv's `/ws`: through our gate, and through OpenEnv's own server in the same run.

    python benches/openenv_steps.py [--steps 2000] [--sockets 64] [--rounds 300] [--program PATH]

Prints the median microseconds of a step by OpenEnv's own client, which has its own share, and by a socket that sends and reads
bytes; and how many steps a second many sockets have together, each of which waits for its answer. It needs openenv and gymnasium.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gate_program import PROGRAM, gate  # noqa: E402

GOALS = {"us a step": 300, "steps a second": 20_000}
"""What is asked for, by sockets that send and read bytes."""

SERVE = "--serve"
"""The argument with which this file is OpenEnv's own server."""


def frame(text: bytes) -> bytes:
    """A message as it stands on the wire, masked with zeros."""
    return bytes([0x81, 0x80 | len(text)]) + bytes(4) + text


RESET = frame(b'{"type":"reset","data":{}}')
STEPS = [frame(b'{"type":"step","data":{"action":%d}}' % action) for action in (0, 1)]


class Socket:
    """A socket at `/ws` that sends bytes and reads them."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.stream = socket.create_connection((host, int(port)))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /ws HTTP/1.1",
            f"Host: {address}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        self.stream.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.stream.recv(1)
        assert b" 101 " in head, head
        self.turn = 0

    def send(self, message: bytes) -> None:
        self.stream.sendall(message)

    def read(self) -> bytes:
        """The next answer, which is a text of less than 64 KiB; pings are passed over."""
        read = self.stream.recv(65536)
        while len(read) < 4 or len(read) < 4 + int.from_bytes(read[2:4], "big"):
            if len(read) >= 2 and read[0] == 0x89:
                read = read[2 + read[1] :]
            more = self.stream.recv(65536)
            assert more, "the server is gone"
            read += more
        return read[4:]

    def ask(self, message: bytes) -> bytes:
        self.send(message)
        return self.read()

    def next(self) -> bytes:
        self.turn ^= 1
        return STEPS[self.turn]


def by_socket(address: str, steps: int) -> float:
    """The median microseconds of a step by bytes."""
    play, taken = Socket(address), []
    play.ask(RESET)
    for _ in range(steps):
        message, began = play.next(), time.perf_counter()
        answer = play.ask(message)
        taken.append(time.perf_counter() - began)
        if b'"done":true' in answer:
            play.ask(RESET)
    play.stream.close()
    return statistics.median(taken) * 1e6


def by_client(address: str, steps: int) -> float:
    """The median microseconds of a step by OpenEnv's own client."""
    from openenv.core import GenericEnvClient

    taken = []
    with GenericEnvClient(base_url=f"http://{address}").sync() as env:
        env.reset()
        for turn in range(steps):
            began = time.perf_counter()
            result = env.step({"action": turn % 2})
            taken.append(time.perf_counter() - began)
            if result.done:
                env.reset()
    return statistics.median(taken) * 1e6


def together(address: str, sockets: int, rounds: int) -> float:
    """The steps a second of many sockets."""
    plays = [Socket(address) for _ in range(sockets)]
    for play in plays:
        play.ask(RESET)
    steps, began = 0, time.perf_counter()
    for play in plays:
        play.send(play.next())
    for last in [*[False] * (rounds - 1), True]:
        for play in plays:
            answer = play.read()
            steps += 1
            if b'"done":true' in answer:
                play.ask(RESET)
            if not last:
                play.send(play.next())
    rate = steps / (time.perf_counter() - began)
    for play in plays:
        play.stream.close()
    return rate


@contextlib.contextmanager
def own_server(sockets: int) -> Iterator[str]:
    """OpenEnv's own server with Gymnasium's CartPole-v1."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, __file__, SERVE, str(port), str(sockets)]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for written in process.stderr:
            if "Uvicorn running" in written:
                break
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def serve(port: int, sockets: int) -> None:
    import gymnasium
    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Move(Action):
        action: int

    class Seen(Observation):
        obs: list[float]

    class CartPole(Environment[Move, Seen, State]):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.env, self.steps = gymnasium.make("CartPole-v1"), 0

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: object) -> Seen:
            self.steps = 0
            return Seen(obs=self.env.reset(seed=seed)[0].tolist())

        def step(self, action: Move, timeout_s: float | None = None, **_: object) -> Seen:
            obs, reward, terminated, truncated, _ = self.env.step(action.action)
            self.steps += 1
            return Seen(obs=obs.tolist(), reward=float(reward), done=bool(terminated or truncated))

        @property
        def state(self) -> State:
            return State(step_count=self.steps)

    # Answers are short texts: without compression, as the clients ask for none.
    app = create_fastapi_app(CartPole, Move, Seen, max_concurrent_envs=sockets + 1)
    uvicorn.run(app, host="127.0.0.1", port=port)


def main() -> int:
    if sys.argv[1:2] == [SERVE]:
        serve(int(sys.argv[2]), int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--sockets", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--program", help="the command with gates, if it is not that of the installed package")
    arguments = parser.parse_args()
    if arguments.program:
        os.environ[PROGRAM] = arguments.program
    found = {}
    with contextlib.ExitStack() as stack:
        gated = stack.enter_context(gate("openenv", "--env", "CartPole-v1", "--sessions", str(arguments.sockets + 1)))
        addresses = {"our gate": gated[0], "its own": stack.enter_context(own_server(arguments.sockets))}
        for name, address in addresses.items():
            found[name] = (
                by_client(address, arguments.steps),
                by_socket(address, arguments.steps),
                together(address, arguments.sockets, arguments.rounds),
            )
    print(f"CartPole-v1 over /ws: medians of {arguments.steps} steps; {arguments.sockets} sockets, {arguments.rounds} steps each")
    print(f"{'':10}{'us, its client':>16}{'us, bytes':>12}{'steps a second, all':>22}")
    for name, (client, plain, rate) in found.items():
        print(f"{name:10}{client:16.0f}{plain:12.0f}{rate:22,.0f}")
    print(f"asked for: less than {GOALS['us a step']} us a step, {GOALS['steps a second']:,} steps a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
