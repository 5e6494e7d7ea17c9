"""Compile `poisson_chain.c` with the system compiler and call it on numpy arrays."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np


def load():
    """The C program as a function like `poisson_chain.poisson_chain`, in double precision; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("  C is left out: no compiler (cc, gcc, clang) was found")
        return None
    library = Path(tempfile.mkdtemp()) / "poisson_chain.so"
    source = Path(__file__).parent / "poisson_chain.c"
    flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library), "-lm"], check=True)
    program = ctypes.CDLL(str(library)).poisson_chain

    def pointer(x):
        return x.ctypes.data_as(ctypes.c_void_p)

    def run(y, mask, sigma2, alpha, sweeps):
        y, mask = np.ascontiguousarray(y, np.float64), np.ascontiguousarray(mask, np.uint8)
        m, v, energy = np.empty_like(y), np.empty_like(y), ctypes.c_double()
        numbers = ctypes.c_long(len(y)), ctypes.c_double(sigma2), ctypes.c_double(alpha), ctypes.c_long(sweeps)
        program(pointer(y), pointer(mask), *numbers, pointer(m), pointer(v), ctypes.byref(energy))
        return m, v, energy.value

    return run
