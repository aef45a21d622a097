"""`rollhouse gate openra`, by a client that was written apart from it: sessions, the stream, and what bad input gets."""

from __future__ import annotations

import json
import queue
import socket
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

grpc = pytest.importorskip("grpc")

from openra_bridge import INTERRUPTS, MESSAGE, Bridge, command, gate, program  # noqa: E402


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with gate() as (address, _):
        yield address


@pytest.fixture
def bridge(address: str) -> Iterator[Bridge]:
    bridge = Bridge(address)
    yield bridge
    bridge.close()


def refused(call, *arguments, **named) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments, **named)
    return raised.value.code()


def test_a_session_is_created_at_once_plays_and_is_gone_when_its_game_is_over(bridge: Bridge) -> None:
    session = bridge.create()
    assert len(session) == 12 and int(session, 16) >= 0
    state = bridge.wait(session)
    assert (state.episode_id, state.player_count, state.tick) == (session, 2, 0)
    seen = bridge.advance(session, 50, [command("BUILD", item_type="powr")])
    assert (seen.tick, seen.actual_ticks_advanced, seen.done, seen.interrupted) == (50, 50, False, False)
    assert [item.item for item in seen.production] == ["powr"]
    assert bridge.state(session).tick == 50
    over = bridge.advance(session, 10, [command("SURRENDER")])
    assert (over.done, over.result) == (True, "lose")
    assert bridge.state(session).phase == "no_bridge"
    assert refused(bridge.advance, session) == grpc.StatusCode.ABORTED


def test_the_map_has_nine_planes_and_stands_where_its_units_do(bridge: Bridge) -> None:
    session = bridge.begin(map_name="river")
    seen = bridge.advance(session)
    width, height = seen.map_info.width, seen.map_info.height
    assert (width, height, seen.map_info.map_name, seen.spatial_channels) == (32, 32, "river", 9)
    planes = struct.unpack(f"<{width * height * 9}f", seen.spatial_map)
    for unit in seen.units:
        place = (unit.cell_y * width + unit.cell_x) * 9
        assert planes[place + 4] == 1 and planes[place + 6] >= 1, "its cell is seen, and has a unit"
    yard = seen.buildings[0]
    assert planes[(yard.cell_y * width + yard.cell_x) * 9 + 5] == 1
    assert yard.type == "fact" and list(yard.can_produce) == list(seen.available_production) == ["powr"]
    bridge.destroy(session)


def test_equal_seeds_and_commands_give_equal_games(bridge: Bridge) -> None:
    def game() -> list[bytes]:
        session = bridge.begin(seed=11)
        commands = [command("ATTACK_MOVE", unit, target_x=12, target_y=12) for unit in (1, 2, 3, 4)]
        shown = [bridge.advance(session, 100, commands if part == 0 else []) for part in range(4)]
        bridge.destroy(session)
        for each in shown:
            each.episode_id = ""
        return [each.SerializeToString(deterministic=True) for each in shown]

    assert game() == game()


def test_an_advance_ends_with_what_it_is_to_be_interrupted_by(bridge: Bridge) -> None:
    session = bridge.begin()
    done = bridge.advance(session, 5000, [command("BUILD", item_type="powr")], 5, ["production_complete", "no_such"])
    assert done.interrupted and done.interrupt_reason == "production_complete"
    assert 0 < done.actual_ticks_advanced < 5000 and done.actual_ticks_advanced % 5 == 0
    # Nought and nought is any place.
    placed = bridge.advance(session, 1, [command("PLACE_BUILDING", item_type="powr")])
    assert sorted(building.type for building in placed.buildings) == ["fact", "powr"]
    bridge.destroy(session)


def test_sixty_four_sessions_play_beside_each_other_and_the_next_one_waits_for_a_place(address: str, bridge: Bridge) -> None:
    def play(seed: int) -> tuple[str, int]:
        own = Bridge(address)
        session = own.begin(seed=seed)
        for part in range(10):
            seen = own.advance(session, 50, every=5, until=INTERRUPTS)
            while seen.interrupted:
                seen = own.advance(session, 50 * (part + 1) - seen.tick, every=5, until=INTERRUPTS)
        own.close()
        return session, seen.tick

    with ThreadPoolExecutor(64) as pool:
        played = list(pool.map(play, range(1, 65)))
    assert len({session for session, _ in played}) == 64
    assert {tick for _, tick in played} == {500}
    assert refused(bridge.create) == grpc.StatusCode.RESOURCE_EXHAUSTED
    for session, _ in played:
        bridge.destroy(session)
    bridge.destroy(bridge.begin())


def test_ticks_are_clamped_and_commands_beyond_those_of_the_ticks_refused(bridge: Bridge) -> None:
    session = bridge.begin()
    assert [bridge.advance(session, ticks).actual_ticks_advanced for ticks in (0, -7)] == [1, 1]
    assert refused(bridge.advance, session, 1, [command("NO_OP")] * 17) == grpc.StatusCode.INVALID_ARGUMENT
    assert bridge.advance(session, 2, [command("NO_OP")] * 17).actual_ticks_advanced == 2
    assert refused(bridge.advance, session, 5000, [command("NO_OP")] * 257) == grpc.StatusCode.INVALID_ARGUMENT
    bridge.destroy(session)


