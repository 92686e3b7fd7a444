"""Causal models that the C library runs, beside PyTorch on the same random weights."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "baselines"))
torch_hyena = pytest.importorskip("torch_hyena")

LENGTH = 200


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(3)
    return torch_hyena.HyenaDNA(32, 2, LENGTH).eval()


@pytest.fixture(scope="module")
def folder(network, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hyena")
    torch_hyena.write(network, path)
    return path


@pytest.fixture(scope="module")
def model(folder) -> danaus.Model:
    return danaus.Model(folder)


def expected(network, ids) -> np.ndarray:
    with torch.inference_mode():
        scores = network(torch.tensor([list(ids)]))[0].numpy()
    return np.concatenate([[0], scores])


def states(network, ids) -> torch.Tensor:
    """Behind the last norm."""
    with torch.no_grad():
        r = network.word(torch.tensor([ids]))
        for block in network.blocks:
            r = block(r)
        return network.norm(r)[0]


def random_bases(rng, count: int) -> str:
    return "".join(rng.choice(list("ACGTN"), count))


def test_likelihoods_are_those_of_pytorch(model, network, rng):
    sequences = [rng.integers(7, 12, n).tolist() for n in (1, 2, 60, LENGTH)]
    done = []
    found = model.score_tokens(sequences, progress=done.append)
    assert done[-1] == 1 and found[0].tolist() == [0]
    for scores, ids in zip(found[1:], sequences[1:]):
        wanted = expected(network, ids)
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=2e-5)
    assert model.score_tokens([]) == []


@pytest.mark.parametrize("length", [0, 1, 9, 50, 51, 140, 141, 142])
def test_long_texts_are_scored_in_windows(model, network, rng, length):
    bases = random_bases(rng, length)
    ids = [7 + "ACGTN".index(base) for base in bases]
    (found,) = model.score([bases], window=50, context=5)
    wanted = np.zeros(length)
    for t in range(1, length):
        # Windows begin at multiples of 45; all but the first know 5 bases.
        at = max(t - 5, 0) // 45 * 45
        wanted[t] = expected(network, ids[at : t + 1])[-1]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


def test_texts_go_on(model, network):
    new = model.generate("ACGT", 12)
    ids = model.tokenizer.encode("ACGT", around=False).tolist()
    likely = network.head(states(network, ids)[-1])[:12]
    first = model.generate_tokens(ids, 12)
    assert likely[int(first[0])] >= likely.max() - 1e-4
    assert model.tokenizer.decode(first, False).startswith(new)
    hot = dict(temperature=2.0, top_k=8, top_p=0.95)
    one = model.generate_tokens(ids, 50, seed=1, **hot)
    np.testing.assert_array_equal(one, model.generate_tokens(ids, 50, seed=1, **hot))
    assert one.tolist() != model.generate_tokens(ids, 50, seed=2, **hot).tolist()
    stopped = model.generate_tokens(ids, 50, on_token=lambda t: True, **hot)
    assert len(stopped) == 1
    assert len(model.generate_tokens([7] * 190)) == LENGTH - 190


def test_functions_may_raise(model):
    def stop(token):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        model.generate_tokens([7], 5, on_token=stop)


def test_embeddings_are_means_of_states(model, network):
    ids = [7, 8, 9, 10, 1]
    wanted = states(network, ids).mean(0).numpy()
    found = model.embed(["ACGT"])[0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)
    assert model.describe().architecture == "hyena"


def test_wrong_input(model):
    with pytest.raises(ValueError, match="the vocabulary has 12"):
        model.score_tokens([[12]])
    with pytest.raises(ValueError, match="201 tokens"):
        model.score_tokens([[7] * 201])
    with pytest.raises(ValueError, match="context has to be from 1 to 49"):
        model.score(["ACGT"], window=50, context=50)
    with pytest.raises(ValueError, match="temperature"):
        model.generate_tokens([7], 3, temperature=-1.0)
    with pytest.raises(ValueError, match="0 tokens"):
        model.generate_tokens([], 3)
