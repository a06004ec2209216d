"""What handles are worth, and what becomes of a process that uses a wrong one."""

import ctypes
import fcntl
import os
import stat
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from api import (
    DEVICE,
    FD,
    G,
    READ,
    create,
    cu,
    export,
    grant,
    granted,
    import_fd,
    kernel,
    launch,
    must,
    new,
    out,
    properties_of,
    props,
    read,
    retain,
    room,
    start,
    write,
)
from probe import MAIN, fact, mapped


def handles():
    start()
    handle, address = mapped()
    code, again = retain(address)
    fact("retain_gives_same_value", code, again == handle)
    code, third = retain(address + G // 2)
    fact("retain_inside_gives_same_value", code, third == handle)
    fact("properties", properties_of(handle))
    code, fd = export(handle)
    code2, fd2 = export(handle)
    fact("export_twice", code, code2, "different numbers", fd != fd2)
    fact("exported_cloexec", bool(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC))
    st = os.fstat(fd)
    fact(
        "exported_fstat",
        stat.filemode(st.st_mode),
        "rdev",
        os.major(st.st_rdev),
        os.minor(st.st_rdev),
        "size",
        st.st_size,
        os.readlink(f"/proc/self/fd/{fd}"),
    )
    code, one = import_fd(fd)
    code2, two = import_fd(fd)
    code3, three = import_fd(fd2)
    fact(
        "import_own_fd",
        code,
        code2,
        code3,
        "equal to created",
        one == handle,
        "equal to each other",
        one == two,
        two == three,
    )
    fact("import_own_properties", properties_of(one))
    code, again2 = retain(address)
    fact("retain_after_import_is_created", code, again2 == handle)
    # The value counts: created 1, retained 3, and an import counts on whichever value it gave.
    codes = [cu("cuMemRelease", handle) for _ in range(4 + 3 * (one == handle))]
    fact("release_as_often_as_held_while_mapped", codes)
    code, back = retain(address)
    fact("after_last_release_while_mapped.retain", code, "same value", back == handle)
    fact("after_last_release_while_mapped.retained_exports", export(back)[0], "properties", properties_of(back)[0])
    fact("mapping_still_readable", read(address, 4)[0])
    fact("unmap", cu("cuMemUnmap", address, G), "retain after unmap", retain(address)[0])
    if one != handle:
        extra = room(G)
        fact("imported_maps_after_all_created_gone", cu("cuMemMap", extra, G, 0, one, 0), grant(extra, G))
    values = []
    for _ in range(5):
        h = new(G)
        values.append(h)
        must(cu("cuMemRelease", h), "cuMemRelease")
    fact("values_reused_after_release", len(set(values)), "distinct of", len(values), hex(values[0]))
    plain = new(G, props())
    fact("export_without_type_requested", export(plain)[0])
    fact("import_of_a_memfd", import_fd(os.memfd_create("x"))[0])
    fact("import_of_bad_fd", import_fd(9999)[0], import_fd(-1)[0])
    _, ref = out()
    fact(
        "import_kind_0_2_4_99",
        [cu("cuMemImportFromShareableHandle", ref, ctypes.c_void_p(fd), k) for k in (0, 2, 4, 99)],
    )
    fact(
        "export_kind_0_2_4_8_99",
        [cu("cuMemExportToShareableHandle", ctypes.create_string_buffer(64), new(G), k, 0) for k in (0, 2, 4, 8, 99)],
    )
    fact("export_flags_1", cu("cuMemExportToShareableHandle", ctypes.create_string_buffer(64), new(G), FD, 1))
    fact("create_flags_1", cu("cuMemCreate", ref, G, props(), 1))


def bad(name, call):
    """A call with a bad handle, each in a process of its own."""
    CRASH[name] = call


CRASH = {}


def gone():
    handle = new(G)
    must(cu("cuMemRelease", handle), "release")
    return handle


bad("release_twice", lambda: cu("cuMemRelease", gone()))
bad("release_twice_then_create", lambda: [cu("cuMemRelease", gone()), create(G)[0]])


def released_but_mapped():
    """The last handle is gone, the mapping keeps the memory."""
    handle, address = mapped()
    must(cu("cuMemRelease", handle), "release")
    return handle, address


def released_again():
    handle, address = released_but_mapped()
    return [cu("cuMemRelease", handle), "reads", read(address, 4)[0]]


bad("released_but_mapped.release_again", released_again)
bad("released_but_mapped.properties", lambda: properties_of(released_but_mapped()[0])[0])
bad("released_but_mapped.export", lambda: export(released_but_mapped()[0])[0])
bad("released_but_mapped.map", lambda: cu("cuMemMap", room(G), G, 0, released_but_mapped()[0], 0))
bad("import_null_out", lambda: cu("cuMemImportFromShareableHandle", None, ctypes.c_void_p(export(new(G))[1]), FD))
bad("import_null_descriptor_0", lambda: import_fd(0)[0])
bad("release_zero", lambda: cu("cuMemRelease", 0))
bad("release_0x1234", lambda: cu("cuMemRelease", 0x1234))
bad("release_heap_pointer", lambda: cu("cuMemRelease", ctypes.addressof(ctypes.create_string_buffer(4096))))
bad("release_all_ones", lambda: cu("cuMemRelease", 2**64 - 1))
bad("map_released", lambda: cu("cuMemMap", room(G), G, 0, gone(), 0))
bad("map_0x1234", lambda: cu("cuMemMap", room(G), G, 0, 0x1234, 0))
bad("map_zero", lambda: cu("cuMemMap", room(G), G, 0, 0, 0))
bad("export_released", lambda: export(gone())[0])
bad("export_0x1234", lambda: export(0x1234)[0])
bad("properties_released", lambda: properties_of(gone())[0])
bad("properties_0x1234", lambda: properties_of(0x1234)[0])
bad("retain_unmapped_address", lambda: retain(room(G))[0])
bad("retain_null", lambda: retain(0)[0])
bad("retain_garbage_address", lambda: retain(0x1234)[0])
bad("retain_null_out", lambda: cu("cuMemRetainAllocationHandle", None, ctypes.c_void_p(mapped()[1])))
bad("create_null_out", lambda: cu("cuMemCreate", None, G, props(), 0))
bad("create_null_prop", lambda: cu("cuMemCreate", out()[1], G, None, 0))
bad("properties_null_out", lambda: cu("cuMemGetAllocationPropertiesFromHandle", None, new(G)))
bad("export_null_out", lambda: cu("cuMemExportToShareableHandle", None, new(G), FD, 0))
bad("getaccess_null_out", lambda: cu("cuMemGetAccess", None, struct.pack("<Ii", 1, 0), mapped()[1]))
bad("getaccess_null_location", lambda: cu("cuMemGetAccess", out()[1], None, mapped()[1]))
bad("setaccess_null_desc", lambda: cu("cuMemSetAccess", mapped()[1], G, None, 1))
bad("setaccess_zero_count", lambda: cu("cuMemSetAccess", mapped()[1], G, b"", 0))
bad("setaccess_null_zero", lambda: cu("cuMemSetAccess", mapped()[1], G, None, 0))
bad("reserve_null_out", lambda: cu("cuMemAddressReserve", None, G, 0, 0, 0))
bad("map_outside_reservation", lambda: cu("cuMemMap", 0x200000000000, G, 0, new(G), 0))
bad("unmap_garbage", lambda: cu("cuMemUnmap", 0x200000000000, G))
bad("unmap_reserved_only", lambda: cu("cuMemUnmap", room(G), G))
bad("addressfree_garbage", lambda: cu("cuMemAddressFree", 0x200000000000, G))


def freed_twice():
    address = room(G)
    return [cu("cuMemAddressFree", address, G), cu("cuMemAddressFree", address, G)]


bad("addressfree_twice", freed_twice)


def kernel_code(address):
    put = kernel(b"put")
    code = launch(put, None, ctypes.c_uint64(address), ctypes.c_uint32(7))
    return [
        code,
        cu("cuCtxSynchronize"),
        "next call",
        cu("cuMemcpyDtoH_v2", ctypes.create_string_buffer(4), address, 4),
    ]


def read_only():
    _, address = mapped()
    return [grant(address, G, (DEVICE, 0, READ)), granted(address)], address


def no_access():
    handle, address = new(G), room(G)
    must(cu("cuMemMap", address, G, 0, handle, 0), "map")
    return address


def copies(address):
    """Copies and a fill, of which none may harm the context."""
    codes = ["HtoD", write(address, b"abcd"), "DtoH", read(address, 4)[0]]
    return [*codes, "memset", cu("cuMemsetD8_v2", address, 0, 4), cu("cuCtxSynchronize")]


def kernel_to_read_only():
    granting, address = read_only()
    return [granting, kernel_code(address)]


def copies_to_read_only():
    granting, address = read_only()
    return [granting, *copies(address)]


def copies_without_access():
    address = no_access()
    return [*copies(address), "getaccess", granted(address)]


bad("kernel_write_to_read_only", kernel_to_read_only)
bad("copy_to_read_only", copies_to_read_only)
bad("copy_no_access", copies_without_access)
bad("kernel_write_no_access", lambda: kernel_code(no_access()))
bad("kernel_write_reserved_only", lambda: kernel_code(room(G)))
bad("copy_reserved_only", lambda: copies(room(G))[:4])


def crash():
    """Runs each bad call in its own process, some side by side."""

    def one(name):
        try:
            done = subprocess.run([sys.executable, MAIN, "crash", name], capture_output=True, text=True, timeout=25)
        except subprocess.TimeoutExpired:
            return f"FACT bad.{name}: stuck for 25 s"
        line = done.stdout.strip()
        return (
            line
            if line and done.returncode == 0
            else f"FACT bad.{name}: {line} exit {done.returncode} {done.stderr.strip()[-120:]}"
        )

    with ThreadPoolExecutor(6) as pool:
        for line in pool.map(one, CRASH):
            print(line, flush=True)
