"""Four PyTorch processes with 2 GiB each: the driver's own checkpoint of all of them at once, beside the command.

Usage: torch_four.py [PROCESSES [GIB]]. Needs PyTorch and a GPU; everything else comes from this folder of `make dist`.
Prints rows for docs/BENCHMARKS.md, and ends with 0 only if every process has all its numbers afterwards.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

DIST = pathlib.Path(__file__).resolve().parents[1]
# How long a process may take for an answer, in seconds. Importing PyTorch cold is slow.
PATIENCE = 120


def work(gib):
    """The process under test: numbers that look like chance, and their sum whenever it is asked."""
    import torch

    blocks = [torch.randint(0, 1 << 30, (1 << 26,), device="cuda", dtype=torch.int32) for _ in range(4 * gib)]
    torch.cuda.synchronize()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(sum(int(block.sum(dtype=torch.int64)) for block in blocks), flush=True)


class Worker:
    """One of the processes."""

    def __init__(self, gib, environment):
        command = [sys.executable, __file__, "--work", str(gib)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True, **pipes)
        self.pid = self.process.pid

    def line(self):
        with ThreadPoolExecutor(1) as reader:
            line = reader.submit(self.process.stdout.readline).result(PATIENCE).strip()
        if not line:
            raise RuntimeError(f"process {self.pid} ended")
        return line

    def sum(self):
        self.process.stdin.write("sum\n")
        self.process.stdin.flush()
        return self.line()

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def timed(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def driver_alone(pids):
    """Seconds for lock and checkpoint of all at once, and for restore and unlock."""
    cuda = ctypes.CDLL("libcuda.so.1")
    lock = (ctypes.c_uint32 * 16)(10_000)

    def all_at_once(name, arguments):
        call = getattr(cuda, f"cuCheckpointProcess{name}")
        with ThreadPoolExecutor(len(pids)) as pool:
            codes = list(pool.map(lambda pid: call(pid, arguments), pids))
        if any(codes):
            raise RuntimeError(f"{name}: {codes}")

    if cuda.cuInit(0):
        raise RuntimeError("cuInit")
    out = timed(lambda: (all_at_once("Lock", lock), all_at_once("Checkpoint", None)))
    return out, timed(lambda: (all_at_once("Restore", None), all_at_once("Unlock", None)))


def command(pids):
    """Seconds for `suspend` and for `resume`, whole commands, with the seconds of each phase."""

    def run(verb):
        words = [DIST / "bin/nvsnap-gpu-suspend", "--json", verb, *map(str, pids)]
        output = subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
        events = [json.loads(line) for line in output.splitlines()]
        ends = [event for event in events if event.get("event") == "end"]
        print(verb, "  ".join(f"{event['stage']} {event['seconds']:.3f}" for event in ends), flush=True)

    return timed(lambda: run("suspend")), timed(lambda: run("resume"))


def measure(what, count, gib, environment, cycles, cycle):
    """Starts the processes, takes them through some cycles, and looks at their numbers after each."""
    workers = [Worker(gib, environment) for _ in range(count)]
    try:
        for worker in workers:
            worker.line()
        sums = [worker.sum() for worker in workers]
        for number in range(1, cycles + 1):
            out, back = cycle([worker.pid for worker in workers])
            if [worker.sum() for worker in workers] != sums:
                raise RuntimeError(f"{what}: numbers changed in cycle {number}")
            print(f"| {what}, cycle {number} | {count} x {gib} GiB | {out:.2f} s | {back:.2f} s |", flush=True)
        for worker in workers:
            worker.end()
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.terminate()


def main():
    if sys.argv[1:2] == ["--work"]:
        return work(int(sys.argv[2]))
    count, gib = (list(map(int, sys.argv[1:])) + [4, 2][len(sys.argv) - 1 :])[:2]
    measure("PyTorch, the driver alone", count, gib, {}, 1, driver_alone)
    library = str(DIST / "lib/libnvsnap_gpushare.so")
    measure("PyTorch, in place", count, gib, {"LD_PRELOAD": library}, 2, command)


if __name__ == "__main__":
    main()
