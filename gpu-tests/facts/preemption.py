"""Whether a running kernel is interrupted for the work of another process, before and after a cycle."""

import ctypes
import os
import sys
import time

from api import cu, kernel, must, out, spin, start, stream
from checkpoint import checkpoint, lock, restore, unlock
from probe import ask, child, fact

LONG = 0.8


def spinner():
    """Does what a line says: `long` begins a kernel, `quick` runs a short one and says how long that took."""
    start()
    function, on = kernel(b"spin"), stream()
    must(spin(function, on, 0.001), "launch")
    must(cu("cuCtxSynchronize"), "sync")
    print("ready", flush=True)
    for line in sys.stdin:
        match line.strip():
            case "long":
                print(spin(function, on, LONG), flush=True)
            case "quick":
                begin = time.monotonic()
                codes = spin(function, on, 0.00001), cu("cuStreamSynchronize", on)
                print("at once" if time.monotonic() - begin < LONG / 2 else "waits", *codes, flush=True)
            case "sync":
                print(cu("cuCtxSynchronize"), flush=True)
            case "stream":
                on = stream()
                print(0, flush=True)
            case "context":
                print(cu("cuCtxCreate_v2", out(ctypes.c_void_p)[1], 0, 0), flush=True)
                function, on = kernel(b"spin"), stream()
    os._exit(0)


def preemption():
    must(cu("cuInit", 0), "cuInit")
    processes = [child("spinner") for _ in range(2)]
    for process in processes:
        process.stdout.readline()
    first, second = processes

    def look(name, runs, asks):
        ask(runs, "long")
        # It has begun once the other is served beside it, or waits for it.
        fact(name, ask(asks, "quick"), "the kernel itself", ask(runs, "sync"))

    look("before", first, second)
    for call in (lock, checkpoint, restore, unlock):
        must(call(first.pid), call.__name__)
    look("restored_runs", first, second)
    look("restored_asks", second, first)
    ask(first, "stream")
    look("restored_runs_on_a_new_stream", first, second)
    ask(first, "context")
    look("restored_runs_in_a_new_context", first, second)
    for process in processes:
        process.stdin.close()
        process.wait(10)
