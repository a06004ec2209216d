"""Memory pools: whether a checkpoint carries one that is on the host, or managed, and the driver's own of such places."""

import ctypes
import struct
import sys

from api import DEVICE, HOST, HOST_NUMA, MIB, cu, must, out, start, stream
from checkpoint import checkpoint, lock, restore, state, unlock
from probe import ask, child, fact

PINNED, MANAGED = 1, 2
PLACES = {
    "device": (PINNED, DEVICE),
    "host": (PINNED, HOST),
    "numa": (PINNED, HOST_NUMA),
    "managed": (MANAGED, DEVICE),
}


def made(kind, location):
    """A CUmemPoolProps, for a pool without handle types."""
    pool, ref = out(ctypes.c_void_p)
    return cu("cuMemPoolCreate", ref, struct.pack("<IIIiQQH54x", kind, 0, location, 0, 0, 0, 0)), pool


def own(kind, location):
    pool, ref = out(ctypes.c_void_p)
    return cu("cuMemGetDefaultMemPool", ref, struct.pack("<Ii", location, 0), kind), pool


def pool_victim():
    """Holds a pool, and an allocation out of it if one is to be made, and says how that went."""
    start()
    print("ready", flush=True)
    at, ref = out()
    on, raw = stream(), ctypes.create_string_buffer(4)
    for line in sys.stdin:
        verb, *rest = line.split()
        if verb == "pool":
            code, pool = (made if rest[0] == "made" else own)(*PLACES[rest[1]])
            print(code, flush=True)
        elif verb == "allocate":
            code = cu("cuMemAllocFromPoolAsync", ref, 2 * MIB, pool, on)
            print(code, cu("cuMemcpyHtoDAsync_v2", at.value, b"pool", 4, on), cu("cuStreamSynchronize", on), flush=True)
        else:
            print(cu("cuMemcpyDtoH_v2", raw, at.value, 4), raw.raw, flush=True)


def pools():
    must(cu("cuInit", 0), "cuInit")
    for how in ("made", "own"):
        for place in PLACES:
            for allocates in (False, True):
                process = child("pool_victim")
                process.stdout.readline()
                told = [ask(process, f"pool {how} {place}")]
                if allocates and told == ["0"]:
                    told.append(ask(process, "allocate"))
                steps = [lock(process.pid), checkpoint(process.pid)]
                if steps == [0, 0]:
                    steps.append(restore(process.pid))
                steps.append(unlock(process.pid))
                after = ask(process, "look") if allocates and steps[-1] == 0 else ""
                fact(f"{how}.{place}.{'allocated' if allocates else 'empty'}", *told, "cycle", *steps, "state", state(process.pid)[1], after)
                process.kill()
                process.wait(30)
