"""Alerts and dashboards: they parse, name only what the program registers, fire when they should, and have their pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import yaml
from conftest import DEPLOY, ROOT, free_port, get, metrics, metrics_in, need, run, until
from prometheus_client.openmetrics import parser

RULES = DEPLOY / "prometheus" / "rules.yml"
TESTS = DEPLOY / "prometheus" / "rules_test.yml"
BOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict]:
    return [rule for rule in rules() if "alert" in rule]


def panels(board: Path) -> list[dict]:
    return [panel for panel in json.loads(board.read_text())["panels"] if panel["type"] != "row"]


def queries(board: Path) -> list[str]:
    return [target["expr"] for panel in panels(board) for target in panel["targets"]]


def chosen(expression: str) -> str:
    """A dashboard's expression with everything chosen."""
    return expression.replace("$cluster", ".*").replace("$node", ".*")


def test_prometheus_takes_configuration_and_rules() -> None:
    need("promtool")
    # Its own folder, where the configuration finds the rules.
    run("promtool", "check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    assert "SUCCESS" in run("promtool", "check", "rules", "--lint-fatal", RULES)


def test_every_alert_fires_in_its_fault_and_nothing_in_ordinary_work() -> None:
    need("promtool")
    assert "SUCCESS" in run("promtool", "test", "rules", TESTS)
    tested = {name: [0, 0] for name in (alert["alert"] for alert in alerts())}
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        for asked in test["promql_expr_test"]:
            if name := re.search(r'alertname="(\w+)"', asked["expr"]):
                tested[name[1]][bool(asked["exp_samples"])] += 1
    assert all(quiet and fires for quiet, fires in tested.values()), tested


def test_every_alert_has_severity_words_and_a_runbook() -> None:
    page = (ROOT / "docs" / "runbooks.md").read_text()
    sections = dict(section.split("\n", 1) for section in page.split("\n## ")[1:])
    names = [alert["alert"] for alert in alerts()]
    assert list(sections) == names, "docs/runbooks.md has a heading for each alert, in their order"
    for alert in alerts():
        assert alert["labels"]["severity"] in {"page", "ticket"}, alert
        # What counts over a time of its own waits by that.
        assert "for" in alert or re.match(r"(increase|delta|changes)\(", alert["expr"]), alert
        annotations = alert["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}, alert
        assert annotations["runbook_url"] == f"docs/runbooks.md#{alert['alert'].lower()}"
        for part in ["Meaning", "Impact", "Diagnosis", "Remedy"]:
            assert f"\n**{part}.** " in sections[alert["alert"]], f"{alert['alert']} lacks {part}"


def test_every_expression_names_metrics_that_the_program_registers() -> None:
    known, recorded = metrics(), {rule["record"] for rule in rules() if "record" in rule}
    expressions = [rule["expr"] for rule in rules()] + [query for board in BOARDS for query in queries(board)]
    for expression in expressions:
        assert metrics_in(expression) <= known, expression
        assert set(re.findall(r"\b\w+:\w+:\w+\b", expression)) <= recorded, expression


def test_every_metric_is_on_a_dashboard() -> None:
    shown = set().union(*(metrics_in(query) for board in BOARDS for query in queries(board)))
    assert metrics() <= shown, metrics() - shown


def test_dashboards_are_as_their_generator_makes_them_and_every_panel_says_what_it_shows() -> None:
    run(sys.executable, DEPLOY / "grafana" / "make.py", "--check")
    assert len(BOARDS) == 2
    for board in BOARDS:
        ids = [panel["id"] for panel in json.loads(board.read_text())["panels"]]
        assert len(ids) == len(set(ids))
        for panel in panels(board):
            assert panel["fieldConfig"]["defaults"]["unit"] and panel["description"].endswith("."), panel["title"]


def test_dashboards_and_the_page_about_them_have_the_same_rows() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text()
    for board in BOARDS:
        rows = [panel["title"] for panel in json.loads(board.read_text())["panels"] if panel["type"] == "row"]
        section = page.split(f"## {board.stem.capitalize()}\n", 1)[1].split("\n## ", 1)[0]
        assert re.findall(r"^\| ([A-Z]\w+) \|", section, re.MULTILINE) == rows


def test_every_dashboard_has_its_picture_and_the_page_says_what_each_row_of_it_shows() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text()
    told = page.split("## What the pictures show\n", 1)[1]
    rows = []
    # Overview first.
    for board in reversed(BOARDS):
        picture = ROOT / "docs" / "pictures" / f"{board.stem}.png"
        assert f"](pictures/{picture.name})" in page
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and picture.stat().st_size < 500_000
        rows += [panel["title"] for panel in json.loads(board.read_text())["panels"] if panel["type"] == "row"]
    assert re.findall(r"^\| ([A-Z]\w+) \|", told, re.MULTILINE) == rows


def test_the_operators_rules_are_those_of_prometheus() -> None:
    manifest = yaml.safe_load((DEPLOY / "k8s" / "overlays" / "monitoring" / "rules.yaml").read_text())
    assert manifest["spec"] == yaml.safe_load(RULES.read_text())


def test_the_program_exports_what_prometheus_calls_well_formed(cluster: dict[str, str]) -> None:
    need("promtool")
    for role in ["coordinator", "node"]:
        status, page = get(f"http://{cluster[role]}/metrics")
        assert status == 200
        done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_open_metrics_pass_a_strict_parser_and_are_the_same_figures(cluster: dict[str, str]) -> None:
    for role in ["coordinator", "node"]:
        status, page = get(f"http://{cluster[role]}/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert status == 200 and page.endswith("\n# EOF\n")
        families = {family.name: family for family in parser.text_string_to_metric_families(page)}
        names = {name if family.type != "counter" else f"{name}_total" for name, family in families.items()}
        # What the other format has is here too; what is counted in between may be new.
        text = get(f"http://{cluster[role]}/metrics")[1]
        assert set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)) - names <= NOT_YET
        for name, family in families.items():
            assert family.documentation.endswith("."), name
            assert family.unit == next((unit for unit in ["seconds", "bytes"] if name.endswith(f"_{unit}")), ""), name
        exemplars = [sample.exemplar for sample in families["rollhouse_call_seconds"].samples if sample.exemplar]
        assert exemplars, f"no call on the page of the {role}"
        log = Path(cluster["log"]).read_text()
        for exemplar in exemplars:
            assert re.fullmatch("[0-9a-z]{8}", exemplar.labels["trace_id"]) and float(exemplar.timestamp) > 1.7e9, exemplar
        # Of the rollout, which both have opened and told of.
        assert any(exemplar.labels["trace_id"] in log for exemplar in exemplars), (exemplars, log)


# Series that are there only after what they count has happened, which does not in a cluster that is well.
NOT_YET = {
    "rollhouse_part_restarts_total",
    "rollhouse_refusals_total",
    # Observed on steps of some lanes, and on requests of owners: a rollout's lanes have none.
    "rollhouse_owner_steps_total",
    "rollhouse_send_seconds",
    "rollhouse_step_seconds",
    "rollhouse_reset_seconds",
    "rollhouse_queue_wait_seconds",
    # Measured by learners whose policies play on nodes: a rollout has none.
    "rollhouse_policy_data_lag_updates",
    "rollhouse_policy_publishing_seconds",
    # Of live lanes, which a rollout has none of.
    "rollhouse_live_tick_lateness_seconds",
    "rollhouse_live_ticks_missed_total",
}


def test_a_real_prometheus_finds_series_for_every_expression(cluster: dict[str, str], tmp_path: Path) -> None:
    need("prometheus")
    targets = [{"labels": {"role": role}, "targets": [cluster[role]]} for role in ["coordinator", "node"]]
    (tmp_path / "targets.yml").write_text(yaml.safe_dump(targets))
    configuration = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    configuration = configuration.replace("/etc/prometheus-targets/*.yml", str(tmp_path / "targets.yml"))
    configuration = configuration.replace("rules.yml", str(RULES)).replace("10s", "1s").replace("5s", "1s")
    (tmp_path / "prometheus.yml").write_text(configuration)
    port = free_port()
    line = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    line.append("--enable-feature=exemplar-storage")
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen([*line, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:

        def ask(expression: str) -> list:
            asked = urllib.parse.urlencode({"query": expression})
            status, body = get(f"http://127.0.0.1:{port}/api/v1/query?{asked}")
            assert status in {200, 0, 503}, f"{expression}: {body}"
            return json.loads(body)["data"]["result"] if status == 200 else []

        until("both are scraped", lambda: len(ask('count_over_time(up{role=~"coordinator|node"}[1m]) > 3')) == 2)
        until("rules are evaluated", lambda: ask("instance:rollhouse_steps:rate1m"))
        # Rates over 5 minutes are there from the second sample on.
        for board in BOARDS:
            for query in map(chosen, queries(board)):
                if not metrics_in(query) & NOT_YET:
                    assert ask(query), f"{board.stem}: no series for {query}"
        for rule in rules():
            for name in metrics_in(rule["expr"]) - NOT_YET:
                assert ask(f"{name}"), f"no series {name}"
        # The calls of slow requests are asked for as Grafana does.
        asked = urllib.parse.urlencode({"query": "rollhouse_call_seconds_bucket", "start": time.time() - 600,
                                        "end": time.time() + 60})
        found = json.loads(get(f"http://127.0.0.1:{port}/api/v1/query_exemplars?{asked}")[1])["data"]
        calls = {request: {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]
                           if series["seriesLabels"]["request"] == request} for request in ["open_pool", "open_session"]}
        # The trainer's one call is that of the node too.
        assert len(calls["open_pool"]) == 1 and calls["open_pool"] == calls["open_session"], found
        assert calls["open_pool"].pop() in Path(cluster["log"]).read_text()
        pages = [alert["labels"] for alert in ask('ALERTS{alertstate="firing",severity="page"}')]
        assert not pages, pages
    finally:
        server.terminate()
        server.wait()
