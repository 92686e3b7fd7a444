"""Models for PyTorch: published vectors and sizes, the same numbers in C, folders."""
# SPDX-License-Identifier: Apache-2.0

import json
import subprocess
import sys

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")

from compiling import compiled  # noqa: E402

from danaus.torch import models as m  # noqa: E402
from danaus.torch.implicit import HyenaFilter  # noqa: E402
from danaus.torch.m2_mixer import M2Mixer  # noqa: E402
from danaus.torch.models.blocks import Blocks  # noqa: E402
from danaus.torch.models.loss import cross_entropy  # noqa: E402

SMALL_BERT = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2,
    "intermediate_size": 64, "long_conv_l_max": 2048, "hyena_filter_order": 16,
}  # fmt: skip
SMALL_DNA = {
    "d_model": 24, "n_layer": 2, "d_inner": 40, "max_seq_len": 2048, "filter_order": 16,
}  # fmt: skip
BERTS = [
    {}, {"hyena_training_additions": True}, {"bidirectional": False},
    {"residual_long_conv": False, "use_glu_mlp": False},
    {"use_monarch_mlp": False, "hyena_w_mod": 0.5, "hyena_emb_dim": 3},
]  # fmt: skip
CAUSAL = [
    (m.HyenaDNAConfig, {}), (m.HyenaDNAConfig, {"hyena_order": 3}),
    (m.HyenaDNAConfig, {"filter_modulate": False, "num_inner_mlps": 3}),
    (m.HyenaConfig, {"vocab_size": 12, "emb_dim": 7, "short_filter_order": 4}),
    (m.HyenaConfig, {"vocab_size": 12, "d_inner": None, "head_dim": 4}),
]  # fmt: skip
OF_CONFIG = {
    m.HyenaDNAConfig: (m.HyenaDNAModel, m.HyenaDNAForCausalLM),
    m.HyenaConfig: (m.HyenaModel, m.HyenaForCausalLM),
}


def published(model):
    """Weights by the rule of the vectors; positions and windows stay."""
    state = model.state_dict()
    for name, x in state.items():
        if name.endswith(("pos_emb.z", "pos_emb.t", "deltas")):
            continue
        seed = sum(map(ord, name)) % 97
        n = torch.arange(x.numel(), dtype=torch.float64).reshape(x.shape)
        value = 0.8 * torch.sin(0.37 * n + 0.11 * (seed + 1))
        norms = "ayer" + "norm.weight", "LayerNorm.weight", "norm1.weight"
        if name.endswith((*norms, "norm2.weight", "ln_f.weight")):
            value += 1
        state[name] = value.fill_(1.5) if name.endswith("freq") else value
    model.load_state_dict(state)
    for module in model.modules():
        if hasattr(module, "reset"):
            module.reset()  # of f32: again, in f64
    return model.eval()


