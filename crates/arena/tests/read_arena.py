"""Prints every column of an arena whose two files are open as the descriptors argv[1] and argv[2].

Written from docs/arena-layout.md alone, with nothing but the standard library.
"""

import mmap
import os
import struct
import sys

DTYPES = ["?", "B", "i", "q", "f", "d"]
ROLES = ["obs", "action", "reward", "terminated", "truncated", "reset", "final_obs", "info"]


def map_file(fd):
    size = os.fstat(fd).st_size
    return mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)


def word(memory, offset):
    return struct.unpack_from("<Q", memory, offset)[0]


def text(memory, at):
    (length,) = struct.unpack_from("<I", memory, at)
    return memory[at + 4 : at + 4 + length].decode(), at + 4 + length


def details(memory, at, end):
    axes, names = struct.unpack_from("<II", memory, at)
    shape = list(struct.unpack_from(f"<{axes}Q", memory, at + 8))
    path, at = text(memory, at + 8 + 8 * axes)
    labels = []
    for _ in range(names):
        label, at = text(memory, at)
        labels.append(label)
    assert at == end, (at, end)
    return shape, path, labels


def values(memory, offset, count, dtype):
    return [format(float(v), "g") for v in struct.unpack_from(f"<{count}{DTYPES[dtype]}", memory, offset)]


def main():
    outputs, inputs = (map_file(int(arg)) for arg in sys.argv[1:3])
    assert outputs[:8] == b"RHOUTPUT" and inputs[:8] == b"RHINPUTS"
    assert word(outputs, 8) == word(inputs, 8) == 2
    assert word(outputs, 16) == len(outputs) and word(inputs, 16) == len(inputs)
    lanes = word(outputs, 24)
    assert word(inputs, 24) == lanes
    print("lanes", lanes, "autoreset", word(outputs, 32), "incarnation", word(outputs, 48), word(outputs, 56))
    print("generation", word(outputs, 40), word(inputs, 32), "answered", word(outputs, 256), "of", word(inputs, 256))
    frame = word(outputs, 264)
    print("frame", frame, "in slot", frame % 2)
    table, count = word(outputs, 72), word(outputs, 80)
    for entry in range(table, table + 128 * count, 128):
        offset, elements, dtype, role, slot, place, index, _, at, length = struct.unpack_from("<QQBBBBHHQQ", outputs, entry)
        assert place == 0 and offset % 64 == 0 and offset >= word(outputs, 64)
        shape, path, labels = details(outputs, at, at + length)
        row = values(outputs, offset, lanes * elements, dtype)
        print(ROLES[role], index, "slot", slot, "path", path or "-", "shape", shape, "names", labels, "=", " ".join(row))
    notes, notes_bytes, lane_notes = (word(outputs, offset) for offset in (152, 160, 168))
    for slot in (0, 1):
        at = notes + slot * notes_bytes
        began, hashes = struct.unpack_from("<II", outputs, at)
        starts = range(at + 8, at + 8 + 32 * began, 32)
        records = [outputs[start : start + 32].hex() for start in starts]
        at += 8 + 32 * lanes
        states = ["{}:{}".format(*struct.unpack_from("<II", outputs, at + 8 * state)) for state in range(hashes)]
        print("notes of slot", slot, "began", " ".join(records), "hashes", " ".join(states))
    for lane in range(lanes):
        at = lane_notes + 40 * lane
        said, state = struct.unpack_from("<II", outputs, at)
        record = outputs[at + 8 : at + 40].hex() if said & 1 else "-"
        print("note of lane", lane, "began", record, "hash", state if said & 2 else "-")
    print("leaving", word(outputs, 296))
    at, elements, dtype = (word(inputs, offset) for offset in (56, 64, 72))
    print("action =", " ".join(values(inputs, at, lanes * elements, dtype)))


main()
