"""The process that ranks are forked from never begins to use CUDA, or no rank could; told by a driver that notes it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

NOTES = ("cuInit", "cuDeviceGetCount", "cuCtxCreate_v2", "cuDevicePrimaryCtxRetain")
# What CUDA's runtime finds by name it calls as well; so each of these functions says that it was called.
LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void note(const char *name) { FILE *f = fopen(getenv("NOTES"), "a"); fprintf(f, "%s\\n", name); fclose(f); }
static int other(void) { return 100; }  /* CUDA_ERROR_NO_DEVICE */
int cuDriverGetVersion(int *version) { *version = 13020; return 0; }
"""
FUNCTION = 'int {name}(void) {{ note("{name}"); return 100; }}\n'
ADDRESS = """
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, void *status);
int cuGetProcAddress(const char *name, void **found, int version, unsigned long long flags) {{
    return cuGetProcAddress_v2(name, found, version, flags, 0);
}}
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, void *status) {{
    *found = (void *)other;
    if (!strncmp(name, "cuGetProcAddress", 16)) *found = (void *)cuGetProcAddress_v2;
    if (!strcmp(name, "cuDriverGetVersion")) *found = (void *)cuDriverGetVersion;
{names}
    return 0;
}}
"""
CODE = """
import os
from manyheads.launchers import warm_preload
with open(os.environ["NOTES"]) as file:
    print("before:", *file.read().split())
import torch
del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
torch.cuda.is_available()
with open(os.environ["NOTES"]) as file:
    print("after:", *file.read().split())
"""


@pytest.mark.tail
@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_no_call_of_the_driver(tmp_path: Path) -> None:
    names = "".join(f'    if (!strcmp(name, "{name}")) *found = (void *){name};\n' for name in NOTES)
    source = tmp_path / "cuda.c"
    source.write_text(LIBRARY + "".join(FUNCTION.format(name=name) for name in NOTES) + ADDRESS.format(names=names))
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(tmp_path / "libcuda.so.1")]
    subprocess.run(["gcc", *flags, str(source)], check=True)
    (tmp_path / "notes").touch()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "NOTES": str(tmp_path / "notes")}
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    before, after = done.stdout.splitlines()
    assert before == "before:", done.stderr
    assert "cuInit" in after  # else it would have noted nothing
