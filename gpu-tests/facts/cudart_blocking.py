"""Which calls of the CUDA runtime wait, fail or end the process while the driver holds it.

The runtime has private tables beside the functions it looks up, so what it asks the driver is not what its name says. The library is
that of the PyTorch wheel, by ctypes: nothing else of PyTorch is used."""

import ctypes
import glob
import os
import sys

from api import MIB, PTX
from checkpoint import blocks, obey
from probe import fact

PATTERNS = ("nvidia/*/lib/libcudart.so.1[0-9]*", "torch/lib/libcudart*.so*", "libcudart.so.1[0-9]*")


def find_runtime():
    """The path of the library, or None."""
    folders = [*filter(None, sys.path), "/usr/local/cuda/lib64"]
    patterns = [os.path.join(folder, pattern) for folder in folders for pattern in PATTERNS]
    return next((path for pattern in patterns for path in sorted(glob.glob(pattern))), None)


def out():
    return ctypes.create_string_buffer(256)


def runtime_calls():
    """How to enter a context, and name -> call, in a process that has all it needs."""
    cudart = ctypes.CDLL(find_runtime())

    def call(name, *args):
        """Whole numbers go as 64 bits, which every integer parameter takes."""
        wide = [ctypes.c_uint64(a & (2**64 - 1)) if isinstance(a, int) else a for a in args]
        function = getattr(cudart, name, None)
        return "absent" if function is None else function(*wide)

    def made(name, *args):
        value = ctypes.c_void_p()
        code = call(name, ctypes.byref(value), *args)
        if code:
            raise SystemExit(f"{name}: {code}")
        return value

    call("cudaSetDevice", 0)
    memory, doomed, on = made("cudaMalloc", MIB), made("cudaMalloc", MIB), made("cudaStreamCreate")
    first, second = made("cudaEventCreate"), made("cudaEventCreate")
    pinned, host = made("cudaMallocHost", 4096), ctypes.create_string_buffer(4096)
    library = ctypes.c_void_p()
    load = ("cudaLibraryLoadData", ctypes.byref(library), PTX, None, None, 0, None, None, 0)
    kernel = made("cudaLibraryGetKernel", library, b"put") if call(*load) == 0 else None
    word, value = ctypes.c_uint64(memory.value), ctypes.c_uint32(1)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(word), ctypes.addressof(value))

    class Extent(ctypes.Structure):
        """dim3"""

        _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]

    def launch():
        if kernel is None:
            return "absent"
        # What the pointers point to lives as long as this function, which names it.
        assert (word.value, value.value) == (memory.value, 1)
        return call("cudaLaunchKernel", kernel, Extent(1, 1, 1), Extent(1, 1, 1), arguments, 0, on)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    for event in (first, second):
        call("cudaEventRecord", event, on)
    launch()
    call("cudaDeviceSynchronize")
    calls = {
        "cudaGetDevice": lambda: call("cudaGetDevice", out()),
        "cudaSetDevice": lambda: call("cudaSetDevice", 0),
        "cudaGetDeviceCount": lambda: call("cudaGetDeviceCount", out()),
        "cudaDeviceGetAttribute": lambda: call("cudaDeviceGetAttribute", out(), 16, 0),
        "cudaDriverGetVersion": lambda: call("cudaDriverGetVersion", out()),
        "cudaGetLastError": lambda: call("cudaGetLastError"),
        "cudaStreamQuery": lambda: call("cudaStreamQuery", on),
        "cudaStreamSynchronize": lambda: call("cudaStreamSynchronize", on),
        "cudaStreamIsCapturing": lambda: call("cudaStreamIsCapturing", on, out()),
        "cudaStreamCreate": lambda: call("cudaStreamCreate", out()),
        "cudaEventQuery": lambda: call("cudaEventQuery", first),
        "cudaEventSynchronize": lambda: call("cudaEventSynchronize", first),
        "cudaEventElapsedTime": lambda: call("cudaEventElapsedTime", out(), first, second),
        "cudaEventRecord": lambda: call("cudaEventRecord", second, on),
        "cudaStreamWaitEvent": lambda: call("cudaStreamWaitEvent", on, first, 0),
        "cudaDeviceSynchronize": lambda: call("cudaDeviceSynchronize"),
        "cudaMemGetInfo": lambda: call("cudaMemGetInfo", out(), out()),
        "cudaPointerGetAttributes": lambda: call("cudaPointerGetAttributes", out(), memory),
        "cudaMalloc": lambda: call("cudaMalloc", out(), 4096),
        "cudaFree": lambda: call("cudaFree", doomed),
        "cudaMallocHost": lambda: call("cudaMallocHost", out(), 4096),
        "cudaMemcpy": lambda: call("cudaMemcpy", host, memory, 4, 2),
        "cudaMemcpyAsync": lambda: call("cudaMemcpyAsync", pinned, memory, 4, 2, on),
        "cudaMemsetAsync": lambda: call("cudaMemsetAsync", memory, 0, 4, on),
        "cudaLaunchKernel": launch,
        "cudaLaunchHostFunc": lambda: call("cudaLaunchHostFunc", on, callback, None),
    }
    return lambda: call("cudaSetDevice", 0), calls


def cudart_victim():
    """Reads names of calls, as the victim of `checkpoint` does."""
    enter, calls = runtime_calls()
    obey(calls, enter)


def cudart_locked():
    measure(False)


def cudart_checkpointed():
    measure(True)


def measure(full):
    path = find_runtime()
    fact("library", os.path.basename(path) if path else "absent")
    if path:
        blocks(full, "cudart_victim")
