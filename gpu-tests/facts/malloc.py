"""Memory of cuMemAlloc and its family, and legacy IPC: what memory that stands in for it has to look like."""

import ctypes
import struct
import sys
import time

from api import G, MIB, cu, free_memory, kernel, must, out, read, retain, spin, start, stream, write
from probe import ask, child, fact, timed

ATTRIBUTES = {
    "context": 1,
    "memory_type": 2,
    "device_pointer": 3,
    "host_pointer": 4,
    "sync_memops": 6,
    "buffer_id": 7,
    "is_managed": 8,
    "device_ordinal": 9,
    "legacy_ipc": 10,
    "range_start": 11,
    "range_size": 12,
    "mapped": 13,
    "handle_types": 14,
    "rdma": 15,
    "access_flags": 16,
    "mempool": 17,
    "mapping_size": 18,
    "mapping_base": 19,
    "memory_block_id": 20,
    "decompress": 21,
}
SIZES = (1, 128, 6912, 65536, MIB, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, (1 << 30) + 3)


def alloc(size):
    value, ref = out()
    return cu("cuMemAlloc_v2", ref, size), value.value


def free(address):
    return cu("cuMemFree_v2", address)


def attribute(number, address):
    raw = ctypes.create_string_buffer(b"\xaa" * 16, 16)
    code = cu("cuPointerGetAttribute", raw, number, address)
    return code, struct.unpack("<Q", raw.raw[:8])[0]


def described(number, address, context):
    """The value as something that is the same in every run."""
    code, value = attribute(number, address)
    if value == context.value:
        return code, "context"
    if address <= value < address + MIB or value == address - address % (2 * MIB):
        return code, f"address+{value - address}"
    return code, value


