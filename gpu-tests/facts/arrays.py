"""Arrays: what is refused, what waits for running work, what they take, and whether a checkpoint carries them."""

import ctypes
import struct
import sys

from api import MIB, cu, free_memory, kernel, must, out, read, spin, start, stream, write
from checkpoint import checkpoint, lock, restore, unlock
from probe import ask, child, fact, timed

BYTES, SYNC_MEMOPS = 1, 6
ARRAY, ON_DEVICE = 3, 2


def create(width, height=0, form=BYTES, channels=1):
    value, ref = out(ctypes.c_void_p)
    code = cu("cuArrayCreate_v2", ref, struct.pack("<QQII", width, height, form, channels))
    return code, value


def made(width, height=0):
    code, array = create(width, height)
    must(code, "cuArrayCreate")
    return array


def alloc(size):
    value, ref = out()
    must(cu("cuMemAlloc_v2", ref, size), "cuMemAlloc")
    return value.value


def put(array, offset, data):
    return cu("cuMemcpyHtoA_v2", array, offset, data, len(data))


def get(array, offset, size):
    raw = ctypes.create_string_buffer(size)
    return cu("cuMemcpyAtoH_v2", raw, array, offset, size), raw.raw


def rows(array, address, into_array, x=0):
    """A CUDA_MEMCPY2D of two rows of 64 bytes, between an array from byte x on and device memory."""
    number = ctypes.cast(array, ctypes.c_void_p).value
    device, other = (0, ON_DEVICE, 0, address, 0, 64), (x, ARRAY, 0, 0, number, 0)
    first, second = (device, other) if into_array else (other, device)
    side = lambda s: struct.pack("<QQIIQQQQ", s[0], 0, s[1], 0, s[2], s[3], s[4], s[5])
    return cu("cuMemcpy2D_v2", side(first) + side(second) + struct.pack("<QQ", 64, 2))


def arrays():
    start()
    for name, given in {
        "bytes": (64,),
        "two_dimensions": (64, 4),
        "width_0": (0, 4),
        "channels_3": (64, 0, BYTES, 3),
        "format_77": (64, 0, 77),
    }.items():
        fact(f"create.{name}", create(*given)[0])
    line, plane, device = made(64), made(64, 4), alloc(MIB)
    raw = ctypes.create_string_buffer(24)
    fact("descriptor", cu("cuArrayGetDescriptor_v2", raw, plane), struct.unpack("<QQII", raw.raw))
    fact("in_and_out", put(line, 4, b"bytes"), get(line, 4, 5))
    fact("beyond_its_end", put(line, 60, bytes(8)), get(line, 60, 8)[0], cu("cuMemcpyAtoD_v2", device, line, 60, 8))
    fact("line_copy_of_two_dimensions", put(plane, 0, bytes(8)), get(plane, 0, 8)[0])
    fact("rows", rows(plane, device, True), rows(plane, device, False), "beyond", rows(plane, device, True, 1))
    for size in (64, 4096, 4 * MIB):
        before = free_memory()
        # An array of one dimension may not be as wide.
        array = made(min(size, 65536), size // 65536)
        fact(f"bytes_used_by_{size}", before - free_memory(), "destroy", cu("cuArrayDestroy", array), "left", before - free_memory())
    waiting(line, plane, device)
    cycle()


def waiting(line, plane, device):
    """What returns while a kernel in front of it still runs, without and with SYNC_MEMOPS on the device memory."""
    spinner = kernel(b"spin")
    must(spin(spinner, None, 0.001), "launch")
    must(cu("cuCtxSynchronize"), "sync")
    host = ctypes.create_string_buffer(64)
    calls = {
        "HtoA": lambda: cu("cuMemcpyHtoA_v2", line, 0, host, 64),
        "AtoH": lambda: cu("cuMemcpyAtoH_v2", host, line, 0, 64),
        "DtoA": lambda: cu("cuMemcpyDtoA_v2", line, 0, device, 64),
        "AtoD": lambda: cu("cuMemcpyAtoD_v2", device, line, 0, 64),
        "AtoA": lambda: cu("cuMemcpyAtoA_v2", line, 0, line, 32, 32),
        "rows_into": lambda: rows(plane, device, True),
        "rows_out_of": lambda: rows(plane, device, False),
    }
    for attribute in (0, 1):
        value = ctypes.c_uint(attribute)
        must(cu("cuPointerSetAttribute", ctypes.byref(value), SYNC_MEMOPS, device), "SYNC_MEMOPS")
        for name, call in calls.items():
            must(spin(spinner, None, 0.2), "launch")
            code, seconds = timed(call)
            busy = cu("cuStreamQuery", None) == 600
            fact(f"sync_memops_{attribute}.{name}", code, "returns early" if busy and seconds < 0.1 else "waits")
            must(cu("cuCtxSynchronize"), "sync")
    on, other = stream(), made(64)
    must(spin(spinner, on, 0.2), "launch")
    code, seconds = timed(lambda: cu("cuArrayDestroy", other))
    fact("destroy_waits_for_other_work", code, seconds > 0.1)
    must(cu("cuCtxSynchronize"), "sync")
    must(spin(spinner, on, 0.2), "launch")
    (code, _), seconds = timed(lambda: create(64))
    fact("create_waits_for_other_work", code, seconds > 0.1)
    must(cu("cuCtxSynchronize"), "sync")


def arrays_victim():
    start()
    line, plane, device = made(4096), made(64, 4096), alloc(MIB)
    must(put(line, 100, b"as it was"), "cuMemcpyHtoA")
    must(write(device, bytes(range(128))), "cuMemcpyHtoD")
    must(rows(plane, device, True), "cuMemcpy2D")
    print("ready", flush=True)
    for _ in sys.stdin:
        must(write(device, bytes(128)), "cuMemcpyHtoD")
        print(get(line, 100, 9), rows(plane, device, False), read(device, 128)[1] == bytes(range(128)), flush=True)


def cycle():
    process = child("arrays_victim")
    process.stdout.readline()
    for number in (1, 2):
        steps = [step(process.pid) for step in (lock, checkpoint, restore, unlock)]
        fact(f"cycle_{number}", *steps, ask(process, "look"))
    process.stdin.close()
    process.wait(30)
