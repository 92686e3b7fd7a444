"""Vision transformers for PyTorch: published sizes, the same numbers as those of
transformers and of C, folders, gradients."""
# SPDX-License-Identifier: Apache-2.0

import json

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")

from test_torch_models import losses_of, size_of  # noqa: E402

from danaus.torch import models as m  # noqa: E402
from danaus.torch.models.mixer_vit import sinusoids  # noqa: E402

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64,
    "image_size": 23, "patch_size": 5, "num_channels": 2, "num_labels": 5,
    "drop_path_rate": 0.0,
}  # fmt: skip
HEADS = {"num_attention_heads": 4}
KINDS = {
    "vit": (m.MonarchViTConfig, m.MonarchViTModel, m.MonarchViTForImageClassification),
    "hyena": (m.HyenaViTConfig, m.HyenaViTModel, m.HyenaViTForImageClassification),
    "m2": (m.M2ViTConfig, m.M2ViTModel, m.M2ViTForImageClassification),
}
VARIANTS = [
    ("vit", HEADS), ("vit", HEADS | {"monarch_blocks": 4}),
    ("vit", HEADS | {"monarch_blocks": 2, "hidden_act": "gelu_new"}),
    ("hyena", {}), ("hyena", {"hyena_order": 3, "short_filter_order": 3}),
    ("hyena", {"filter_modulate": False, "num_inner_mlps": 3, "emb_dim": 5}),
    ("hyena", {"filter_taps": 3}),
    ("m2", {}), ("m2", {"residual_long_conv": True, "use_glu_mlp": True}),
    ("m2", {"bidirectional": False, "use_monarch_mlp": False, "hyena_w_mod": 0.5}),
    ("m2", {"image_size": 5}),
]  # fmt: skip
NAMES = [f"{kind}-{i}" for i, (kind, _) in enumerate(VARIANTS)]


def lively(kind, seed=0, **changes):
    """A model whose numbers are all as large as those of a trained one."""
    torch.manual_seed(seed)
    config, _, classifies = KINDS[kind]
    model = classifies(config(**SMALL | changes))
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return model.eval()


def pictures(model, images=3):
    c = model.config
    return torch.randn(images, c.num_channels, c.image_size, c.image_size)


def test_parameters_are_as_many_as_published():
    vit, hyena, m2 = (
        size_of(classifies, num_labels=1000) for _, _, classifies in KINDS.values()
    )
    assert vit == 86_567_656
    assert round(m2 / 1e6) == 45  # M2-ViT-b, table 6 of arXiv 2310.12109
    assert round(hyena / 1e6) in (87, 88)  # 88M, table 4.7 of arXiv 2302.10866


def test_dense_ones_are_those_of_transformers(tmp_path):
    hub = pytest.importorskip("transformers")
    model = lively("vit", **HEADS)
    model.save_pretrained(tmp_path)
    other = hub.ViTForImageClassification.from_pretrained(tmp_path)
    x = pictures(model)
    labels = torch.tensor([0, 4, 2])
    found, wanted = model(x, labels), other(x, labels=labels)
    torch.testing.assert_close(found.logits, wanted.logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.loss, wanted.loss)


def test_positions_are_sines_and_cosines():
    found = sinusoids(7, 5)
    for t in range(7):
        for i in range(5):
            angle = t / 10000 ** ((i - i % 2) / 5)
            wanted = np.cos(angle) if i % 2 else np.sin(angle)
            assert abs(found[t, i] - wanted) < 1e-6


