#!/usr/bin/env python3
"""A PyTorch program under load, suspended and resumed many times at random moments.

The program replays a CUDA graph, copies from and to pinned memory, works on a second stream behind an event, and has a thread that asks
about events and memory like a watchdog. Every round leaves numbers that only this round can leave: a launch that was lost or
done twice, and a byte that is not what it should be, end it.

    python3 torch_load.py [SUSPENDS [SEED]]
"""

import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

DIST = pathlib.Path(__file__).resolve().parent.parent
TOOL = DIST / "bin/nvsnap-gpu-suspend"
LIBRARY = DIST / "lib/libnvsnap_gpushare.so"
SECONDS = 85
LOOK = 8
WORDS = 1 << 20


def program():
    """The program under load: `ready`, a line per look, and `end ROUNDS` after it was told to stop."""
    import torch

    device = torch.device("cuda")
    count = torch.zeros(1, dtype=torch.int64, device=device)
    source = torch.zeros(WORDS, dtype=torch.int32, device=device)
    result = torch.zeros(WORDS, dtype=torch.int32, device=device)
    weights = torch.randn(1024, 1024, device=device)
    hidden = torch.randn(1024, 1024, device=device)

    def work():
        torch.add(source, 7, out=result)
        torch.mm(weights, hidden)
        count.add_(1)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize()
    count.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    count.zero_()
    doubled = torch.zeros(LOOK, dtype=torch.int64, device=device)
    food = torch.zeros(LOOK, WORDS, dtype=torch.int32, pin_memory=True)
    seen = torch.zeros(LOOK, WORDS, dtype=torch.int32, pin_memory=True)
    counts = torch.zeros(LOOK, dtype=torch.int64, pin_memory=True)
    twice = torch.zeros(LOOK, dtype=torch.int64, pin_memory=True)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    watched = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for event in watched:
        event.record()
    torch.cuda.synchronize()
    dog = Watchdog(torch, watched)
    print("ready", flush=True)

    main = torch.cuda.current_stream()
    first, rounds = 1, 0
    while not stop.is_set():
        for rounds in range(first, first + LOOK):
            slot = rounds % LOOK
            food[slot].fill_(rounds)
            source.copy_(food[slot], non_blocking=True)
            graph.replay()
            counts[slot : slot + 1].copy_(count, non_blocking=True)
            seen[slot].copy_(result, non_blocking=True)
            done = torch.cuda.Event()
            done.record(main)
            with torch.cuda.stream(side):
                side.wait_event(done)
                doubled[slot : slot + 1].copy_(count * 2)
                twice[slot : slot + 1].copy_(doubled[slot : slot + 1], non_blocking=True)
                gone = torch.cuda.Event()
                gone.record(side)
            main.wait_event(gone)
        torch.cuda.synchronize()
        for number in range(first, first + LOOK):
            slot = number % LOOK
            expect("the count of replays", number, counts[slot].item(), number)
            expect("the count on the side stream", number, twice[slot].item(), 2 * number)
            expect("the words of the result", number, bool((seen[slot] == number + 7).all()), True)
        first += LOOK
        print("round", rounds, flush=True)
    print("watchdog:", dog.said(), flush=True)
    print("end", rounds, flush=True)
    os._exit(0)


def expect(what, number, found, wanted):
    if found != wanted:
        print(f"wrong: round {number}: {what} is {found}, not {wanted}", flush=True)
        os._exit(1)


class Watchdog(threading.Thread):
    """Asks again and again whether work is done, as the watchdog of a server does."""

    def __init__(self, torch, events):
        super().__init__(daemon=True)
        self.torch, self.events = torch, events
        self.asked, self.longest, self.wrong = 0, 0.0, None
        self.start()

    def run(self):
        try:
            self.elapsed = self.events[0].elapsed_time(self.events[1])
            while True:
                begin = time.monotonic()
                done = self.events[0].query()
                free, total = self.torch.cuda.mem_get_info()
                elapsed = self.events[0].elapsed_time(self.events[1])
                self.longest = max(self.longest, time.monotonic() - begin)
                self.asked += 1
                if not done or not 0 < free <= total or abs(elapsed - self.elapsed) > 0.01:
                    self.wrong = f"done {done}, {free} of {total} bytes, {elapsed} ms, not {self.elapsed}"
                time.sleep(0.005)
        except Exception as error:
            self.wrong = repr(error)

    def said(self):
        if self.wrong:
            print("wrong: a watchdog saw", self.wrong, flush=True)
            os._exit(1)
        return f"asked {self.asked} times, the longest answer took {self.longest:.2f} s"


class Program:
    """The process, and what it says."""

    def __init__(self):
        environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "program"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.rounds, self.lines, self.changed = 0, [], threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                if line.startswith("round "):
                    self.rounds = int(line.split()[1])
                else:
                    self.lines.append(line.strip())
                self.changed.notify_all()
        with self.changed:
            self.lines.append("closed")
            self.changed.notify_all()

    def wait(self, wanted, seconds):
        with self.changed:
            if not self.changed.wait_for(lambda: wanted() or "closed" in self.lines, seconds) or not wanted():
                raise SystemExit(f"the program does not go on; round {self.rounds}, it said {self.lines}")

    def goes_on(self):
        before = self.rounds
        self.wait(lambda: self.rounds > before, 20)

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def command(verb, pid):
    """Runs the command; the seconds it took."""
    begin = time.monotonic()
    done = subprocess.run([TOOL, verb, str(pid)], capture_output=True, text=True, timeout=40)
    if done.returncode:
        raise SystemExit(f"{verb} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - begin


def main():
    suspends = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    chance = random.Random(seed)
    print("seed", seed, flush=True)
    # Nothing that hangs outlives this.
    late = threading.Timer(SECONDS, lambda: (print(f"not done after {SECONDS} s", flush=True), target.kill(), os._exit(1)))
    target = Program()
    late.start()
    seconds = {"suspend": [], "resume": []}
    begin = time.monotonic()
    try:
        target.wait(lambda: "ready" in target.lines, 60)
        for _ in range(suspends):
            target.goes_on()
            time.sleep(chance.uniform(0, 0.05))
            for verb, took in seconds.items():
                took.append(command(verb, target.process.pid))
        target.goes_on()
        target.process.stdin.write("stop\n")
        target.process.stdin.flush()
        target.wait(lambda: any(line.startswith("end ") for line in target.lines), 20)
        if target.process.wait(10):
            raise SystemExit(f"the program ended with {target.process.returncode}")
    finally:
        target.kill()
        late.cancel()
    print(f"{suspends} suspends of a PyTorch program under load in {time.monotonic() - begin:.1f} s")
    print(*(line for line in target.lines if line not in ("ready", "closed")), sep="; ")
    for verb, took in seconds.items():
        print(f"{verb}: min {min(took):.2f} s, median {statistics.median(took):.2f} s, max {max(took):.2f} s")
    print("no replay was lost or done twice, and every byte was right.")


if __name__ == "__main__":
    program() if sys.argv[1:2] == ["program"] else main()
