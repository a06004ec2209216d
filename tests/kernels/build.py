#!/usr/bin/env python3
"""Compiles kernels.cu to kernels.ptx with NVRTC, or with --check says whether the committed file is what it gives.

The compiler comes from the wheel named below (its only use): either installed for this Python, or downloaded into
--wheels. Its version is pinned because it decides the `.version` line: a PTX newer than the driver does not load.
"""

import argparse
import ctypes
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

WHEEL = "nvidia-cuda-nvrtc-cu12==12.8.93"
ARCHITECTURE = "compute_70"
# The newest instruction set that drivers of the r570 line take, the first with the checkpoint API.
NEWEST_VERSION = (8, 7)
HERE = pathlib.Path(__file__).resolve().parent


def compiler(wheels):
    """The NVRTC library: the installed one, or that of the downloaded wheel."""
    installed = pathlib.Path(sysconfig.get_paths()["purelib"])
    for root in (installed, wheels / "unpacked"):
        library = root / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
        if library.exists():
            return library
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", wheels, WHEEL]
    subprocess.run(command, check=True)
    for wheel in wheels.glob("nvidia_cuda_nvrtc_cu12-*.whl"):
        zipfile.ZipFile(wheel).extractall(wheels / "unpacked")
    return wheels / "unpacked/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"


def compile_ptx(library, source):
    builtins = next(library.parent.glob("libnvrtc-builtins.so.*"))
    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(library))
    program = ctypes.c_void_p()
    options = [f"--gpu-architecture={ARCHITECTURE}".encode(), b"--std=c++17", b"-default-device"]

    def call(name, *args):
        code = getattr(nvrtc, name)(*args)
        if code:
            size = ctypes.c_size_t()
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            sys.exit(f"{name}: error {code}\n{log.value.decode()}")

    call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    call("nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, text)
    return text.value.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    parser.add_argument("--wheels", type=pathlib.Path, default=HERE.parents[1] / "target/nvrtc")
    args = parser.parse_args()
    args.wheels.mkdir(parents=True, exist_ok=True)
    text = compile_ptx(compiler(args.wheels), (HERE / "kernels.cu").read_bytes())
    version = tuple(map(int, re.search(r"^\.version (\d+)\.(\d+)$", text, re.M).groups()))
    if version > NEWEST_VERSION:
        sys.exit(f"PTX version {version} is newer than {NEWEST_VERSION}, which older drivers do not load")
    committed = HERE / "kernels.ptx"
    if not args.check:
        committed.write_text(text)
    elif committed.read_text() != text:
        sys.exit("kernels.ptx is not what kernels.cu compiles to: run tests/kernels/build.py")


if __name__ == "__main__":
    main()