@pytest.mark.parametrize(("kind", "changes"), VARIANTS, ids=NAMES)
def test_c_gives_the_same_numbers(kind, changes, tmp_path):
    model = lively(kind, 1, **changes)
    model.save_pretrained(tmp_path)
    again = KINDS[kind][2].from_pretrained(tmp_path)
    x = pictures(model, 4)
    with torch.no_grad():
        wanted = model(x).logits
        torch.testing.assert_close(again(x).logits, wanted, atol=0, rtol=0)
        pooled = KINDS[kind][1].from_pretrained(tmp_path)(x).pooler_output
    in_c = danaus.Model(str(tmp_path))
    largest = wanted.abs().max().item()
    np.testing.assert_allclose(in_c.classify(x.numpy()), wanted, atol=1e-4 * largest)
    found = in_c.embed_images(x.numpy())
    np.testing.assert_allclose(found, pooled, atol=1e-4 * pooled.abs().max().item())


@pytest.mark.parametrize(("kind", "changes"), VARIANTS, ids=NAMES)
def test_gradients(kind, changes):
    sizes = {
        "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 1,
        "image_size": 4, "patch_size": 2, "num_channels": 1, "filter_order": 4,
        "hyena_filter_order": 4, "num_attention_heads": 2, "monarch_mlp_nblocks": 2,
    }  # fmt: skip
    if changes.get("monarch_blocks"):
        sizes["monarch_blocks"] = 2
    model = lively(kind, 2, **changes | sizes).double()
    x = pictures(model, 2).double().requires_grad_()
    some = [p for n, p in model.named_parameters() if "norm1" in n or "mixer" in n]

    def loss(x, *parameters):
        return model(x, torch.tensor([1, 3])).loss

    assert torch.autograd.gradcheck(loss, (x, *some[:6]))


@pytest.mark.parametrize("kind", KINDS)
def test_training_learns(kind):
    """The picture's brighter half tells the class."""
    model = lively(kind, 3, **HEADS, num_labels=2).train()
    batches = []
    for _ in range(30):
        labels = torch.randint(0, 2, (8,))
        x = pictures(model, 8)
        x[..., :11] += 2 * labels[:, None, None, None]
        batches.append({"pixel_values": x, "labels": labels})
    losses = losses_of(model, batches, 1e-3)
    assert losses[-5:].mean() < 0.5 * losses[:5].mean()


def test_branches_are_left_out_in_training_alone():
    model = lively("m2", 5, drop_path_rate=0.9)
    x = pictures(model)
    assert torch.equal(model(x).logits, model(x).logits)
    model.train()
    assert not torch.equal(model(x).logits, model(x).logits)


def test_transformers_finds_them(tmp_path):
    hub = pytest.importorskip("transformers")
    for kind in ("hyena", "m2"):
        model = lively(kind, 6)
        model.save_pretrained(tmp_path / kind)
        found = hub.AutoModelForImageClassification.from_pretrained(tmp_path / kind)
        x = pictures(model)
        assert torch.equal(found(x).logits, model(x).logits)


def test_a_head_may_be_left_out_or_begin_anew(tmp_path):
    model = lively("vit", 8, **HEADS, monarch_blocks=4)
    model.vit.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="classifier is not in the folder"):
        other = m.MonarchViTForImageClassification.from_pretrained(tmp_path)
    x = pictures(model)
    assert torch.equal(other.vit(x).pooler_output, model.vit(x).pooler_output)


def test_wrong_sizes_get_a_sentence(tmp_path):
    model = lively("hyena", 7)
    with pytest.raises(ValueError, match=r"\[any, 2, 23, 23\] is needed"):
        model(torch.zeros(1, 2, 23, 24))
    with pytest.raises(ValueError, match="patches of 24 pixels in images of 23"):
        lively("m2", patch_size=24)
    with pytest.raises(ValueError, match="no multiple of num_attention_heads 5"):
        lively("vit", num_attention_heads=5)
    with pytest.raises(ValueError, match="qkv_bias is false"):
        lively("vit", **HEADS, qkv_bias=False)
    with pytest.raises(ValueError, match="patch_size is 0"):
        lively("m2", patch_size=0)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 40}))
    with pytest.raises(ValueError, match=r"not \[40"):
        m.HyenaViTForImageClassification.from_pretrained(tmp_path)
