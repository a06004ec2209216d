"""Memory between processes by descriptors."""

import os
import socket
import sys

from api import (
    FD,
    G,
    HOST,
    HOST_NUMA,
    MIB,
    create,
    cu,
    export,
    free_memory,
    grant,
    import_fd,
    must,
    out,
    properties_of,
    props,
    read,
    retain,
    room,
    start,
    write,
)
from probe import ask, child, fact, mapped


def peer():
    """A process of this file that does one command per line and answers one line."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    process = child("peer", str(theirs.fileno()), pass_fds=[theirs.fileno()])
    theirs.close()
    return process, ours


def serve(fd):
    """The peer's side. Knows one handle and one address."""
    line_socket = socket.socket(fileno=fd)
    start()
    state = {}
    for line in sys.stdin:
        verb, *rest = line.split()
        if verb == "make":
            state["handle"], state["address"] = mapped(int(rest[0]))
            reply = write(state["address"], b"peer")
        elif verb == "send":
            code, exported = export(state["handle"])
            if code == 0:
                socket.send_fds(line_socket, [b"x"], [exported])
                os.close(exported)
            reply = code
        elif verb == "take":
            _, fds, _, _ = socket.recv_fds(line_socket, 1, 1)
            code, state["handle"] = import_fd(fds[0])
            state["fd"] = fds[0]
            reply = code
        elif verb == "map":
            state["address"] = room(int(rest[0]))
            reply = [
                cu("cuMemMap", state["address"], int(rest[0]), 0, state["handle"], 0),
                grant(state["address"], int(rest[0])),
            ]
        elif verb == "read":
            reply = read(state["address"], 4)
        elif verb == "release":
            reply = cu("cuMemRelease", state["handle"])
        elif verb == "unmap":
            reply = cu("cuMemUnmap", state["address"], int(rest[0]))
        elif verb == "properties":
            reply = properties_of(state["handle"])
        elif verb == "alloc":
            reply = cu("cuMemAlloc_v2", out()[1], int(rest[0]))
        elif verb == "end":
            print("bye", flush=True)
            return
        print(reply, flush=True)


def shares():
    start()
    size = 512 * MIB
    begin = free_memory()
    first, link = peer()
    fact("make", ask(first, f"make {size}"))
    ask(first, "send")
    _, fds, _, _ = socket.recv_fds(link, 1, 1)
    with_first = free_memory()
    code, handle = import_fd(fds[0])
    code2, again = import_fd(fds[0])
    fact("import_same_fd_twice", code, code2, "equal", handle == again)
    duplicate = os.dup(fds[0])
    code, third = import_fd(duplicate)
    fact("import_duplicate_fd", code, "equal", third == handle)
    ask(first, "send")
    _, more, _, _ = socket.recv_fds(link, 1, 1)
    code, fourth = import_fd(more[0])
    fact("import_second_export", code, "equal", fourth == handle)
    fact("import_costs", with_first - free_memory())
    fact("properties_of_import", properties_of(handle))
    code, other_fd = export(handle)
    fact("reexport_of_import", code)
    address = room(size)
    fact("map_import", cu("cuMemMap", address, size, 0, handle, 0), grant(address, size), read(address, 4))
    code, back = retain(address)
    fact("retain_of_import", code, "same", back == handle)
    must(cu("cuMemRelease", back), "release")
    if code == 0 and other_fd >= 0:
        second, link2 = peer()
        socket.send_fds(link2, [b"x"], [other_fd])
        fact(
            "import_of_reexport_in_third_process",
            ask(second, "take"),
            ask(second, f"map {size}"),
            ask(second, "read"),
            ask(second, "properties"),
        )
        ask(second, "end")
        second.wait()
    fact("exporter_writes_importer_reads", write(address, b"here"), ask(first, "read"))
    fact("exporter_frees.used_before", begin - free_memory())
    fact(
        "exporter_frees",
        ask(first, f"unmap {size}"),
        ask(first, "release"),
        "used",
        begin - free_memory(),
        read(address, 4),
    )
    ask(first, "end")
    first.wait()
    fact("exporter_gone", "used", begin - free_memory(), "mapping reads", read(address, 4))
    code, fifth = import_fd(fds[0])
    fact("import_after_exporter_gone", code, "equal", fifth == handle)
    codes = [cu("cuMemRelease", h) for h in (handle, again, third, fourth, fifth)]
    fact("release_all_imports", codes, "used", begin - free_memory())
    fact("unmap", cu("cuMemUnmap", address, size), "used with fds open", begin - free_memory())
    code, sixth = import_fd(fds[0])
    fact("import_when_only_fd_left", code)
    if code == 0:
        fact(
            "map_when_only_fd_left",
            cu("cuMemMap", address, size, 0, sixth, 0),
            grant(address, size),
            read(address, 4),
            cu("cuMemUnmap", address, size),
            cu("cuMemRelease", sixth),
        )
    for fd in (fds[0], duplicate, more[0]):
        os.close(fd)
    fact("some_fds_closed", "used", begin - free_memory())
    if other_fd >= 0:
        os.close(other_fd)
    fact("all_fds_closed", "used", begin - free_memory())
    # An fd alone, from an exporter that ended at once.
    first, link = peer()
    ask(first, f"make {size}")
    ask(first, "send")
    _, fds, _, _ = socket.recv_fds(link, 1, 1)
    ask(first, "end")
    first.wait()
    fact("fd_alone_keeps_memory_after_exporter_exit", "used", begin - free_memory())
    code, handle = import_fd(fds[0])
    fact(
        "fd_alone_imports",
        code,
        cu("cuMemMap", address, size, 0, handle, 0) if code == 0 else "",
        grant(address, size) if code == 0 else "",
        read(address, 4),
    )
    # Host-located memory through an fd.
    for name, p in (("host_numa", props(HOST_NUMA, 0, FD)), ("host", props(HOST, 0, FD))):
        code, handle = create(G, p)
        if code:
            fact(f"{name}_share.create", code)
            continue
        code, fd = export(handle)
        fact(f"{name}_share.export", code)
        if code == 0:
            importer, link = peer()
            socket.send_fds(link, [b"x"], [fd])
            fact(
                f"{name}_share",
                "import",
                ask(importer, "take"),
                "map",
                ask(importer, f"map {G}"),
                ask(importer, "read"),
                ask(importer, "properties"),
            )
            ask(importer, "end")
            importer.wait()
    # A process that ends by a signal while an importer maps its memory.
    first, link = peer()
    ask(first, f"make {G}")
    ask(first, "send")
    _, fds, _, _ = socket.recv_fds(link, 1, 1)
    code, handle = import_fd(fds[0])
    spot = room(G)
    cu("cuMemMap", spot, G, 0, handle, 0)
    grant(spot, G)
    first.kill()
    first.wait()
    fact("exporter_killed", "mapping reads", read(spot, 4), "reexport", export(handle)[0])
    fact("all_shares_codes_done", 0)


def left():
    """Memory that nothing but a descriptor keeps, in a process without CUDA, while no process has the driver open."""
    for end in ("exit", "kill"):
        first, link = peer()
        ask(first, f"make {G}")
        ask(first, "send")
        _, fds, _, _ = socket.recv_fds(link, 1, 1)
        if end == "kill":
            first.kill()
        else:
            ask(first, "end")
        first.wait()
        second, link = peer()
        socket.send_fds(link, [b"x"], fds)
        fact(f"after_{end}", ask(second, "take"), ask(second, f"map {G}"), ask(second, "read"))
        ask(second, "end")
        second.wait()
        os.close(fds[0])
