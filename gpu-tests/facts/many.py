"""What taking apart and putting back very many small mappings costs: call by call, from several threads, and range by
range where mappings lie side by side."""

import time

from api import DEVICE, G, READ_WRITE, access, cu, must, new, room, start
from probe import fact
from ring import together

COUNT = 1000


def many():
    context = start()
    handles = [new(G) for _ in range(COUNT)]
    base = room(COUNT * G)
    places = [base + number * G for number in range(COUNT)]
    descriptors, count = access((DEVICE, 0, READ_WRITE))

    def each(what, threads, call):
        def work(number):
            cu("cuCtxSetCurrent", context)
            for at in range(number, COUNT, threads):
                must(call(at), what)

        fact(f"{what}_{threads}_threads_us", round(together(threads, work) * 1e6 / COUNT, 1))

    def at_once(what, call):
        begin = time.monotonic()
        code = call()
        fact(f"{what}_at_once_us", round((time.monotonic() - begin) * 1e6 / COUNT, 1), "code", code)
        return code

    for threads in (1, 2, 4):
        each("map", threads, lambda at: cu("cuMemMap", places[at], G, 0, handles[at], 0))
        each("access", threads, lambda at: cu("cuMemSetAccess", places[at], G, descriptors, count))
        each("unmap", threads, lambda at: cu("cuMemUnmap", places[at], G))
        each("map", threads, lambda at: cu("cuMemMap", places[at], G, 0, handles[at], 0))
        at_once("access", lambda: cu("cuMemSetAccess", base, COUNT * G, descriptors, count))
        if at_once("unmap", lambda: cu("cuMemUnmap", base, COUNT * G)):
            each("unmap", threads, lambda at: cu("cuMemUnmap", places[at], G))
        each("release", threads, lambda at: cu("cuMemRelease", handles[at]))
        handles[:] = [new(G) for _ in range(COUNT)]
