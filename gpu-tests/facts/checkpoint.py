"""The checkpoint API: order, odd pids, and which calls wait in which state."""

import ctypes
import mmap
import os
import struct
import subprocess
import sys
import threading

from api import (
    G,
    MIB,
    PTX,
    create,
    cu,
    export,
    grant,
    granted,
    kernel,
    must,
    out,
    properties_of,
    props,
    retain,
    room,
    spin,
    start,
    stream,
)
from probe import MAIN, ask, child, fact, mapped, timed


def lock(pid, timeout_ms=5000):
    return cu("cuCheckpointProcessLock", pid, struct.pack("<IIQQQQQQQ", timeout_ms, 0, 0, 0, 0, 0, 0, 0, 0))


def checkpoint(pid):
    return cu("cuCheckpointProcessCheckpoint", pid, None)


def restore(pid):
    return cu("cuCheckpointProcessRestore", pid, None)


def unlock(pid):
    return cu("cuCheckpointProcessUnlock", pid, None)


def state(pid):
    value, ref = out(ctypes.c_int)
    return cu("cuCheckpointProcessGetState", pid, ref), value.value


def victim_calls():
    """Name -> call, in a process that has all it needs."""
    context = start()
    on, other = stream(), stream()
    spinner = kernel(b"spin")
    handle, address = mapped()
    raw, ref = out()
    must(cu("cuMemAlloc_v2", ref, MIB), "alloc")
    event, ref = out(ctypes.c_void_p)
    must(cu("cuEventCreate", ref, 0), "event")
    must(cu("cuEventRecord", event, on), "record")
    event2, ref = out(ctypes.c_void_p)
    must(cu("cuEventCreate", ref, 0), "event")
    must(cu("cuEventRecord", event2, on), "record")
    spin(spinner, on, 0.001)
    must(cu("cuCtxSynchronize"), "sync")
    host = ctypes.create_string_buffer(4096)
    o = lambda: ctypes.create_string_buffer(256)
    spot = room(G)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    calls = {
        "cuCtxSetCurrent": lambda: cu("cuCtxSetCurrent", context),
        "cuInit": lambda: cu("cuInit", 0),
        "cuDriverGetVersion": lambda: cu("cuDriverGetVersion", o()),
        "cuGetErrorName": lambda: cu("cuGetErrorName", 1, o()),
        "cuGetProcAddress_v2": lambda: cu("cuGetProcAddress_v2", b"cuMemAlloc", o(), 12000, 0, None),
        "cuDeviceGetCount": lambda: cu("cuDeviceGetCount", o()),
        "cuDeviceGet": lambda: cu("cuDeviceGet", o(), 0),
        "cuDeviceGetAttribute": lambda: cu("cuDeviceGetAttribute", o(), 16, 0),
        "cuDeviceGetName": lambda: cu("cuDeviceGetName", o(), 100, 0),
        "cuDeviceGetUuid_v2": lambda: cu("cuDeviceGetUuid_v2", o(), 0),
        "cuDeviceTotalMem_v2": lambda: cu("cuDeviceTotalMem_v2", o(), 0),
        "cuDeviceCanAccessPeer": lambda: cu("cuDeviceCanAccessPeer", o(), 0, 0),
        "cuDevicePrimaryCtxGetState": lambda: cu("cuDevicePrimaryCtxGetState", 0, o(), o()),
        "cuDevicePrimaryCtxRetain": lambda: cu("cuDevicePrimaryCtxRetain", o(), 0),
        "cuCtxGetCurrent": lambda: cu("cuCtxGetCurrent", o()),
        "cuCtxGetDevice": lambda: cu("cuCtxGetDevice", o()),
        "cuCtxPushCurrent_v2": lambda: cu("cuCtxPushCurrent_v2", context),
        "cuCtxPopCurrent_v2": lambda: (cu("cuCtxPushCurrent_v2", context), cu("cuCtxPopCurrent_v2", o()))[1],
        "cuCtxGetApiVersion": lambda: cu("cuCtxGetApiVersion", context, o()),
        "cuCtxGetLimit": lambda: cu("cuCtxGetLimit", o(), 0),
        "cuCtxGetStreamPriorityRange": lambda: cu("cuCtxGetStreamPriorityRange", o(), o()),
        "cuCtxSynchronize": lambda: cu("cuCtxSynchronize"),
        "cuStreamQuery": lambda: cu("cuStreamQuery", on),
        "cuStreamSynchronize": lambda: cu("cuStreamSynchronize", on),
        "cuStreamIsCapturing": lambda: cu("cuStreamIsCapturing", on, o()),
        "cuStreamGetFlags": lambda: cu("cuStreamGetFlags", on, o()),
        "cuStreamCreate": lambda: cu("cuStreamCreate", o(), 1),
        "cuStreamWaitEvent": lambda: cu("cuStreamWaitEvent", other, event, 0),
        "cuThreadExchangeStreamCaptureMode": lambda: cu(
            "cuThreadExchangeStreamCaptureMode", ctypes.byref(ctypes.c_int(2))
        ),
        "cuEventQuery": lambda: cu("cuEventQuery", event),
        "cuEventSynchronize": lambda: cu("cuEventSynchronize", event),
        "cuEventElapsedTime": lambda: cu("cuEventElapsedTime_v2", o(), event, event2),
        "cuEventRecord": lambda: cu("cuEventRecord", event2, on),
        "cuEventCreate": lambda: cu("cuEventCreate", o(), 0),
        "cuPointerGetAttribute": lambda: cu("cuPointerGetAttribute", o(), 2, raw.value),
        "cuPointerGetAttribute_vmm": lambda: cu("cuPointerGetAttribute", o(), 9, address),
        "cuMemGetAddressRange_v2": lambda: cu("cuMemGetAddressRange_v2", o(), o(), raw.value),
        "cuMemGetInfo_v2": lambda: cu("cuMemGetInfo_v2", o(), o()),
        "cuMemAlloc_v2": lambda: cu("cuMemAlloc_v2", o(), 4096),
        "cuMemFree_v2_null": lambda: cu("cuMemFree_v2", 0),
        "cuMemAllocAsync": lambda: cu("cuMemAllocAsync", o(), 4096, on),
        "cuMemHostAlloc": lambda: cu("cuMemHostAlloc", o(), 4096, 0),
        "cuMemHostRegister_v2": lambda: (
            lambda b: [cu("cuMemHostRegister_v2", b, 4096, 0), cu("cuMemHostUnregister", b)]
        )(ctypes.c_void_p(ctypes.addressof(mmap_page()))),
        "cuMemCreate": lambda: create(G)[0],
        "cuMemGetAllocationGranularity": lambda: cu("cuMemGetAllocationGranularity", o(), props(), 0),
        "cuMemGetAllocationPropertiesFromHandle": lambda: properties_of(handle)[0],
        "cuMemAddressReserve": lambda: cu("cuMemAddressReserve", o(), G, 0, 0, 0),
        "cuMemMap": lambda: [cu("cuMemMap", spot, G, 0, handle, 0), cu("cuMemUnmap", spot, G)],
        "cuMemSetAccess": lambda: grant(address, G),
        "cuMemGetAccess": lambda: granted(address),
        "cuMemRetainAllocationHandle": lambda: retain(address)[0],
        "cuMemExportToShareableHandle": lambda: export(handle)[0],
        "cuMemcpyDtoH_v2": lambda: cu("cuMemcpyDtoH_v2", host, raw.value, 4),
        "cuMemcpyHtoD_v2": lambda: cu("cuMemcpyHtoD_v2", raw.value, host, 4),
        "cuMemcpyHtoDAsync_v2": lambda: cu("cuMemcpyHtoDAsync_v2", raw.value, host, 4, on),
        "cuMemsetD8_v2": lambda: cu("cuMemsetD8_v2", raw.value, 0, 4),
        "cuLaunchKernel": lambda: spin(spinner, on, 0.000001),
        "cuLaunchHostFunc": lambda: cu("cuLaunchHostFunc", on, callback, None),
        "cuModuleLoadData": lambda: cu("cuModuleLoadData", o(), PTX),
        "cuGraphCreate": lambda: cu("cuGraphCreate", o(), 0),
        "cuIpcGetMemHandle": lambda: cu("cuIpcGetMemHandle", o(), raw.value),
        "cuMemPoolCreate": lambda: cu("cuMemPoolCreate", o(), props() + b"\0" * 88),
        "cuDeviceGetDefaultMemPool": lambda: cu("cuDeviceGetDefaultMemPool", o(), 0),
        "cuCheckpointProcessGetState_self": lambda: state(os.getpid()),
    }
    return context, calls, (spinner, on, callback)


