"""What disturbs a stream capture."""

import ctypes
import threading

from api import G, MIB, PTX, create, cu, export, grant, kernel, must, new, out, reserve, room, spin, start, stream
from probe import fact, mapped


def capture():
    context = start()
    on, other = stream(), stream()
    spinner = kernel(b"spin")
    spin(spinner, on, 0.0001)
    cu("cuCtxSynchronize")
    raw, ref = out()
    must(cu("cuMemAlloc_v2", ref, MIB), "alloc")
    event, ref = out(ctypes.c_void_p)
    must(cu("cuEventCreate", ref, 0), "event")
    cu("cuEventRecord", event, other)
    cu("cuCtxSynchronize")
    handle, address = mapped()
    spot = room(G)
    host = ctypes.create_string_buffer(64)
    o = lambda: ctypes.create_string_buffer(256)
    calls = {
        "cuMemcpyHtoD_v2": lambda: cu("cuMemcpyHtoD_v2", raw.value, host, 4),
        "cuMemcpyDtoH_v2": lambda: cu("cuMemcpyDtoH_v2", host, raw.value, 4),
        "cuMemcpyDtoD_v2": lambda: cu("cuMemcpyDtoD_v2", raw.value, raw.value + 64, 4),
        "cuMemsetD8_v2": lambda: cu("cuMemsetD8_v2", raw.value, 0, 4),
        "cuMemcpyHtoDAsync_v2.other_stream": lambda: cu("cuMemcpyHtoDAsync_v2", raw.value, host, 4, other),
        "cuMemcpyHtoDAsync_v2.null_stream": lambda: cu("cuMemcpyHtoDAsync_v2", raw.value, host, 4, None),
        "cuLaunchKernel.other_stream": lambda: spin(spinner, other, 0.000001),
        "cuCtxSynchronize": lambda: cu("cuCtxSynchronize"),
        "cuStreamSynchronize.other": lambda: cu("cuStreamSynchronize", other),
        "cuStreamSynchronize.capturing": lambda: cu("cuStreamSynchronize", on),
        "cuStreamSynchronize.null": lambda: cu("cuStreamSynchronize", None),
        "cuStreamQuery.other": lambda: cu("cuStreamQuery", other),
        "cuStreamQuery.capturing": lambda: cu("cuStreamQuery", on),
        "cuEventQuery": lambda: cu("cuEventQuery", event),
        "cuEventSynchronize": lambda: cu("cuEventSynchronize", event),
        "cuMemAlloc_v2": lambda: cu("cuMemAlloc_v2", o(), 4096),
        "cuMemFree_v2": lambda: (lambda v: [cu("cuMemFree_v2", v)])(SPARE.pop()),
        "cuMemHostAlloc": lambda: cu("cuMemHostAlloc", o(), 4096, 0),
        "cuMemCreate": lambda: create(G)[0],
        "cuMemMap": lambda: cu("cuMemMap", spot, G, 0, handle, 0),
        "cuMemSetAccess": lambda: grant(address, G),
        "cuMemUnmap": lambda: cu("cuMemUnmap", spot, G),
        "cuMemRelease": lambda: cu("cuMemRelease", HANDLES.pop()),
        "cuMemExport": lambda: export(handle)[0],
        "cuMemAddressReserve": lambda: reserve(G)[0],
        "cuMemGetInfo_v2": lambda: cu("cuMemGetInfo_v2", o(), o()),
        "cuModuleLoadData": lambda: cu("cuModuleLoadData", o(), PTX),
        "cuStreamCreate": lambda: cu("cuStreamCreate", o(), 1),
        "cuEventCreate": lambda: cu("cuEventCreate", o(), 0),
        "cuEventRecord.other": lambda: cu("cuEventRecord", event, other),
        "cuStreamIsCapturing": lambda: cu("cuStreamIsCapturing", on, o()),
        "cuPointerGetAttribute": lambda: cu("cuPointerGetAttribute", o(), 2, raw.value),
    }
    SPARE = []
    for _ in range(12):
        v, ref = out()
        cu("cuMemAlloc_v2", ref, 4096)
        SPARE.append(v.value)
    HANDLES = [new(G) for _ in range(12)]

    def one(mode, call, elsewhere):
        must(cu("cuStreamBeginCapture_v2", on, mode), "begin")
        spin(spinner, on, 0.000001)
        result = []
        if elsewhere:

            def body():
                cu("cuCtxSetCurrent", context)
                result.append(call())

            thread = threading.Thread(target=body)
            thread.start()
            thread.join(5)
            if thread.is_alive():
                result.append("stuck")
        else:
            result.append(call())
        status, ref = out(ctypes.c_int)
        cu("cuStreamIsCapturing", on, ref)
        graph, ref = out(ctypes.c_void_p)
        end = cu("cuStreamEndCapture", on, ref)
        if graph.value:
            cu("cuGraphDestroy", graph)
        return result[0], {0: "ended", 1: "capture goes on", 2: "capture invalidated"}[status.value], end

    for mode, label in ((0, "global"), (1, "thread_local"), (2, "relaxed")):
        for name, call in calls.items():
            fact(f"{label}.{name}", one(mode, call, False))
    cu("cuMemUnmap", spot, G)
    for mode, label in ((0, "global"), (1, "thread_local"), (2, "relaxed")):
        for name in (
            "cuMemAlloc_v2",
            "cuCtxSynchronize",
            "cuMemcpyHtoD_v2",
            "cuMemCreate",
            "cuStreamQuery.other",
            "cuStreamSynchronize.other",
            "cuMemGetInfo_v2",
        ):
            fact(f"{label}.from_another_thread.{name}", one(mode, calls[name], True))

    def relaxed_thread(call):
        def body():
            mode = ctypes.c_int(2)
            codes = [cu("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode)), mode.value, call()]
            return [codes, cu("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))]

        return body

    for name in ("cuMemAlloc_v2", "cuMemCreate", "cuCtxSynchronize", "cuMemcpyHtoD_v2", "cuStreamSynchronize.other"):
        fact(f"global.thread_made_relaxed.{name}", one(0, relaxed_thread(calls[name]), False))
    fact("after_all", cu("cuCtxSynchronize"))
