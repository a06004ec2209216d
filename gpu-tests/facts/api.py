"""The driver API by ctypes: every call returns the driver's number, nothing is raised."""

import ctypes
import struct


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
    return code, dict(
        type=kind, handles=types, location=location, id=number, compression=compression, rdma=rdma, usage=usage
    )


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