def lively(model, seed):
    """Weights so large that outputs depend on all of them, filters so small that none
    of the roundings of 2,048 tokens grows."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, x in model.named_parameters():
            if x.dim() > 1 and not name.endswith(("freq", "pos_emb.z")):
                size = 0.1 if "filter.6" in name or "filter.8" in name else 1.0
                x.normal_(std=size * x[0].numel() ** -0.5, generator=random)
    return model.eval()


@pytest.mark.parametrize(
    ("normed", "length", "state", "scores"),
    [
        (False, 12, [1.1296008311, -0.2652007949], [0.0751654358, 1.2834635939]),
        (False, 9, [1.6654146981, -1.0222376567], [0.1270743156, 1.2170763782]),
        (True, 12, [-3.0656989991, 2.5645808357], [-0.0435599815, 1.1022234480]),
    ],
)
def test_m2_bert_has_the_authors_values(normed, length, state, scores):
    config = m.M2BertConfig(
        vocab_size=16, hidden_size=8, num_hidden_layers=2, intermediate_size=16,
        long_conv_l_max=12, hyena_filter_order=4, hyena_training_additions=normed,
    )  # fmt: skip
    model = published(m.M2BertForMaskedLM(config).double())
    ids = torch.tensor([[(7 * t + 3) % 16 for t in range(length)]])
    h = model.bert(ids).last_hidden_state
    np.testing.assert_allclose(h[0, 0, :2].detach(), state, atol=1e-10)
    np.testing.assert_allclose(model(ids).logits[0, 3, :2].detach(), scores, atol=1e-10)


@pytest.mark.parametrize(
    ("order", "first", "last"),
    [
        (2, [-1.0666790423, -0.5522966168], [-0.5430846996, -0.9033149976]),
        (3, [-0.7509841986, -0.8779702131], [-0.4798207686, -0.9081452697]),
    ],
)
def test_hyena_dna_has_the_authors_values(order, first, last):
    config = m.HyenaDNAConfig(
        vocab_size=16, d_model=8, d_inner=16, max_seq_len=14, filter_order=4,
        hyena_order=order,
    )  # fmt: skip
    model = published(m.HyenaDNAModel(config).double())
    ids = torch.tensor([[7 + (3 * t + 1) % 5 for t in range(12)]])
    h = model(ids).last_hidden_state[0].detach()
    np.testing.assert_allclose(h[[0, -1], :2], [first, last], atol=1e-10)


def size_of(kind, **numbers):
    """How many parameters such a model has."""
    with torch.device("meta"):
        model = kind(kind.config_class(**numbers))
    return sum(p.numel() for p in model.parameters())


def losses_of(model, batches, rate=3e-3):
    """The loss of each step of a training."""
    steps = torch.optim.AdamW(model.parameters(), rate)
    found = []
    for inputs in batches:
        steps.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        steps.step()
        found.append(loss.detach())
    return torch.stack(found)


@pytest.mark.parametrize(
    ("width", "inner", "length", "normed", "parameters"),
    [
        (768, 3072, 128, False, 80_267_328),
        (768, 3072, 128, True, 80_285_760),
        (960, 3840, 128, False, 115_583_616),
        (1536, 6144, 128, False, 259_133_760),
        (1792, 7168, 128, False, 341_038_144),
        (768, 3072, 8192, False, 87_428_160),
    ],
)
def test_m2_berts_have_the_published_sizes(width, inner, length, normed, parameters):
    found = size_of(
        m.M2BertForMaskedLM, hidden_size=width, intermediate_size=inner,
        long_conv_l_max=length, hyena_training_additions=normed,
    )  # fmt: skip
    assert found == parameters


@pytest.mark.parametrize(
    ("width", "layers", "millions"), [(1104, 18, 145), (1344, 40, 360)]
)
def test_m2_gpts_have_nearly_the_published_sizes(width, layers, millions):
    """Table 8 of arXiv 2310.12109; its text has a width of 1160, no multiple of 16."""
    found = size_of(m.HyenaForCausalLM, d_model=width, n_layer=layers, head_dim=16)
    found /= 1e6
    assert abs(found - millions) < 0.01 * millions


@pytest.mark.parametrize("more", BERTS)
def test_c_embeds_what_pytorch_does(more, tmp_path):
    model = lively(m.M2BertForMaskedLM(m.M2BertConfig(**SMALL_BERT | more)), 1)
    model.save_pretrained(tmp_path)
    again = m.M2BertForMaskedLM.from_pretrained(tmp_path)
    in_c = danaus.Model(str(tmp_path))
    for length in (1, 17, 512) if more else (1, 17, 2048):
        ids = torch.randint(5, 90, (1, length))
        with torch.no_grad():
            h = model.bert(ids).last_hidden_state
            assert torch.equal(again(ids).logits, model(ids).logits)
        mean = torch.nn.functional.normalize(h.mean(1), dim=1)
        found = in_c.embed_tokens([ids[0].numpy().astype("i4")])
        np.testing.assert_allclose(found, mean, atol=1e-5)


@pytest.mark.parametrize(("kind", "more"), CAUSAL)
def test_c_scores_what_pytorch_does(kind, more, tmp_path):
    model = lively(OF_CONFIG[kind][1](kind(**SMALL_DNA | more)), 2)
    model.save_pretrained(tmp_path)
    in_c = danaus.Model(str(tmp_path))
    for length in (2, 17, 512) if more else (2, 17, 2048):
        ids = torch.randint(0, 12, (1, length))
        with torch.no_grad():
            likely = torch.log_softmax(model(ids).logits[0, :-1].double(), 1)
        wanted = likely.gather(1, ids[0, 1:, None])[:, 0]
        found = np.asarray(in_c.score_tokens([ids[0].numpy().astype("i4")])[0])
        np.testing.assert_allclose(found[-len(wanted) :], wanted, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "causal"])
def test_sequences_do_not_see_what_a_mask_leaves_out(name):
    torch.manual_seed(3)
    model = {
        "bert": lambda: m.M2BertForMaskedLM(m.M2BertConfig(**SMALL_BERT)),
        "causal": lambda: m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA)),
    }[name]()
    model = lively(model, 3).double()
    ids = torch.randint(7, 12, (3, 30))
    mask = torch.ones_like(ids)
    mask[0, 20:] = mask[2, :7] = 0
    found = model(ids, mask).logits
    parts = [ids[i][mask[i] > 0] for i in range(3)]
    packed = model(torch.cat(parts)[None], offsets=[0, 20, 50, 73]).logits[0]
    alone = [model(part[None]).logits[0] for part in parts]
    torch.testing.assert_close(packed, torch.cat(alone), atol=1e-10, rtol=0)
    for i in range(3):
        torch.testing.assert_close(found[i][mask[i] > 0], alone[i], atol=1e-10, rtol=0)
        assert not found[i][mask[i] == 0].any()


# ---- partial filters ----

FEW_TAPS = SMALL_DNA | {"max_seq_len": 100, "filter_taps": 60}


@pytest.mark.parametrize(("kind", "more"), CAUSAL)
def test_c_scores_what_partial_filters_of_pytorch_do(kind, more, tmp_path):
    """Sequences of unequal length, up to five times as long as filters are known."""
    model = lively(OF_CONFIG[kind][1](kind(**FEW_TAPS | more)), 6)
    model.save_pretrained(tmp_path)
    again = OF_CONFIG[kind][1].from_pretrained(tmp_path)
    lengths = torch.tensor([1, 40, 60, 99, 101, 500])
    mask = torch.arange(500) < lengths[:, None]
    ids = torch.randint(0, 12, mask.shape)
    with torch.no_grad():
        likely = torch.log_softmax(again(ids, mask).logits[:, :-1].double(), 2)
        assert torch.equal(again(ids, mask).logits, model(ids, mask).logits)
    wanted = likely.gather(2, ids[:, 1:, None])[..., 0]
    parts = [x[here].numpy().astype("i4") for x, here in zip(ids, mask)]
    found = danaus.Model(str(tmp_path)).score_tokens(parts)
    for row, scores in zip(wanted, found):
        np.testing.assert_allclose(scores[1:], row[: len(scores) - 1], atol=1e-4)


def test_partial_filters_are_cut_and_not_made_anew():
    whole = lively(m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA)), 6).double()
    config = m.HyenaDNAConfig(**SMALL_DNA, filter_taps=33)
    part = m.HyenaDNAForCausalLM(config).double().eval()
    part.load_state_dict(whole.state_dict())
    ids = torch.randint(7, 12, (2, 90))
    found = part(ids).logits
    for block in whole.backbone.layers:
        block.mixer.filter_fn.register_forward_hook(
            lambda _module, _arguments, k: k * (torch.arange(k.shape[1]) < 33)
        )
    torch.testing.assert_close(found, whole(ids).logits, atol=1e-10, rtol=0)


def test_partial_filters_generate_without_end(tmp_path):
    hub = pytest.importorskip("transformers")
    model = lively(m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**FEW_TAPS)), 7)
    model.save_pretrained(tmp_path)
    again = hub.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.randint(7, 12, (1, 90))
    made = again.generate(ids, max_new_tokens=60, do_sample=False)[0, 90:]
    found = danaus.Model(str(tmp_path)).generate_tokens(ids[0].numpy(), 60)
    np.testing.assert_array_equal(found, made)


@pytest.mark.parametrize("taps", [0, -1, 1.5, True, "7", 101])
def test_taps_that_filters_lack_are_refused(taps):
    with pytest.raises(ValueError, match="filter_taps is"):
        m.HyenaModel(m.HyenaConfig(**FEW_TAPS | {"filter_taps": taps}))


# ---- losses ----


def test_the_loss_is_the_mean_over_labels():
    model = lively(m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA)), 4)
    ids = torch.randint(7, 12, (3, 30))
    mask = torch.ones_like(ids)
    mask[0, 20:] = 0
    found = model(ids, mask, labels=ids.masked_fill(mask == 0, -100))
    likely = torch.log_softmax(found.logits, 2)
    wanted = [
        -likely[i, t, ids[i, t + 1]]
        for i in range(3)
        for t in range(29)
        if mask[i, t + 1]
    ]
    torch.testing.assert_close(found.loss, torch.stack(wanted).mean())


@pytest.mark.parametrize("most", [1, 50, 1 << 27], ids=["row", "rows", "all"])
def test_a_loss_without_scores_is_the_same(most, monkeypatch):
    monkeypatch.setattr("danaus.torch.models.loss._MOST_SCORES", most)
    model = lively(m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA)), 4).double()
    ids = torch.randint(7, 12, (3, 10))
    inputs = {"labels": ids.masked_fill(ids == 9, -100)}
    for more in ({}, {"attention_mask": ids > 7}):
        whole = model(ids, **inputs, **more)
        alone = model(ids, **inputs, **more, loss_only=True)
        assert alone.logits is None
        torch.testing.assert_close(alone.loss, whole.loss)
        weights = [*model.parameters()]
        wanted, found = (
            torch.autograd.grad(3 * x.loss, weights) for x in (whole, alone)
        )
        for a, b in zip(found, wanted):
            torch.testing.assert_close(a, b)
        with torch.no_grad():
            inputs_only = model(ids, **inputs, **more, loss_only=True)
        torch.testing.assert_close(inputs_only.loss, whole.loss)


def test_a_loss_without_scores_keeps_small_gradients():
    """A share of the mean times a score is below the least number of f16."""
    rows = 1 << 14
    h = (0.05 * torch.randn(rows, 8)).half().requires_grad_()
    table = torch.randn(1000, 8).half().requires_grad_()
    labels = torch.randint(1000, (rows,))
    found = torch.autograd.grad(rows * cross_entropy(h, table, labels), [h, table])
    exact = [x.detach().double().requires_grad_() for x in (h, table)]
    loss = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T, labels)
    for a, b in zip(found, torch.autograd.grad(rows * loss, exact)):
        assert (a - b).norm() < 2e-3 * b.norm()


def test_a_loss_without_scores_needs_labels():
    model = m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA))
    with pytest.raises(ValueError, match="loss_only needs labels"):
        model(torch.tensor([[7, 8]]), loss_only=True)


def test_gradients_are_derivatives():
    torch.manual_seed(5)
    filter = HyenaFilter(2, 5, order=3, reverse=True, learned=True).double()
    parameters = tuple(p for n, p in filter.named_parameters() if n != "bias")
    assert torch.autograd.gradcheck(lambda *p: filter(4), parameters)
    options = {"order": 2, "features": 3, "layers": 1, "frequency": 2.0}
    mixer = M2Mixer(2, 4, normed=True, filter=options).double()
    x = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *p: mixer(p[0]), (x, *mixer.parameters()), atol=1e-6
    )


def test_a_small_model_learns():
    """Two letters are repeated: the one before the last tells the next."""
    torch.manual_seed(8)
    model = m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA, embed_dropout=0.0))
    ids = torch.randint(7, 11, (60, 4, 2)).repeat(1, 1, 20)
    losses = losses_of(model.train(), [{"input_ids": x, "labels": x} for x in ids])
    assert losses[-1] < 0.3 * losses[0]


# ---- folders ----


def test_compressed_folders_are_read(tmp_path):
    model = lively(m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA)), 9)
    model.save_pretrained(tmp_path / "whole")
    in_c = danaus.Model(str(tmp_path / "whole"))
    ids = np.random.default_rng(9).integers(7, 12, 300, "i4")
    in_c.compress([ids], 0.6)
    in_c.save(str(tmp_path / "small"))
    small = m.HyenaDNAForCausalLM.from_pretrained(tmp_path / "small")
    with torch.no_grad():
        likely = torch.log_softmax(small(torch.tensor(ids[None]).long()).logits[0], 1)
    wanted = likely[:-1].gather(1, torch.tensor(ids[1:, None]).long())[:, 0]
    found = np.asarray(danaus.Model(str(tmp_path / "small")).score_tokens([ids])[0])
    np.testing.assert_allclose(found[-len(wanted) :], wanted, atol=1e-4)


def test_heads_are_left_out_or_begin_anew(tmp_path):
    """Training goes on from masked words to classes, and encoders read both."""
    words = lively(m.M2BertForMaskedLM(m.M2BertConfig(**SMALL_BERT)), 10)
    words.save_pretrained(tmp_path / "words")
    with pytest.warns(UserWarning, match="classifier is not in the folder"):
        classes = m.M2BertForSequenceClassification.from_pretrained(tmp_path / "words")
    with pytest.warns(UserWarning, match="pooler is not in the folder"):
        encoder = m.M2BertModel.from_pretrained(tmp_path / "words")
    ids = torch.randint(1, 96, (2, 30))
    wanted = words.bert(ids).last_hidden_state
    torch.testing.assert_close(encoder(ids).last_hidden_state, wanted)
    torch.testing.assert_close(classes.bert(ids).last_hidden_state, wanted)
    classes.save_pretrained(tmp_path / "classes")
    encoder = m.M2BertModel.from_pretrained(tmp_path / "classes")
    torch.testing.assert_close(encoder(ids).last_hidden_state, wanted)
    with pytest.warns(UserWarning, match="cls is not in the folder"):
        m.M2BertForMaskedLM.from_pretrained(tmp_path / "classes")


def written(path, **changes):
    m.M2BertForMaskedLM(m.M2BertConfig(**SMALL_BERT)).save_pretrained(path)
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_folders_that_do_not_fit_are_refused(tmp_path):
    read = m.M2BertForMaskedLM.from_pretrained
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="'hyena', not 'm2_bert'"):
        read(written(tmp_path / "other", model_type="hyena"))
    with pytest.raises(ValueError, match=r"is \[96, 32\], not \[96, 48\]"):
        read(written(tmp_path / "wide", hidden_size=48))
    with pytest.raises(ValueError, match="hidden_size is 0"):
        read(written(tmp_path / "none", hidden_size=0))
    with pytest.raises(ValueError, match="no proper JSON"):
        (written(tmp_path / "broken") / "config.json").write_text("{")
        read(tmp_path / "broken")
    (written(tmp_path / "empty") / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        read(tmp_path / "empty")


def test_calls_are_checked():
    model = m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA | {"max_seq_len": 9}))
    ids = torch.randint(7, 12, (2, 10))
    with pytest.raises(ValueError, match="of 10 tokens; the model takes 1 to 9"):
        model(ids)
    with pytest.raises(ValueError, match="exclude each other"):
        model(ids[:, :5], torch.ones(2, 5), offsets=[0, 5])
    with pytest.raises(ValueError, match="attention_mask is"):
        model(ids[:, :5], torch.ones(2, 4))
    with pytest.raises(ValueError, match="is 16; the words are 0 to 15"):
        model(ids[:, :5].fill_(16))
    with pytest.raises(ValueError, match="no multiple"):
        m.HyenaModel(m.HyenaConfig(d_model=10, head_dim=4))


def test_blocks_end_with_small_weights():
    """A sum over n blocks keeps its size: 0.02 / sqrt(2 n)."""
    model = m.HyenaModel(m.HyenaConfig(d_model=64, d_inner=128, n_layer=8))
    block = model.backbone.layers[5]
    for layer, wanted in (
        (block.mixer.in_proj, 0.02), (block.mlp.fc1, 0.02),
        (block.mixer.out_proj, 0.005), (block.mlp.fc2, 0.005),
    ):  # fmt: skip
        numbers = layer.weight.numel()
        assert abs(layer.weight.std().item() / wanted - 1) < 5 / (2 * numbers) ** 0.5


def test_a_seed_gives_the_same_weights_without_transformers(tmp_path):
    pytest.importorskip("transformers")
    program = """
