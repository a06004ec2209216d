"""Memory pools: whether a checkpoint carries one that is on the host, made or the driver's own; and memory that a graph has made."""

import ctypes
import struct
import sys

from api import DEVICE, HOST, HOST_NUMA, MIB, cu, must, out, start, stream
from checkpoint import checkpoint, lock, restore, state, unlock
from probe import ask, child, fact, heard, kill, told_by

# Seconds after which nothing more comes.
STUCK = 10
PINNED = 1
PLACES = {
    "device": (PINNED, DEVICE),
    "host": (PINNED, HOST),
    "numa": (PINNED, HOST_NUMA),
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
        elif verb == "graph":
            # A CUDA_MEM_ALLOC_NODE_PARAMS: memory that a graph makes when it is launched and nobody frees.
            graph, graph_ref = out(ctypes.c_void_p)
            node, node_ref = out(ctypes.c_void_p)
            ready, ready_ref = out(ctypes.c_void_p)
            wanted = struct.pack("<IIIiQQH54xQQQQ", PINNED, 0, DEVICE, 0, 0, 0, 0, 0, 0, 2 * MIB, 0)
            raw_params = ctypes.create_string_buffer(wanted, len(wanted))
            codes = [cu("cuGraphCreate", graph_ref, 0)]
            codes.append(cu("cuGraphAddMemAllocNode", node_ref, graph, None, 0, raw_params))
            at.value = struct.unpack("<Q", raw_params.raw[-8:])[0]
            codes.append(cu("cuGraphInstantiateWithFlags", ready_ref, graph, 0))
            codes += [cu("cuGraphLaunch", ready, on), cu("cuMemcpyHtoDAsync_v2", at.value, b"pool", 4, on), cu("cuStreamSynchronize", on)]
            print(*codes, flush=True)
        elif verb == "allocate":
            code = cu("cuMemAllocFromPoolAsync", ref, 2 * MIB, pool, on)
            print(code, cu("cuMemcpyHtoDAsync_v2", at.value, b"pool", 4, on), cu("cuStreamSynchronize", on), flush=True)
        else:
            print(cu("cuMemcpyDtoH_v2", raw, at.value, 4), raw.raw, flush=True)


def pool_cycle():
    """Takes a process through a cycle, and says how each step went: one may come to no end, and nobody else is to wait for it."""
    must(cu("cuInit", 0), "cuInit")
    pid = int(sys.stdin.readline())
    codes = []
    for step in (lock, checkpoint, restore, unlock):
        if step is restore and codes != [0, 0]:
            continue
        codes.append(step(pid))
        print(codes[-1], flush=True)
    print("state", state(pid)[1], flush=True)


def cycle(process, looks):
    told, ended = told_by(child("pool_cycle"), str(process.pid), STUCK)
    if not ended:
        return "cycle", *told, "stuck"
    after = ask(process, "look", STUCK) if looks and told[-3:-1] == ["0", "state"] else ""
    return "cycle", *told, after


def case(name, asks, looks):
    """A process that does what it is asked, until that fails, and is then taken through a cycle."""
    process = child("pool_victim")
    told = [heard(process, STUCK)]
    if told == ["ready"]:
        told = []
        for line in asks:
            told.append(ask(process, line, STUCK))
            if told[-1] != "0":
                break
        told += cycle(process, looks)
    fact(name, *told)
    kill(process)


def pools():
    case("graph", ["graph"], True)
    for how in ("made", "own"):
        for place in PLACES:
            for allocates in (False, True):
                asks = [f"pool {how} {place}"] + ["allocate"] * allocates
                case(f"{how}.{place}.{'allocated' if allocates else 'empty'}", asks, allocates)
