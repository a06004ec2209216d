"""What a large registered host arena costs in a checkpoint cycle."""

import ctypes
import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from api import cu, must, out, start, stream
from checkpoint import checkpoint, lock, restore, unlock
from probe import ask, child, fact, timed


def arena_victim():
    start()
    size = 16 << 30
    device, ref = out()
    must(cu("cuMemAlloc_v2", ref, 1 << 30), "alloc")
    on = stream()
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL("libc.so.6")
    libc.madvise(ctypes.c_void_p(base), ctypes.c_size_t(size), 14)
    libc.madvise(ctypes.c_void_p(base), ctypes.c_size_t(size), 10)
    part = size // 16

    def populate(i):
        libc.madvise(ctypes.c_void_p(base + i * part), ctypes.c_size_t(part), 23)

    def rate():
        begin = time.monotonic()
        for _ in range(4):
            cu("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(base + (8 << 30)), device.value, 1 << 30, on)
        code = cu("cuStreamSynchronize", on)
        down = 4 / (time.monotonic() - begin) * 1.0737
        begin = time.monotonic()
        for _ in range(4):
            cu("cuMemcpyHtoDAsync_v2", device.value, ctypes.c_void_p(base + (8 << 30)), 1 << 30, on)
        code2 = cu("cuStreamSynchronize", on)
        return [code, code2, "GB/s down", round(down, 1), "up", round(4 / (time.monotonic() - begin) * 1.0737, 1)]

    print("ready", flush=True)
    for line in sys.stdin:
        verb = line.strip()
        if verb == "populate":

            def all_parts():
                with ThreadPoolExecutor(16) as pool:
                    list(pool.map(populate, range(16)))

            print(timed(all_parts)[1], flush=True)
        elif verb.startswith("register"):
            print(
                timed(lambda: cu("cuMemHostRegister_v2", ctypes.c_void_p(base), size, int(verb.split()[1]))), flush=True
            )
        elif verb == "slices":
            print(
                timed(
                    lambda: [cu("cuMemHostRegister_v2", ctypes.c_void_p(base + i * part), part, 0) for i in range(16)]
                ),
                flush=True,
            )
        elif verb == "unslices":
            print(
                timed(lambda: [cu("cuMemHostUnregister", ctypes.c_void_p(base + i * part)) for i in range(16)]),
                flush=True,
            )
        elif verb == "unregister":
            print(timed(lambda: cu("cuMemHostUnregister", ctypes.c_void_p(base))), flush=True)
        elif verb == "rate":
            print(rate(), flush=True)
        elif verb == "end":
            print("bye", flush=True)
            os._exit(0)


def arena():
    must(cu("cuInit", 0), "cuInit")
    process = child("arena_victim")
    process.stdout.readline()
    pid = process.pid

    def cycle(label):
        fact(
            f"cycle_{label}",
            "lock",
            timed(lambda: lock(pid)),
            "checkpoint",
            timed(lambda: checkpoint(pid)),
            "restore",
            timed(lambda: restore(pid)),
            "unlock",
            timed(lambda: unlock(pid)),
        )

    cycle("before_arena")
    fact("populate_16_gib_s", ask(process, "populate", 60))
    cycle("arena_not_registered")
    cycle("arena_not_registered_again")
    fact("register", ask(process, "register 1", 60))
    fact("rate", ask(process, "rate", 60))
    cycle("registered")
    cycle("registered_again")
    fact("rate_after", ask(process, "rate", 60))
    fact("unregister", ask(process, "unregister", 60))
    cycle("unregistered_again")
    fact("register_16_slices", ask(process, "slices", 60))
    cycle("16_slices")
    fact("rate_slices", ask(process, "rate", 60))
    fact("unregister_slices", ask(process, "unslices", 60))
    fact("register_flags_3", ask(process, "register 3", 60))
    cycle("portable_device_mapped")
    fact("unregister", ask(process, "unregister", 60))
    ask(process, "end")
    process.wait(30)
