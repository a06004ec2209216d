"""Two ways of moving bytes into host memory that is not registered: through a small registered ring, with threads that
copy on, or by registering slices of it for as long as a copy takes."""

import ctypes
import threading
import time

from api import G, cu, must, out, start
from probe import fact

M = 1 << 20
SIZE = 4 * G

libc = ctypes.CDLL("libc.so.6")
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def arena():
    """Huge pages that nobody has touched."""
    at = libc.mmap(None, SIZE + 2 * M, 3, 0x4022, -1, 0)
    at = (at + 2 * M - 1) // (2 * M) * (2 * M)
    libc.madvise(at, SIZE, 14)
    return at


def together(count, work):
    """Seconds for `work` on so many threads."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begin


def rate(seconds, size=SIZE):
    return round(size / G / seconds, 1)


def ring():
    context = start()
    for count in (8, 16):
        at, part = arena(), SIZE // count
        seconds = together(count, lambda number: libc.memset(at + number * part, 1, part))
        fact(f"first_touch_{count}_threads_gib_s", rate(seconds))
    slices(context, at)
    for slot, slots in ((1 * M, 24), (2 * M, 24), (8 * M, 6), (8 * M, 24)):
        for count in (4, 8, 16):
            copies(at, slot, slots, count)


def slices(context, at):
    device, ref = out()
    must(cu("cuMemAlloc_v2", ref, G), "cuMemAlloc_v2")
    for size in (64 * M, 256 * M, G):
        for count in (1, 4):

            def each(name, *flags, count=count, size=size):
                def work(number):
                    cu("cuCtxSetCurrent", context)
                    for place in range(number, SIZE // size, count):
                        must(cu(name, ctypes.c_void_p(at + place * size), *flags), name)

                return together(count, work)

            register = each("cuMemHostRegister_v2", size, 0)
            begin = time.monotonic()
            must(cu("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(at), device.value, size, 0), "copy")
            must(cu("cuStreamSynchronize", 0), "cuStreamSynchronize")
            copied = rate(time.monotonic() - begin, size)
            unregister = each("cuMemHostUnregister")
            per_gib = [round(seconds * 1e3 * G / SIZE, 1) for seconds in (register, unregister)]
            fact(f"slices_{size // M}_mib_{count}_threads", "ms/GiB", *per_gib, "copy GiB/s", copied)


def copies(at, slot, slots, count):
    pinned = []
    for _ in range(slots):
        place, ref = out(ctypes.c_void_p)
        must(cu("cuMemHostAlloc", ref, slot, 0), "cuMemHostAlloc")
        pinned.append(place.value)
    each = SIZE // count // slot

    def saving(number):
        for turn in range(each):
            libc.memcpy(at + (number * each + turn) * slot, pinned[(number + turn) % slots], slot)

    def loading(number):
        for turn in range(each):
            libc.memcpy(pinned[(number + turn) % slots], at + (number * each + turn) * slot, slot)

    rates = [rate(together(count, work)) for work in (saving, loading)]
    fact(f"copies_{slot // M}_mib_x_{slots}_{count}_threads", "GiB/s out and back", *rates)
    for place in pinned:
        must(cu("cuMemFreeHost", ctypes.c_void_p(place)), "cuMemFreeHost")