import sys
if sys.argv[1:]:
    sys.modules["transformers"] = None
import torch
from danaus.torch import models as m
torch.manual_seed(3)
for model in (
    m.M2BertForMaskedLM(m.M2BertConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=1, intermediate_size=16)),
    m.HyenaForCausalLM(m.HyenaConfig(d_model=8, n_layer=2, vocab_size=40)),
    m.M2ViTForImageClassification(m.M2ViTConfig(
        hidden_size=8, num_hidden_layers=2, intermediate_size=16, image_size=32)),
):
    print([x.double().sum().item() for x in model.state_dict().values()])
"""
    run = [sys.executable, "-c", program]
    found = subprocess.run(run, check=True, capture_output=True).stdout
    plain = subprocess.run([*run, "plain"], check=True, capture_output=True).stdout
    assert found == plain


def test_without_transformers_models_are_plain(tmp_path):
    program = f"""
import sys
sys.modules["transformers"] = None
import torch
from danaus.torch import models as m
config = m.HyenaDNAConfig(
    d_model=16, d_inner=24, max_seq_len=20, filter_order=8, filter_taps=15)
model = m.HyenaDNAForCausalLM(config).eval()
model.save_pretrained({str(tmp_path)!r})
again = m.HyenaDNAForCausalLM.from_pretrained({str(tmp_path)!r})
ids = torch.randint(7, 12, (2, 30))
found = again(ids, labels=ids)
assert torch.equal(found.logits, model(ids).logits) and found["loss"] == found.loss
assert "pooler_output" not in m.HyenaDNAModel(config)(ids)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    ids = np.arange(7, 12, dtype="i4")
    assert len(danaus.Model(str(tmp_path)).score_tokens([ids])[0])


