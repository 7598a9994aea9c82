"""A double of CUDA's driver, `libcuda.so.1`: it knows whether it was initialized, and has no device."""

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int is_initialized = 0;
int cuInit(unsigned flags) {
    const char *path = getenv("CUDA_DRIVER_CALLS");
    FILE *file = path ? fopen(path, "a") : 0;
    if (file) { fputs("cuInit\n", file); fclose(file); }
    is_initialized = 1;
    return 0;
}
int cuDeviceGetCount(int *count) { *count = 0; return is_initialized ? 0 : 3; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
static int no_device(void) { return 100; }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, void *status) {
    if (!strcmp(name, "cuInit")) *found = (void *)cuInit;
    else if (!strcmp(name, "cuDeviceGetCount")) *found = (void *)cuDeviceGetCount;
    else if (!strcmp(name, "cuDriverGetVersion")) *found = (void *)cuDriverGetVersion;
    else if (!strcmp(name, "cuGetProcAddress")) *found = (void *)cuGetProcAddress_v2;
    else *found = (void *)no_device;
    return 0;
}
int cuGetProcAddress(const char *name, void **found, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, found, version, flags, 0);
}
"""


@pytest.fixture(scope="session")
def cuda_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the library. It writes each `cuInit` to the file that CUDA_DRIVER_CALLS names."""
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("driver")
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text(_SOURCE)
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source]
    subprocess.run(command, check=True)
    return library
