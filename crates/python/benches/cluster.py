"""Steps of a cluster's lanes from Python, beside Python gRPC carrying as many bytes: microseconds per round trip.

    python benches/cluster.py ROLLHOUSE [--json] [--lanes 64] [--repeats 15]

``ROLLHOUSE`` is the program, of which a cluster is started on free ports of this machine. gRPC's server is a Python
process too, which does nothing but answer; its messages are plain bytes, so that what is compared is the transport and
not the encoding. It is measured over TLS, as the cluster is, and without; by single calls and by one stream. All
contestants take turns within one run, so that whatever else the machine does meets them alike; a ratio is the median of
the ratios of the turns. Program and wheel have to be release builds. Without ``pip install grpcio cryptography`` gRPC is
named and left out.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import multiprocessing
import platform
import queue
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from local_cluster import local_cluster

import rollhouse

ENV = "CartPole-v1"
SECONDS_PER_TURN = 0.1
OURS = "rollhouse over QUIC"
METHOD = "/bench.Echo/"


def certificate() -> tuple[bytes, bytes]:
    """A key and a certificate of its own for localhost."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    signed = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, signed.public_bytes(serialization.Encoding.PEM)


def serve_grpc(answer_bytes: int, identity: tuple[bytes, bytes], ports: Any) -> None:
    """gRPC's server: answers every message with as many bytes as a step's answer has."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    answer = bytes(answer_bytes)

    def call(request: bytes, context: Any) -> bytes:
        return answer

    def stream(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for _ in requests:
            yield answer

    handlers = {
        "Call": grpc.unary_unary_rpc_method_handler(call),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
    }
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", handlers),))
    secure = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([identity]))
    plain = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ports.put((secure, plain))
    server.wait_for_termination()


@contextlib.contextmanager
def grpc_contestants(request_bytes: int, answer_bytes: int) -> Iterator[dict[str, Callable[[], Any]]]:
    import grpc

    identity = certificate()
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    server = context.Process(target=serve_grpc, args=(answer_bytes, identity, ports), daemon=True)
    server.start()
    try:
        secure, plain = ports.get(timeout=60)
        credentials = grpc.ssl_channel_credentials(identity[1])
        override = [("grpc.ssl_target_name_override", "localhost")]
        channels = {
            "gRPC with TLS": grpc.secure_channel(f"127.0.0.1:{secure}", credentials, override),
            "gRPC without TLS": grpc.insecure_channel(f"127.0.0.1:{plain}"),
        }
        request = bytes(request_bytes)
        contestants: dict[str, Callable[[], Any]] = {}
        for name, channel in channels.items():
            call = channel.unary_unary(METHOD + "Call")
            requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            answers = channel.stream_stream(METHOD + "Stream")(iter(requests.get, None))

            def by_stream(requests: Any = requests, answers: Any = answers) -> bytes:
                requests.put(request)
                return next(answers)

            contestants[f"{name}, calls"] = lambda call=call: call(request)
            contestants[f"{name}, stream"] = by_stream
        for name, contestant in contestants.items():
            if (got := len(contestant())) != answer_bytes:
                raise RuntimeError(f"{name} answers {got} bytes, {answer_bytes} are wanted")
        yield contestants
        for channel in channels.values():
            channel.close()
    finally:
        server.terminate()
        server.join()


def turn(round_trip: Callable[[], Any]) -> float:
    """Seconds of the median round trip of one turn."""
    taken = []
    start = now = time.perf_counter()
    while now - start < SECONDS_PER_TURN:
        round_trip()
        before, now = now, time.perf_counter()
        taken.append(now - before)
    return statistics.median(taken)


def measure(url: str, lanes: int, repeats: int) -> dict[str, Any]:
    envs = rollhouse.connect(url, transport="quic").make_vec(ENV, lanes, record=False, copy=False)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, lanes)
    # Actions are 8 bytes each; answers have 4 floats, a reward and three flags for each lane, filled up to 8 bytes.
    request_bytes, answer_bytes = 8 * lanes, 24 * lanes + 3 * (-(-lanes // 8) * 8)
    contestants: dict[str, Callable[[], Any]] = {OURS: lambda: envs.step(actions)}
    missing: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        try:
            contestants |= stack.enter_context(grpc_contestants(request_bytes, answer_bytes))
        except ImportError as error:
            missing["gRPC"] = str(error)
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(repeats + 1):
            for name, round_trip in contestants.items():
                spent = turn(round_trip)
                # The first turn warms up.
                if number:
                    taken[name].append(spent)
    envs.close()
    rows = {}
    for name, spent in taken.items():
        ratios = [theirs / ours for theirs, ours in zip(spent, taken[OURS], strict=True)]
        rows[name] = {
            "us": {"min": min(spent) * 1e6, "median": statistics.median(spent) * 1e6, "max": max(spent) * 1e6},
            "times_ours": {"min": min(ratios), "median": statistics.median(ratios), "max": max(ratios)},
        }
    size = {"request": request_bytes, "answer": answer_bytes}
    return {"env": ENV, "lanes": lanes, "bytes": size, "contestants": rows, "missing": missing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="ROLLHOUSE", help="the rollhouse program, a release build")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    with local_cluster(arguments.program) as url:
        result = measure(url, arguments.lanes, arguments.repeats)
    if arguments.json:
        machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
        print(json.dumps({"version": rollhouse.__version__, "machine": machine, **result}))
        return
    size = result["bytes"]
    print(
        f"{arguments.lanes} lanes of {ENV}, {size['request']} bytes there and {size['answer']} back,"
        f" {arguments.repeats} turns; 3 x ours is wanted of gRPC with TLS"
    )
    for name, row in result["contestants"].items():
        us, times = row["us"], row["times_ours"]
        print(
            f"  {name:<26} {us['median']:8.1f} us ({us['min']:.1f} to {us['max']:.1f})"
            f" {times['median']:6.2f} x ours ({times['min']:.2f} to {times['max']:.2f})"
        )
    for name, why in result["missing"].items():
        print(f"  {name:<26} left out: {why}")


if __name__ == "__main__":
    main()
