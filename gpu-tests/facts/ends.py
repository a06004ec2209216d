"""What ends with the context that it was made in: seen from another context of the same device."""

import ctypes

from api import MIB, cu, must, out, start
from malloc import alloc, attribute, opened
from probe import ask, child, fact

MEMORY_TYPE = 2


def ends():
    primary = start()
    process = child("ipc_peer")
    ask(process, f"make {4 * MIB}")
    raw = bytes.fromhex(ask(process, "handle 0").split()[1])
    for how in ("opened", "host", "malloc", "pool"):
        own, ref = out(ctypes.c_void_p)
        must(cu("cuCtxCreate_v2", ref, 0, 0), "cuCtxCreate")
        at, place = out()
        if how == "opened":
            code, address = opened(raw)
        elif how == "malloc":
            code, address = alloc(MIB)
        else:
            code = {
                "host": lambda: cu("cuMemHostAlloc", place, MIB, 0),
                "pool": lambda: cu("cuMemAllocAsync", place, MIB, None) or cu("cuCtxSynchronize"),
            }[how]()
            address = at.value
        before = attribute(MEMORY_TYPE, address)
        gone = cu("cuCtxDestroy_v2", own), cu("cuCtxSetCurrent", primary)
        after = attribute(MEMORY_TYPE, address)
        back = {"opened": "cuIpcCloseMemHandle", "host": "cuMemFreeHost"}.get(how, "cuMemFree_v2")
        fact(how, code, "before", before, "destroyed", *gone, "after", after[0], back, cu(back, address))
    process.stdin.close()
    process.wait(30)
