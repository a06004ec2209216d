"""What waits for running work."""

import ctypes

from api import (
    DEVICE,
    G,
    MIB,
    NONE,
    PTX,
    create,
    cu,
    export,
    grant,
    kernel,
    must,
    new,
    out,
    read,
    reserve,
    room,
    spin,
    start,
    stream,
)
from probe import fact, mapped, timed


def work():
    """What waits for running work."""
    start()
    spinner, on = kernel(b"spin"), stream()
    must(spin(spinner, on, 0.001), "launch")
    must(cu("cuCtxSynchronize"), "sync")
    handle, address = mapped()
    spare_handle, spare = mapped()
    spare2 = room(G)
    raw, ref = out()
    must(cu("cuMemAlloc_v2", ref, 64 * MIB), "alloc")

    def while_running(name, call):
        spin(spinner, on, 0.4)
        value, seconds = timed(call)
        busy = cu("cuStreamQuery", on)
        cu("cuStreamSynchronize", on)
        fact(name, value, f"{seconds} s", "work still running" if busy == 600 else f"query {busy}")

    while_running("unmap", lambda: cu("cuMemUnmap", address, G))
    while_running("map", lambda: cu("cuMemMap", address, G, 0, handle, 0))
    while_running("setaccess", lambda: grant(address, G))
    while_running("setaccess_none", lambda: grant(address, G, (DEVICE, 0, NONE)))
    while_running("create", lambda: create(G)[0])
    while_running("unmap_released", lambda: [cu("cuMemRelease", spare_handle), cu("cuMemUnmap", spare, G)])
    while_running("release_unmapped", lambda: cu("cuMemRelease", new(G)))
    while_running("export", lambda: export(handle)[0])
    while_running("reserve_and_free", lambda: [cu("cuMemAddressFree", spare2, G), reserve(G)[0]])
    while_running("memfree", lambda: cu("cuMemFree_v2", raw.value))
    while_running("memalloc", lambda: cu("cuMemAlloc_v2", out()[1], 64 * MIB))
    while_running("module_load", lambda: cu("cuModuleLoadData", out(ctypes.c_void_p)[1], PTX))
    while_running("stream_create", lambda: cu("cuStreamCreate", out(ctypes.c_void_p)[1], 1))
    while_running("sync_copy_dtoh", lambda: (cu("cuMemAlloc_v2", ref, 4096), read(raw.value, 4))[1][0])
    # The kernel writes where memory was unmapped under it.
    fact("stream_query_idle", cu("cuStreamQuery", on))