PAGES = []


def mmap_page():
    PAGES.append(mmap.mmap(-1, 4096))
    return ctypes.c_char.from_buffer(PAGES[-1])


def victim():
    """Reads names of calls; does each on a thread of its own and says what came within the wait, or `blocks`."""
    context, calls, (spinner, on, _) = victim_calls()
    obey(calls, lambda: cu("cuCtxSetCurrent", context), spin=lambda seconds: spin(spinner, on, seconds))


def obey(calls, enter, spin=None):
    """Does what a line says. `enter` makes the context a thread's own."""
    results, threads = {}, {}
    print("ready", *calls, flush=True)
    for line in sys.stdin:
        verb, _, argument = line.strip().partition(" ")
        if verb == "prepare":
            # The thread makes its context current while the process still runs, then waits to be told.
            go = threading.Event()
            settled = threading.Event()

            def body(name=argument, go=go, settled=settled):
                enter()
                settled.set()
                go.wait()
                results[name] = calls[name]()

            thread = threading.Thread(target=body, daemon=True)
            thread.start()
            settled.wait()
            threads[argument] = (thread, go)
            print("prepared", flush=True)
        elif verb == "call":
            thread, go = threads[argument]
            go.set()
            thread.join(WAIT)
            print(results.get(argument, "blocks"), flush=True)
        elif verb == "late":
            thread, _ = threads[argument]
            thread.join(10)
            print(results.get(argument, "still blocked"), flush=True)
        elif verb == "spin":
            print(spin(float(argument)), flush=True)
        elif verb == "sync":
            print(cu("cuCtxSynchronize"), flush=True)
        elif verb == "end":
            print("bye", flush=True)
            os._exit(0)