def test_more_ticks_than_an_advance_has_are_clamped() -> None:
    # Without money nobody wins in that time.
    with gate("--option", "cash=0") as (address, _):
        bridge = Bridge(address)
        seen = bridge.advance(bridge.begin(), 2**31 - 1)
        assert (seen.actual_ticks_advanced, seen.tick, seen.done) == (5000, 5000, False)


def test_orders_to_units_that_are_not_ones_own_change_nothing(bridge: Bridge) -> None:
    def game(commands: list) -> bytes:
        session = bridge.begin(seed=3)
        seen = bridge.advance(session, 100, commands)
        bridge.destroy(session)
        seen.episode_id = ""
        return seen.SerializeToString(deterministic=True)

    wrong = [command("MOVE", unit, target_x=3, target_y=3) for unit in (0, 60, 65, 97, 130, 2**32 - 1)]
    wrong += [command("ATTACK", 1, target_actor_id=2**31), command("SELL", 161), command("TRAIN", item_type="a/../\x00")]
    wrong += [MESSAGE["Command"](action=99, actor_id=1), command("MOVE", 1, target_x=-(2**31), target_y=2**31 - 1)]
    assert game(wrong) == game([])


def test_sessions_that_nobody_has_and_those_that_are_gone_are_told_apart(bridge: Bridge) -> None:
    assert bridge.state("0123456789ab").phase == "no_bridge"
    assert bridge.state("x" * 100_000).phase == "no_bridge"
    assert refused(bridge.advance, "0123456789ab") == grpc.StatusCode.UNAVAILABLE
    assert refused(bridge.advance, "x" * 65) == grpc.StatusCode.INVALID_ARGUMENT
    bridge.destroy("0123456789ab")
    session = bridge.begin()
    bridge.destroy(session)
    bridge.destroy(session)
    assert bridge.state(session).phase == "no_bridge"
    assert refused(bridge.advance, session) == grpc.StatusCode.ABORTED


@pytest.mark.parametrize("wrong", [{"map_name": "no such map"}, {"bots": "Multi0:easy"}, {"bots": "Multi1:rl-agent,Multi0:god"}])
def test_a_session_with_a_bad_map_or_bot_has_a_name_and_never_plays(bridge: Bridge, wrong: dict[str, str]) -> None:
    session = bridge.create(**wrong)
    bridge.wait(session, "no_bridge")
    assert refused(bridge.advance, session) == grpc.StatusCode.NOT_FOUND


def test_bytes_that_are_no_message_are_refused_and_the_next_call_is_answered(bridge: Bridge) -> None:
    session = bridge.begin()
    for garbage in (b"\xff" * 9, b"\x0a\x05ab", b"\x12\xff\xff\xff\xff\x0f", b"\x1a\x02\xff\xfe", bytes(range(256))):
        assert refused(bridge.raw, "FastAdvance", garbage) == grpc.StatusCode.INVALID_ARGUMENT, garbage
    # Fields that are not known are passed over.
    assert bridge.raw("GetState", b"\xc0\x3e\x07") != b""
    # Two bytes on the wire are a hundred in memory.
    assert refused(bridge.raw, "FastAdvance", b"\x12\x00" * (4 << 20)) == grpc.StatusCode.INVALID_ARGUMENT
    assert refused(bridge.raw, "FastAdvance", b"\x00" * (17 << 20)) == grpc.StatusCode.OUT_OF_RANGE
    assert refused(bridge.raw, "NoSuchCall", b"") == grpc.StatusCode.UNIMPLEMENTED
    assert bridge.advance(session).tick == 1
    bridge.destroy(session)


def test_a_client_that_goes_away_in_the_middle_costs_nobody_else_anything(address: str, bridge: Bridge) -> None:
    session = bridge.begin()
    for timeout in (0.0005, 0.001, 0.002, 0.004):
        gone = Bridge(address)
        with pytest.raises(grpc.RpcError):
            for _ in range(1000):
                gone.advance(session, 5000, timeout=timeout)
        gone.close()
        if bridge.state(session).phase != "playing":
            session = bridge.begin()
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64):
        with socket.create_connection(address.split(":")) as connection:
            connection.sendall(garbage)
    other = bridge.begin()
    assert bridge.advance(other).tick == 1
    bridge.destroy(other)
    bridge.destroy(session)


def test_calls_of_one_session_take_turns_and_too_many_are_refused(address: str, bridge: Bridge) -> None:
    session = bridge.begin()

    def ask(_: int) -> grpc.StatusCode:
        try:
            bridge.advance(session, 100)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(ask, range(64)))
    assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert bridge.state(session).tick == 100 * codes.count(grpc.StatusCode.OK)
    bridge.destroy(session)


