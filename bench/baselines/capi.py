"""libdanaus through its C ABI, for benchmarks in Python. Structures are read from the headers."""
# SPDX-License-Identifier: Apache-2.0
import ctypes
import pathlib
import re
from ctypes import byref, c_double, c_int, c_int64, c_size_t, c_void_p

HEADERS = pathlib.Path(__file__).parents[2] / "include/danaus"
NUMBERS = {"int": c_int, "double": c_double, "size_t": c_size_t, "int32_t": ctypes.c_int32,
           "int64_t": c_int64, "uint32_t": ctypes.c_uint32}


def declarations():
    """The text of all public headers, without comments."""
    text = "".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def fields(members, enums):
    """(name, type) of each member of a structure of numbers, enumerations and pointers."""
    found = []
    for kind, names in re.findall(r"((?:const )?\w+) ?([^;]+);", members):
        for name, count in re.findall(r"(\w+)(?:\[(\d+)\])?(?:,|$)", names):
            number = c_int if kind in enums else NUMBERS.get(kind)
            field = c_void_p if "*" in names else number
            found.append((name, field * int(count) if count else field))
    return found


def structure(name, headers=declarations()):
    """The ctypes structure of a structure of the headers."""
    members = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", headers, re.S)[1]
    enums = re.findall(r"typedef enum (\w+)", headers)
    return type(name, (ctypes.Structure,), {"_fields_": fields(members, enums)})


Pattern = structure("danaus_pattern")
Description = structure("danaus_ks_desc")
ConvDescription = structure("danaus_conv_desc")
Gradients = structure("danaus_ks_gradients")
ShortDescription = structure("danaus_short_desc")
ShortGradients = structure("danaus_short_gradients")


def address(array):
    """The address of a NumPy array's numbers."""
    return c_void_p(array.ctypes.data)


class Library:
    """One device. Calls that fail raise RuntimeError with the library's sentence."""

    def __init__(self, path, device, threads=None):
        self.c = ctypes.CDLL(path)
        self.c.danaus_error_detail.restype = ctypes.c_char_p
        self.c.danaus_version.restype = ctypes.c_char_p
        self.c.danaus_chain_weights.restype = c_void_p
        self.c.danaus_ks_plan_describe.restype = c_size_t
        self.c.danaus_conv_plan_describe.restype = c_size_t
        self.device = c_void_p()
        self("danaus_device_open", device.encode(), byref(self.device))
        if threads:
            self("danaus_device_set_threads", self.device, c_int(threads))

    def __call__(self, name, *arguments):
        if getattr(self.c, name)(*arguments):
            raise RuntimeError("danaus: " + self.c.danaus_error_detail().decode())

    def close(self):
        self.c.danaus_device_close(self.device)

    def version(self):
        return self.c.danaus_version().decode()

    def set_stream(self, stream):
        self("danaus_device_set_stream", self.device, c_void_p(stream))

    def joules(self):
        """The device's energy counter."""
        value = c_double()
        self("danaus_device_energy", self.device, byref(value))
        return value.value

    def plan(self, shapes, dtype, math, last, batch, gradients=0, **ending):
        """`ending`: bias, activation and residual of a Description."""
        patterns = (Pattern * len(shapes))(*(Pattern(*s) for s in shapes))
        plan = c_void_p()
        d = Description(
            int(last), dtype, math, gradients=gradients, batch=batch, **ending)
        self(
            "danaus_ks_plan_create", self.device, patterns, len(shapes), byref(d),
            byref(plan),
        )
        return plan

    def free_plan(self, plan):
        self.c.danaus_ks_plan_destroy(plan)

    def product(self, weights, dtype, math, last, batch, gradients=0, bias=None, **ending):
        """A Product for factors w[a][b][c][d] and a bias: contiguous f32 tensors of the host."""
        shapes = [tuple(w.shape) for w in weights]
        patterns = (Pattern * len(shapes))(*(Pattern(*s) for s in shapes))
        chain, packed = c_void_p(), c_void_p()
        self("danaus_chain_create", patterns, len(shapes), 1, byref(chain))
        try:
            for i, w in enumerate(weights):
                to = self.c.danaus_chain_weights(chain, i)
                ctypes.memmove(to, w.data_ptr(), w.numel() * 4)
            if bias is not None:
                self("danaus_chain_set_bias", chain, c_void_p(bias.data_ptr()))
                ending["bias"] = 1
            plan = self.plan(shapes, dtype, math, last, batch, gradients, **ending)
            self("danaus_ks_weights_create", plan, self.device, chain, byref(packed))
        finally:
            self.c.danaus_chain_destroy(chain)
        return Product(self, plan, packed, batch, len(shapes))

    def convolution(self, length, batch, k):
        """A Convolution with filters k[channels][taps]: a contiguous f32 array."""
        channels, taps = k.shape
        d = ConvDescription(channels, length, taps, batch=batch)
        plan, spectrum = c_void_p(), c_void_p()
        self("danaus_conv_plan_create", self.device, byref(d), byref(plan))
        self(
            "danaus_spectrum_create", plan, self.device, address(k), None, None,
            byref(spectrum),
        )
        return Convolution(self, plan, spectrum, batch)

    def describe(self, function, plan):
        """The lines that a plan's describing function writes."""
        text = ctypes.create_string_buffer(4096)
        getattr(self.c, function)(plan, text, c_size_t(4096))
        return text.value.decode().splitlines()


class Convolution:
    def __init__(self, library, plan, spectrum, batch):
        self.library, self.plan, self.spectrum = library, plan, spectrum
        self.batch = c_int64(batch)

    def __call__(self, u, y):
        """y = k (*) u for arrays of the host."""
        self.library(
            "danaus_conv_execute", self.plan, self.library.device, self.spectrum,
            self.batch, address(u), None, None, address(y),
        )

    def describe(self):
        """Lines: what runs, its memory, and why."""
        return self.library.describe("danaus_conv_plan_describe", self.plan)

    def free(self):
        self.library.c.danaus_spectrum_destroy(self.spectrum)
        self.library.c.danaus_conv_plan_destroy(self.plan)


class Product:
    def __init__(self, library, plan, packed, batch, count):
        self.library, self.plan, self.packed = library, plan, packed
        self.batch, self.count = c_int64(batch), count

    def __call__(self, x, y):
        """y = W x for tensors in the device's memory."""
        self.library(
            "danaus_ks_execute", self.plan, self.library.device, self.packed,
            self.batch, c_void_p(x.data_ptr()), c_void_p(y.data_ptr()),
        )

    def add_to(self, residual, x, y):
        """y = residual + W x of a plan that expects one."""
        self.library(
            "danaus_ks_execute_residual", self.plan, self.library.device, self.packed,
            self.batch, *(c_void_p(v.data_ptr()) for v in (x, residual, y)),
        )

    def gradient(self, x, dy, dx=None, dw=None):
        """dx, or a list of dw of the factors, of a plan made with gradients."""
        each = (c_void_p * self.count)(*(w.data_ptr() for w in dw or []))
        to = Gradients(dx.data_ptr() if dx is not None else None,
                       ctypes.addressof(each) if dw else None)
        self.library(
            "danaus_ks_gradient", self.plan, self.library.device, self.packed,
            self.batch, c_void_p(x.data_ptr()), c_void_p(dy.data_ptr()), byref(to),
        )

    def kernels(self):
        lines = self.library.describe("danaus_ks_plan_describe", self.plan)
        return ";".join(line.split(" by ")[-1] for line in lines)

    def free(self):
        self.library.c.danaus_ks_weights_destroy(self.packed)
        self.library.free_plan(self.plan)
