#!/usr/bin/env python3
"""Measures what the real driver does, one line per fact: `FACT name: value`.

Each section runs in a process of its own, what may get stuck or crash in a throw-away one; nothing here
changes a setting, uses managed memory or touches multicast. `facts.py` runs all, `facts.py NAME...` some.
"""

import ctypes
import mmap
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor


DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT = 1, 2, 3, 4
NONE, READ, READ_WRITE = 0, 1, 3
FD = 1

libcuda = ctypes.CDLL("libcuda.so.1")


def cu(name, *args):
    """Calls `name`. Whole numbers go as 64 bits, which every integer parameter takes."""
    wide = [ctypes.c_uint64(a & (2**64 - 1)) if isinstance(a, int) else a for a in args]
    try:
        function = getattr(libcuda, name)
    except AttributeError:
        return "absent"
    return function(*wide)


def out(kind=ctypes.c_uint64):
    value = kind()
    return value, ctypes.byref(value)


def props(location=DEVICE, number=0, handle_types=0, kind=1, rdma=0):
    """A CUmemAllocationProp."""
    return struct.pack("<IIIiQBBHI", kind, handle_types, location, number, 0, 0, rdma, 0, 0)


def access(*entries):
    """An array of CUmemAccessDesc from (location type, id, flags), and its length."""
    return b"".join(struct.pack("<IiI", *e) for e in entries), len(entries)


def must(code, what):
    if code:
        raise SystemExit(f"{what}: {code}")


def start(device=0):
    """cuInit and the primary context, current."""
    must(cu("cuInit", 0), "cuInit")
    context, ref = out(ctypes.c_void_p)
    must(cu("cuDevicePrimaryCtxRetain", ref, device), "cuDevicePrimaryCtxRetain")
    must(cu("cuCtxSetCurrent", context), "cuCtxSetCurrent")
    return context


def create(size, properties=None):
    """(code, handle)"""
    handle, ref = out()
    code = cu("cuMemCreate", ref, size, properties or props(handle_types=FD), 0)
    return code, handle.value


def reserve(size, alignment=0, address=0):
    value, ref = out()
    code = cu("cuMemAddressReserve", ref, size, alignment, address, 0)
    return code, value.value


def new(size, properties=None):
    code, handle = create(size, properties)
    must(code, "cuMemCreate")
    return handle


def room(size):
    code, address = reserve(size)
    must(code, "cuMemAddressReserve")
    return address


def grant(address, size, *entries):
    descriptors, count = access(*(entries or [(DEVICE, 0, READ_WRITE)]))
    return cu("cuMemSetAccess", address, size, descriptors, count)


def granted(address, location=DEVICE, number=0):
    """(code, flags)"""
    flags, ref = out(ctypes.c_uint64)
    flags.value = 77
    code = cu("cuMemGetAccess", ref, struct.pack("<Ii", location, number), address)
    return code, flags.value


def export(handle):
    """(code, fd)"""
    fd, ref = out(ctypes.c_int)
    fd.value = -1
    code = cu("cuMemExportToShareableHandle", ref, handle, FD, 0)
    return code, fd.value


def import_fd(fd):
    """(code, handle)"""
    handle, ref = out()
    code = cu("cuMemImportFromShareableHandle", ref, ctypes.c_void_p(fd), FD)
    return code, handle.value


def retain(address):
    handle, ref = out()
    code = cu("cuMemRetainAllocationHandle", ref, ctypes.c_void_p(address))
    return code, handle.value


def properties_of(handle):
    raw = ctypes.create_string_buffer(32)
    code = cu("cuMemGetAllocationPropertiesFromHandle", raw, handle)
    kind, types, location, number, _, compression, rdma, usage, _ = struct.unpack("<IIIiQBBHI", raw.raw)
    return code, dict(type=kind, handles=types, location=location, id=number, compression=compression, rdma=rdma, usage=usage)


