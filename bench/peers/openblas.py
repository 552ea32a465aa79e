# SPDX-License-Identifier: MIT
"""openblas.py LIBRARY SHAPES: times cblas_sgemm as `weft bench ops` times matmuls; prints JSON.

SHAPES is a JSON object, name -> [weight, form, m, n, k]; form is "nt" and the like. Weights are
streamed: each call uses another one, and together they exceed the caches. Memory uses huge pages if
available, like Weft's."""
import ctypes
import json
import mmap
import os
import sys
import time

STREAMED, SECONDS = 256 << 20, 0.25


def memory(floats):
    m = mmap.mmap(-1, max(floats * 4, 4096), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # a shared mapping gets no huge pages
    if hasattr(mmap, "MADV_HUGEPAGE"):
        m.madvise(mmap.MADV_HUGEPAGE)
    pattern = (ctypes.c_float * 4096)(*[(i * 37 % 101) / 50 - 1 for i in range(4096)])
    raw = bytes(pattern)
    for at in range(0, floats * 4, len(raw)):
        m[at:at + min(len(raw), floats * 4 - at)] = raw[:min(len(raw), floats * 4 - at)]
    return m, ctypes.addressof(ctypes.c_char.from_buffer(m))


def main():
    blas = ctypes.CDLL(sys.argv[1])
    blas.openblas_get_config.restype = blas.openblas_get_corename.restype = ctypes.c_char_p
    f, p, n = ctypes.c_float, ctypes.c_void_p, ctypes.c_int
    blas.cblas_sgemm.argtypes = [n, n, n, n, n, n, f, p, n, p, n, f, p, n]
    out, keep = {}, []
    for name, (weight, form, m, cols, k) in json.loads(sys.argv[2]).items():
        ta, tb = form[0] == "t", form[1] == "t"
        copies = STREAMED // (cols * k * 4) + 1 if weight else 1
        a, b, y = memory(m * k), memory(copies * cols * k), memory(m * cols)
        keep = [a, b, y]

        def once():
            for i in range(copies):
                blas.cblas_sgemm(101, 112 if ta else 111, 112 if tb else 111, m, cols, k, 1.0, a[1], m if ta else k,
                                 b[1] + i * cols * k * 4, k if tb else cols, 0.0, y[1], cols)

        once()
        best, runs, start = 1e9, 0, time.perf_counter()
        while runs < 3 or time.perf_counter() - start < SECONDS:
            t = time.perf_counter()
            once()
            best, runs = min(best, (time.perf_counter() - t) / copies), runs + 1
        out[name] = 2 * m * cols * k / best / 1e9
    print(json.dumps({"config": blas.openblas_get_config().decode(), "core": blas.openblas_get_corename().decode(), "gflops": out}))
    sys.stdout.flush()
    os._exit(0)  # the mappings are still referenced


main()