WAIT = 0.25


def start_victim(helper="victim"):
    process = child(helper)
    names = process.stdout.readline().split()[1:]
    return process, names


def blocks(full, helper="victim"):
    must(cu("cuInit", 0), "cuInit")
    process, names = start_victim(helper)
    if not names:
        return fact("victim", "does not start")
    pid = process.pid
    for name in names:
        ask(process, f"prepare {name}")
        codes = [lock(pid)]
        if full:
            codes.append(checkpoint(pid))
        answer = ask(process, f"call {name}", 8)
        if full:
            codes.append(restore(pid))
        codes.append(unlock(pid))
        late = ask(process, f"late {name}", 15) if answer == "blocks" else ""
        if answer:
            fact(name, answer, *([f"after unlock {late}"] if late else []))
        else:
            fact(name, "ends the process")
        if any(codes) or answer == "no answer":
            fact("gave_up_on_victim", state(pid))
            process.kill()
            process.wait()
            process, _ = start_victim(helper)
            pid = process.pid
    ask(process, "end")
    process.wait(10)


def blocks_locked():
    blocks(False)


def blocks_checkpointed():
    blocks(True)


def locking():
    """What Lock does with running work, with wrong order, and with odd pids."""
    must(cu("cuInit", 0), "cuInit")
    process, _ = start_victim()
    pid = process.pid
    fact(
        "order_from_running",
        "checkpoint",
        checkpoint(pid),
        "restore",
        restore(pid),
        "unlock",
        unlock(pid),
        "state",
        state(pid),
    )
    fact(
        "lock_twice",
        lock(pid),
        lock(pid),
        "restore while locked",
        restore(pid),
        "unlock",
        unlock(pid),
        "state",
        state(pid),
    )
    fact("spin", ask(process, "spin 1.0"))
    fact("lock_with_work_1s_timeout_100ms", timed(lambda: lock(pid, 100)), state(pid))
    if state(pid)[1] == 1:
        fact("unlock", unlock(pid))
    ask(process, "sync")
    ask(process, "spin 1.0")
    fact("lock_with_work_1s_timeout_0", timed(lambda: lock(pid, 0)), state(pid))
    fact("checkpoint_right_after", timed(lambda: checkpoint(pid)), state(pid))
    fact(
        "checkpoint_twice",
        checkpoint(pid),
        "unlock while checkpointed",
        unlock(pid),
        "lock while checkpointed",
        lock(pid),
        state(pid),
    )
    fact("restore", timed(lambda: restore(pid)), "restore twice", restore(pid), state(pid), "unlock", unlock(pid))
    thread_id, ref = out(ctypes.c_int)
    code = cu("cuCheckpointProcessGetRestoreThreadId", pid, ref)
    try:
        with open(f"/proc/{pid}/task/{thread_id.value}/comm") as comm:
            name = comm.read().strip()
    except OSError as error:
        name = str(error)
    fact("restore_thread", code, "is a thread of it", os.path.exists(f"/proc/{pid}/task/{thread_id.value}"), name)
    sleeper = subprocess.Popen(["sleep", "60"])
    for label, number in (
        ("no_cuda", sleeper.pid),
        ("no_process", 4000000),
        ("pid_0", 0),
        ("pid_-1", -1),
        ("self", os.getpid()),
    ):
        if label == "self":
            fact("pid_self", "state", state(number))
            continue
        fact(
            f"pid_{label}",
            "state",
            state(number),
            "lock",
            lock(number, 200),
            "checkpoint",
            checkpoint(number),
            "restore",
            restore(number),
            "unlock",
            unlock(number),
            "thread",
            cu("cuCheckpointProcessGetRestoreThreadId", number, ref),
        )
    sleeper.terminate()
    sleeper.wait()
    fact("state_null_out", cu("cuCheckpointProcessGetState", pid, None))
    ask(process, "end")
    process.wait(10)
    fact("pid_ended", "state", state(pid), "lock", lock(pid, 200))
    fact(
        "without_cuInit",
        subprocess.run([sys.executable, MAIN, "uninitialised_lock"], capture_output=True, text=True).stdout.strip(),
    )


def uninitialised_lock():
    print("state", state(os.getpid()), "lock", lock(os.getppid(), 100))
