"""DDP and FSDP2 leave KSLinear as it is: two processes, on the CPU and on two GPUs."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from danaus.torch import KSLinear  # noqa: E402

RANKS, STEPS = 2, 3


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        KSLinear(12, 24, "1,6,5,4 4,5,3,1", activation="relu"),
        KSLinear(24, 12, "2,6,4,1 2,4,12,1", bias=False),
    )


def data():
    torch.manual_seed(1)
    return torch.randn(STEPS, RANKS, 8, 12)


def train(model, batches) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    outputs = []
    for x in batches:
        with torch.no_grad():  # what is packed here is old after the step
            outputs.append(model(x).mean())
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        outputs.append(model(batches[0]).mean())
    return outputs


def _data_parallel(model, device):
    return torch.nn.parallel.DistributedDataParallel(model)


def _sharded(model, device):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh(device, (RANKS,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _whole(parameter):
    full = getattr(parameter, "full_tensor", None)
    return (full() if full else parameter).detach()


def _rank(rank, wrap, device, folder):
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=RANKS,
    )
    try:
        model = wrap(network().to(device), device)
        outputs = [y.cpu() for y in train(model, data()[:, rank].to(device))]
        weights = [_whole(p).cpu() for p in model.parameters()]
        torch.save((outputs, weights), os.path.join(folder, f"{rank}.pt"))
        dist.barrier()
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="PyTorch without distributed")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("wrap", [_data_parallel, _sharded], ids=["ddp", "fsdp2"])
def test_two_ranks_train_as_one_process(tmp_path, wrap, device):
    if device == "cuda" and torch.cuda.device_count() < RANKS:
        pytest.skip(f"fewer than {RANKS} GPUs")
    mp.spawn(_rank, (wrap, device, str(tmp_path)), nprocs=RANKS)
    alone = network()
    expected = train(alone, data().flatten(1, 2))
    found = [torch.load(tmp_path / f"{r}.pt", weights_only=True) for r in range(RANKS)]
    for _, weights in found:
        for a, b in zip(weights, alone.parameters()):
            torch.testing.assert_close(a, b.detach(), atol=1e-5, rtol=1e-4)
    for n, wanted in enumerate(expected):
        mean = (found[0][0][n] + found[1][0][n]) / 2
        torch.testing.assert_close(mean, wanted, atol=1e-5, rtol=1e-4)
