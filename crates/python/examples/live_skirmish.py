"""A scripted player of Skirmish-v0: what it orders follows from what it is shown, and nothing else.

    rollhouse up &
    python examples/live_skirmish.py --connect rollhouse://...
    python examples/live_skirmish.py --games 8

With a cluster it plays one game that does not wait for it, 25 ticks a second: it looks at the newest tick, thinks, and its orders go into
the tick that is next then. `--think 2` has it think for so many seconds, in which 50 ticks go by. Without a cluster games stand still
while it thinks, and it plays several at once by steps of 25 ticks. The exit code is 0 only if it has won all games.
"""

from __future__ import annotations

import argparse
import sys
import time

import skirmish_orders as sk

import rollhouse

GROUP = 8
"""Fighting units that set out together."""
REFINERIES, HARVESTERS, TURRETS = 2, 4, 1
NEAR = 9
"""Steps from a building within which an enemy is fought first."""


def orders(observation: sk.Row) -> list[dict[str, int]]:
    """Returns what to order, given what is seen: a base of two refineries, tanks and infantry, and attacks by groups of eight."""
    return [*_build(observation), *_train(observation), *_stand(observation), *_lead(observation)][: sk.MAX_ORDERS]


def _build(observation: sk.Row) -> list[dict[str, int]]:
    """Places the building that is ready, else begins the one that is missed most."""
    base = sk.home(observation)
    if observation["masks"]["place"].any():
        ready = next(sk.ITEMS[int(job["item"])] for job in observation["production"] if job["is_ready"])
        far = sk.across(observation)
        near = ((2 * base[0] + far[0]) // 3, (2 * base[1] + far[1]) // 3) if ready == "turret" else base
        place = sk.site(observation, near)
        return [sk.order("place_building", cell=place)] if place else []
    if any(int(job["line"]) == 0 for job in observation["production"]):
        return []
    standing = sk.kinds(observation["buildings"])
    economy = observation["economy"]
    spare = int(economy["power_provided"]) - int(economy["power_drained"])
    wants = [
        ("power_plant", spare < 35),
        ("refinery", standing.count("refinery") < 1),
        ("barracks", "barracks" not in standing),
        ("factory", "factory" not in standing),
        ("turret", standing.count("turret") < TURRETS),
        ("refinery", standing.count("refinery") < REFINERIES),
    ]
    missed = next((kind for kind, is_missed in wants if is_missed), None)
    return [sk.order("build", item=missed)] if missed and _producible(observation, missed) else []


def _producible(observation: sk.Row, item: str) -> bool:
    return bool(observation["masks"]["produce"][sk.ITEMS.index(item)])


def _train(observation: sk.Row) -> list[dict[str, int]]:
    """Keeps a unit in each line of production; what the first factory costs is kept for it."""
    standing = sk.kinds(observation["buildings"])
    busy = {int(job["line"]) for job in observation["production"]}
    money = int(observation["economy"]["cash"]) + int(observation["economy"]["ore"])
    wanted = []
    if 2 not in busy:
        wanted.append("harvester" if sk.kinds(observation["units"]).count("harvester") < HARVESTERS else "tank")
    if 1 not in busy and ("factory" in standing and money >= 1000 or money >= 1700):
        wanted.append("rocket" if int(observation["tick"]) // 100 % 3 == 0 else "rifle")
    return [sk.order("train", item=item) for item in wanted if _producible(observation, item)]


def _stand(observation: sk.Row) -> list[dict[str, int]]:
    """Mends buildings, sends idle harvesters for ore, and has units go after what they see."""
    damaged = [building for building in observation["buildings"] if building["hp_percent"] < 70 and not building["is_repairing"]]
    given = [sk.order("repair", int(building["id"])) for building in damaged[:2]]
    for unit in observation["units"]:
        if not unit["can_attack"] and unit["is_idle"]:
            given.append(sk.order("harvest", int(unit["id"]), cell=sk.cell(unit)))
    if any(unit["stance"] != 3 for unit in sk.army(observation)):
        given.append(sk.order("set_stance", sk.COMBAT, cell=(3, 0)))
    return given


def _lead(observation: sk.Row) -> list[dict[str, int]]:
    """Sends idle units: to an enemy near the base, else to the enemy, from the base only as a group."""
    base = sk.home(observation)
    idle = [unit for unit in sk.army(observation) if unit["is_idle"]]
    walls = [sk.cell(building) for building in observation["buildings"]]
    enemies = [sk.cell(unit) for unit in observation["enemies"]]
    intruders = [there for there in enemies if any(sk.steps(there, wall) <= NEAR for wall in walls)]
    waiting = [unit for unit in idle if sk.steps(sk.cell(unit), base) <= NEAR]
    if intruders:
        return [sk.order("attack_move", int(unit["id"]), cell=intruders[0]) for unit in waiting]
    away = [unit for unit in idle if sk.steps(sk.cell(unit), base) > NEAR]
    going = idle if len(waiting) >= GROUP else away
    there = sk.goal(observation)
    return [sk.order("attack_move", int(unit["id"]), cell=there) for unit in going]


def play(envs: rollhouse.VectorEnv, seed: int, ticks: int) -> list[str]:
    """Plays a game on each lane by steps of so many ticks, while no clock runs. Returns how they ended: won, lost or drawn."""
    shown, _ = envs.reset(seed=seed)
    results = [""] * envs.num_envs
    while not all(results):
        # What follows a lane's game is not played.
        given = [[] if result else orders(sk.row(shown, lane)) for lane, result in enumerate(results)]
        shown, rewards, terminations, truncations, _ = envs.step(sk.batch([sk.action(some, ticks) for some in given]))
        for lane, result in enumerate(results):
            if not result and (terminations[lane] or truncations[lane]):
                results[lane] = "drawn" if truncations[lane] else "won" if rewards[lane] > 0 else "lost"
    return results


def play_live(envs: rollhouse.ClusterVectorEnv, seed: int, think: float) -> str:
    """Plays the game of the only lane as it goes on, and returns how it ended. Prints what it saw every 500 ticks and at the end."""
    envs.reset(seed=seed)
    began, ticks, acts, dropped, late, most, next_line = time.monotonic(), 0, 0, 0, 0, 0, 500
    while True:
        seen = sk.row(envs.latest()[0], 0)
        time.sleep(think)
        _, rewards, terminations, truncations, infos = envs.step(sk.batch([sk.action(orders(seen))]))
        # Of all ticks since the last answer, whether they took an action or not.
        gone = int(infos["ticks"][0])
        ticks, acts, most = ticks + gone, acts + 1, max(most, gone)
        dropped, late = dropped + int(infos["dropped"][0]), late + int(infos["late"][0])
        if ticks >= next_line:
            next_line += 500
            money, military = int(seen["economy"]["cash"]) + int(seen["economy"]["ore"]), seen["military"]
            units, buildings = len(seen["units"]), len(seen["buildings"])
            fight = f"destroyed {int(military['kills_cost'])}, lost {int(military['deaths_cost'])}"
            print(f"tick {ticks:>6}  money {money:>5}  {units:>2} units  {buildings:>2} buildings  {fight}", flush=True)
        if terminations[0] or truncations[0]:
            result = "drawn" if truncations[0] else "won" if rewards[0] > 0 else "lost"
            took = f"{ticks} ticks, {time.monotonic() - began:.0f} s and {acts} actions"
            print(f"{result} after {took}; at most {most} ticks went by between two, {late} were late, {dropped} actions dropped")
            return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play one live game on this cluster's nodes")
    parser.add_argument("--pace", type=float, default=25, help="ticks a second of a live game")
    parser.add_argument("--think", type=float, default=0.0, help="seconds for which it thinks before each action of a live game")
    parser.add_argument("--games", type=int, default=8, help="games that stand still while it thinks")
    parser.add_argument("--opponent", default="easy", choices=["beginner", "easy", "medium", "hard"])
    parser.add_argument("--map", default="duel", choices=["duel", "river", "highlands"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="record what is played, at the cluster or into ./rollhouse-data")
    args = parser.parse_args()
    options = {"opponent": args.opponent, "map": args.map, "record": args.record}
    if args.connect:
        with rollhouse.connect(args.connect) as cluster, cluster.make_vec("Skirmish-v0", 1, pace=args.pace, **options) as envs:
            return 0 if play_live(envs, args.seed, args.think) == "won" else 1
    with rollhouse.make_vec("Skirmish-v0", args.games, **options) as envs:
        results = play(envs, args.seed, ticks=25)
    said = ", ".join(f"{results.count(word)} {word}" for word in ("won", "lost", "drawn"))
    print(f"{args.games} games against {args.opponent} on {args.map}: {said}")
    return 0 if results.count("won") == args.games else 1


if __name__ == "__main__":
    sys.exit(main())
