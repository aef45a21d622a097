"""What processes that step lanes are told and answer, as numbers. The host in Rust has the same."""

from __future__ import annotations

# Commands: the low byte of the code, the rest its number.
WORK, CLOSE, CALL_LANE, RENDER_LANE, LEARN_INFOS, PAINTED_LANE = 1, 2, 5, 6, 7, 8

# What a lane is to do: nothing, a step, a reset, a reset with its seed, a reset with its seed of an env made anew, a
# reset of one that has played nothing yet, with its generator at the place in the record, and a step that repeats one.
NOTHING, STEP, RESET, SEEDED, ANEW, PLACED, AGAIN = range(7)

# How a lane answered, in the low byte of its number; and that the worker has a picture of it, which is to be recorded.
TERMINATED, TRUNCATED, LOST, PAINTED = 1, 2, 4, 64
