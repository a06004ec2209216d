"""Real frameworks on a real GPU, each through five suspends and resumes with its contents checked after each.

    python3 frameworks.py [PART...]

A part is one program, or two that share memory, in a process group of its own. It says `ready` with its pids; then each
`check` changes what it has on the GPU, looks at every byte, and says `ok`. All parts run at the same time. Needs the folder that
`make dist` lays out, and no network.
"""

import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = HERE.parent / "lib" / "libnvsnap_gpushare.so"
TOOL = HERE.parent / "bin" / "nvsnap-gpu-suspend"
CYCLES = 5
# Importing a framework for the first time reads a lot.
START_SECONDS = 80
WORK_SECONDS = 60
WORDS = 1 << 20


# What the programs do. Each runs in a process of its own, with the library in front of the driver.


def obey(pids, check):
    """Says `ready`, and answers each line until the input ends."""
    print("ready", *pids, flush=True)
    for number, _ in enumerate(sys.stdin, 1):
        problem = check(number)
        print(f"wrong: {problem}" if problem else "ok", flush=True)


def differs(found, expected, who):
    """What a user is told, or nothing where two arrays are equal."""
    wrong = int((found != expected).sum())
    return f"{who} sees {wrong} wrong words" if wrong else None


def in_pair(other, start, mine, look):
    """Two processes change one memory in turn: the other adds 2, this one adds 1, and both look at all of it.

    `other(handle, link)` runs in the second process; `start()` gives what it is handed."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    # Kept: a queue takes its semaphores along when it goes, before the other has opened them.
    handed = start(context)
    process = context.Process(target=other, args=(handed, theirs), daemon=True)
    process.start()
    # So that the end of the other is seen here.
    theirs.close()

    def check(number):
        mine()
        ours.send(3 * (number - 1) + 1)
        problem = ours.recv()
        return problem or look(3 * number)

    ours.recv()
    obey([os.getpid(), process.pid], check)
    ours.send(None)
    process.join(10)


def answer_pair(link, look, change):
    """The second process of a pair."""
    link.send("here")
    while (added := link.recv()) is not None:
        problem = look(added)
        change()
        link.send(problem)


def torch_sharing():
    import torch
    import torch.multiprocessing  # Teaches pickle to hand over tensors.

    tensor = torch.arange(WORDS, dtype=torch.int32, device="cuda")
    expected = torch.arange(WORDS, dtype=torch.int32)

    def start(context):
        handed = context.Queue()
        handed.put(tensor)
        return handed

    def mine():
        tensor.add_(1)
        torch.cuda.synchronize()

    in_pair(torch_other, start, mine, lambda added: differs(tensor.cpu(), expected + added, "the exporter"))


def torch_other(handed, link):
    import torch

    tensor = handed.get()
    expected = torch.arange(WORDS, dtype=torch.int32)

    def change():
        tensor.add_(2)
        torch.cuda.synchronize()

    answer_pair(link, lambda added: differs(tensor.cpu(), expected + added, "the importer"), change)


def cupy_array(memory):
    import cupy

    return cupy.ndarray((WORDS,), dtype=cupy.int32, memptr=cupy.cuda.MemoryPointer(memory, 0))


def cupy_ipc():
    import cupy
    import numpy

    # A cudaMalloc of its own, not a piece of the pool: a handle stands for the whole.
    array = cupy_array(cupy.cuda.Memory(WORDS * 4))
    expected = numpy.arange(WORDS, dtype=numpy.int32)
    array.set(expected)
    handle = cupy.cuda.runtime.ipcGetMemHandle(array.data.ptr)

    def mine():
        nonlocal array
        array += 1
        cupy.cuda.runtime.deviceSynchronize()

    in_pair(cupy_other, lambda _: handle, mine, lambda added: differs(array.get(), expected + added, "the exporter"))


def cupy_other(handle, link):
    import cupy
    import numpy

    address = cupy.cuda.runtime.ipcOpenMemHandle(handle)
    array = cupy_array(cupy.cuda.UnownedMemory(address, WORDS * 4, None))
    expected = numpy.arange(WORDS, dtype=numpy.int32)

    def change():
        nonlocal array
        array += 2
        cupy.cuda.runtime.deviceSynchronize()

    answer_pair(link, lambda added: differs(array.get(), expected + added, "the importer"), change)
    cupy.cuda.runtime.ipcCloseMemHandle(address)


def jax_alone():
    import jax
    import numpy

    if jax.default_backend() != "gpu":
        raise SystemExit("jax finds no GPU")
    expected = numpy.arange(WORDS, dtype=numpy.int32)
    state = {"array": jax.device_put(expected)}
    add = jax.jit(lambda array: array + 5)

    def check(number):
        state["array"] = add(state["array"]).block_until_ready()
        return differs(numpy.asarray(state["array"]), expected + 5 * number, "jax")

    obey([os.getpid()], check)


def triton_kernel():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(pointer, count, value, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        words = tl.load(pointer + at, mask=at < count)
        tl.store(pointer + at, words + value, mask=at < count)

    tensor = torch.arange(WORDS, dtype=torch.int32, device="cuda")
    expected = torch.arange(WORDS, dtype=torch.int32)

    def check(number):
        add[(triton.cdiv(WORDS, 1024),)](tensor, WORDS, 7, BLOCK=1024)
        torch.cuda.synchronize()
        return differs(tensor.cpu(), expected + 7 * number, "the kernel")

    check(0)
    tensor.sub_(7)
    obey([os.getpid()], check)


# What drives them.


class Failed(Exception):
    """A part that did not do what it should, in a sentence."""


class Program:
    """A program that answers lines, in a session of its own."""

    def __init__(self, command, folder):
        environment = dict(os.environ, LD_PRELOAD=str(LIBRARY), XLA_PYTHON_CLIENT_PREALLOCATE="false")
        environment.update(TRITON_CACHE_DIR=str(folder / "triton"), CUPY_CACHE_DIR=str(folder / "cupy"))
        self.errors = open(folder / "stderr", "w+")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            text=True,
            start_new_session=True,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def answer(self, deadline):
        try:
            line = self.lines.get(timeout=max(deadline - time.monotonic(), 0))
        except queue.Empty:
            raise Failed(f"it does not answer in time: {self.said()}") from None
        if line is None:
            raise Failed(f"it ended: {self.said()}")
        return line

    def said(self):
        """The last of what it said about errors."""
        self.errors.seek(0)
        return " / ".join(self.errors.read().strip().splitlines()[-4:]) or "without a word"

    def ask(self, line, deadline):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer(deadline)

    def end(self):
        """Lets it end by itself: a restored process should not be killed while it lives."""
        try:
            self.process.stdin.close()
            self.process.wait(15)
        except (OSError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def run_tool(verb, pids, deadline):
    seconds = max(deadline - time.monotonic(), 1)
    try:
        done = subprocess.run(
            [TOOL, verb, *pids], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{verb} does not end") from None
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Failed(f"{verb} ended with {done.returncode}: {' '.join(last)}")


def cycles(command, folder):
    """Starts a program and takes it through the cycles. What was measured comes back as text."""
    program = Program(command, folder)
    try:
        ready = program.answer(time.monotonic() + START_SECONDS).split()
        if ready[:1] != ["ready"]:
            raise Failed(" ".join(ready))
        pids, times = ready[1:], {"suspend": 0.0, "resume": 0.0}
        deadline = time.monotonic() + WORK_SECONDS
        for cycle in range(CYCLES + 1):
            answer = program.ask("check", deadline)
            if answer != "ok":
                raise Failed(f"after {cycle} cycles: {answer}")
            if cycle == CYCLES:
                break
            for verb in times:
                begun = time.monotonic()
                run_tool(verb, pids, deadline)
                times[verb] += time.monotonic() - begun
        spent = ", ".join(f"{verb} {seconds / CYCLES:.2f} s" for verb, seconds in times.items())
        return f"{len(pids)} process(es), {CYCLES} cycles, {spent}"
    finally:
        program.end()


def of_framework(name):
    return lambda folder: cycles([sys.executable, str(HERE / "frameworks.py"), "program", name], folder)


def static_cudart(folder):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        raise Failed("nvcc is missing")
    program = folder / "static_cudart"
    built = subprocess.run(
        [nvcc, "-O1", "-cudart", "static", "-arch=native", "-o", program, HERE / "static_cudart.cu"],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    if built.returncode:
        raise Failed(f"nvcc: {(built.stderr or built.stdout).strip().splitlines()[-1:]}")
    return cycles([str(program)], folder)


def pointer_attributes(_):
    """Every pointer attribute of eight sizes, without the library and with it."""
    texts = []
    for preload in ("", str(LIBRARY)):
        done = subprocess.run(
            [sys.executable, str(HERE / "attributes.py")],
            env=dict(os.environ, LD_PRELOAD=preload),
            capture_output=True,
            text=True,
            timeout=WORK_SECONDS,
        )
        if done.returncode:
            raise Failed(f"the dump failed: {done.stderr.strip().splitlines()[-1:]}")
        texts.append(done.stdout.splitlines())
    native, shimmed = texts
    wrong = [f"{a} / {b}" for a, b in zip(native, shimmed) if a != b]
    if wrong or len(native) != len(shimmed):
        raise Failed(f"{len(wrong)} of {len(native)} answers differ, native / with the library: {'; '.join(wrong[:4])}")
    return f"{len(native)} answers are equal"


PROGRAMS = {"torch": torch_sharing, "cupy": cupy_ipc, "jax": jax_alone, "triton": triton_kernel}
PARTS = {name: of_framework(name) for name in PROGRAMS}
PARTS.update({"static-cudart": static_cudart, "attributes": pointer_attributes})


def main(names):
    results = {}

    def play(name):
        with tempfile.TemporaryDirectory(prefix=f"frameworks-{name}-") as folder:
            try:
                results[name] = (True, PARTS[name](pathlib.Path(folder)))
            except Failed as why:
                results[name] = (False, str(why))
            except (OSError, subprocess.SubprocessError) as why:
                results[name] = (False, repr(why))

    threads = {name: threading.Thread(target=play, args=(name,)) for name in names or PARTS}
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join()
        good, text = results.get(name, (False, "it was not finished"))
        print(f"{'ok    ' if good else 'FAILED'} {name}: {text}", flush=True)
    return 0 if all(results.get(name, (False,))[0] for name in threads) else 1


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["program"]:
        PROGRAMS[arguments[1]]()
    elif unknown := [name for name in arguments if name not in PARTS]:
        raise SystemExit(f"no such part: {' '.join(unknown)}; there are {' '.join(PARTS)}")
    else:
        sys.exit(main(arguments))
