"""The program where the system gives little: it ends in time, with a result or with one
sentence, and never in a signal. Commands that need no LAPACK do not load it."""
# SPDX-License-Identifier: Apache-2.0
import math
import os
import resource
import subprocess
import sys
import tempfile
import unittest

import numpy
from program import PROGRAM, SANITIZED

MIB = 1 << 20

WITHOUT_LAPACK = (
    "info",
    "apply chain.st x.npy -o y.npy",
    "conv u.npy k.npy -o v.npy",
    "transform dct2 64 -o d.st",
    "dense chain.st -o d.npy",
    "combine product chain.st chain.st -o e.st",
    "--version",
)
WITH_LAPACK = (
    "factorize w.npy --chain monarch -o f.st",
    "invert chain.st -o i.st",
    "factorize w.npy --chain monarch --threads 1 -o f.st",
)


def run(command, limit=None, most=None, **environment):
    def before():
        if limit is not None:
            resource.setrlimit(limit, (most, most))

    return subprocess.run(
        [PROGRAM, *command.split()],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=before,
        env={**os.environ, **environment},
    )


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.chdir(cls.folder.name)
        random = numpy.random.default_rng(0)
        numpy.save("w.npy", random.standard_normal((64, 64)).astype("f4"))
        numpy.save("x.npy", random.standard_normal((5, 64)).astype("f4"))
        numpy.save("u.npy", random.standard_normal(1000).astype("f4"))
        numpy.save("k.npy", numpy.ones(3, "f4"))
        made = run("factorize w.npy --chain monarch -o chain.st")
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        cls.folder.cleanup()

    def ends_well(self, command, *limit, **environment):
        done = run(command, *limit, **environment)
        self.assertIn(done.returncode, (0, 1), f"{command}: {done.stderr}")
        if done.returncode:
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("danaus "), done.stderr)
        return done

    @unittest.skipIf(SANITIZED, "a sanitizer needs the address space")
    def test_every_command_ends_under_a_limit_of_address_space(self):
        for size in (20, 60, 140, 180, 300, 600, 1000):
            for command in WITHOUT_LAPACK + WITH_LAPACK:
                self.ends_well(command, resource.RLIMIT_AS, size * MIB)

    @unittest.skipIf(SANITIZED, "a sanitizer needs the address space")
    def test_a_result_needs_little_address_space_without_lapack(self):
        for command in WITHOUT_LAPACK:
            done = self.ends_well(command, resource.RLIMIT_AS, 100 * MIB)
            self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipIf(SANITIZED, "a sanitizer needs the address space")
    def test_what_lapack_needs_is_said(self):
        done = run(WITH_LAPACK[0], resource.RLIMIT_AS, 120 * MIB)
        self.assertEqual(done.returncode, 1)
        self.assertIn("address space", done.stderr)
        self.assertIn("ulimit -v", done.stderr)

    @unittest.skipIf(SANITIZED, "a sanitizer opens files and needs stack")
    def test_few_files_and_little_stack_are_enough(self):
        for command in WITHOUT_LAPACK + WITH_LAPACK:
            self.ends_well(command, resource.RLIMIT_NOFILE, 4)
            self.ends_well(command, resource.RLIMIT_STACK, 256 << 10)
            self.ends_well(command, resource.RLIMIT_STACK, 4 << 30)

    def test_arrays_that_no_memory_holds_are_refused(self):
        # Files that are all holes, and as large as their headers say.
        for name, dtype, shape in (
            ("many.npy", "<f8", (1 << 34, 64)),
            ("long.npy", "<f4", (1 << 41,)),
            ("rows.npy", "<f4", (1 << 35, 64)),
            ("square.npy", "<f8", (1 << 20, 1 << 20)),
        ):
            with open(name, "wb") as file:
                numpy.lib.format.write_array_header_1_0(
                    file, {"descr": dtype, "fortran_order": False, "shape": shape}
                )
                bytes_each = numpy.dtype(dtype).itemsize
                try:
                    file.truncate(file.tell() + bytes_each * math.prod(shape))
                except OSError:
                    self.skipTest("no such large files here")
        for command in (
            "apply chain.st many.npy -o y.npy",
            "apply chain.st many.npy --dtype f32 -o y.npy",
            "conv long.npy k.npy -o y.npy",
            "conv u.npy long.npy -o y.npy",
            "conv rows.npy rows.npy --mode full -o y.npy",
            "invert chain.st --solve many.npy -o y.npy",
            "factorize w.npy --chain monarch --inputs many.npy -o f.st",
            "factorize square.npy --pattern 1,1048576,1048576,1 --permute -o f.st",
            "transform circulant 2147483647 --values long.npy -o t.st",
        ):
            done = self.ends_well(command, resource.RLIMIT_CORE, 0)
            self.assertEqual(done.returncode, 1, command)

    def test_only_commands_that_need_lapack_ask_for_it(self):
        nowhere = {"DANAUS_LAPACK": "/nowhere/liblapack.so"}
        for command in WITHOUT_LAPACK:
            done = self.ends_well(command, **nowhere)
            self.assertEqual(done.returncode, 0, done.stderr)
        for command in WITH_LAPACK:
            done = self.ends_well(command, **nowhere)
            self.assertEqual(done.returncode, 1)
            self.assertIn("/nowhere/liblapack.so", done.stderr)

    def test_lapack_has_one_thread_unless_more_are_asked_for(self):
        script = (
            "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]);"
            "dense = (ctypes.c_float * 4)(2, 0, 0, 2);"
            "pattern = (ctypes.c_int64 * 4)(1, 2, 2, 1); chain = ctypes.c_void_p();"
            "status = library.danaus_factorize(dense, int(sys.argv[2]), pattern, 1,"
            " None, ctypes.byref(chain), None);"
            "text = open('/proc/self/status').read();"
            "print(status, text.split('Threads:')[1].split()[0])"
        )
        library = os.path.join(os.environ["DANAUS_BUILD"], "libdanaus.so")
        if SANITIZED or not os.path.exists(library):
            self.skipTest("there is no library that Python can load")
        free = {
            name: value
            for name, value in os.environ.items()
            if not name.endswith("_NUM_THREADS")
        }
        two = min(2, len(os.sched_getaffinity(0)))
        for wish, threads in ((None, 1), ("1", 1), ("2", two)):
            environment = dict(free)
            if wish:
                environment["OPENBLAS_NUM_THREADS"] = wish
            done = subprocess.run(
                [sys.executable, "-c", script, library, "1"],
                capture_output=True,
                text=True,
                timeout=60,
                env=environment,
            )
            self.assertEqual(done.stdout.split(), ["0", str(threads)], done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
