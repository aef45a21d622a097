"""Processes that end when the process that started them does: on this machine, behind ssh, or in a job's step.

Each runs under a few lines of shell that read their stdin, which the launcher holds open. A line ``end`` or the end of
stdin, which comes however the launcher goes, has the process stopped in order by SIGTERM. One that was stopped by SIGSTOP
is continued, since it takes no other signal, and so is its shell; and one that does not end within :data:`IN_ORDER` is killed.
"""

from __future__ import annotations

import collections
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

IN_ORDER = 30
"""Seconds in which a service ends in order, and some."""
PATIENCE = IN_ORDER + 5.0
"""Seconds in which it has ended, in order or killed."""
LINES = 50
"""Lines of a process that are kept for a message."""

# $1 is how many seconds to wait after the end of stdin, $2 how many a process has to end in order. The first line of stdin is the join string, or empty: a secret that
# stands on no command line and in no file. The log is text, because its last lines are shown to whoever launched what says
# them. What starts a process in the background gives it /dev/null as stdin.
SCRIPT = r"""
exec 3<&0 </dev/null
grace=$1; patience=$2; shift 2
IFS= read -r join <&3 || exit 0
if [ -n "$join" ]; then export ROLLHOUSE_NODE__JOIN="$join"; fi
scratch=
if [ "${ROLLHOUSE_SCRATCH-}" = yes ]; then
    umask 077
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/rollhouse-node-XXXXXX") || exit 1
    export ROLLHOUSE_NODE__DATA="$scratch"
fi
unset ROLLHOUSE_SCRATCH join
export ROLLHOUSE_LOG__FORMAT=text
watch='
    asked=
    while IFS= read -r word; do
        if [ "$word" = end ]; then asked=yes; break; fi
    done
    if [ -z "$asked" ] && [ "$3" -gt 0 ]; then sleep "$3"; fi
    kill -TERM "$1"
    # Whoever was stopped takes no signal before going on; so does a container by what runs it here. The shell waits for it.
    kill -CONT "$1" "$2"
    trap "kill \$! && exit" TERM
    sleep "$4" &
    wait "$!"
    kill -KILL "$1"
'
"$@" 3<&- &
served=$!
# In a session of its own where there is setsid: whoever stops this shell and all that is in its group does not stop it.
if command -v setsid >/dev/null 2>&1; then set -- setsid; else set --; fi
"$@" sh -c "$watch" rollhouse-watch "$served" "$$" "$grace" "$patience" <&3 >/dev/null 2>&1 &
watcher=$!
trap 'kill -TERM "$served" 2>/dev/null' TERM INT HUP
code=0
wait "$served" || code=$?
# A trapped signal ends the wait, not the process.
while kill -0 "$served" 2>/dev/null; do code=0; wait "$served" || code=$?; done
kill "$watcher" 2>/dev/null
if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
exit "$code"
"""


def tied(command: Sequence[str], grace: int = 0) -> list[str]:
    """Returns the command line that runs ``command`` for as long as its stdin is held open, and ``grace`` seconds
    longer.
    """
    return ["sh", "-c", SCRIPT, "rollhouse-tied", str(grace), str(IN_ORDER), *command]


def quoted(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Returns the same as one line for another machine's shell, with variables."""
    return shlex.join(["env", *(f"{name}={value}" for name, value in environment.items()), *command])


class Tied:
    """A process that this one holds."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], first: str = ""):
        self.name = name
        self._said: collections.deque[str] = collections.deque(maxlen=LINES)
        self._heard = threading.Condition()
        self._all: list[str] = []
        self._silent = False
        # Ctrl-C in a terminal is for the launcher, which ends the others in order.
        self._process = subprocess.Popen(
            list(command),
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._tell(f"{first}\n")
        self._reader = threading.Thread(target=self._read, name=f"rollhouse-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id here; for a process on another machine, that of the process here that reaches it."""
        return self._process.pid

    def hear(self, words: str, times: int, patience: float) -> list[str] | None:
        """Returns the text after ``words`` in the first lines that have them; None if the process ends, or time is
        over, first.
        """
        found: list[str] = []

        def enough() -> bool:
            found[:] = [line.split(words, 1)[1].strip() for line in self._all if words in line]
            return len(found) >= times or self._silent

        with self._heard:
            self._heard.wait_for(enough, patience)
            enough()
        return found if len(found) >= times else None

    def said(self) -> str:
        """Returns its last lines."""
        with self._heard:
            return "\n".join(self._said)

    def poll(self) -> int | None:
        """Returns its exit code, if it has ended."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Asks it to end in order; does not wait."""
        self._tell("end\n")
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
        except OSError:
            pass

    def wait(self, patience: float = PATIENCE) -> int | None:
        """Returns its exit code when it has ended; it is killed if that takes too long, and None is returned then."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            # The shell, what it watches over, and what that has started: they are a group of their own.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            return None

    def _tell(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except (OSError, ValueError):
            # It has ended, which whoever waits for it sees.
            pass

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._heard:
                line = re.sub(r"\x1b\[[0-9;]*m", "", line.rstrip())
                self._said.append(line)
                if len(self._all) < MOST_HEARD:
                    self._all.append(line)
                self._heard.notify_all()
        with self._heard:
            self._silent = True
            self._heard.notify_all()


MOST_HEARD = 10_000
"""Lines in which words are looked for: those of the start."""
