"""A client of OpenRA's bridge that was written from the protocol's description, apart from the program's own codec.

Messages are made at run time by `protobuf` from the table below: a field's name, number and type, `*` for a list.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import Any

import gate_program
import grpc
from gate_program import PROGRAM, program
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["ACTIONS", "INTERRUPTS", "MESSAGE", "MESSAGES", "PROGRAM", "Bridge", "command", "gate", "program"]

INTERRUPTS = (
    "game_over enemy_spotted unit_destroyed under_attack building_discovered enemy_building_destroyed "
    "own_building_destroyed unit_arrived production_complete exploration_milestone"
).split()

ACTIONS = (
    "NO_OP MOVE ATTACK_MOVE ATTACK STOP HARVEST BUILD TRAIN DEPLOY SELL REPAIR PLACE_BUILDING CANCEL_PRODUCTION "
    "SET_RALLY_POINT GUARD SET_STANCE ENTER_TRANSPORT UNLOAD POWER_DOWN SET_PRIMARY SURRENDER FAST_ADVANCE PATROL"
).split()

UNIT = (
    "actor_id:uint32 type:string pos_x:int32 pos_y:int32 cell_x:int32 cell_y:int32 hp_percent:float is_idle:bool "
    "current_activity:string owner:string ammo:int32 can_attack:bool facing:int32 experience_level:int32 stance:int32 "
    "speed:int32 attack_range:int32 passenger_count:int32 is_building:bool"
)
BUILDING = (
    "actor_id:uint32 type:string pos_x:int32 pos_y:int32 hp_percent:float owner:string is_producing:bool "
    "production_progress:float producing_item:string is_powered:bool is_repairing:bool sell_value:int32 rally_x:int32 "
    "rally_y:int32 power_amount:int32 *can_produce:string cell_x:int32 cell_y:int32"
)
MILITARY = (
    "units_killed units_lost buildings_killed buildings_lost army_value active_unit_count kills_cost deaths_cost "
    "assets_value experience order_count"
)
OBSERVATION = (
    "tick:int32 episode_id:string economy:RlEconomy military:RlMilitary *units:RlUnitInfo *buildings:RlBuildingInfo "
    "*production:RlProductionInfo *visible_enemies:RlUnitInfo map_info:RlMapInfo spatial_map:bytes "
    "spatial_channels:int32 done:bool reward:float result:string *available_production:string "
    "*visible_enemy_buildings:RlBuildingInfo explored_percent:float interrupted:bool interrupt_reason:string "
    "actual_ticks_advanced:int32"
)
MESSAGES = {
    "RlEconomy": "cash:int32 ore:int32 power_provided:int32 power_drained:int32 resource_capacity:int32 harvester_count:int32",
    "RlMilitary": " ".join(f"{name}:int32" for name in MILITARY.split()),
    "RlUnitInfo": UNIT,
    "RlBuildingInfo": BUILDING,
    "RlProductionInfo": "queue_type:string item:string progress:float remaining_ticks:int32 remaining_cost:int32 paused:bool",
    "RlMapInfo": "width:int32 height:int32 map_name:string",
    "GameObservation": OBSERVATION,
    "Command": "action:int32 actor_id:uint32 target_actor_id:uint32 target_x:int32 target_y:int32 item_type:string queued:bool ticks:int32",
    "AgentAction": "*commands:Command",
    "GameState": "episode_id:string tick:int32 phase:string winner:string player_count:int32 player_faction:string enemy_faction:string",
    "StateRequest": "session_id:string",
    "FastAdvanceRequest": "ticks:int32 *commands:Command session_id:string check_events_every:int32 *enabled_interrupts:string",
    "CreateSessionRequest": "map_name:string bots:string seed:int32",
    "CreateSessionResponse": "session_id:string",
    "DestroySessionRequest": "session_id:string",
    "DestroySessionResponse": "",
}


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="bridge.proto", package="of_tests", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(), start=1):
            field_name, _, kind = field.lstrip("*").partition(":")
            made = message.field.add(name=field_name, number=number)
            made.label = made.LABEL_REPEATED if field.startswith("*") else made.LABEL_OPTIONAL
            if kind in MESSAGES:
                made.type, made.type_name = made.TYPE_MESSAGE, f".of_tests.{kind}"
            else:
                made.type = getattr(made, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"of_tests.{name}") for name in MESSAGES}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


MESSAGE = _messages()
"""The messages by their names."""


def command(action: str, actor_id: int = 0, **fields: Any) -> Any:
    """A command, whose action is named."""
    return MESSAGE["Command"](action=ACTIONS.index(action), actor_id=actor_id, **fields)


class Bridge:
    """A connection to a bridge.

    Args:
        address: Host and port.
        token: What calls carry, if anything.
    """

    def __init__(self, address: str, token: str | None = None):
        limits = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
        # A connection of its own: channels to one address share one otherwise.
        self.channel = grpc.insecure_channel(address, [*limits, ("grpc.use_local_subchannel_pool", 1)])
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._calls = {
            "CreateSession": self._call("CreateSession", "CreateSessionRequest", "CreateSessionResponse"),
            "GetState": self._call("GetState", "StateRequest", "GameState"),
            "FastAdvance": self._call("FastAdvance", "FastAdvanceRequest", "GameObservation"),
            "DestroySession": self._call("DestroySession", "DestroySessionRequest", "DestroySessionResponse"),
        }

    def _call(self, name: str, asked: str, answered: str) -> Any:
        return self.channel.unary_unary(
            f"/openra.rl.RLBridge/{name}",
            request_serializer=MESSAGE[asked].SerializeToString,
            response_deserializer=MESSAGE[answered].FromString,
        )

    def ask(self, name: str, message: Any, timeout: float = 60) -> Any:
        return self._calls[name](message, timeout=timeout, metadata=self._metadata)

    def raw(self, name: str, data: bytes, timeout: float = 60) -> bytes:
        """Sends any bytes as the message of a call."""
        call = self.channel.unary_unary(f"/openra.rl.RLBridge/{name}", request_serializer=bytes, response_deserializer=bytes)
        return call(data, timeout=timeout, metadata=self._metadata)

    def create(self, map_name: str = "", bots: str = "Multi1:rl-agent,Multi0:beginner", seed: int = 1) -> str:
        asked = MESSAGE["CreateSessionRequest"](map_name=map_name, bots=bots, seed=seed)
        return self.ask("CreateSession", asked).session_id

    def state(self, session: str) -> Any:
        return self.ask("GetState", MESSAGE["StateRequest"](session_id=session))

    def wait(self, session: str, phase: str = "playing") -> Any:
        """Asks how a session stands until it stands so."""
        for _ in range(MAX_POLLS):
            state = self.state(session)
            if state.phase == phase:
                return state
        raise AssertionError(f"{session} is {state.phase}")

    def begin(self, **asked: Any) -> str:
        session = self.create(**asked)
        self.wait(session)
        return session

    def advance(self, session: str, ticks: int = 1, commands: Any = (), every: int = 0, until: Any = (), timeout: float = 60) -> Any:
        asked = MESSAGE["FastAdvanceRequest"](
            ticks=ticks, commands=commands, session_id=session, check_events_every=every, enabled_interrupts=until
        )
        return self.ask("FastAdvance", asked, timeout)

    def destroy(self, session: str) -> None:
        self.ask("DestroySession", MESSAGE["DestroySessionRequest"](session_id=session))

    def stream(self, actions: Any) -> Any:
        call = self.channel.stream_stream(
            "/openra.rl.RLBridge/GameSession",
            request_serializer=MESSAGE["AgentAction"].SerializeToString,
            response_deserializer=MESSAGE["GameObservation"].FromString,
        )
        return call(actions, metadata=self._metadata)

    def close(self) -> None:
        self.channel.close()


MAX_POLLS = 20_000
"""How often a session's state is asked for; making a world takes a few milliseconds."""


def gate(*arguments: str, listen: str = "127.0.0.1:0") -> contextlib.AbstractContextManager[tuple[str, subprocess.Popen[str]]]:
    """Runs OpenRA's gate; see `gate_program.gate`."""
    return gate_program.gate("openra", *arguments, listen=listen)
