"""Problems: weights and inputs, what the result must be, and the limit of their time."""
# SPDX-License-Identifier: Apache-2.0
import math

import torch

import torch_ways as ways
from torch_place import DTYPES

METHODS = {
    "dense": ways.dense,
    "bmm": ways.bmm,
    "bmm_compiled": ways.bmm_compiled,
    "einsum": ways.einsum,
    "csr": ways.csr,
    "bsr": ways.bsr,
}
CHECKED = 200  # columns of the batch


class Case:
    """Weights and inputs of a problem, and what its result must be."""

    operation = "ks"

    def __init__(self, place, problem, name, last, batch, bias=False):
        self.place, self.name, self.last, self.batch = place, name, last, batch
        self.shapes = [tuple(map(int, p.split(","))) for p in problem.split()]
        self.type = DTYPES[name][0]
        torch.manual_seed(len(problem) + batch)
        where = place.name
        self.weights = [
            (torch.randn(s, device=where) / math.sqrt(s[2])).to(self.type)
            for s in self.shapes
        ]
        a, b, _, d = self.shapes[0]
        self.rows = a * b * d
        self.cols = self.shapes[-1][0] * self.shapes[-1][2] * self.shapes[-1][3]
        self.x = torch.randn(self.form(self.cols), device=where).to(self.type)
        self.some = torch.randint(batch, (min(batch, CHECKED),), device=where)
        exact = ways.chained([ways.einsum(w.double(), False) for w in self.weights])
        self.exact = exact(self.columns(self.x))
        self.bias = torch.randn(self.rows, device=where).to(self.type) if bias else None
        if bias:
            self.exact += self.bias.double()

    def run(self, product, result):
        product(self.x, result)

    def result(self):
        return torch.full(
            self.form(self.rows), math.nan, device=self.place.name, dtype=self.type)

    def form(self, size):
        return (size, self.batch) if self.last else (self.batch, size)

    def columns(self, v):
        """Some columns of the batch, batch-first, in f64."""
        return (v[:, self.some].T if self.last else v[self.some]).double().contiguous()

    def difference(self, y):
        return ((self.columns(y) - self.exact).norm() / self.exact.norm()).item()

    def entries(self):
        return sum(w.numel() for w in self.weights)

    def limit(self, rates):
        moved = self.batch * (self.rows + self.cols) + self.entries()
        move = moved * self.x.element_size() / rates["copy"]
        return 3e-6 + max(move, 2 * self.batch * self.entries() / rates[self.name])

    def is_feasible(self, method):
        """True if a method is worth a try at all: memory and operations."""
        single = len(self.shapes) == 1
        entries = self.rows * self.cols
        if method == "dense":
            return entries < 2**28 and entries * self.batch < 2**41
        if method in ("csr", "bsr"):
            return single and self.entries() * self.batch < 2**37
        return True

    def way(self, method):
        """The method as a function of x; None: it does not serve this problem."""
        if method == "dense" and len(self.weights) > 1:
            matrix = ways.dense_matrix(self.weights[0]).float()
            for w in self.weights[1:]:
                matrix = matrix @ ways.dense_matrix(w).float()
            return ways.by_matrix(matrix.to(self.type), self.last, self.bias)
        first, *others = self.weights
        parts = [METHODS[method](first, self.last, self.bias)]
        parts += [METHODS[method](w, self.last) for w in others]
        return None if None in parts else ways.chained(parts)


class GradientCase(Case):
    """A gradient of one factor: dy is the input, and dx or dw the result."""

    def __init__(self, place, problem, name, last, batch, operation):
        super().__init__(place, problem, name, last, batch)
        self.operation, self.u = operation, self.x
        self.x = torch.randn(self.form(self.rows), device=place.name).to(self.type)
        if operation == "dx":
            adjoint = self.weights[0].double().transpose(1, 2)
            self.exact = ways.einsum(adjoint, False)(self.columns(self.x))
        else:
            self.exact = self.weight_gradient()

    def weight_gradient(self):
        a, b, c, d = self.shapes[0]
        total = torch.zeros(a, b, c, d, device=self.place.name, dtype=torch.float64)
        step = max(1, 2**28 // (self.rows + self.cols))
        for s in range(0, self.batch, step):
            dy, x = ((v[:, s:s + step].T if self.last else v[s:s + step]).double()
                     for v in (self.x, self.u))
            total += torch.einsum("nabd,nacd->abcd", dy.reshape(-1, a, b, d),
                                  x.reshape(-1, a, c, d))
        return total

    def difference(self, y):
        if self.operation == "dx":
            return super().difference(y)
        return ((y.double() - self.exact).norm() / self.exact.norm()).item()

    def limit(self, rates):
        if self.operation == "dx":
            return super().limit(rates)
        size = self.x.element_size()
        moved = self.batch * (self.rows + self.cols) * size + self.entries() * 4
        work = 2 * self.batch * self.entries() / rates[self.name]
        return 3e-6 + max(moved / rates["copy"], work)

    def run(self, product, result):
        if self.operation == "dx":
            product.gradient(self.u, self.x, dx=result)
        else:
            product.gradient(self.u, self.x, dw=[result])

    def result(self):
        if self.operation == "dx":
            return torch.full(
                self.form(self.cols), math.nan, device=self.place.name, dtype=self.type)
        return torch.full(self.shapes[0], math.nan, device=self.place.name)

    def way(self, method):
        w = self.weights[0].detach().requires_grad_(self.operation == "dw")
        u = self.u.detach().requires_grad_(self.operation == "dx")
        forward = METHODS[method](w, self.last)
        if forward is None:
            return None
        y, of = forward(u), u if self.operation == "dx" else w
        return lambda dy: torch.autograd.grad(y, of, dy, retain_graph=True)[0].contiguous()
