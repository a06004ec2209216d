"""Prints every pointer attribute of memory of `cuMemAlloc`, and what else can be asked about it, for eight sizes.

What is another number in every process (an address, an identity, a context) is printed as what it has to be: the distance from the
memory, whether it is there, whether it is the current one. So the output with the library in front of the driver has to equal the
output without.
"""

import ctypes
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "facts"))

from api import cu, must, out, start

SIZES = [4, 512, 4096, 65536, 1 << 20, (2 << 20) + 4, 16 << 20, 64 << 20]
CONTEXT, DEVICE_POINTER, HOST_POINTER, P2P_TOKENS, BUFFER_ID = 1, 3, 4, 5, 7
RANGE_START, MAPPING_BASE, MAPPING_SIZE, BLOCK_ID = 11, 18, 19, 20
LAST = 21
GRANULE = 2 << 20


def described(attribute, value, address, size, context):
    """The value, or what it has to be."""
    if attribute == CONTEXT:
        return "current" if value == context else hex(value)
    if attribute in (DEVICE_POINTER, RANGE_START):
        return f"address{value - address:+d}"
    if attribute in (BUFFER_ID, BLOCK_ID):
        return "an identity" if value else "none"
    if attribute == MAPPING_BASE:
        return "at or before the address" if value <= address else "behind it"
    if attribute == MAPPING_SIZE:
        # How many blocks share a mapping is the allocator's business.
        return "whole granules" if value % GRANULE == 0 and value >= min(size, GRANULE) else value
    return value


def ask(size, context):
    address, ref = out()
    must(cu("cuMemAlloc_v2", ref, size), "cuMemAlloc")
    at = address.value
    say = lambda *words: print(size, *words)
    for attribute in range(1, LAST + 1):
        if attribute == P2P_TOKENS:
            continue
        raw = ctypes.create_string_buffer(b"\x5a" * 64, 64)
        code = cu("cuPointerGetAttribute", raw, attribute, at + size // 2)
        value = struct.unpack("<Q", raw.raw[:8])[0]
        say("attribute", attribute, code, "-" if code else described(attribute, value, at, size, context))
        say("behind it", attribute, cu("cuPointerGetAttribute", raw, attribute, at + max(size, 512)) if size < 512 else "-")
    asked = [2, 9, 12, 10]
    places = [ctypes.create_string_buffer(16) for _ in asked]
    numbers = (ctypes.c_uint * len(asked))(*asked)
    pointers = (ctypes.c_void_p * len(asked))(*[ctypes.addressof(place) for place in places])
    code = cu("cuPointerGetAttributes", len(asked), numbers, pointers, at)
    say("several at once", code, *[struct.unpack("<Q", place.raw[:8])[0] for place in places])
    (base, base_ref), (extent, extent_ref) = out(), out()
    for inside in (0, size - 1):
        code = cu("cuMemGetAddressRange_v2", base_ref, extent_ref, at + inside)
        say("range", inside, code, base.value - at, extent.value)
    handle, handle_ref = out()
    say("retain", cu("cuMemRetainAllocationHandle", handle_ref, ctypes.c_void_p(at)))
    on = ctypes.c_uint(1)
    say("sync memops", cu("cuPointerSetAttribute", ctypes.byref(on), 6, at))
    say("aligned", at % 256)
    say("inner free", cu("cuMemFree_v2", at + 4) if size > 4 else "-")
    say("free", cu("cuMemFree_v2", at))
    say("twice", cu("cuMemFree_v2", at))


current = start().value
for wanted in SIZES:
    ask(wanted, current)
