"""What every section uses: how a fact is printed, and processes that do as they are told."""

import os
import select
import subprocess
import sys
import time

from api import G, cu, grant, must, new, room

MAIN = os.path.dirname(os.path.abspath(__file__))
SECTION = ""


def fact(name, *values):
    print(f"FACT {SECTION}.{name}:", *values, flush=True)


def mapped(size=G, properties=None):
    """A fresh allocation, mapped with access for device 0: (handle, address)."""
    handle, address = new(size, properties), room(size)
    must(cu("cuMemMap", address, size, 0, handle, 0), "cuMemMap")
    must(grant(address, size), "cuMemSetAccess")
    return handle, address


def timed(call):
    begin = time.monotonic()
    value = call()
    return value, round(time.monotonic() - begin, 4)


def child(*arguments, **options):
    """This program again, talking over pipes."""
    return subprocess.Popen(
        [sys.executable, MAIN, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    )


def heard(process, timeout=20):
    ready, _, _ = select.select([process.stdout], [], [], timeout)
    return process.stdout.readline().strip() if ready else "no answer"


def ask(process, line, timeout=20):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return heard(process, timeout)


def told_by(process, line, timeout):
    """The words that a process which is told this says until it ends, and whether it ended in time. One that is late is killed."""
    try:
        return process.communicate(line + "\n", timeout)[0].split(), True
    except subprocess.TimeoutExpired:
        process.kill()
    try:
        return process.communicate(timeout=5)[0].split(), False
    except subprocess.TimeoutExpired:
        # The kernel cannot end it either.
        return [], False


def kill(process):
    """Ends a process, or leaves one alone that the kernel cannot end."""
    process.kill()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        pass
