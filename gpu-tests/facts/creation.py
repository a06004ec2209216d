"""Error codes of creation, before and after initialisation, with and without a context; the device itself."""

import ctypes
import os
import sys
import threading

from api import (
    FD,
    G,
    HOST,
    HOST_NUMA,
    HOST_NUMA_CURRENT,
    PTX,
    READ_WRITE,
    create,
    cu,
    export,
    free_memory,
    grant,
    granted,
    must,
    new,
    out,
    properties_of,
    props,
    read,
    reserve,
    retain,
    room,
    start,
    write,
)
from probe import fact


def creates():
    """Error codes, with and without a context."""
    sizes = ctypes.c_uint64()
    must(cu("cuInit", 0), "cuInit")
    result = {}

    def table(label):
        for name, p in [
            ("device", props()),
            ("device_fd", props(handle_types=FD)),
            ("device_1", props(number=1)),
            ("device_9", props(number=9)),
            ("device_-1", props(number=-1)),
            ("host", props(HOST)),
            ("host_fd", props(HOST, 0, FD)),
            ("host_numa_0", props(HOST_NUMA)),
            ("host_numa_0_fd", props(HOST_NUMA, 0, FD)),
            ("host_numa_1", props(HOST_NUMA, 1)),
            ("host_numa_77", props(HOST_NUMA, 77)),
            ("host_numa_current", props(HOST_NUMA_CURRENT)),
            ("host_numa_current_fd", props(HOST_NUMA_CURRENT, 0, FD)),
            ("location_0", props(0)),
            ("location_99", props(99)),
            ("type_0", props(kind=0)),
            ("type_2", props(kind=2)),
            ("handle_types_2", props(handle_types=2)),
            ("handle_types_4", props(handle_types=4)),
            ("handle_types_8_fabric", props(handle_types=8)),
            ("handle_types_64", props(handle_types=64)),
            ("rdma", props(rdma=1)),
            ("device_fd_rdma", props(handle_types=FD, rdma=1)),
        ]:
            code, handle = create(G, p)
            grain = [
                cu("cuMemGetAllocationGranularity", ctypes.byref(sizes), p, 0),
                sizes.value,
                cu("cuMemGetAllocationGranularity", ctypes.byref(sizes), p, 1),
                sizes.value,
            ]
            fact(f"{label}.{name}", code, "granularity", grain, *([properties_of(handle)[1]] if code == 0 else []))
            if code == 0:
                result[name] = handle

    table("no_context")
    thread = {}

    def fresh():
        h, a = create(G), reserve(G)
        thread["codes"] = [
            h[0],
            a[0],
            cu("cuMemMap", a[1], G, 0, h[1], 0),
            grant(a[1], G),
            "DtoH",
            read(a[1], 4)[0],
            "HtoD",
            write(a[1], b"abcd"),
            "memset",
            cu("cuMemsetD8_v2", a[1], 0, 4),
            "export",
            export(h[1])[0],
            "retain",
            retain(a[1])[0],
            "getaccess",
            granted(a[1]),
            "range",
            cu("cuMemGetAddressRange_v2", out()[1], out()[1], a[1]),
            "unmap",
            cu("cuMemUnmap", a[1], G),
            cu("cuMemRelease", h[1]),
            cu("cuMemAddressFree", a[1], G),
        ]

    fresh()
    fact("whole_life_before_any_context", thread["codes"])
    context, ref = out(ctypes.c_void_p)
    must(cu("cuDevicePrimaryCtxRetain", ref, 0), "primary")
    fresh()
    fact("whole_life_with_primary_retained_not_current", thread["codes"])
    must(cu("cuCtxSetCurrent", context), "set")
    table("context")
    runner = threading.Thread(target=fresh)
    runner.start()
    runner.join()
    fact("whole_life_on_a_thread_without_context", thread["codes"])
    fact(
        "size_zero",
        create(0)[0],
        "unaligned",
        create(4096)[0],
        create(G + 1)[0],
        "size above the card",
        create(1 << 40)[0],
        "huge",
        create(1 << 62)[0],
    )
    for name in ("device", "host", "host_numa_0", "host_numa_0_fd", "host_numa_current"):
        if name not in result:
            continue
        handle = result[name]
        address = room(G)
        codes = [cu("cuMemMap", address, G, 0, handle, 0), "device", grant(address, G)]
        codes += ["device copies", write(address, b"abcd"), read(address, 4)[0]]
        codes += [
            "host",
            grant(address, G, (HOST, 0, READ_WRITE)),
            "numa 0",
            grant(address, G, (HOST_NUMA, 0, READ_WRITE)),
            "get",
            granted(address),
            granted(address, HOST),
            granted(address, HOST_NUMA),
        ]
        if name != "device" and 0 in codes[-6:-5] + codes[-4:-3]:
            codes += ["cpu reads", ctypes.string_at(address, 4)]
        attribute, ref = out(ctypes.c_uint32)
        codes += ["memory type", cu("cuPointerGetAttribute", ref, 2, address), attribute.value]
        fact(f"use_{name}", codes, "export", export(handle)[0])


