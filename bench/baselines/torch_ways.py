"""PyTorch's ways to multiply by a Kronecker-sparse factor w[a][b][c][d].

Each is a function of w and of where the batch is, which prepares what depends on the
weights alone and returns a function of x. Batch-last x is [a c d][batch], batch-first x
is [batch][a c d]; results are alike, [a b d] in place of [a c d].
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


def bmm(w, last):
    """Algorithm 1 of arXiv 2405.15013, as its Appendix A.1 has it: permute, one batched
    product, permute back."""
    shape, blocks = tuple(w.shape), blocks_of(w)
    turned = blocks.transpose(1, 2)

    def run(x):
        x = gather(x, shape, last)
        y = torch.bmm(blocks, x) if last else torch.bmm(x, turned)
        return scatter(y, shape, last)

    return run


def bmm_compiled(w, last):
    return torch.compile(bmm(w, last), dynamic=False)


def einsum(w, last):
    """With d = 1 batch-first PyTorch returns a view of [a b][batch], the other layout, which
    is copied as any layer after it would have to."""
    a, b, c, d = w.shape
    if last:
        return lambda x: torch.einsum(
            "abcd,acdn->abdn", w, x.view(a, c, d, -1)
        ).reshape(a * b * d, -1)
    return lambda x: torch.einsum(
        "abcd,nacd->nabd", w, x.view(-1, a, c, d)
    ).reshape(-1, a * b * d).contiguous()


def dense_matrix(w):
    a, b, c, d = w.shape
    full = torch.zeros(a, b, d, a, c, d, dtype=w.dtype, device=w.device)
    i = torch.arange(a, device=w.device).repeat_interleave(d)
    j = torch.arange(d, device=w.device).repeat(a)
    full[i, :, j, i, :, j] = w[i, :, :, j]
    return full.view(a * b * d, a * c * d)


def dense(w, last):
    matrix = dense_matrix(w)
    if last:
        return lambda x: matrix @ x
    return lambda x: torch.nn.functional.linear(x, matrix)


def csr(w, last):
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
    if last:
        return lambda x: matrix @ x
    return lambda x: (matrix @ x.T).T


def bsr(w, last):
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

    def run(x):
        x = gather(x, shape, last)
        x = x if last else x.transpose(1, 2)
        y = (matrix @ x.reshape(a * d * c, -1)).view(a * d, b, -1)
        return scatter(y if last else y.transpose(1, 2).contiguous(), shape, last)

    return run


def chained(parts):
    """Factor 0 is the leftmost, applied last."""

    def run(x):
        for part in reversed(parts):
            x = part(x)
        return x

    return run
