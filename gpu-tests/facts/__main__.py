"""Measures what the real driver does, one line per fact: `FACT name: value`.

Each section runs in a process of its own, what may get stuck or crash in a throw-away one; nothing here
changes a setting, uses managed memory or touches multicast.

    python3 facts [SECTION...]            prints the facts
    python3 facts --check [SECTION...]    compares with expected.txt, what the code relies on
"""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import arena
import arrays
import capacity
import capture
import checkpoint
import creation
import cudart_blocking
import ends
import handles
import malloc
import many
import mappings
import pools
import preemption
import probe
import ring
import sharing
import work
from api import start

SECTIONS = {
    section.__name__: section
    for section in (
        creation.device,
        creation.before_init,
        handles.handles,
        mappings.maps,
        work.work,
        creation.creates,
        sharing.shares,
        sharing.left,
        handles.crash,
        malloc.malloc,
        malloc.ipc,
        capture.capture,
        checkpoint.locking,
        checkpoint.blocks_locked,
        checkpoint.blocks_checkpointed,
        cudart_blocking.cudart_locked,
        cudart_blocking.cudart_checkpointed,
        preemption.preemption,
        arrays.arrays,
        pools.pools,
        ends.ends,
        arena.arena,
        ring.ring,
        many.many,
        capacity.capacity,
    )
}
# What a section starts beside itself.
HELPERS = {
    "victim": checkpoint.victim,
    "cudart_victim": cudart_blocking.cudart_victim,
    "uninitialised_lock": checkpoint.uninitialised_lock,
    "arena_victim": arena.arena_victim,
    "arrays_victim": arrays.arrays_victim,
    "pool_victim": pools.pool_victim,
    "pool_cycle": pools.pool_cycle,
    "ipc_peer": malloc.ipc_peer,
    "spinner": preemption.spinner,
    "filler": capacity.filler,
}
SECONDS = {
    "blocks_checkpointed": 110,
    "blocks_locked": 60,
    "cudart_locked": 30,
    "cudart_checkpointed": 60,
    "arena": 120,
    "capacity": 120,
    # Several cases may be given up, one after the other.
    "pools": 240,
}
EXPECTED = pathlib.Path(__file__).with_name("expected.txt")


def measure(names):
    """Runs sections one after the other; their lines come back, and are printed as they come."""
    lines = []
    for name in names or SECTIONS:
        # A session of its own, so that a stuck section goes with all that it started.
        process = subprocess.Popen(
            [sys.executable, probe.MAIN, "section", name], start_new_session=True, stdout=subprocess.PIPE, text=True
        )
        late = threading.Timer(SECONDS.get(name, 45), os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.strip())
        code = process.wait()
        late.cancel()
        if code:
            lines.append(f"FACT {name}.exit: {code}")
            print(lines[-1], flush=True)
    return lines


def check(names):
    """Whether the facts that the code relies on are still facts. Only the sections they are in are run."""
    expected = dict(line.split(": ", 1) for line in EXPECTED.read_text().splitlines() if line.startswith("FACT "))
    section = lambda fact: fact.removeprefix("FACT ").split(".")[0]
    wanted = [name for name in SECTIONS if any(part(name) == section(fact) for fact in expected)]
    found = dict(line.split(": ", 1) for line in measure(names or wanted) if ": " in line)
    wrong = 0
    for fact, value in expected.items():
        if names and section(fact) not in map(part, names):
            continue
        if found.get(fact) != value:
            wrong += 1
            print(f"DIFFERENT {fact}: {found.get(fact)}, not {value}")
    print(f"{wrong} facts are different from what the code relies on, of {len(expected)}")
    return 1 if wrong else 0


def part(section):
    """What the facts of a section begin with."""
    return "bad" if section == "crash" else section


def main():
    arguments = sys.argv[1:]
    match arguments:
        case ["peer", descriptor]:
            return sharing.serve(int(descriptor))
        case ["crash", name]:
            probe.SECTION = "bad"
            start()
            return probe.fact(name, handles.CRASH[name]())
        case [helper] if helper in HELPERS:
            return HELPERS[helper]()
        case ["section", name]:
            probe.SECTION = name
            return SECTIONS[name]()
        case ["--check", *names]:
            return check(names)
        case names:
            measure(names)


if __name__ == "__main__":
    sys.exit(main())