def test_transformers_know_the_models(tmp_path):
    hub = pytest.importorskip("transformers")
    model = m.HyenaDNAForCausalLM(m.HyenaDNAConfig(**SMALL_DNA)).eval()
    model.save_pretrained(tmp_path)
    again = hub.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.randint(7, 12, (2, 20))
    assert torch.equal(again(ids).logits, model(ids).logits)
    made = again.generate(ids, max_new_tokens=3, do_sample=False)
    for _ in range(3):
        more = model(ids).logits[:, -1, : model.config.vocab_size].argmax(1)
        ids = torch.cat([ids, more[:, None]], 1)
    assert torch.equal(made, ids)
    assert isinstance(hub.AutoModel.from_pretrained(tmp_path), m.HyenaDNAModel)


# ---- what PyTorch and transformers do around models ----

STILL = {
    "hidden_dropout_prob": 0.0, "embed_dropout": 0.0, "drop_path_rate": 0.0,
    "max_seq_len": 64, "long_conv_l_max": 64, "num_hidden_layers": 1, "n_layer": 1,
}  # fmt: skip
SMALL_VIT = {
    "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32, "image_size": 6,
    "patch_size": 2, "num_channels": 1, "num_labels": 3, "hyena_filter_order": 8,
    "filter_order": 8, "num_attention_heads": 4,
}  # fmt: skip
TRAINED = {
    m.M2BertForMaskedLM: SMALL_BERT, m.M2BertForSequenceClassification: SMALL_BERT,
    m.HyenaForCausalLM: SMALL_DNA | {"vocab_size": 12},
    m.M2ViTForImageClassification: SMALL_VIT,
    m.HyenaViTForImageClassification: SMALL_VIT,
    m.MonarchViTForImageClassification: SMALL_VIT,
}  # fmt: skip