def before_init():
    values = {}
    for name, args in [
        ("cuMemCreate", (out()[1], G, props(), 0)),
        ("cuMemRelease", (1,)),
        ("cuMemAddressReserve", (out()[1], G, 0, 0, 0)),
        ("cuMemImportFromShareableHandle", (out()[1], 5, 1)),
        ("cuCtxGetCurrent", (out()[1],)),
        ("cuDriverGetVersion", (out()[1],)),
        ("cuDeviceGetCount", (out()[1],)),
        ("cuDeviceGet", (out()[1], 0)),
        ("cuMemAlloc_v2", (out()[1], 64)),
        ("cuMemGetInfo_v2", (out()[1], out()[1])),
        ("cuStreamSynchronize", (None,)),
        ("cuCtxSynchronize", ()),
        ("cuMemGetAllocationGranularity", (out()[1], props(), 0)),
        ("cuGetErrorName", (1, out()[1])),
        ("cuGetProcAddress_v2", (b"cuInit", out()[1], 12000, 0, None)),
        ("cuCheckpointProcessGetState", (os.getpid(), out()[1])),
        ("cuMemCreate_null", ()),
    ]:
        if name != "cuMemCreate_null":
            values[name] = cu(name, *args)
    fact("codes", values)
    fact("init_flags_1", cu("cuInit", 1))
    must(cu("cuInit", 0), "cuInit")
    fact(
        "no_context",
        {
            name: cu(name, *args)
            for name, args in [
                ("cuMemAlloc_v2", (out()[1], 64)),
                ("cuMemFree_v2", (64,)),
                ("cuMemFree_v2 null", (0,)),
                ("cuMemGetInfo_v2", (out()[1], out()[1])),
                ("cuStreamSynchronize", (None,)),
                ("cuCtxSynchronize", ()),
                ("cuStreamQuery", (None,)),
                ("cuEventCreate", (out()[1], 0)),
                ("cuModuleLoadData", (out()[1], PTX)),
                ("cuCtxGetCurrent", (out()[1],)),
                ("cuCtxGetDevice", (out()[1],)),
                ("cuCtxPopCurrent_v2", (out()[1],)),
                ("cuMemcpyHtoD_v2", (64, b"abcd", 4)),
                ("cuMemHostAlloc", (out()[1], 4096, 0)),
                ("cuPointerGetAttribute", (out()[1], 2, 64)),
            ]
            if not name.endswith("null")
        },
    )
    pid = os.fork()
    if pid == 0:
        fact(
            "forked_child_after_init",
            "cuInit",
            cu("cuInit", 0),
            "create",
            create(G)[0],
            "count",
            cu("cuDeviceGetCount", out()[1]),
            "primary",
            cu("cuDevicePrimaryCtxRetain", out()[1], 0),
        )
        os._exit(0)
    os.waitpid(pid, 0)
    start()
    pid = os.fork()
    if pid == 0:
        fact(
            "forked_child_of_context",
            "cuInit",
            cu("cuInit", 0),
            "create",
            create(G)[0],
            "getcurrent",
            cu("cuCtxGetCurrent", out()[1]),
            "sync",
            cu("cuCtxSynchronize"),
            "alloc",
            cu("cuMemAlloc_v2", out()[1], 64),
            "version",
            cu("cuDriverGetVersion", out()[1]),
        )
        os._exit(0)
    os.waitpid(pid, 0)


def device():
    start()
    value, ref = out(ctypes.c_int)
    cu("cuDriverGetVersion", ref)
    fact("driver_version", value.value)
    name = ctypes.create_string_buffer(100)
    cu("cuDeviceGetName", name, 100, 0)
    fact("name", name.value.decode(), "python", sys.version.split()[0])
    values = []
    for number in range(1, 150):
        code = cu("cuDeviceGetAttribute", ref, number, 0)
        values.append(f"{number}={value.value if code == 0 else f'error{code}'}")
    fact("attributes", *values)
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    cu("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    fact("memory", "free", free.value, "total", total.value)
    before = free_memory()
    h = new(G)
    fact("create_2mib_uses", before - free_memory())
    cu("cuMemRelease", h)
    fact("release_gives_back", before - free_memory())
    numa, ref = out(ctypes.c_int)
    fact("host_numa_id", cu("cuDeviceGetAttribute", ref, 130, 0), numa.value)