def free_memory():
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    must(cu("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    return free.value


def write(address, data):
    return cu("cuMemcpyHtoD_v2", address, data, len(data))


def read(address, size):
    raw = ctypes.create_string_buffer(size)
    code = cu("cuMemcpyDtoH_v2", raw, address, size)
    return code, raw.raw


def stream(flags=1):
    value, ref = out(ctypes.c_void_p)
    must(cu("cuStreamCreate", ref, flags), "cuStreamCreate")
    return value


MIB = 1 << 20
G = 2 * MIB

# Two kernels for work that is under way: one that runs for a time, one that waits for a word.
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 ns) {
 .reg .u64 %t<4>; .reg .pred %p;
 ld.param.u64 %t0, [ns];
 mov.u64 %t1, %globaltimer;
 add.u64 %t1, %t1, %t0;
again: mov.u64 %t2, %globaltimer;
 setp.lt.u64 %p, %t2, %t1;
 @%p bra again;
 ret; }
.visible .entry put(.param .u64 at, .param .u32 v) {
 .reg .u64 %a; .reg .u32 %v;
 ld.param.u64 %a, [at]; ld.param.u32 %v, [v];
 st.global.u32 [%a], %v;
 ret; }
\0"""


def kernel(name):
    module, ref = out(ctypes.c_void_p)
    must(cu("cuModuleLoadData", ref, PTX), "cuModuleLoadData")
    function, ref = out(ctypes.c_void_p)
    must(cu("cuModuleGetFunction", ref, module, name), "cuModuleGetFunction")
    return function


def launch(function, on, *values):
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    return cu("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, on, pointers, None)


def spin(function, on, seconds):
    return launch(function, on, ctypes.c_uint64(int(seconds * 1e9)))


def fact(name, *values):
    print(f"FACT {SECTION}.{name}:", *values, flush=True)


def mapped(size=G, properties=None):
    """A fresh allocation, mapped with access for device 0: (handle, address)."""
    handle, address = new(size, properties), room(size)
    must(cu("cuMemMap", address, size, 0, handle, 0), "cuMemMap")
    must(grant(address, size), "cuMemSetAccess")
    return handle, address


def timed(call):
    begin = time.monotonic()
    value = call()
    return value, round(time.monotonic() - begin, 4)


# ---------------------------------------------------------------------------------------------------------------


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
    import fcntl

    fact("exported_cloexec", bool(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC))
    st = os.fstat(fd)
    fact("exported_fstat", stat.filemode(st.st_mode), "rdev", os.major(st.st_rdev), os.minor(st.st_rdev), "size", st.st_size, os.readlink(f"/proc/self/fd/{fd}"))
    code, one = import_fd(fd)
    code2, two = import_fd(fd)
    code3, three = import_fd(fd2)
    fact("import_own_fd", code, code2, code3, "equal to created", one == handle, "equal to each other", one == two, two == three)
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
    fact("import_kind_0_2_4_99", [cu("cuMemImportFromShareableHandle", ref, ctypes.c_void_p(fd), k) for k in (0, 2, 4, 99)])
    fact("export_kind_0_2_4_8_99", [cu("cuMemExportToShareableHandle", ctypes.create_string_buffer(64), new(G), k, 0) for k in (0, 2, 4, 8, 99)])
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
bad("release_twice_then_create", lambda: (lambda h: [cu("cuMemRelease", h), create(G)[0]])(gone()))


def released_but_mapped():
    """The last handle is gone, the mapping keeps the memory."""
    handle, address = mapped()
    must(cu("cuMemRelease", handle), "release")
    return handle, address


bad("released_but_mapped.release_again", lambda: (lambda h, a: [cu("cuMemRelease", h), "reads", read(a, 4)[0]])(*released_but_mapped()))
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
bad("addressfree_twice", lambda: (lambda a: [cu("cuMemAddressFree", a, G), cu("cuMemAddressFree", a, G)])(room(G)))


def kernel_code(address):
    put = kernel(b"put")
    code = launch(put, None, ctypes.c_uint64(address), ctypes.c_uint32(7))
    return [code, cu("cuCtxSynchronize"), "next call", cu("cuMemcpyDtoH_v2", ctypes.create_string_buffer(4), address, 4)]


def read_only():
    _, address = mapped()
    return [grant(address, G, (DEVICE, 0, READ)), granted(address)], address


def no_access():
    handle, address = new(G), room(G)
    must(cu("cuMemMap", address, G, 0, handle, 0), "map")
    return address


bad("kernel_write_to_read_only", lambda: (lambda r: [r[0], kernel_code(r[1])])(read_only()))
bad("copy_to_read_only", lambda: (lambda r: [r[0], "HtoD", write(r[1], b"abcd"), "DtoH", read(r[1], 4)[0], "memset", cu("cuMemsetD8_v2", r[1], 0, 4), cu("cuCtxSynchronize")])(read_only()))
bad("copy_no_access", lambda: (lambda a: ["HtoD", write(a, b"abcd"), "DtoH", read(a, 4)[0], "memset", cu("cuMemsetD8_v2", a, 0, 4), cu("cuCtxSynchronize"), "getaccess", granted(a)])(no_access()))
bad("kernel_write_no_access", lambda: kernel_code(no_access()))
bad("kernel_write_reserved_only", lambda: kernel_code(room(G)))
bad("copy_reserved_only", lambda: (lambda a: ["HtoD", write(a, b"abcd"), "DtoH", read(a, 4)[0]])(room(G)))


def crash():
    """Runs each bad call in its own process, some side by side."""

    def one(name):
        try:
            done = subprocess.run([sys.executable, __file__, f"crash:{name}"], capture_output=True, text=True, timeout=25)
        except subprocess.TimeoutExpired:
            return f"FACT bad.{name}: stuck for 25 s"
        line = done.stdout.strip()
        return line if line and done.returncode == 0 else f"FACT bad.{name}: {line} exit {done.returncode} {done.stderr.strip()[-120:]}"

    with ThreadPoolExecutor(6) as pool:
        for line in pool.map(one, CRASH):
            print(line, flush=True)


def maps():
    start()
    two = 2 * G
    handle = new(two)
    address = room(8 * G)
    fact("map_with_offset", cu("cuMemMap", address, G, G, handle, 0))
    fact("map_offset_unaligned", cu("cuMemMap", address + G, G, 4096, handle, 0))
    fact("map_size_unaligned", cu("cuMemMap", address + G, 4096, 0, handle, 0))
    fact("map_size_zero", cu("cuMemMap", address + G, 0, 0, handle, 0))
    fact("map_beyond_allocation", cu("cuMemMap", address + G, two, G, handle, 0))
    fact("map_address_unaligned", cu("cuMemMap", address + G + 4096, G, 0, handle, 0))
    fact("map_flags_1", cu("cuMemMap", address + G, G, 0, handle, 1))
    fact("map_over_mapped", cu("cuMemMap", address, G, 0, handle, 0))
    fact("map_across_mapped", cu("cuMemMap", address, two, 0, handle, 0))
    fact("map_same_handle_again_elsewhere", cu("cuMemMap", address + G, G, 0, handle, 0))
    fact("unmap_two_adjacent_mappings_at_once", cu("cuMemUnmap", address, two))
    fact("unmap_again", cu("cuMemUnmap", address, two))
    must(cu("cuMemMap", address, two, 0, handle, 0), "map")
    fact("unmap_first_half", cu("cuMemUnmap", address, G))
    fact("unmap_second_half", cu("cuMemUnmap", address + G, G))
    fact("unmap_whole", cu("cuMemUnmap", address, two))
    cu("cuMemMap", address, two, 0, handle, 0)
    fact("unmap_beyond_mapping_into_reserved", cu("cuMemUnmap", address, 3 * G))
    fact("unmap_zero", cu("cuMemUnmap", address, 0))
    cu("cuMemUnmap", address, two)
    # Access over more than one mapping, and over parts.
    other = new(two)
    must(cu("cuMemMap", address, two, 0, handle, 0), "map")
    must(cu("cuMemMap", address + two, two, 0, other, 0), "map")
    fact("getaccess_never_granted", granted(address), "host", granted(address, HOST), "device 9", granted(address, DEVICE, 9), "type 99", granted(address, 99))
    fact("setaccess_over_two_mappings", grant(address, 2 * two), granted(address), granted(address + two))
    fact("setaccess_half_of_a_mapping_none", grant(address, G, (DEVICE, 0, NONE)), granted(address), granted(address + G))
    fact("setaccess_half_read", grant(address, G, (DEVICE, 0, READ)), granted(address), granted(address + G))
    fact("setaccess_middle_over_two", grant(address + G, two, (DEVICE, 0, READ)), granted(address), granted(address + G), granted(address + two), granted(address + 3 * G))
    fact("setaccess_unaligned", grant(address + 4096, G), grant(address, 4096))
    fact("setaccess_beyond_mapping", grant(address, 5 * G))
    fact("setaccess_reserved_only", grant(address + 6 * G, G))
    fact("setaccess_zero_size", grant(address, 0))
    fact("setaccess_flags_2", grant(address, G, (DEVICE, 0, 2)), "flags 7", grant(address, G, (DEVICE, 0, 7)))
    fact("setaccess_device_9", grant(address, G, (DEVICE, 9, READ_WRITE)))
    fact("setaccess_device_memory_to_host", grant(address, G, (HOST, 0, READ_WRITE)), "numa 0", grant(address, G, (HOST_NUMA, 0, READ_WRITE)))
    fact("setaccess_good_and_bad_in_one_call", grant(address, G, (DEVICE, 0, READ), (DEVICE, 9, READ_WRITE)), granted(address))
    fact("getaccess_reserved_only", granted(address + 6 * G), "unreserved", granted(0x200000000000), "middle", granted(address + 5))
    fact("setaccess_same_device_twice_in_one_call", grant(address, G, (DEVICE, 0, READ), (DEVICE, 0, READ_WRITE)), granted(address))
    fact("access_gone_after_unmap_and_map", cu("cuMemUnmap", address, two), cu("cuMemMap", address, two, 0, handle, 0), granted(address))
    fact("addressfree_while_mapped", cu("cuMemAddressFree", address, 8 * G))
    still = granted(address)
    fact("addressfree_while_mapped.then", "getaccess", still, "unmap", cu("cuMemUnmap", address, two), cu("cuMemUnmap", address + two, two))
    fact("addressfree_part", cu("cuMemAddressFree", address, G), "from the middle", cu("cuMemAddressFree", address + G, G))
    fact("addressfree_whole", cu("cuMemAddressFree", address, 8 * G))
    fact("reserve_zero", reserve(0)[0], "unaligned size", reserve(4096)[0], "alignment 3", reserve(G, 3)[0], "alignment 4096", reserve(G, 4096)[0], "alignment 1 GiB", hex(reserve(G, 1 << 30)[1]))
    code, a = reserve(G)
    code, b = reserve(G, 0, a)
    fact("reserve_at_taken", code, "same", a == b)
    must(cu("cuMemAddressFree", a, G), "free")
    code, b = reserve(G, 0, a)
    fact("reserve_at_freed", code, "same", a == b)
    code, c = reserve(G, 0, 0x7F0000000123)
    fact("reserve_at_unaligned_hint", code)
    code, c = reserve(G, 0, 0x3000_0000_0000)
    fact("reserve_at_free_hint", code, "as asked", c == 0x3000_0000_0000, hex(c))
    fact("reserve_1_tib", reserve(1 << 40)[0], "64 tib", reserve(1 << 46)[0])
    with open("/proc/self/maps") as lines:
        hits = [line.split()[:2] + line.split()[5:] for line in lines if int(line.split("-")[0], 16) <= a < int(line.split("-")[1].split()[0], 16)]
    fact("reserved_in_proc_maps", hits)
    # Where a mapped address shows.
    h, m = mapped()
    for name, number, kind in [("context", 1, ctypes.c_uint64), ("memory_type", 2, ctypes.c_uint32), ("buffer_id", 7, ctypes.c_uint64), ("is_managed", 8, ctypes.c_uint32), ("device_ordinal", 9, ctypes.c_int), ("legacy_ipc", 10, ctypes.c_uint32), ("range_start", 11, ctypes.c_uint64), ("range_size", 12, ctypes.c_uint64), ("mapped", 13, ctypes.c_uint32), ("handle_types", 14, ctypes.c_uint64), ("rdma", 15, ctypes.c_uint32), ("access_flags", 16, ctypes.c_uint32), ("mempool", 17, ctypes.c_uint64), ("mapping_size", 18, ctypes.c_uint64), ("mapping_base", 19, ctypes.c_uint64), ("memory_block_id", 20, ctypes.c_uint64)]:
        value, ref = out(kind)
        code = cu("cuPointerGetAttribute", ref, number, m + 64)
        relative = value.value - m if name in ("range_start", "mapping_base") else value.value
        fact(f"pointer_attribute.{name}", code, relative)
    value, ref = out()
    fact("pointer_attribute_reserved_only", [cu("cuPointerGetAttribute", ref, n, a) for n in (1, 2, 9, 11, 13)])
    base, size = out(), out()
    fact("address_range", cu("cuMemGetAddressRange_v2", base[1], size[1], m + 64), base[0].value - m, size[0].value)
    ids = []
    for _ in range(2):
        value, ref = out()
        cu("cuPointerGetAttribute", ref, 7, m)
        ids.append(value.value)
        cu("cuMemUnmap", m, G)
        cu("cuMemMap", m, G, 0, h, 0)
        grant(m, G)
    fact("buffer_id_after_remap", "same", ids[0] == ids[1])


def work():
    """What waits for running work."""
    start()
    spinner, on = kernel(b"spin"), stream()
    must(spin(spinner, on, 0.001), "launch")
    must(cu("cuCtxSynchronize"), "sync")
    handle, address = mapped()
    spare_handle, spare = mapped()
    spare2 = room(G)
    raw, ref = out()
    must(cu("cuMemAlloc_v2", ref, 64 * MIB), "alloc")

    def while_running(name, call):
        spin(spinner, on, 0.4)
        value, seconds = timed(call)
        busy = cu("cuStreamQuery", on)
        cu("cuStreamSynchronize", on)
        fact(name, value, f"{seconds} s", "work still running" if busy == 600 else f"query {busy}")

    while_running("unmap", lambda: cu("cuMemUnmap", address, G))
    while_running("map", lambda: cu("cuMemMap", address, G, 0, handle, 0))
    while_running("setaccess", lambda: grant(address, G))
    while_running("setaccess_none", lambda: grant(address, G, (DEVICE, 0, NONE)))
    while_running("create", lambda: create(G)[0])
    while_running("unmap_released", lambda: [cu("cuMemRelease", spare_handle), cu("cuMemUnmap", spare, G)])
    while_running("release_unmapped", lambda: cu("cuMemRelease", new(G)))
    while_running("export", lambda: export(handle)[0])
    while_running("reserve_and_free", lambda: [cu("cuMemAddressFree", spare2, G), reserve(G)[0]])
    while_running("memfree", lambda: cu("cuMemFree_v2", raw.value))
    while_running("memalloc", lambda: cu("cuMemAlloc_v2", out()[1], 64 * MIB))
    while_running("module_load", lambda: cu("cuModuleLoadData", out(ctypes.c_void_p)[1], PTX))
    while_running("stream_create", lambda: cu("cuStreamCreate", out(ctypes.c_void_p)[1], 1))
    while_running("sync_copy_dtoh", lambda: (cu("cuMemAlloc_v2", ref, 4096), read(raw.value, 4))[1][0])
    # The kernel writes where memory was unmapped under it.
    fact("stream_query_idle", cu("cuStreamQuery", on))


def creates():
    """Error codes, with and without a context."""
    sizes = ctypes.c_uint64()
    must(cu("cuInit", 0), "cuInit")
    result = {}

    def table(label):
        for name, p in [("device", props()), ("device_fd", props(handle_types=FD)), ("device_1", props(number=1)), ("device_9", props(number=9)), ("device_-1", props(number=-1)), ("host", props(HOST)), ("host_fd", props(HOST, 0, FD)), ("host_numa_0", props(HOST_NUMA)), ("host_numa_0_fd", props(HOST_NUMA, 0, FD)), ("host_numa_1", props(HOST_NUMA, 1)), ("host_numa_77", props(HOST_NUMA, 77)), ("host_numa_current", props(HOST_NUMA_CURRENT)), ("host_numa_current_fd", props(HOST_NUMA_CURRENT, 0, FD)), ("location_0", props(0)), ("location_99", props(99)), ("type_0", props(kind=0)), ("type_2", props(kind=2)), ("handle_types_2", props(handle_types=2)), ("handle_types_4", props(handle_types=4)), ("handle_types_8_fabric", props(handle_types=8)), ("handle_types_64", props(handle_types=64)), ("rdma", props(rdma=1)), ("device_fd_rdma", props(handle_types=FD, rdma=1))]:
            code, handle = create(G, p)
            grain = [cu("cuMemGetAllocationGranularity", ctypes.byref(sizes), p, 0), sizes.value, cu("cuMemGetAllocationGranularity", ctypes.byref(sizes), p, 1), sizes.value]
            fact(f"{label}.{name}", code, "granularity", grain, *([properties_of(handle)[1]] if code == 0 else []))
            if code == 0:
                result[name] = handle

    table("no_context")
    thread = {}

    def fresh():
        h, a = create(G), reserve(G)
        thread["codes"] = [h[0], a[0], cu("cuMemMap", a[1], G, 0, h[1], 0), grant(a[1], G), "DtoH", read(a[1], 4)[0], "HtoD", write(a[1], b"abcd"), "memset", cu("cuMemsetD8_v2", a[1], 0, 4), "export", export(h[1])[0], "retain", retain(a[1])[0], "getaccess", granted(a[1]), "range", cu("cuMemGetAddressRange_v2", out()[1], out()[1], a[1]), "unmap", cu("cuMemUnmap", a[1], G), cu("cuMemRelease", h[1]), cu("cuMemAddressFree", a[1], G)]

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
    fact("size_zero", create(0)[0], "unaligned", create(4096)[0], create(G + 1)[0], "size above the card", create(1 << 40)[0], "huge", create(1 << 62)[0])
    for name in ("device", "host", "host_numa_0", "host_numa_0_fd", "host_numa_current"):
        if name not in result:
            continue
        handle = result[name]
        address = room(G)
        codes = [cu("cuMemMap", address, G, 0, handle, 0), "device", grant(address, G)]
        codes += ["device copies", write(address, b"abcd"), read(address, 4)[0]]
        codes += ["host", grant(address, G, (HOST, 0, READ_WRITE)), "numa 0", grant(address, G, (HOST_NUMA, 0, READ_WRITE)), "get", granted(address), granted(address, HOST), granted(address, HOST_NUMA)]
        if name != "device" and 0 in codes[-6:-5] + codes[-4:-3]:
            codes += ["cpu reads", ctypes.string_at(address, 4)]
        attribute, ref = out(ctypes.c_uint32)
        codes += ["memory type", cu("cuPointerGetAttribute", ref, 2, address), attribute.value]
        fact(f"use_{name}", codes, "export", export(handle)[0])


def before_init():
    values = {}
    for name, args in [("cuMemCreate", (out()[1], G, props(), 0)), ("cuMemRelease", (1,)), ("cuMemAddressReserve", (out()[1], G, 0, 0, 0)), ("cuMemImportFromShareableHandle", (out()[1], 5, 1)), ("cuCtxGetCurrent", (out()[1],)), ("cuDriverGetVersion", (out()[1],)), ("cuDeviceGetCount", (out()[1],)), ("cuDeviceGet", (out()[1], 0)), ("cuMemAlloc_v2", (out()[1], 64)), ("cuMemGetInfo_v2", (out()[1], out()[1])), ("cuStreamSynchronize", (None,)), ("cuCtxSynchronize", ()), ("cuMemGetAllocationGranularity", (out()[1], props(), 0)), ("cuGetErrorName", (1, out()[1])), ("cuGetProcAddress_v2", (b"cuInit", out()[1], 12000, 0, None)), ("cuCheckpointProcessGetState", (os.getpid(), out()[1])), ("cuMemCreate_null", ())]:
        if name != "cuMemCreate_null":
            values[name] = cu(name, *args)
    fact("codes", values)
    fact("init_flags_1", cu("cuInit", 1))
    must(cu("cuInit", 0), "cuInit")
    fact("no_context", {name: cu(name, *args) for name, args in [("cuMemAlloc_v2", (out()[1], 64)), ("cuMemFree_v2", (64,)), ("cuMemFree_v2 null", (0,)), ("cuMemGetInfo_v2", (out()[1], out()[1])), ("cuStreamSynchronize", (None,)), ("cuCtxSynchronize", ()), ("cuStreamQuery", (None,)), ("cuEventCreate", (out()[1], 0)), ("cuModuleLoadData", (out()[1], PTX)), ("cuCtxGetCurrent", (out()[1],)), ("cuCtxGetDevice", (out()[1],)), ("cuCtxPopCurrent_v2", (out()[1],)), ("cuMemcpyHtoD_v2", (64, b"abcd", 4)), ("cuMemHostAlloc", (out()[1], 4096, 0)), ("cuPointerGetAttribute", (out()[1], 2, 64))] if not name.endswith("null")})
    pid = os.fork()
    if pid == 0:
        fact("forked_child_after_init", "cuInit", cu("cuInit", 0), "create", create(G)[0], "count", cu("cuDeviceGetCount", out()[1]), "primary", cu("cuDevicePrimaryCtxRetain", out()[1], 0))
        os._exit(0)
    os.waitpid(pid, 0)
    start()
    pid = os.fork()
    if pid == 0:
        fact("forked_child_of_context", "cuInit", cu("cuInit", 0), "create", create(G)[0], "getcurrent", cu("cuCtxGetCurrent", out()[1]), "sync", cu("cuCtxSynchronize"), "alloc", cu("cuMemAlloc_v2", out()[1], 64), "version", cu("cuDriverGetVersion", out()[1]))
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


# --- two processes ---------------------------------------------------------------------------------------------


def peer(*arguments, **kwargs):
    """A process of this file that does one command per line and answers one line."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    process = subprocess.Popen([sys.executable, __file__, "peer", str(theirs.fileno())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()])
    theirs.close()
    return process, ours


def ask(process, line, timeout=20):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    ready, _, _ = select.select([process.stdout], [], [], timeout)
    return process.stdout.readline().strip() if ready else "no answer"


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
            reply = [cu("cuMemMap", state["address"], int(rest[0]), 0, state["handle"], 0), grant(state["address"], int(rest[0]))]
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
        fact("import_of_reexport_in_third_process", ask(second, "take"), ask(second, f"map {size}"), ask(second, "read"), ask(second, "properties"))
        ask(second, "end")
        second.wait()
    fact("exporter_writes_importer_reads", write(address, b"here"), ask(first, "read"))
    fact("exporter_frees.used_before", begin - free_memory())
    fact("exporter_frees", ask(first, f"unmap {size}"), ask(first, "release"), "used", begin - free_memory(), read(address, 4))
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
        fact("map_when_only_fd_left", cu("cuMemMap", address, size, 0, sixth, 0), grant(address, size), read(address, 4), cu("cuMemUnmap", address, size), cu("cuMemRelease", sixth))
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
    fact("fd_alone_imports", code, cu("cuMemMap", address, size, 0, handle, 0) if code == 0 else "", grant(address, size) if code == 0 else "", read(address, 4))
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
            fact(f"{name}_share", "import", ask(importer, "take"), "map", ask(importer, f"map {G}"), ask(importer, "read"), ask(importer, "properties"))
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


# --- checkpoint ------------------------------------------------------------------------------------------------


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
    module, ref = out(ctypes.c_void_p)
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
        "cuThreadExchangeStreamCaptureMode": lambda: cu("cuThreadExchangeStreamCaptureMode", ctypes.byref(ctypes.c_int(2))),
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
        "cuMemHostRegister_v2": lambda: (lambda b: [cu("cuMemHostRegister_v2", b, 4096, 0), cu("cuMemHostUnregister", b)])(ctypes.c_void_p(ctypes.addressof(mmap_page()))),
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
    context, calls, keep = victim_calls()
    results, threads = {}, {}

    def run(name):
        results[name] = "no context"
        if name not in ("cuCtxSetCurrent", "without_context"):
            cu("cuCtxSetCurrent", context)
        results.pop(name)
        results[name] = calls[name]()

    print("ready", *calls, flush=True)
    for line in sys.stdin:
        verb, _, argument = line.strip().partition(" ")
        if verb == "prepare":
            # The thread makes its context current while the process still runs, then waits to be told.
            go = threading.Event()
            settled = threading.Event()

            def body(name=argument, go=go, settled=settled):
                cu("cuCtxSetCurrent", context)
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
            spinner, on, _ = keep
            print(spin(spinner, on, float(argument)), flush=True)
        elif verb == "sync":
            print(cu("cuCtxSynchronize"), flush=True)
        elif verb == "end":
            print("bye", flush=True)
            os._exit(0)


WAIT = 0.25


def start_victim():
    process = subprocess.Popen([sys.executable, __file__, "victim"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    names = process.stdout.readline().split()[1:]
    return process, names


def blocks(full):
    must(cu("cuInit", 0), "cuInit")
    process, names = start_victim()
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
        fact(name, answer, *([f"after unlock {late}"] if late else []), *([f"checkpoint calls {codes}"] if any(codes) else []))
        if any(codes) or answer == "no answer":
            fact("gave_up_on_victim", state(pid))
            process.kill()
            process.wait()
            process, names_again = start_victim()
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
    fact("order_from_running", "checkpoint", checkpoint(pid), "restore", restore(pid), "unlock", unlock(pid), "state", state(pid))
    fact("lock_twice", lock(pid), lock(pid), "restore while locked", restore(pid), "unlock", unlock(pid), "state", state(pid))
    fact("spin", ask(process, "spin 1.0"))
    fact("lock_with_work_1s_timeout_100ms", timed(lambda: lock(pid, 100)), state(pid))
    if state(pid)[1] == 1:
        fact("unlock", unlock(pid))
    ask(process, "sync")
    ask(process, "spin 1.0")
    fact("lock_with_work_1s_timeout_0", timed(lambda: lock(pid, 0)), state(pid))
    fact("checkpoint_right_after", timed(lambda: checkpoint(pid)), state(pid))
    fact("checkpoint_twice", checkpoint(pid), "unlock while checkpointed", unlock(pid), "lock while checkpointed", lock(pid), state(pid))
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
    for label, number in (("no_cuda", sleeper.pid), ("no_process", 4000000), ("pid_0", 0), ("pid_-1", -1), ("self", os.getpid())):
        if label == "self":
            fact("pid_self", "state", state(number))
            continue
        fact(f"pid_{label}", "state", state(number), "lock", lock(number, 200), "checkpoint", checkpoint(number), "restore", restore(number), "unlock", unlock(number), "thread", cu("cuCheckpointProcessGetRestoreThreadId", number, ref))
    sleeper.terminate()
    sleeper.wait()
    fact("state_null_out", cu("cuCheckpointProcessGetState", pid, None))
    ask(process, "end")
    process.wait(10)
    fact("pid_ended", "state", state(pid), "lock", lock(pid, 200))
    fact("without_cuInit", subprocess.run([sys.executable, __file__, "uninitialised_lock"], capture_output=True, text=True).stdout.strip())


def uninitialised_lock():
    print("state", state(os.getpid()), "lock", lock(os.getppid(), 100))


# --- a large registered arena ----------------------------------------------------------------------------------


def arena_victim():
    start()
    size = 16 << 30
    device, ref = out()
    must(cu("cuMemAlloc_v2", ref, 1 << 30), "alloc")
    on = stream()
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL("libc.so.6")
    libc.madvise(ctypes.c_void_p(base), ctypes.c_size_t(size), 14)
    libc.madvise(ctypes.c_void_p(base), ctypes.c_size_t(size), 10)
    part = size // 16

    def populate(i):
        libc.madvise(ctypes.c_void_p(base + i * part), ctypes.c_size_t(part), 23)

    def rate():
        begin = time.monotonic()
        for _ in range(4):
            cu("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(base + (8 << 30)), device.value, 1 << 30, on)
        code = cu("cuStreamSynchronize", on)
        down = 4 / (time.monotonic() - begin) * 1.0737
        begin = time.monotonic()
        for _ in range(4):
            cu("cuMemcpyHtoDAsync_v2", device.value, ctypes.c_void_p(base + (8 << 30)), 1 << 30, on)
        code2 = cu("cuStreamSynchronize", on)
        return [code, code2, "GB/s down", round(down, 1), "up", round(4 / (time.monotonic() - begin) * 1.0737, 1)]

    print("ready", flush=True)
    for line in sys.stdin:
        verb = line.strip()
        if verb == "populate":

            def all_parts():
                with ThreadPoolExecutor(16) as pool:
                    list(pool.map(populate, range(16)))

            print(timed(all_parts)[1], flush=True)
        elif verb.startswith("register"):
            print(timed(lambda: cu("cuMemHostRegister_v2", ctypes.c_void_p(base), size, int(verb.split()[1]))), flush=True)
        elif verb == "slices":
            print(timed(lambda: [cu("cuMemHostRegister_v2", ctypes.c_void_p(base + i * part), part, 0) for i in range(16)]), flush=True)
        elif verb == "unslices":
            print(timed(lambda: [cu("cuMemHostUnregister", ctypes.c_void_p(base + i * part)) for i in range(16)]), flush=True)
        elif verb == "unregister":
            print(timed(lambda: cu("cuMemHostUnregister", ctypes.c_void_p(base))), flush=True)
        elif verb == "rate":
            print(rate(), flush=True)
        elif verb == "end":
            print("bye", flush=True)
            os._exit(0)


def arena():
    must(cu("cuInit", 0), "cuInit")
    process = subprocess.Popen([sys.executable, __file__, "arena_victim"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    pid = process.pid

    def cycle(label):
        fact(f"cycle_{label}", "lock", timed(lambda: lock(pid)), "checkpoint", timed(lambda: checkpoint(pid)), "restore", timed(lambda: restore(pid)), "unlock", timed(lambda: unlock(pid)))

    cycle("before_arena")
    fact("populate_16_gib_s", ask(process, "populate", 60))
    cycle("arena_not_registered")
    cycle("arena_not_registered_again")
    fact("register", ask(process, "register 1", 60))
    fact("rate", ask(process, "rate", 60))
    cycle("registered")
    cycle("registered_again")
    fact("rate_after", ask(process, "rate", 60))
    fact("unregister", ask(process, "unregister", 60))
    cycle("unregistered_again")
    fact("register_16_slices", ask(process, "slices", 60))
    cycle("16_slices")
    fact("rate_slices", ask(process, "rate", 60))
    fact("unregister_slices", ask(process, "unslices", 60))
    fact("register_flags_3", ask(process, "register 3", 60))
    cycle("portable_device_mapped")
    fact("unregister", ask(process, "unregister", 60))
    ask(process, "end")
    process.wait(30)


# --- capture ---------------------------------------------------------------------------------------------------


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
        for name in ("cuMemAlloc_v2", "cuCtxSynchronize", "cuMemcpyHtoD_v2", "cuMemCreate", "cuStreamQuery.other", "cuStreamSynchronize.other", "cuMemGetInfo_v2"):
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


SECTIONS = {f.__name__: f for f in (device, before_init, handles, maps, work, creates, shares, crash, capture, locking, blocks_locked, blocks_checkpointed, arena)}
HIDDEN = {f.__name__: f for f in (victim, arena_victim, uninitialised_lock)}
LIMIT = {"blocks_checkpointed": 110, "blocks_locked": 60, "arena": 100}


def main():
    global SECTION
    names = sys.argv[1:]
    if names and names[0] == "peer":
        return serve(int(names[1]))
    if len(names) == 1 and names[0].startswith("crash:"):
        SECTION, name = "bad", names[0].removeprefix("crash:")
        start()
        return fact(name, CRASH[name]())
    if len(names) == 1 and names[0] in HIDDEN:
        return HIDDEN[names[0]]()
    if len(names) == 2 and names[0] == "section":
        SECTION = names[1]
        return SECTIONS[SECTION]()
    begin = time.monotonic()
    for name in names or SECTIONS:
        # A session of its own, so that a stuck section goes with all that it started.
        process = subprocess.Popen([sys.executable, __file__, "section", name], start_new_session=True)
        try:
            code = process.wait(LIMIT.get(name, 45))
        except subprocess.TimeoutExpired:
            code = "stuck"
        if code:
            print(f"FACT {name}.exit: {code}", flush=True)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        print(f"# {name} done after {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
