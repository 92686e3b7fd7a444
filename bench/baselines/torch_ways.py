"""PyTorch's ways to multiply by a Kronecker-sparse factor w[a][b][c][d].

Each is a function of w, of where the batch is and of a bias[a b d] or None, which prepares
what depends on the weights alone and returns a function of x. Batch-last x is
[a c d][batch], batch-first x is [batch][a c d]; results are alike, [a b d] in place of
[a c d].
"""
# SPDX-License-Identifier: Apache-2.0
import torch

BLOCKS = (64, 48, 32, 16)  # sides of BSR's blocks


def gather(x, shape, last):
    """x as a d dense operands: the first permutation of Algorithm 1."""
    a, _, c, d = shape
    if last:
        return x.view(a, c, d, -1).permute(0, 2, 1, 3).reshape(a * d, c, -1)
    return x.view(-1, a, c, d).permute(1, 3, 0, 2).reshape(a * d, -1, c)


def scatter(y, shape, last):
    """The results of a d dense products in their order: its second permutation."""
    a, b, _, d = shape
    if last:
        return y.view(a, d, b, -1).permute(0, 2, 1, 3).reshape(a * b * d, -1)
    return y.view(a, d, -1, b).permute(2, 0, 3, 1).reshape(-1, a * b * d)


def blocks_of(w):
    """[a d][b][c]"""
    a, b, c, d = w.shape
    return w.permute(0, 3, 1, 2).reshape(a * d, b, c).contiguous()


def add(bias, last):
    """A function that adds a bias to a result in its place; None: it does nothing."""
    if bias is None:
        return lambda y: y
    column = bias[:, None] if last else bias
    return lambda y: y.add_(column)


def bmm(w, last, bias=None):
    """Algorithm 1 of arXiv 2405.15013, as its Appendix A.1 has it: permute, one batched
    product, which adds the bias, permute back."""
    a, b, _, d = shape = tuple(w.shape)
    blocks = blocks_of(w)
    turned = blocks.transpose(1, 2)
    if bias is not None:
        bias = bias.view(a, b, d).transpose(1, 2).reshape(a * d, b, 1)
        bias = bias if last else bias.transpose(1, 2)

    def run(x):
        x = gather(x, shape, last)
        left, right = (blocks, x) if last else (x, turned)
        y = torch.bmm(left, right) if bias is None else torch.baddbmm(bias, left, right)
        return scatter(y, shape, last)

    return run


def bmm_compiled(w, last, bias=None):
    return torch.compile(bmm(w, last, bias), dynamic=False)


def einsum(w, last, bias=None):
    """With d = 1 batch-first PyTorch returns a view of [a b][batch], the other layout, which
    is copied as any layer after it would have to."""
    a, b, c, d = w.shape
    biased = add(bias, last)
    if last:
        return lambda x: biased(torch.einsum(
            "abcd,acdn->abdn", w, x.view(a, c, d, -1)
        ).reshape(a * b * d, -1))
    return lambda x: biased(torch.einsum(
        "abcd,nacd->nabd", w, x.view(-1, a, c, d)
    ).reshape(-1, a * b * d).contiguous())


def dense_matrix(w):
    a, b, c, d = w.shape
    full = torch.zeros(a, b, d, a, c, d, dtype=w.dtype, device=w.device)
    i = torch.arange(a, device=w.device).repeat_interleave(d)
    j = torch.arange(d, device=w.device).repeat(a)
    full[i, :, j, i, :, j] = w[i, :, :, j]
    return full.view(a * b * d, a * c * d)


def by_matrix(matrix, last, bias=None):
    """A layer torch.nn.Linear, or its like for the other layout."""
    if not last:
        return lambda x: torch.nn.functional.linear(x, matrix, bias)
    if bias is None:
        return lambda x: matrix @ x
    column = bias[:, None]
    return lambda x: torch.addmm(column, matrix, x)


def dense(w, last, bias=None):
    return by_matrix(dense_matrix(w), last, bias)


def csr(w, last, bias=None):
    """Rows in order, columns of a row ascending: index (r, k) of block (i, j) is row
    i b d + r d + j, column i c d + k d + j."""
    a, b, c, d = w.shape
    where = {"device": w.device, "dtype": torch.int64}
    i = torch.arange(a, **where).view(a, 1, 1, 1) * (c * d)
    k = torch.arange(c, **where) * d
    j = torch.arange(d, **where).view(d, 1)
    columns = (i + k + j).expand(a, b, d, c).reshape(-1)
    matrix = torch.sparse_csr_tensor(
        torch.arange(a * b * d + 1, **where) * c, columns,
        w.permute(0, 1, 3, 2).reshape(-1), (a * b * d, a * c * d),
    )
    biased = add(bias, last)
    if last:
        return lambda x: biased(matrix @ x)
    return lambda x: biased((matrix @ x.T).T)


def bsr(w, last, bias=None):
    """The block-diagonal matrix of the permuted problem in square blocks, with the
    permutations that it needs."""
    a, b, c, d = shape = tuple(w.shape)
    side = next((s for s in BLOCKS if b % s == 0 and c % s == 0), None)
    if side is None:
        return None
    rows, cols = b // side, c // side
    where = {"device": w.device, "dtype": torch.int64}
    values = blocks_of(w).view(a * d, rows, side, cols, side).transpose(2, 3)
    first = torch.arange(a * d, **where).view(-1, 1, 1) * cols
    columns = (first + torch.arange(cols, **where)).expand(a * d, rows, cols)
    matrix = torch.sparse_bsr_tensor(
        torch.arange(a * d * rows + 1, **where) * cols, columns.reshape(-1),
        values.reshape(-1, side, side).contiguous(), (a * d * b, a * d * c),
    )

    biased = add(bias, last)

    def run(x):
        x = gather(x, shape, last)
        x = x if last else x.transpose(1, 2)
        y = (matrix @ x.reshape(a * d * c, -1)).view(a * d, b, -1)
        y = scatter(y if last else y.transpose(1, 2).contiguous(), shape, last)
        return biased(y)

    return run


def chained(parts):
    """Factor 0 is the leftmost, applied last."""

    def run(x):
        for part in reversed(parts):
            x = part(x)
        return x

    return run
