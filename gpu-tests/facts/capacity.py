"""What still works in a process that has taken all memory of its card, and whether a cycle leaves it as much."""

import ctypes
import os
import sys

from api import G, MIB, create, cu, free_memory, grant, kernel, must, out, room, spin, start
from checkpoint import checkpoint, lock, restore, unlock
from probe import ask, child, fact

RING = 80 * MIB
SIZES = (1024 * MIB, 64 * MIB, 2 * MIB)
# A kernel that reads a word: from its own code, or from memory for constants.
CODE = """
.version 7.0
.target sm_70
.address_size 64
%s
.visible .entry read(.param .u64 at, .param .u32 number) {
 .reg .u64 %%a; .reg .u32 %%v;
 ld.param.u64 %%a, [at];
 %s
 st.global.u32 [%%a], %%v;
 ret; }
"""


class Victim:
    """A process that takes all memory. What it does is said as a line."""

    def __init__(self):
        start()
        must(spin(kernel(b"spin"), 0, 0.001), "launch")
        must(cu("cuCtxSynchronize"), "sync")
        self.at, self.handles, self.streams, self.pinned = room(G), [], [], None

    def fill(self):
        taken = 0
        for size in SIZES:
            while True:
                code, handle = create(size)
                if code:
                    break
                self.handles.append(handle)
                taken += size
        return [taken // MIB]

    def drop(self):
        for handle in self.handles:
            must(cu("cuMemRelease", handle), "cuMemRelease")
        self.handles.clear()
        return [free_memory() // MIB]

    def streams_made(self):
        codes = []
        for _ in range(4):
            value, ref = out(ctypes.c_void_p)
            codes.append(cu("cuStreamCreate", ref, 1))
            self.streams += [] if codes[-1] else [value]
        return codes

    def pinned_made(self):
        self.pinned, ref = out(ctypes.c_void_p)
        return [cu("cuMemHostAlloc", ref, RING, 0)]

    def copies(self):
        must(cu("cuMemMap", self.at, G, 0, self.handles[-1], 0), "cuMemMap")
        must(grant(self.at, G), "cuMemSetAccess")
        codes = [cu("cuMemcpyHtoDAsync_v2", self.at, self.pinned, G, 0), cu("cuMemsetD8Async", self.at, 0, G, 0)]
        codes.append(cu("cuStreamSynchronize", 0))
        must(cu("cuMemUnmap", self.at, G), "cuMemUnmap")
        return codes

    def module(self, data, instruction):
        value, ref = out(ctypes.c_void_p)
        return [cu("cuModuleLoadData", ref, (CODE % (data, instruction)).encode() + b"\0")]

    def code(self):
        return self.module("", "mov.u32 %v, 7;")

    def constants(self):
        return self.module(".const .align 4 .u32 word = 7;", "ld.const.u32 %v, [word];")

    def undo(self):
        for on in self.streams:
            must(cu("cuStreamDestroy_v2", on), "cuStreamDestroy_v2")
        self.streams.clear()
        must(cu("cuMemFreeHost", self.pinned), "cuMemFreeHost")
        return [0]

    def free(self):
        return [free_memory() // MIB]


def filler():
    victim = Victim()
    print("ready", flush=True)
    for line in sys.stdin:
        print(*getattr(victim, line.strip())(), flush=True)
    os._exit(0)


def capacity():
    must(cu("cuInit", 0), "cuInit")
    process = child("filler")
    process.stdout.readline()

    def say(name, word):
        told = ask(process, word, 60)
        fact(name, told)
        return told

    def cycle():
        for call in (lock, checkpoint, restore, unlock):
            must(call(process.pid), call.__name__)

    before = say("taken_mib", "fill")
    for word in ("streams_made", "pinned_made", "copies", "code", "constants"):
        say(f"full_{word}", word)
    ask(process, "undo")
    free = say("free_mib", "drop")
    for _ in range(3):
        cycle()
    fact("free_as_before_after_cycles", ask(process, "free") == free)
    fact("taken_as_before_after_cycles", ask(process, "fill", 60) == before)
    ask(process, "drop")
    say("roomy_streams_made", "streams_made")
    say("free_with_streams_mib", "free")
    ask(process, "pinned_made")
    ask(process, "undo")
    say("free_without_streams_mib", "free")
    process.stdin.close()
    process.wait(20)
