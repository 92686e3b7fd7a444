"""Sequences that are split over ranks give the numbers of one process: groups of 3 and
of 2 ranks, on the CPU."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import math
import pathlib
import pickle
import time

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

if not dist.is_available():
    pytest.skip("PyTorch without distributed", allow_module_level=True)

from group_filters import (  # noqa: E402
    FILTER_TRAININGS,
    FILTERS,
    train_filters,
)
from group_ranks import (  # noqa: E402
    DEAD,
    MOST,
    PATIENCE,
    PROBLEMS,
    TRAININGS,
    Place,
    run_rank,
    said,
    train,
)

from danaus.torch import (  # noqa: E402
    KSLinear,
    MonarchConv,
    ShortConv,
    split_sequence,
)

# Units of sums and of results. A convolution of n numbers errs by at most 2 t and the
# sum of absolute taps by t = 5 u log2 n (conv_oracle.py). GPUs multiply 16 bits.
SUMS = {torch.float64: 2.0**-53}
STORED = SUMS | {
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}


def close(found, wanted, device: str = "cpu") -> None:
    """Roundings alone differ, those of sums and the last one to the type."""
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    bound = 40 * SUMS.get(wanted.dtype, 2.0**-24) * math.log2(256)
    bound += STORED[wanted.dtype] * (4 if device == "cuda" else 1)
    distance = (found.double() - wanted.double()).norm()
    assert distance <= bound * wanted.double().norm()


class Ranks:
    """What the ranks of one device found: `pieces` by size of the group."""

    def __init__(self, device: str, count: int, folder: pathlib.Path):
        self.device, self.folder = device, folder
        server = mp.get_context("forkserver")
        server.set_forkserver_preload(["danaus.torch.models", "torch.distributed.fsdp"])
        processes = [
            server.Process(target=run_rank, args=(rank, count, device, str(folder)))
            for rank in range(count)
        ]
        for process in processes:
            process.start()
        processes[-1].join()
        begin = time.monotonic()
        for process in processes[:-1]:
            process.join()
        self.seconds_of_death = time.monotonic() - begin
        codes = [process.exitcode for process in processes]
        assert codes == [0] * (count - 1) + [DEAD if device == "cpu" else 0]
        self.pieces = {n: [self.load(f"{n}.{r}") for r in range(n)] for n in {2, count}}

    def load(self, name: str):
        return torch.load(self.folder / name, weights_only=False)

    def of_size(self, size: int) -> list:
        if size not in self.pieces:
            pytest.skip(f"fewer than {size} GPUs")
        return self.pieces[size]


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def ranks(request, tmp_path_factory):
    """There are 3 processes, or 2 on 2 GPUs."""
    count = MOST if request.param == "cpu" else min(MOST, torch.cuda.device_count())
    if count < 2:
        pytest.skip("fewer than 2 GPUs")
    return Ranks(request.param, count, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("size", [2, MOST])
def test_ranks_give_the_numbers_of_one_process(ranks, size, name):
    alone = Place(ranks.device)
    found = [each[name] for each in ranks.of_size(size)]
    problem = PROBLEMS[name](alone)
    wanted = problem.solve(alone)
    pieces = 1 + len(problem.signals)
    for i, whole in enumerate(wanted):
        each = [x[i] for x in found]
        if i < pieces:
            close(torch.cat(each, problem.dim), whole, ranks.device)
        else:  # of filters, each rank has its share
            close(sum(each[1:], each[0]), whole, ranks.device)


@pytest.mark.parametrize("name", ["causal f64", "causal f16", "hyena", "short"])
def test_results_have_the_bits_of_one_process(ranks, name):
    if ranks.device == "cuda":
        pytest.skip("plans for GPUs depend on the number of rows")
    problem = PROBLEMS[name](Place())
    y = torch.cat([each[name][0] for each in ranks.of_size(MOST)], problem.dim)
    assert torch.equal(y, problem.solve(Place())[0])


@pytest.mark.parametrize(
    "name", ["causal f64", "causal f32", "one channel", "two channels", "hyena"]
)
@pytest.mark.parametrize("size", [2, MOST])
def test_long_filters_have_the_mean_gradient_on_all_ranks(ranks, size, name):
    problem = PROBLEMS[name](Place(ranks.device))
    k = 1 + len(problem.signals) + (2 if name == "hyena" else 0)
    whole = problem.solve(Place(ranks.device))[k]
    found = [each[name][k] for each in ranks.of_size(size)]
    assert all(torch.equal(x, found[0]) for x in found)
    close(size * found[0], whole, ranks.device)


@pytest.mark.parametrize(("name", "way"), FILTER_TRAININGS)
@pytest.mark.parametrize("size", [2, MOST])
def test_filters_train_as_in_one_process(ranks, size, name, way):
    (loss, *gradients), _ = train_filters(name, way, Place(ranks.device))
    scale = max(g.norm() for g in gradients)
    found = [each[name, way] for each in ranks.of_size(size)]
    close(sum(x[0] for x, _ in found) / size, loss, ranks.device)
    for (_, *mine), complete in found:
        for own, whole in zip(mine, gradients, strict=True):
            torch.testing.assert_close(own, whole, rtol=1e-9, atol=1e-12 * scale)
        if way in ("average", "one by one"):
            assert complete == FILTERS[name].complete


@pytest.mark.parametrize(("name", "way", "packed"), TRAININGS)
@pytest.mark.parametrize("size", [2, MOST])
def test_models_train_as_one_process(ranks, size, name, way, packed):
    found = [each[name, way, packed] for each in ranks.of_size(size)]
    loss, *gradients = train(name, way, packed, Place(ranks.device))
    close(sum(x[0] for x in found) / size, loss)
    scale = max(g.norm() for g in gradients)
    for each in found:
        for mine, whole in zip(each[1:], gradients):
            torch.testing.assert_close(mine, whole, rtol=1e-9, atol=1e-12 * scale)


@pytest.mark.parametrize("size", [2, MOST])
def test_every_rank_says_what_is_wrong(ranks, size):
    for each in ranks.of_size(size):
        text = each["mistakes"]
        assert "[1, 4, 8], [1, 4, 9]" in text["length"], text
        assert "[1, 4, 8], [2, 4, 8]" in text["batch"], text
        for name in ("type", "gate", "gradient", "offsets"):
            assert "different calls" in text[name], text
        assert f"the {8 * size} numbers of u" in text["local offsets"], text
        assert "5 channels; 4 are needed" in text["channels"], text
        assert "attention_mask" in text["mask"], text
        assert "hooks on its short filter" in text["hooks"], text
        assert "taps has the shape [12, 3]; [4, any]" in text["rows"], text
        assert f"{25 * size} tokens" in text["too long"], text
        assert "'all'" in text["no group"], text
        assert text["well"] == "nothing", text
        errors = [x for name, x in text.items() if name != "well"]
        assert all(x.startswith("ValueError: danaus: ") for x in errors), text
        assert each["empty"] == [0, 5, 4]
    if MOST in ranks.pieces:
        assert "not in the group" in ranks.load("outside")


def test_the_code_of_the_guide_runs(ranks):
    if ranks.device == "cpu":
        shapes = [ranks.load(f"guide.{rank}") for rank in range(MOST)]
        assert shapes == [[1, 960 // MOST, 8]] * MOST


def test_a_rank_that_dies_is_an_error_of_all(ranks):
    if ranks.device == "cpu":
        said_last = [ranks.load(f"death.{rank}") for rank in range(MOST - 1)]
        assert all(text.startswith("RuntimeError") for text in said_last), said_last
        assert ranks.seconds_of_death < PATIENCE.total_seconds() + 10


def test_models_that_cannot_be_split_say_so():
    pair = torch.nn.Sequential(ShortConv(4, 3), MonarchConv(4, 16))
    assert "1, MonarchConv, takes no group" in said(lambda: split_sequence(pair))
    assert "no convolutions" in said(lambda: split_sequence(KSLinear(4, 4, "1,4,4,1")))
    conv, u = ShortConv(4, 3, group=True), torch.ones(1, 4, 8)
    assert "init_process_group" in said(lambda: conv(u))


def test_copies_share_a_group_that_files_do_not_have():
    conv = ShortConv(4, 3, group="world")
    assert copy.deepcopy(conv).group == "world"
    assert pickle.loads(pickle.dumps(conv)).group is None
    assert split_sequence(conv, None).group is None
