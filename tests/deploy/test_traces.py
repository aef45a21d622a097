"""Calls are traces of OpenTelemetry, as a collector gets them: OTLP over HTTP, read by OpenTelemetry's own messages."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import free_port, heavy, program, until
from processes import Processes

pytestmark = heavy


class Collector:
    """Takes what is exported to it, and refuses it first as often as it is told to."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

        self.spans: list[tuple[dict[str, str], Any]] = []
        self.unavailable = 0
        this = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if this.unavailable:
                    this.unavailable -= 1
                    self.send_response(503)
                    self.end_headers()
                    return
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
                for group in service.ExportTraceServiceRequest.FromString(body).resource_spans:
                    who = {pair.key: pair.value.string_value for pair in group.resource.attributes}
                    for scope in group.scope_spans:
                        this.spans += [(who, span) for span in scope.spans]
                answer = service.ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, service: str, name: str) -> list[Any]:
        return [span for who, span in self.spans if who["service.name"] == service and span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def traced() -> Path:
    """A program with the feature `otlp`."""
    given = os.environ.get("ROLLHOUSE_TRACED")
    assert given, "run this by `cargo xtask deploy --all`"
    return Path(given)


def cluster(folder: Path, endpoint: str) -> Processes:
    """A cluster that tells a collector of its calls."""
    return Processes(folder, traced(), ["node-1"], common={"ROLLHOUSE_TRACES__ENDPOINT": endpoint})


def test_a_trainers_call_is_one_trace_from_its_process_through_the_coordinator_to_the_nodes_line(
    collector: Collector, tmp_path: Path
) -> None:
    with cluster(tmp_path, collector.endpoint) as processes:
        # A collector that is away for a moment costs nothing.
        collector.unavailable = 2
        processes.run("rollout", "--connect", processes.connection, "--env", "CartPole-v1", "--lanes", "8", "--episodes", "16")
        until("the node has told", lambda: collector.of("rollhouse-node", "open_session"))
        until("the coordinator has told", lambda: collector.of("rollhouse-coordinator", "open_pool"))
        (client,) = collector.of("rollhouse", "open_pool")
        (coordinator,) = collector.of("rollhouse-coordinator", "open_pool")
        (node,) = collector.of("rollhouse-node", "open_session")
        assert client.trace_id == coordinator.trace_id == node.trace_id
        assert client.parent_span_id == b"" and len({span.span_id for span in (client, coordinator, node)}) == 3
        assert coordinator.parent_span_id == node.parent_span_id == client.span_id
        assert (client.kind, coordinator.kind, node.kind) == (3, 2, 2)
        assert client.start_time_unix_nano <= coordinator.start_time_unix_nano <= node.start_time_unix_nano
        assert client.end_time_unix_nano >= node.end_time_unix_nano
        # The id in the log is the trace's, and the line that is logged is the span's event.
        (call,) = {pair.value.string_value for pair in node.attributes if pair.key == "rollhouse.call"}
        assert client.trace_id[:8] == call.encode()
        (line,) = [line for line in processes.log("node-1").splitlines() if call in line and "is open for" in line]
        assert any(event.name in line for event in node.events), (line, node.events)
        # Who tells can be told apart.
        whose = [who for who, span in collector.spans if span == node]
        process = processes.processes["node-1"].pid
        assert whose[0]["service.instance.id"].endswith(f":{process}")
        processes.end_in_order()


def test_a_call_that_is_refused_says_so_in_each_process_that_had_a_part_in_it(collector: Collector, tmp_path: Path) -> None:
    with cluster(tmp_path, collector.endpoint) as processes:
        words = ["drain", "node-9", "--connect", processes.connection]
        done = subprocess.run([traced(), *words], env=dict(os.environ, **processes.common), capture_output=True, text=True)
        assert done.returncode != 0 and (call := re.search(r"\(call=(\w+)\)", done.stderr)), done.stderr
        until("the coordinator has told", lambda: collector.of("rollhouse-coordinator", "drain"))
        for service in ["rollhouse", "rollhouse-coordinator"]:
            (span,) = collector.of(service, "drain")
            assert span.trace_id[:8] == call[1].encode()
            assert span.status.code == 2 and "node-9" in span.status.message + done.stderr, span.status
        processes.end_in_order()


def test_without_a_collector_everything_goes_on_and_the_log_says_that_nobody_listens(tmp_path: Path) -> None:
    with cluster(tmp_path, f"http://127.0.0.1:{free_port()}") as processes:
        processes.run("rollout", "--connect", processes.connection, "--env", "CartPole-v1", "--lanes", "8", "--episodes", "16")
        processes.heard("main", r"(?i)(export|opentelemetry).*(fail|error)()")
        processes.end_in_order()


def test_a_program_without_the_feature_refuses_a_collector_by_name(tmp_path: Path) -> None:
    environment = dict(os.environ, ROLLHOUSE_TRACES__ENDPOINT="http://127.0.0.1:4318")
    for words in (["node", "--data", tmp_path], ["envs"]):
        done = subprocess.run([program(), *words], env=environment, capture_output=True, text=True)
        assert done.returncode == 2 and "without the feature otlp" in done.stderr, done
