"""How much memory a card gives to one process: before and after cycles, and beside what a copy needs."""

import ctypes
import os
import subprocess
import sys

from api import G, MIB, create, cu, free_memory, grant, kernel, must, out, room, spin, start, stream
from checkpoint import checkpoint, lock, restore, unlock
from probe import ask, child, fact

RING = 80 * MIB


class Victim:
    """A process that takes all memory, and what a copy needs."""

    def __init__(self):
        start()
        must(spin(kernel(b"spin"), stream(), 0.001), "launch")
        must(cu("cuCtxSynchronize"), "sync")
        self.base, self.handles, self.streams, self.pinned = room(G), [], [], None

    def free(self):
        return free_memory() // MIB

    def fill(self):
        taken = 0
        for size in (1024 * MIB, 64 * MIB, 2 * MIB):
            while True:
                code, handle = create(size)
                if code:
                    break
                self.handles.append(handle)
                taken += size
        return taken // MIB, free_memory() // MIB

    def drop(self):
        for handle in self.handles:
            must(cu("cuMemRelease", handle), "cuMemRelease")
        self.handles.clear()
        return free_memory() // MIB

    def lanes(self):
        codes = []
        for _ in range(4):
            value, ref = out(ctypes.c_void_p)
            codes.append(cu("cuStreamCreate", ref, 1))
            self.streams += [] if codes[-1] else [value]
        return *codes, free_memory() // MIB

    def ring(self):
        self.pinned, ref = out(ctypes.c_void_p)
        return cu("cuMemHostAlloc", ref, RING, 0), free_memory() // MIB

    def copy(self):
        must(cu("cuMemMap", self.base, G, 0, self.handles[-1], 0), "cuMemMap")
        codes = [grant(self.base, G)]
        for on in self.streams or [0]:
            codes.append(cu("cuMemcpyHtoDAsync_v2", self.base, self.pinned, G, on))
            codes.append(cu("cuMemsetD8Async", self.base, 0, G, on))
            codes.append(cu("cuStreamSynchronize", on))
        codes.append(cu("cuMemUnmap", self.base, G))
        return "".join(map(str, codes)), free_memory() // MIB

    def undo(self):
        for on in self.streams:
            must(cu("cuStreamDestroy_v2", on), "cuStreamDestroy_v2")
        self.streams.clear()
        must(cu("cuMemFreeHost", self.pinned), "cuMemFreeHost")
        return free_memory() // MIB


def filler():
    victim = Victim()
    print("ready", flush=True)
    for line in sys.stdin:
        told = getattr(victim, line.strip())()
        print(*(told if isinstance(told, tuple) else (told,)), flush=True)
    os._exit(0)


def used():
    """What the card says from outside, in MiB."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def capacity():
    must(cu("cuInit", 0), "cuInit")
    process = child("filler")
    process.stdout.readline()

    def say(when, *words):
        for word in words:
            fact(f"{when}_{word}_mib", ask(process, word, 60), "used", used())

    def cycle():
        for call in (lock, checkpoint, restore, unlock):
            must(call(process.pid), call.__name__)

    say("first", "free", "fill", "lanes", "ring", "copy", "undo", "fill", "drop")
    for number in (1, 2, 3):
        cycle()
        say(f"after_{number}", "free")
    say("after_3", "fill", "lanes", "ring", "copy", "undo", "fill", "drop", "free", "lanes", "ring", "free", "undo", "free")
    cycle()
    say("after_4", "free", "fill", "drop")
    process.stdin.close()
    process.wait(20)