def model_of(kind):
    """A model of one block, whose steps have no chance in them."""
    torch.manual_seed(10)
    known = kind.config_class.defaults.keys() | {"num_labels"}
    sizes = {n: v for n, v in (TRAINED[kind] | STILL).items() if n in known}
    return kind(kind.config_class(**sizes)).train()


def inputs_of(kind, rows, seed):
    """What it is called with, of as many labels in every row."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (rows,), generator=random)
    if kind.main_input_name == "pixel_values":
        pixels = torch.randn(rows, 1, 6, 6, generator=random)
        return {"pixel_values": pixels, "labels": labels}
    ids = torch.randint(7, 12, (rows, 30), generator=random)
    if kind is m.M2BertForSequenceClassification:
        return {"input_ids": ids, "labels": labels}
    labels = ids.clone()
    if kind is m.M2BertForMaskedLM:
        order = torch.rand(rows, 30, generator=random).argsort(1)
        labels[order >= 5] = -100
    return {"input_ids": ids, "labels": labels}


def step(model, inputs):
    """The loss and gradients."""
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return loss, [p.grad.clone() for p in model.parameters()]


all_kinds = pytest.mark.parametrize("kind", TRAINED, ids=lambda kind: kind.__name__)


@all_kinds
def test_training_with_checkpoints_of_activations_is_the_same(kind):
    model, inputs = model_of(kind), inputs_of(kind, 3, 6)
    wanted = step(model, inputs)
    (blocks,) = [x for x in model.modules() if isinstance(x, Blocks)]
    blocks.gradient_checkpointing = True
    torch.testing.assert_close(step(model, inputs), wanted)


@all_kinds
def test_autocast_computes_in_16_bits(kind):
    model, inputs = model_of(kind).eval(), inputs_of(kind, 3, 7)
    del inputs["labels"]
    wanted = model(**inputs).logits
    with torch.autocast("cpu", torch.bfloat16):
        found = model(**inputs).logits
    assert found.dtype == torch.bfloat16
    assert 0 < (found - wanted).norm() < 0.05 * wanted.norm()


@all_kinds
def test_models_compile_without_graph_breaks(kind):
    model, inputs = model_of(kind), inputs_of(kind, 3, 11)
    is_causal = isinstance(model, m.HyenaForCausalLM)
    for more in ({}, {"loss_only": True})[: 1 + is_causal]:
        fast = compiled(model)
        for found, wanted in zip(
            step(fast, inputs | more), step(model, inputs | more)
        ):
            torch.testing.assert_close(found, wanted)


def test_places_of_labels_need_no_size_of_the_data():
    kind = m.M2BertForMaskedLM
    model, inputs = model_of(kind), inputs_of(kind, 3, 12)
    wanted = step(model, inputs)
    labels = inputs["labels"].flatten()
    at = torch.cat(
        [(labels != -100).nonzero()[:, 0], (labels == -100).nonzero()[:4, 0]]
    )
    inputs["label_places"] = at
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    fast = torch.compile(model, backend="aot_eager")
    for call in model, fast:
        for found, one in zip(step(call, inputs), wanted):
            torch.testing.assert_close(found, one)
    assert not torch._dynamo.utils.counters["graph_break"]
    mask = torch.ones(3, 30)
    mask[1, 4:] = 0
    with pytest.raises(ValueError, match="label_places and attention_mask exclude"):
        model(**inputs, attention_mask=mask)


@pytest.mark.parametrize("kind", [m.M2BertForMaskedLM, m.HyenaForCausalLM])
def test_trainer_trains(kind, tmp_path):
    """Also in parts of a step, whose gradients are those of the whole."""
    hub = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    inputs = inputs_of(kind, 12, 13)
    rows = [{n: x[i] for n, x in inputs.items()} for i in range(12)]
    found = {}
    for parts in 1, 2:
        arguments = hub.TrainingArguments(
            str(tmp_path / str(parts)), max_steps=3, logging_steps=1, use_cpu=True,
            per_device_train_batch_size=4 // parts, gradient_accumulation_steps=parts,
            report_to=[], learning_rate=3e-3, disable_tqdm=True, seed=1,
        )  # fmt: skip
        model = model_of(kind)
        trainer = hub.Trainer(model=model, args=arguments, train_dataset=rows)
        trainer.train()
        history = trainer.state.log_history[:3]
        found[parts] = [(row["loss"], row["grad_norm"]) for row in history]
        trainer.save_model(str(tmp_path / "last"))
    np.testing.assert_allclose(found[2], found[1], rtol=1e-3)
    assert found[1][2][0] < found[1][0][0]
    again = kind.from_pretrained(tmp_path / "last")
    assert torch.equal(again(**inputs).loss, model.eval()(**inputs).loss)


SHARDED = m.M2BertForMaskedLM, m.HyenaForCausalLM, m.M2ViTForImageClassification


def _sharded_rank(rank, folder):
    from torch import distributed as dist
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    where = {"init_method": f"file://{folder}/meet", "rank": rank, "world_size": 2}
    dist.init_process_group("gloo", **where)
    try:
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        for kind in SHARDED:
            model = model_of(kind)
            for blocks in [b for b in model.modules() if isinstance(b, Blocks)]:
                for block in blocks:
                    fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
            batches = [inputs_of(kind, 4, n) for n in range(3)]
            half = slice(2 * rank, 2 * rank + 2)
            own = [{n: x[half] for n, x in inputs.items()} for inputs in batches]
            losses = losses_of(model, own)
            dist.all_reduce(losses)
            torch.save(losses / 2, f"{folder}/{kind.__name__}.{rank}")
        dist.barrier()
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="no distributed")
def test_sharded_models_train_as_one_process(tmp_path):
    torch.multiprocessing.spawn(_sharded_rank, (str(tmp_path),), nprocs=2)
    for kind in SHARDED:
        wanted = losses_of(model_of(kind), [inputs_of(kind, 4, n) for n in range(3)])
        found = torch.load(tmp_path / f"{kind.__name__}.1")
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=0)


def test_filters_are_made_on_one_device(monkeypatch):
    """transformers puts linspace on the CPU while it loads models."""
    real = torch.linspace
    torch.utils._device._device_constructors.cache_clear()  # transformers' may be there
    with torch.device("meta"):  # which remembers the true function
        assert real(0, 1, 3).is_meta
    monkeypatch.setattr(
        torch, "linspace", lambda *a, **more: real(*a, **{"device": "cpu"} | more)
    )
    with torch.device("meta"):
        made = m.HyenaForCausalLM(m.HyenaConfig(d_model=8, n_layer=1, vocab_size=8))
    assert {x.device.type for x in [*made.parameters(), *made.buffers()]} == {"meta"}
