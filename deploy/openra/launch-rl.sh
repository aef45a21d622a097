#!/usr/bin/env bash
# What OpenRA-RL starts as its engine where there is no OpenRA.dll: `bash $OPENRA_PATH/launch-rl.sh KEY=VALUE...`.
# It runs OpenRA's bridge of Rollhouse in the engine's place, so that OpenRA-RL's server, clients and tools play Skirmish-v0.
#
#     OPENRA_PATH      folder with this file, which OpenRA-RL takes for the engine
#     RL_GRPC_PORT     port of the bridge, 9999 by default
#     ROLLHOUSE        command to run, `rollhouse` by default
#     ROLLHOUSE_GATE   more of its options, such as "--data ./games --option map=river"
#     ROLLHOUSE_GATE_LOG   file for what it logs; nobody reads what an engine writes, and a full pipe would stop it
set -euo pipefail

port=${RL_GRPC_PORT:-9999}
options=()
for argument in "$@"; do
    case $argument in
    Launch.MultiSession=*) port=${argument#*=} ;;
    Launch.Map=*)
        map=${argument#*=}
        map=${map##*/}
        map=${map%.oramap}
        # Others are OpenRA's own: the game is played on the usual map then.
        case $map in duel | river | highlands) options+=(--option "map=$map") ;; esac
        ;;
    Launch.Bots=*)
        for slot in $(printf '%s' "${argument#*=}" | tr ',' ' '); do
            case ${slot#*:} in
            beginner | easy | medium) options+=(--option "opponent=${slot#*:}") ;;
            hard | normal | brutal | rush) options+=(--option opponent=hard) ;;
            esac
        done
        ;;
    Game.Seed=* | Launch.Seed=*) options+=(--seed "${argument#*=}") ;;
    esac
done

# Both are lists of words.
# shellcheck disable=SC2086
exec ${ROLLHOUSE:-rollhouse} gate openra --listen "127.0.0.1:$port" --any-map ${options[@]+"${options[@]}"} ${ROLLHOUSE_GATE:-} \
    >>"${ROLLHOUSE_GATE_LOG:-/dev/null}" 2>&1