def address_range(address):
    base, size = ctypes.c_uint64(7), ctypes.c_uint64(7)
    code = cu("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
    return code, base.value - address, size.value


def malloc():
    context = start()
    fact("size_zero", alloc(0)[0])
    fact("more_than_the_card", alloc(1 << 40)[0])
    fact("null_out", cu("cuMemAlloc_v2", None, 4096))
    for size in SIZES:
        code, address = alloc(size)
        must(code, "cuMemAlloc")
        fact(f"size_{size}.alignment", address & -address if address & -address < 1 << 21 else "2 MiB or more")
        for name, number in ATTRIBUTES.items():
            fact(f"size_{size}.{name}", *described(number, address, context))
        inner = address + size // 2
        fact(f"size_{size}.range_from_inside", address_range(inner)[0], inner + address_range(inner)[1] - address)
        fact(f"size_{size}.range", *address_range(address))
        fact(f"size_{size}.range_at_end", address_range(address + size)[0])
        fact(f"size_{size}.retain", retain(address)[0])
        value = ctypes.c_uint(1)
        fact(f"size_{size}.set_sync_memops", cu("cuPointerSetAttribute", ctypes.byref(value), 6, address), attribute(6, address))
        if size > 1:
            fact(f"size_{size}.free_from_inside", free(inner))
        fact(f"size_{size}.free", free(address), "again", free(address))
        fact(f"size_{size}.attribute_after_free", attribute(2, address)[0])
    first, second = alloc(4096)[1], alloc(4096)[1]
    fact("two_small_are_apart", second - first)
    fact("buffer_ids_differ", attribute(7, first)[1] != attribute(7, second)[1])
    fact("as_virtual_memory", dict(unmap=cu("cuMemUnmap", first, G), address_free=cu("cuMemAddressFree", first, G)))
    fact("read_after_that", read(first, 1)[0])
    flags = ctypes.c_uint64(7)
    fact("get_access", cu("cuMemGetAccess", ctypes.byref(flags), struct.pack("<Ii", 1, 0), first), flags.value)
    for wide, high, element in ((1000, 10, 4), (1000, 10, 8), (1000, 10, 16), (1000, 10, 5), (0, 10, 4), (10, 0, 4)):
        at, pitch = ctypes.c_uint64(), ctypes.c_uint64()
        code = cu("cuMemAllocPitch_v2", ctypes.byref(at), ctypes.byref(pitch), wide, high, element)
        fact(f"pitch_{wide}x{high}x{element}", code, pitch.value, address_range(at.value)[2] if code == 0 else "")
    before, begin = free_memory(), time.monotonic()
    small = [alloc(4096)[1] for _ in range(20000)]
    fact("small_20000_bytes_used", before - free_memory())
    took = time.monotonic() - begin
    begin = time.monotonic()
    for address in small:
        free(address)
    print(f"# small_us_per_call alloc {took / 20000 * 1e6:.1f} free {(time.monotonic() - begin) / 20000 * 1e6:.1f}")
    fact("small_20000_left", before - free_memory())
    function, on = kernel(b"spin"), stream()
    for size in (4096, 2 * MIB, 64 * MIB):
        address = alloc(size)[1]
        must(spin(function, on, 0.3), "launch")
        code, seconds = timed(lambda: free(address))
        fact(f"free_{size}_waits_for_other_work", code, seconds > 0.2)
        cu("cuCtxSynchronize")
    must(spin(function, on, 0.3), "launch")
    code, seconds = timed(lambda: free(0))
    fact("free_null", code, "waits", seconds > 0.2)
    cu("cuCtxSynchronize")
    must(spin(function, on, 0.3), "launch")
    code, seconds = timed(lambda: free(first + 1))
    fact("free_refused", code, "waits", seconds > 0.2)
    cu("cuCtxSynchronize")


def ipc_peer():
    """The other process: a command per line."""
    start()
    state = {}
    for line in sys.stdin:
        verb, *rest = line.split()
        if verb == "make":
            _, state["address"] = alloc(int(rest[0]))
            write(state["address"], b"peer")
            reply = state["address"]
        elif verb == "handle":
            raw = ctypes.create_string_buffer(64)
            code = cu("cuIpcGetMemHandle", raw, state["address"] + int(rest[0]))
            reply = f"{code} {raw.raw.hex()}"
        elif verb == "free":
            reply = free(state["address"])
        elif verb == "read":
            reply = read(state["address"], 4)[1]
        print(reply, flush=True)


class Handle(ctypes.Structure):
    """CUipcMemHandle, which goes by value."""

    _fields_ = [("bytes", ctypes.c_char * 64)]


def opened(raw, flags=1):
    value, ref = out()
    return cu("cuIpcOpenMemHandle_v2", ref, Handle.from_buffer_copy(raw), ctypes.c_uint(flags)), value.value


def ipc():
    start()
    process = child("ipc_peer")

    def handle(offset=0):
        code, raw = ask(process, f"handle {offset}").split()
        return int(code), bytes.fromhex(raw)

    ask(process, f"make {4 * MIB}")
    _, whole = handle()
    code, inner = handle(1024)
    fact("handle_of_inner_address", code, "same bytes" if inner == whole else "other bytes")
    fact("handle_twice_same_bytes", handle()[1] == whole)
    fact("open_flags_0", opened(whole, 0)[0], "flags 2", opened(whole, 2)[0])
    code, address = opened(whole)
    fact("open", code, read(address, 4))
    again = opened(whole)
    fact("open_again", again[0], "same address", again[1] == address)
    third = opened(inner)
    fact("open_inner_handle", third[0], third[1] - address)
    fact("range_of_opened", *address_range(address), "inner", address_range(address + 5)[0])
    fact("attributes_of_opened", {name: described(number, address, ctypes.c_void_p())[0] for name, number in ATTRIBUTES.items()})
    for name in ("memory_type", "legacy_ipc", "range_size", "handle_types", "mapped", "access_flags", "device_ordinal"):
        fact(f"opened.{name}", *attribute(ATTRIBUTES[name], address))
    raw = ctypes.create_string_buffer(64)
    fact("handle_of_opened", cu("cuIpcGetMemHandle", raw, address))
    fact("retain_of_opened", retain(address)[0])
    fact("free_of_opened", free(address), read(address, 1)[0])
    fact("close_inner", cu("cuIpcCloseMemHandle", address + 1024))
    counts = [(cu("cuIpcCloseMemHandle", address), read(address, 1)[0]) for _ in range(6)]
    fact("close_until_gone", counts)
    fact("open_after_close", opened(whole)[0])
    own = alloc(4 * MIB)[1]
    fact("own.get", cu("cuIpcGetMemHandle", raw, own))
    fact("own.open", opened(raw.raw)[0])
    fact("close_of_own", cu("cuIpcCloseMemHandle", own))
    fact("close_garbage", cu("cuIpcCloseMemHandle", 0x1234000), cu("cuIpcCloseMemHandle", 0))
    fact("get_garbage", cu("cuIpcGetMemHandle", raw, 0x1234000), cu("cuIpcGetMemHandle", raw, 0))
    fact("get_null_out", cu("cuIpcGetMemHandle", None, own))
    fact("open_zeros", opened(bytes(64))[0], "ones", opened(b"\xff" * 64)[0], "null out", cu("cuIpcOpenMemHandle_v2", None, Handle.from_buffer_copy(whole), ctypes.c_uint(1)))
    changed = bytearray(whole)
    changed[40] ^= 1
    fact("open_changed", opened(bytes(changed))[0])
    pool, ref = out(ctypes.c_uint64)
    fact("get_of_async", [cu("cuMemAllocAsync", ref, 4096, None), cu("cuIpcGetMemHandle", raw, pool.value)])
    code, address = opened(whole)
    fact("exporter_frees", ask(process, "free"), "still readable", read(address, 4)[0])
    fact("open_freed", opened(whole)[0], "close", cu("cuIpcCloseMemHandle", address), "open then", opened(whole)[0])
    ask(process, f"make {4 * MIB}")
    _, fresh = handle()
    code, address = opened(fresh)
    process.stdin.close()
    process.wait()
    fact("exporter_gone", "readable", read(address, 4)[0], "open", opened(fresh)[0], "close", cu("cuIpcCloseMemHandle", address))
    fact("open_gone", opened(fresh)[0])