def test_a_stream_shows_each_tick_takes_actions_and_ends_with_the_game() -> None:
    with gate("--ticks-per-second", "500", "--seed", "5") as (address, _):
        bridge = Bridge(address)
        bridge.wait("")
        actions: queue.Queue = queue.Queue()
        shown = bridge.stream(iter(actions.get, None))
        first = next(shown)
        assert first.tick == 0 and first.units
        actions.put(MESSAGE["AgentAction"](commands=[command("BUILD", item_type="powr")]))
        ticks = []
        for seen in shown:
            ticks.append(seen.tick)
            if seen.production:
                break
        assert ticks == sorted(set(ticks)), "none is shown twice"
        actions.put(MESSAGE["AgentAction"](commands=[command("SURRENDER")]))
        last = list(shown)[-1]
        assert last.done and last.result == "lose"
        state = bridge.state("")
        assert (state.phase, state.winner) == ("game_over", "Multi0")
        again = bridge.stream(iter(()))
        assert next(again).tick == 0, "the next stream begins another game"
        newer = Bridge(address).stream(iter(actions.get, None))
        assert next(newer).tick >= 0
        with pytest.raises(grpc.RpcError) as taken:
            list(again)
        assert taken.value.code() == grpc.StatusCode.ABORTED, "a second stream takes the first one's place"


def test_the_gate_ends_in_order_with_a_stream_open_and_what_it_recorded_verifies(tmp_path: Path) -> None:
    with gate("--data", str(tmp_path)) as (address, process):
        bridge = Bridge(address)
        session = bridge.begin(seed=7)
        bridge.advance(session, 300, [command("BUILD", item_type="powr")])
        bridge.advance(session, 10, [command("SURRENDER")])
        open_one = bridge.begin(seed=8)
        bridge.advance(open_one, 20)
        shown = bridge.stream(iter(queue.Queue().get, None))
        next(shown)
        process.terminate()
        with pytest.raises(grpc.RpcError) as ended:
            list(shown)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        assert process.wait(timeout=60) == 0
    run = [*program(), "replay"]
    listed = subprocess.run([*run, "ls", "--data", str(tmp_path), "--json"], check=True, capture_output=True, text=True)
    episodes = [json.loads(line) for line in listed.stdout.splitlines()]
    found = [(episode["length"], episode["outcome"]) for episode in episodes]
    # The third one is the stream's.
    assert (1, "cancelled") in found and (2, "terminated") in found and len(found) == 3, found
    subprocess.run([*run, "verify", "--all", "--data", str(tmp_path)], check=True, capture_output=True)


def test_sessions_are_pools_of_a_cluster_where_one_is_named(tmp_path: Path) -> None:
    free = ["coordinator.listen=127.0.0.1:0", "node.listen=127.0.0.1:0", "metrics.coordinator=", "metrics.node="]
    line = [*program(), "up", "--data", str(tmp_path / "cluster"), *(f"--set={setting}" for setting in free)]
    cluster = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert cluster.stdout is not None
        url = cluster.stdout.readline().strip()
        with gate("--connect", url) as (address, _):
            bridge = Bridge(address)
            session = bridge.begin(seed=7)
            seen = bridge.advance(session, 50, [command("BUILD", item_type="powr")])
            assert (seen.tick, seen.actual_ticks_advanced) == (50, 50)
            run = [*program(), "sessions", "--connect", url, "--json"]
            listed = subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()
            assert len(listed) == 1 and "Skirmish-v0" in listed[0]
            with gate() as (beside, _):
                own = Bridge(beside)
                same = own.advance(own.begin(seed=7), 50, [command("BUILD", item_type="powr")])
            seen.episode_id = same.episode_id = ""
            assert seen == same, "where a game is stepped makes no difference"
            over = bridge.advance(session, 10, [command("SURRENDER")])
            assert (over.done, over.result) == (True, "lose")
    finally:
        cluster.terminate()
        cluster.wait(timeout=60)


def test_other_machines_are_let_in_with_a_token_alone(tmp_path: Path) -> None:
    line = [*program(), "gate", "openra", "--listen", "0.0.0.0:0"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--token-file" in done.stderr, done.stderr
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    with gate("--token-file", str(token)) as (address, _):
        assert Bridge(address, "0123456789abcdef").state("0123456789ab").phase == "no_bridge"
        for wrong in (None, "0123456789abcdeg"):
            assert refused(Bridge(address, wrong).state, "") == grpc.StatusCode.UNAUTHENTICATED


def test_an_env_of_another_shape_and_an_address_that_is_taken_are_refused_at_the_start(address: str) -> None:
    line = [*program(), "gate", "openra", "--listen"]
    done = subprocess.run([*line, "127.0.0.1:0", "--env", "CartPole-v1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "CartPole-v1" in done.stderr, done.stderr
    done = subprocess.run([*line, address], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and address in done.stderr, done.stderr
