"""Makes the dashboards: tables of panels here, Grafana's JSON in dashboards/.

    python3 deploy/grafana/make.py            writes dashboards/overview.json and dashboards/internals.json
    python3 deploy/grafana/make.py --check    says whether they are as this makes them

A panel is a title, a unit, one sentence of description, and queries with the name of what each shows. `$by` in a query
stands for the chosen cluster and node, `$in` for the cluster alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / "dashboards"

# Values of the variables at the head of a dashboard. A process of another scrape job is no process of ours.
BY = 'cluster=~"$cluster", instance=~"$node"'
IN = 'cluster=~"$cluster"'

OVERVIEW = {
    "Cluster": [
        ("Nodes", "short", "Nodes by state, as the coordinator knows them, and those that have a trouble, by its kind.",
         [("sum by (state) (rollhouse_nodes{$in})", "{{state}}"),
          ("sum by (reason) (rollhouse_unfit_nodes{$in})", "unfit: {{reason}}"),
          ("sum(rollhouse_cluster_refused_nodes{$in})", "refused")]),
        ("Lanes", "short", "Lanes of open sessions, how many all nodes take, and those that wait because no node has room.",
         [("sum(rollhouse_cluster_lanes{$in})", "taken"), ("sum(rollhouse_cluster_capacity_lanes{$in})", "capacity"),
          ("sum(rollhouse_cluster_waiting_lanes{$in})", "waiting")]),
        ("Pools and sessions", "short", "Open pools of trainers and rollouts, and the sessions they were split into.",
         [("sum(rollhouse_pools{$in})", "pools"), ("sum(rollhouse_cluster_sessions{$in})", "sessions")]),
        ("Pools opened", "short", "Pools opened in five minutes: trainers that begin, or begin again and again.",
         [("sum(increase(rollhouse_pools_opened_total{$in}[5m]))", "pools")]),
    ],
    "Training": [
        ("Steps", "ops", "Env steps a second of all lanes. Nothing while lanes are taken means that training stands still.",
         [("sum(rate(rollhouse_steps_total{$by}[1m]))", "steps")]),
        ("Episodes", "ops", "Episodes that ended a second, by outcome. Those that are not terminated or truncated were "
         "interrupted.",
         [("sum by (outcome) (rate(rollhouse_episodes_total{$by}[5m]))", "{{outcome}}")]),
        ("Results", "ops", "Episodes that ended a second with a result, for envs that give one: the share of those that are won shows "
         "learning where a return does not.",
         [("sum by (result) (rate(rollhouse_episode_results_total{$by}[5m]))", "{{result}}")]),
        # The sum of scores is a gauge: it falls to zero where a process is started again, which is no score.
        ("Mean score", "short", "Mean of the scores that envs gave episodes, over five minutes, without processes that were started "
         "again in these.",
         [("sum(delta(rollhouse_episode_score_points{$by}[5m]) unless resets(rollhouse_episode_scores_total{$by}[5m]) > 0) "
           "/ sum(increase(rollhouse_episode_scores_total{$by}[5m]) unless resets(rollhouse_episode_scores_total{$by}[5m]) > 0)",
           "score")]),
        ("Step time", "s", "Time of owners' steps on nodes, without the network: half and 99 % are below.",
         [("histogram_quantile(0.5, sum by (le) (rate(rollhouse_step_seconds_bucket{$by}[5m])))", "median"),
          ("histogram_quantile(0.99, sum by (le) (rate(rollhouse_step_seconds_bucket{$by}[5m])))", "99 %")]),
        ("Nodes at work", "percentunit", "Part of the time in which sessions that trainers are attached to are stepped or wait for a "
         "thread. Near 1: trainers wait for that node. Near 0 on all of them: nodes wait for actions.",
         [("(sum by (instance) (rate(rollhouse_step_seconds_sum{$by}[5m]) + rate(rollhouse_send_seconds_sum{$by}[5m]) "
           "+ rate(rollhouse_reset_seconds_sum{$by}[5m])) + sum by (instance) (rate(rollhouse_queue_wait_seconds_sum{$by}[5m]))) "
           "/ (sum by (instance) (avg_over_time(rollhouse_attached_sessions{$by}[5m])) > 0)", "{{instance}}")]),
        ("Age of learners' data", "short", "Updates by which fragments are older than the newest policy when their learner is given them, in the "
         "mean.",
         [("sum by (env, policy) (rate(rollhouse_policy_data_lag_updates_sum{$by}[5m])) "
           "/ (sum by (env, policy) (rate(rollhouse_policy_data_lag_updates_count{$by}[5m])) > 0)", "{{policy}} in {{env}}")]),
        ("Publishing of policies", "s", "Time from a learner's update until all its nodes had it: half and 99 % are below.",
         [("histogram_quantile(0.5, sum by (le) (rate(rollhouse_policy_publishing_seconds_bucket{$by}[5m])))", "median"),
          ("histogram_quantile(0.99, sum by (le) (rate(rollhouse_policy_publishing_seconds_bucket{$by}[5m])))", "99 %")]),
        ("Longest round trip", "s", "The worst open connection of each role of peers.",
         [("max by (peer) (rollhouse_quic_rtt_seconds{$by})", "{{peer}}")]),
    ],
    "Nodes": [
        ("Steps by node", "ops", "Env steps a second of each node.",
         [("sum by (instance) (rate(rollhouse_steps_total{$by}[1m]))", "{{instance}}")]),
        ("Mean step by node", "s", "A pool steps as slowly as its slowest node.",
         [("sum by (instance) (rate(rollhouse_step_seconds_sum{$by}[5m])) "
           "/ sum by (instance) (rate(rollhouse_step_seconds_count{$by}[5m]))", "{{instance}}")]),
        ("Cost of an env step", "s", "Time of owners' steps for each lane's step: the same on all nodes that have the same env, "
         "whatever the size of their sessions. More on one: that node is slow.",
         [("sum by (instance, env) (rate(rollhouse_step_seconds_sum{$by}[5m]) + rate(rollhouse_send_seconds_sum{$by}[5m])) "
           "/ (sum by (instance, env) (rate(rollhouse_owner_steps_total{$by}[5m])) > 0)", "{{instance}} {{env}}")]),
        ("Lanes by node", "short", "Lanes of open sessions on each node.",
         [("rollhouse_lanes{$by}", "{{instance}}")]),
        ("Processor by process", "short", "Cores that each process uses.",
         [("rate(process_cpu_seconds_total{$by, role=~\"coordinator|node\"}[1m])", "{{instance}}")]),
    ],
    "Recordings": [
        ("Not in the store yet", "bytes", "What nodes have recorded and not shipped. It falls back to little again and again; "
         "what only rises ends at spool.limit.",
         [("rollhouse_spool_bytes{$by}", "{{instance}}")]),
        ("Oldest that waits", "s", "How long the oldest sealed segment of each node has waited for the store. Seconds are ordinary; "
         "what only rises is stuck.",
         [("rollhouse_spool_oldest_age_seconds{$by}", "{{instance}}")]),
        ("Recorded and shipped", "Bps", "Bytes a second that nodes record and that they ship. Over minutes they are the same.",
         [("sum(rate(rollhouse_recorder_bytes_total{$by}[5m]))", "recorded"),
          ("sum(rate(rollhouse_spool_shipped_bytes_total{$by}[5m]))", "shipped")]),
        ("Store", "bytes", "Bytes of all recordings in the store; at store.budget the oldest are dropped.",
         [("sum(rollhouse_store_bytes{$in})", "bytes")]),
        ("Into the store", "Bps", "Bytes a second that the store takes in.",
         [("sum(rate(rollhouse_store_received_bytes_total{$in}[5m]))", "received")]),
        ("Lost", "short", "Episodes of the last hour whose recordings are nowhere: a disk that failed, a spool that was full.",
         [("sum(increase(rollhouse_recorder_lost_episodes_total{$by}[1h]))", "disk"),
          ("sum(increase(rollhouse_spool_dropped_episodes_total{$by}[1h]))", "spool")]),
    ],
    "Trouble": [
        ("Refused", "ops", "Requests a second that were refused, by the refusal's code and the role of who asked.",
         [("sum by (code, peer) (rate(rollhouse_refusals_total{$by}[5m]))", "{{code}} {{peer}}")]),
        ("Strangers", "ops", "Handshakes a second that were not completed, by reason.",
         [("sum by (reason) (rate(rollhouse_quic_handshakes_refused_total{$by}[5m]))", "{{reason}}")]),
        ("Certificates", "s", "Time until the certificate of each process ends.",
         [("rollhouse_certificate_expiry_time_seconds{$by} - time()", "{{instance}}")]),
        ("Certificates asked for", "short", "Certificates of the last hour that machines which join and nodes that renew theirs "
         "were given, or refused with that code.",
         [("sum by (kind, result) (increase(rollhouse_enrolments_total{$in}[1h]))", "{{kind}} {{result}}")]),
        ("Renewal fails", "bool_yes_no", "Whether a node asked for its next certificate and was not given it.",
         [("rollhouse_certificate_renewal_failing{$by}", "{{instance}}")]),
        ("Running for", "s", "Time since each process was started.",
         [("time() - process_start_time_seconds{$by, role=~\"coordinator|node\"}", "{{instance}}")]),
    ],
}

INTERNALS = {
    "Requests": [
        ("Waiting for a thread", "s", "Time that owners' requests waited for a thread that steps: half and 99 % are below.",
         [("histogram_quantile(0.5, sum by (le) (rate(rollhouse_queue_wait_seconds_bucket{$by}[5m])))", "median"),
          ("histogram_quantile(0.99, sum by (le) (rate(rollhouse_queue_wait_seconds_bucket{$by}[5m])))", "99 %")]),
        ("Queue", "short", "Requests that wait for a thread now.",
         [("rollhouse_queue_requests{$by}", "{{instance}}")]),
        ("Longest wait now", "s", "Time that the oldest request has waited for a thread.",
         [("rollhouse_queue_longest_wait_seconds{$by}", "{{instance}}")]),
        ("Refused because the queue was full", "ops", "Requests a second.",
         [("rate(rollhouse_busy_total{$by}[5m])", "{{instance}}")]),
        ("Control calls", "s", "99 % of the requests other than steps take less, by what was asked. Exemplars name the call, which logs "
         "name too.",
         [("histogram_quantile(0.99, sum by (le, request) (rate(rollhouse_call_seconds_bucket{$by}[5m])))", "{{request}}")]),
        ("Sends and resets", "s", "99 % of owners' steps of some lanes, and of their resets, take less.",
         [("histogram_quantile(0.99, sum by (le) (rate(rollhouse_send_seconds_bucket{$by}[5m])))", "send"),
          ("histogram_quantile(0.99, sum by (le) (rate(rollhouse_reset_seconds_bucket{$by}[5m])))", "reset")]),
        ("Lateness of live ticks", "s", "99 % of the ticks of live lanes begin less after the time at which they are due.",
         [("histogram_quantile(0.99, sum by (le, env) (rate(rollhouse_live_tick_lateness_seconds_bucket{$by}[5m])))", "{{env}}")]),
        ("Live ticks not played", "ops", "Ticks of live lanes that were due and not played, a second: the machine or an earlier tick was late.",
         [("sum by (instance, env) (rate(rollhouse_live_ticks_missed_total{$by}[5m]))", "{{instance}} {{env}}")]),
    ],
    "Sessions": [
        ("Open", "short", "Open sessions of each node, and of all nodes those whose lanes are still being launched, or try to connect.",
         [("rollhouse_sessions{$by}", "{{instance}}"), ("sum(rollhouse_launching_sessions{$by})", "launching"),
          ("sum(rollhouse_connecting_sessions{$by})", "connecting")]),
        ("Opened", "ops", "Sessions opened a second.",
         [("sum(rate(rollhouse_sessions_opened_total{$by}[5m]))", "opened")]),
        ("Connecting again", "ops", "Times a second that worker processes tried again to connect to what their env is a client of.",
         [("sum(rate(rollhouse_connect_retries_total{$by}[5m]))", "retries")]),
        ("Ended", "ops", "Sessions that ended a second, by cause.",
         [("sum by (cause) (rate(rollhouse_sessions_ended_total{$by}[5m]))", "{{cause}}")]),
        ("Attached", "ops", "Times a second that an owner attached, or attached again after its connection broke.",
         [("sum(rate(rollhouse_owners_attached_total{$by}[5m]))", "attached")]),
        ("Owners attached", "short", "Sessions that an owner is attached to, by transport.",
         [("sum by (transport) (rollhouse_attached_sessions{$by})", "{{transport}}")]),
        ("Malformed streams", "short", "Streams of the last hour that ended because what came on them was no request.",
         [("sum(increase(rollhouse_malformed_streams_total{$by}[1h]))", "streams")]),
        ("Capacity", "short", "Lanes that each node takes.", [("rollhouse_capacity_lanes{$by}", "{{instance}}")]),
        ("CPU by weight", "percentunit", "Part of each node's cores that its lanes take, by their weights; more than all is slow. "
         "Lanes that wait, of the cores of all nodes.",
         [("rollhouse_cpu_taken_cores{$by} / (rollhouse_cpu_budget_cores{$by} > 0)", "{{instance}}"),
          ("sum(rollhouse_cluster_waiting_cpu_cores{$in}) / (sum(rollhouse_cpu_budget_cores{$in}) > 0)", "waiting")]),
        ("Memory by weight", "percentunit", "Part of each node's memory for lanes that its lanes take, by their weights. Lanes "
         "that wait, of the memory of all nodes.",
         [("rollhouse_memory_taken_bytes{$by} / (rollhouse_memory_budget_bytes{$by} > 0)", "{{instance}}"),
          ("sum(rollhouse_cluster_waiting_memory_bytes{$in}) / (sum(rollhouse_memory_budget_bytes{$in}) > 0)", "waiting")]),
    ],
    "Faults": [
        ("Lanes started again", "short", "Lanes of the last hour that were started again after a failure.",
         [("sum by (instance) (increase(rollhouse_restarts_total{$by}[1h]))", "{{instance}}")]),
        ("Parts made anew", "short", "Parts of nodes that ended by themselves, since their start. Each is a bug in Rollhouse.",
         [("sum by (part, cause) (rollhouse_part_restarts_total{$by})", "{{part}} {{cause}}"),
          # There before any has: a panel that is empty says nothing.
          ("sum(rollhouse_part_restarts_total{$by}) or vector(0)", "all")]),
        ("Abandoned threads", "short", "Threads that hung in a step and were given up, since the start of their node.",
         [("rollhouse_abandoned_threads_total{$by}", "{{instance}}")]),
        ("Coordinator lost", "short", "Times of the last hour that a node lost its coordinator.",
         [("increase(rollhouse_coordinator_lost_total{$by}[1h])", "{{instance}}")]),
        ("Unfit", "short", "Nodes that come last or are left out for a trouble of their own, by its kind.",
         [("sum by (reason) (rollhouse_unfit{$by})", "{{reason}}")]),
        ("Registered", "bool_yes_no", "Whether a coordinator has the node.", [("rollhouse_registered{$by}", "{{instance}}")]),
        ("Term", "short", "The coordinator's term, one more at each start; and how often its process made it anew.",
         [("rollhouse_coordinator_term{$in}", "term"), ("sum(rollhouse_coordinator_restarts_total{$in})", "made anew"),
          ("sum(rollhouse_audit_lines_total{$in})", "changes in the audit"),
          ("sum(rollhouse_audit_failures_total{$in})", "refused for the audit")]),
    ],
    "Recorder": [
        ("Recorded", "ops", "Episodes a second whose end was recorded, and of those that survive a power cut.",
         [("sum(rate(rollhouse_recorder_episodes_total{$by}[5m]))", "recorded"),
          ("sum(rate(rollhouse_recorder_durable_episodes_total{$by}[5m]))", "durable")]),
        ("Written", "Bps", "Bytes of recordings a second.",
         [("rate(rollhouse_recorder_bytes_total{$by}[5m])", "{{instance}}")]),
        ("Writer busy", "percentunit", "Part of the time in which the recorder's writer works. At 1 stepping waits for it.",
         [("rate(rollhouse_recorder_busy_seconds_total{$by}[5m])", "{{instance}}")]),
        ("Stepping waits for the disk", "s", "Seconds a second, added up over threads.",
         [("rate(rollhouse_recorder_stalled_seconds_total{$by}[5m])", "{{instance}}")]),
        ("Disk fails", "bool_yes_no", "Whether the recorder's disk takes nothing now.",
         [("rollhouse_recorder_failing{$by}", "{{instance}}")]),
    ],
    "Shipping": [
        ("Waiting segments", "short", "Sealed segments that are not in the store yet.",
         [("rollhouse_spool_segments{$by}", "{{instance}}")]),
        ("Shipped", "ops", "Segments a second, by what the store did with them.",
         [("sum by (result) (rate(rollhouse_spool_shipped_segments_total{$by}[5m]))", "{{result}}")]),
        ("Shipped bytes", "Bps", "Bytes a second to the store.",
         [("rate(rollhouse_spool_shipped_bytes_total{$by}[5m])", "{{instance}}")]),
        ("Failed attempts", "short", "Attempts of the last hour that failed, by reason.",
         [("sum by (instance, reason) (increase(rollhouse_spool_failed_attempts_total{$by}[1h]))", "{{instance}} {{reason}}")]),
        ("Held", "bool_yes_no", "Whether the spool is full and stepping waits.",
         [("rollhouse_spool_held{$by}", "{{instance}}")]),
        ("Dropped", "short", "Segments of the last hour that a full spool was told to drop.",
         [("increase(rollhouse_spool_dropped_segments_total{$by}[1h])", "{{instance}}")]),
    ],
    "Store": [
        ("Segments", "short", "Segments in the store.", [("sum(rollhouse_store_segments{$in})", "segments")]),
        ("Dropped", "short", "Segments of the last hour that were dropped to stay within store.budget.",
         [("sum(increase(rollhouse_store_dropped_segments_total{$in}[1h]))", "segments")]),
        ("Set aside", "short", "What is damaged or contradicts what the store has.",
         [("sum(rollhouse_store_quarantined_segments{$in})", "segments"),
          ("sum(rollhouse_store_set_aside_episodes{$in})", "episodes")]),
        ("Policies", "short", "Versions of policies that the coordinator keeps, and how many nodes fetch a second.",
         [("sum(rollhouse_policy_versions{$in})", "versions"),
          ("sum(rate(rollhouse_policy_fetches_total{$in}[5m]))", "fetched")]),
        ("Bytes of policies", "bytes", "Bytes of the policies that the coordinator keeps, and that nodes fetch a second.",
         [("sum(rollhouse_policy_bytes{$in})", "kept"),
          ("sum(rate(rollhouse_policy_fetched_bytes_total{$in}[5m]))", "fetched a second")]),
    ],
    "QUIC": [
        ("Certificates renewed", "short", "Certificates of the last day that nodes were given in place of theirs.",
         [("sum by (instance) (increase(rollhouse_certificate_renewals_total{$by}[1d]))", "{{instance}}")]),
        ("Connections", "short", "Open connections by the role of the peer.",
         [("sum by (peer) (rollhouse_quic_connections{$by})", "{{peer}}")]),
        ("Handshakes", "ops", "Handshakes completed a second.",
         [("sum by (instance) (rate(rollhouse_quic_handshakes_total{$by}[5m]))", "{{instance}}")]),
        ("Packets lost", "percentunit", "Part of the packets sent that were taken for lost.",
         [("sum by (instance) (rate(rollhouse_quic_packets_lost_total{$by}[5m])) "
           "/ sum by (instance) (rate(rollhouse_quic_packets_sent_total{$by}[5m]))", "{{instance}}")]),
        ("Smallest datagram", "bytes", "1,200 with rising black holes: the path does not carry what was probed.",
         [("min by (instance) (rollhouse_quic_datagram_bytes{$by})", "{{instance}}")]),
        ("Black holes", "short", "Times of the last hour that large datagrams stopped getting through.",
         [("sum by (instance) (increase(rollhouse_quic_black_holes_total{$by}[1h]))", "{{instance}}")]),
        ("Smallest window", "bytes", "Smallest congestion window of the open connections.",
         [("min by (instance) (rollhouse_quic_congestion_window_bytes{$by})", "{{instance}}")]),
        ("Socket buffers", "bytes", "What the system granted. Below 4 MiB bursts are lost.",
         [("rollhouse_quic_socket_buffer_bytes{$by}", "{{instance}} {{direction}}")]),
    ],
    "Watching": [
        ("Watchers", "short", "Streams on which sessions are watched, and how many of the last hour were sent away because they hung.",
         [("sum by (instance) (rollhouse_watchers{$by})", "{{instance}}"),
          ("sum by (instance) (increase(rollhouse_watchers_dropped_total{$by}[1h]))", "{{instance}} sent away")]),
        ("Frames", "ops", "Frames a second that were shown, and of those that a newer one took the place of before they were seen.",
         [("sum(rate(rollhouse_watched_frames_total{$by}[5m]))", "shown"),
          ("sum(rate(rollhouse_watched_frames_missed_total{$by}[5m]))", "never seen")]),
        ("Replays", "short", "Recorded episodes that nodes show as sessions; a node takes 16.",
         [("sum by (instance) (rollhouse_replay_sessions{$by})", "{{instance}}")]),
    ],
    "Processes": [
        ("Memory", "bytes", "Bytes that each process has in memory.",
         [("process_resident_memory_bytes{$by, role=~\"coordinator|node\"}", "{{instance}}")]),
        ("Threads", "short", "Threads of each process.", [("process_threads{$by, role=~\"coordinator|node\"}", "{{instance}}")]),
        ("Descriptors", "short", "File descriptors that each process has open.",
         [("process_open_fds{$by, role=~\"coordinator|node\"}", "{{instance}}")]),
    ],
    "Archive": [
        ("Waiting for the archive", "bytes", "What is on the store's disk and not known to be in the archive. It comes back to "
         "nothing; what only rises fills store.budget, and nodes keep the rest.",
         [("sum(rollhouse_archive_waiting_bytes{$in})", "bytes")]),
        ("Longest wait", "s", "How long the segment waits that has waited longest.",
         [("max(rollhouse_archive_waiting_seconds{$in})", "longest")]),
        ("Segments", "short", "Where segments are: waiting, in the archive, of those not on the store's disk any more, and damaged "
         "on it, so that they are not archived.",
         [("sum(rollhouse_archive_waiting_segments{$in})", "waiting"), ("sum(rollhouse_archive_segments{$in})", "archived"),
          ("sum(rollhouse_archive_away_segments{$in})", "archived alone"),
          ("sum(rollhouse_archive_unfit_segments{$in})", "damaged here")]),
        ("Bytes", "bytes", "What the archive has, and what of it is not on the store's disk any more.",
         [("sum(rollhouse_archive_bytes{$in})", "archived"), ("sum(rollhouse_archive_away_bytes{$in})", "archived alone")]),
        ("Archive failures", "short", "Times of the last hour that the archive did not do what was asked, and segments that did not "
         "come from it when they were read.",
         [("sum(increase(rollhouse_archive_failures_total{$in}[1h]))", "archiving"),
          ("sum(increase(rollhouse_archive_failed_reads_total{$in}[1h]))", "reading")]),
        ("Reads from the archive", "ops", "Reads a second of what is there alone, by whether it was fetched already.",
         [("sum by (cache) (rate(rollhouse_archive_reads_total{$in}[5m]))", "{{cache}}")]),
    ],
}

BOARDS = {"overview": ("Rollhouse: Overview", OVERVIEW), "internals": ("Rollhouse: Internals", INTERNALS)}

# Panels of a row lie side by side in Grafana's grid of 24 columns.
ACROSS, HEIGHT = 4, 7


def panel(number: int, at: tuple[int, int], title: str, unit: str, description: str, queries: list) -> dict:
    source = {"type": "prometheus", "uid": "${source}"}
    targets = []
    # What falls as well as rises may be below nothing.
    least = {} if any("delta(" in query for query, _ in queries) else {"min": 0}
    for index, (query, legend) in enumerate(queries):
        expr = query.replace("$by", BY).replace("$in", IN)
        target = {"refId": chr(ord("A") + index), "expr": expr, "legendFormat": legend, "datasource": source}
        # The one histogram that has exemplars.
        targets.append(target | ({"exemplar": True} if "rollhouse_call_seconds" in expr else {}))
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": source,
        "gridPos": {"x": at[0], "y": at[1], "w": 24 // ACROSS, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, **least, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def variable(name: str, label: str, query: str) -> dict:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        # Also where there is one cluster and nothing has the label.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def board(name: str) -> dict:
    title, rows = BOARDS[name]
    panels, y = [], 0
    for row, cells in rows.items():
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "collapsed": False,
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
        for index, cell in enumerate(cells):
            at = (index % ACROSS * (24 // ACROSS), y + 1 + index // ACROSS * HEIGHT)
            panels.append(panel(len(panels) + 1, at, *cell))
        y += 1 + -(-len(cells) // ACROSS) * HEIGHT
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    node = 'label_values(process_start_time_seconds{role=~"coordinator|node", cluster=~"$cluster"}, instance)'
    variables = [source, variable("cluster", "Cluster", "label_values(rollhouse_coordinator_term, cluster)"),
                 variable("node", "Process", node)]
    return {
        "uid": f"rollhouse-{name}",
        "title": title,
        "tags": ["rollhouse"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "links": [{"type": "dashboards", "tags": ["rollhouse"], "title": "Rollhouse", "asDropdown": False}],
        "panels": panels,
    }


def main() -> int:
    stale = []
    for name in BOARDS:
        path, text = FOLDER / f"{name}.json", json.dumps(board(name), indent=1) + "\n"
        if "--check" in sys.argv[1:]:
            stale += [] if path.is_file() and path.read_text() == text else [str(path)]
        else:
            path.write_text(text)
    if stale:
        print("not as make.py makes them:", *stale, file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
