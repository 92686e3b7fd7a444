"""Encoders that run in C, beside those of transformers with the same random weights."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = 61
PLACES = 48
SIZES = {
    "vocab_size": WORDS, "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 3, "intermediate_size": 40, "hidden_act": "gelu",
    "max_position_embeddings": PLACES, "initializer_range": 0.3,
}  # fmt: skip
DISTIL = {
    "hidden_size": "dim", "intermediate_size": "hidden_dim", "hidden_act": "activation",
    "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
}  # fmt: skip
# A family's classes, fields of its own, its names of fields, and tokens that it takes.
KINDS = {
    "bert": ("Bert", {}, {}, PLACES),
    "roberta": ("Roberta", {"type_vocab_size": 1}, {}, PLACES - 2),
    "xlm-roberta": ("XLMRoberta", {"layer_norm_eps": 1e-5}, {}, PLACES - 2),
    "camembert": ("Camembert", {"pad_token_id": 3}, {}, PLACES - 4),
    "distilbert": ("DistilBert", {}, DISTIL, PLACES),
    "mpnet": ("MPNet", {}, {}, PLACES - 2),
    "modernbert": (
        "ModernBert",
        {"num_hidden_layers": 4, "local_attention": 16, "pad_token_id": 0},
        {"hidden_act": "hidden_activation"},
        PLACES,
    ),
    "nomic-bert": ("NomicBert", {}, {}, PLACES),
}
ROBERTA = ("roberta", "xlm-roberta", "camembert")


def make(kind: str, what: str = "Model", seed: int = 0, **changes):
    """A random model of transformers whose biases and norms are far from 0 and 1."""
    family, own, names, _ = KINDS[kind]
    sizes = {names.get(name, name): v for name, v in (SIZES | own | changes).items()}
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family}{what}")(config).eval()
    for p in model.parameters():
        if p.dim() == 1:
            torch.nn.init.normal_(p, mean=0.5)
    return model


def pool(folder, first: bool, normalize: bool):
    """Writes what sentence-transformers write about pooling."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    modules += [("Normalize", "2_Normalize")] * normalize
    listed = [
        {"type": f"sentence_transformers.models.{name}", "path": path}
        for name, path in modules
    ]
    flags = {"pooling_mode_cls_token": first, "pooling_mode_mean_tokens": not first}
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags))


def sequences_of(rng, count: int, longest: int) -> list[list[int]]:
    """Sequences without the token of padding, whose position differs in RoBERTa."""
    lengths = rng.integers(1, longest, count, endpoint=True)
    return [rng.integers(4, WORDS, n).tolist() for n in lengths]


def embeddings_of(model, sequences, first=False, normalize=True) -> np.ndarray:
    found = []
    for ids in sequences:
        with torch.inference_mode():
            rows = model(torch.tensor([ids])).last_hidden_state[0]
        pooled = rows[0] if first else rows.mean(0)
        found += [torch.nn.functional.normalize(pooled, dim=0) if normalize else pooled]
    return torch.stack(found).numpy()


def expect_close(found: np.ndarray, wanted: np.ndarray, most: float = 2e-6):
    assert found.shape == wanted.shape and found.dtype == np.float32
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert error < most, error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [
    {}, {"hidden_act": "gelu_new", "num_hidden_layers": 4},
    {"num_attention_heads": 1, "hidden_size": 18, "hidden_act": "relu"},
    {"num_attention_heads": 12, "intermediate_size": 7},
])  # fmt: skip
def test_embeddings_are_those_of_transformers(rng, tmp_path, kind, change):
    reference = make(kind, **change)
    reference.save_pretrained(tmp_path)
    parameters = sum(p.numel() for p in reference.parameters())
    reference = reference.double()
    longest = KINDS[kind][3]
    sequences = [*sequences_of(rng, 30, longest), [5], [7] * longest]
    for first in False, True:
        for normalize in False, True:
            pool(tmp_path, first, normalize)
            model = danaus.Model(tmp_path)
            found = model.embed_tokens(sequences)
            expect_close(found, embeddings_of(reference, sequences, first, normalize))
    info = model.describe()
    assert info.architecture == ("roberta" if kind in ROBERTA else kind)
    assert (info.max_length, info.vocabulary) == (longest, WORDS)
    pooler = sum(p.numel() for n, p in reference.named_parameters() if "pooler" in n)
    assert info.parameters == parameters - pooler
    with pytest.raises(ValueError, match=f"1 to {longest} are possible"):
        model.embed_tokens([[5] * (longest + 1)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_words_are_scored_as_by_transformers(rng, tmp_path, kind, tied):
    reference = make(kind, "ForMaskedLM", hidden_act="relu", tie_word_embeddings=tied)
    reference.save_pretrained(tmp_path)
    model = danaus.Model(tmp_path)
    reference = reference.double()
    for ids in sequences_of(rng, 5, 30):
        places = rng.integers(0, len(ids), 3).tolist()
        with torch.inference_mode():
            wanted = reference(torch.tensor([ids])).logits[0, places].numpy()
        expect_close(model.fill_tokens(ids, places), wanted)
    sequences = sequences_of(rng, 5, 30)
    encoder = getattr(reference, reference.base_model_prefix)
    expect_close(model.embed_tokens(sequences), embeddings_of(encoder, sequences))


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_compressed_and_saved(rng, tmp_path, kind):
    make(kind).save_pretrained(tmp_path / "whole")
    model = danaus.Model(tmp_path / "whole")
    sequences = sequences_of(rng, 150, 20)
    wanted, dense = model.embed_tokens(sequences), model.describe().linear_parameters
    for given in sequences, None:
        model = danaus.Model(tmp_path / "whole")
        model.compress(*([given] if given else []), params=0.8)
        small = model.embed_tokens(sequences)
        assert model.describe().linear_parameters <= 0.8 * dense
        alike = (small * wanted).sum(1).mean()
        assert alike > (0.9 if given else 0.5), alike
        model.save(tmp_path / "small")
        again = danaus.Model(tmp_path / "small")
        expect_close(again.embed_tokens(sequences), small)


def test_layers_without_biases_become_chains(rng, tmp_path):
    reference = make("modernbert")
    blocks = torch.block_diag(*[torch.ones(6, 10)] * 4)
    with torch.no_grad():
        for layer in reference.layers:
            layer.mlp.Wo.weight *= blocks
    reference.save_pretrained(tmp_path / "whole")
    model = danaus.Model(tmp_path / "whole")
    sequences = sequences_of(rng, 60, 20)
    model.compress(sequences, params=0.7, candidates=["monarch"])
    assert any(p.a > 1 for layer in model.layers() for p in layer.patterns)
    model.save(tmp_path / "small")
    small = danaus.Model(tmp_path / "small").embed_tokens(sequences)
    expect_close(small, model.embed_tokens(sequences))


def test_masks_may_have_another_name(tmp_path):
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefgh"]
    reference = make("roberta", "ForMaskedLM", vocab_size=len(words))
    reference.save_pretrained(tmp_path)
    special = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    special |= {"unk_token": "<unk>", "mask_token": "<mask>"}
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = transformers.BertTokenizerFast(vocab=vocabulary, **special)
    tokenizer.save_pretrained(tmp_path)
    model, text = danaus.Model(tmp_path), "a b <mask> d"
    with torch.inference_mode():
        logits = reference(**tokenizer(text, return_tensors="pt")).logits[0, 3]
    found = model.fill(text, top=3)[0]
    assert [x.id for x in found] == logits.topk(3).indices.tolist()
    with pytest.raises(ValueError, match="1 of its 1 <mask> are cut off"):
        model.fill("a " * 60 + "<mask>")
    assert model.fill("a b") == []


def test_half_precision_files_are_read(rng, tmp_path):
    reference = make("roberta")
    reference.half().save_pretrained(tmp_path)
    sequences = sequences_of(rng, 5, 30)
    found = danaus.Model(tmp_path).embed_tokens(sequences)
    expect_close(found, embeddings_of(reference.double(), sequences))


def test_sentence_transformers_folders_run(rng, tmp_path):
    st = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.models")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    make("distilbert", vocab_size=len(words)).save_pretrained(tmp_path / "plain")
    tokenizer.save_pretrained(tmp_path / "plain")
    theirs = st.SentenceTransformer(modules=[
        modules.Transformer(str(tmp_path / "plain"), max_seq_length=16),
        modules.Pooling(24, pooling_mode="cls"),
    ])  # fmt: skip
    theirs.save(str(tmp_path / "saved"))
    texts = ["a b c", "p", "", "a " * 40]
    found = danaus.Model(tmp_path / "saved").embed(texts)
    expect_close(found, theirs.encode(texts), 1e-5)


# ---- what MPNet alone has ----


@pytest.mark.parametrize("buckets", [32, 40])
def test_keys_at_any_distance_have_the_bias_of_transformers(rng, tmp_path, buckets):
    sizes = {"max_position_embeddings": 402, "num_attention_heads": 6}
    sizes["relative_attention_num_buckets"] = buckets
    reference = make("mpnet", **sizes)
    with torch.no_grad():
        reference.encoder.relative_attention_bias.weight *= 20
    reference.save_pretrained(tmp_path)
    model = danaus.Model(tmp_path)
    sequences = [rng.integers(4, WORDS, n).tolist() for n in (400, 1, 129, 256)]
    found = model.embed_tokens(sequences)
    expect_close(found, embeddings_of(reference.double(), sequences))


# ---- what ModernBERT alone has ----

THETAS = {
    "full_attention": {"rope_type": "default", "rope_theta": 50.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 3.0},
}
YARN = {"full_attention": {"rope_type": "yarn"}}
BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")


@pytest.mark.parametrize("change", [
    {"local_attention": 1}, {"local_attention": 2}, {"local_attention": 31},
    {"local_attention": 1000}, {"rope_parameters": THETAS}, dict.fromkeys(BIASES, True),
    {"norm_bias": True}, {"attention_bias": True}, {"mlp_bias": True},
    {"global_attn_every_n_layers": 1}, {"global_attn_every_n_layers": 2},
    {"layer_types": ["sliding_attention", "full_attention"] * 2}, {"norm_eps": 0.1},
    {"hidden_act": "silu", "intermediate_size": 33},
])  # fmt: skip
def test_variants_of_modernbert_are_those_of_transformers(rng, tmp_path, change):
    reference = make("modernbert", "ForMaskedLM", **change)
    reference.save_pretrained(tmp_path)
    model = danaus.Model(tmp_path)
    reference = reference.double()
    sequences = [*sequences_of(rng, 20, PLACES), [5] * PLACES]
    expect_close(
        model.embed_tokens(sequences), embeddings_of(reference.model, sequences)
    )
    ids = sequences[0]
    with torch.inference_mode():
        wanted = reference(torch.tensor([ids])).logits[0].numpy()
    expect_close(model.fill_tokens(ids, list(range(len(ids)))), wanted)
    assert model.describe().parameters == sum(p.numel() for p in reference.parameters())


def test_heads_of_modernbert_may_lack_a_bias(tmp_path):
    options = {"decoder_bias": False, "classifier_activation": "relu"}
    reference = make("modernbert", "ForMaskedLM", **options)
    reference.save_pretrained(tmp_path)
    ids = [7, 8, 9]
    with torch.inference_mode():
        wanted = reference.double()(torch.tensor([ids])).logits[0].numpy()
    expect_close(danaus.Model(tmp_path).fill_tokens(ids, [0, 1, 2]), wanted)


def test_classifiers_are_no_heads_for_words(rng, tmp_path):
    reference = make("modernbert", "ForSequenceClassification")
    reference.save_pretrained(tmp_path)
    model = danaus.Model(tmp_path)
    sequences = sequences_of(rng, 3, PLACES)
    found = model.embed_tokens(sequences)
    expect_close(found, embeddings_of(reference.double().model, sequences))
    with pytest.raises(NotImplementedError, match="no head for masked words"):
        model.fill_tokens([5], [0])


def test_long_texts_of_modernbert_are_those_of_transformers(rng, tmp_path):
    reference = make("modernbert", max_position_embeddings=3000, local_attention=128)
    reference.save_pretrained(tmp_path)
    model = danaus.Model(tmp_path)
    sequences = [rng.integers(4, WORDS, n).tolist() for n in (3000, 1, 700, 1500)]
    found = model.embed_tokens(sequences)
    # Angles that transformers round to f32 err by 3000 2^-24.
    expect_close(found, embeddings_of(reference.double(), sequences), 1e-3)
    operations = 4 * SIZES["hidden_size"]
    keys = 2 * 3000 + 2 * 129  # two layers are global, two local
    assert model.estimate(1, 3000).mixing == operations * 3000 * keys
    assert model.estimate(1, 100).mixing == operations * 100 * 4 * 100


def test_older_configurations_of_modernbert_mean_the_same(rng, tmp_path):
    reference = make("modernbert", rope_parameters=THETAS)
    reference.save_pretrained(tmp_path)
    sequences = sequences_of(rng, 5, PLACES)
    wanted = danaus.Model(tmp_path).embed_tokens(sequences)
    old = {"rope_parameters": ..., "layer_types": ..., "global_rope_theta": 50.0}
    change_config(tmp_path, **old, global_attn_every_n_layers=3, local_rope_theta=3.0)
    found = danaus.Model(tmp_path).embed_tokens(sequences)
    np.testing.assert_array_equal(found, wanted)
    change_config(tmp_path, local_rope_theta=None)
    one = danaus.Model(tmp_path).embed_tokens(sequences)
    change_config(tmp_path, local_rope_theta=50.0)
    found = danaus.Model(tmp_path).embed_tokens(sequences)
    np.testing.assert_array_equal(found, one)
    assert np.abs(one - wanted).max() > 1e-3


# ---- what Nomic BERT alone has ----

AUTHORS = {
    "hidden_size": "n_embd", "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "layer_norm_eps": "layer_norm_epsilon", "max_position_embeddings": "n_positions",
}  # fmt: skip


@pytest.mark.parametrize(("act", "name"), [("silu", "swiglu"), ("gelu", "geglu")])
def test_configurations_of_its_authors_mean_the_same(rng, tmp_path, act, name):
    rope = {"rope_type": "default", "rope_theta": 77.0}
    sizes = {"hidden_act": act, "rope_parameters": rope, "layer_norm_eps": 0.01}
    make("nomic-bert", "ForMaskedLM", **sizes).save_pretrained(tmp_path)
    sequences = sequences_of(rng, 9, PLACES)
    wanted = danaus.Model(tmp_path).embed_tokens(sequences)
    config = json.loads((tmp_path / "config.json").read_text())
    renamed = {AUTHORS.get(k, k): v for k, v in config.items() if k != "hidden_act"}
    del renamed["rope_parameters"]
    flags = dict.fromkeys(["prenorm", "use_rms_norm", "rotary_emb_interleaved"], False)
    renamed |= {"activation_function": name, "rotary_emb_base": 77} | flags
    renamed |= {"rotary_emb_fraction": 1.0, "rotary_scaling_factor": None}
    (tmp_path / "config.json").write_text(json.dumps(renamed))
    model = danaus.Model(tmp_path)
    np.testing.assert_array_equal(model.embed_tokens(sequences), wanted)
    for change, sentence in (
        ({"prenorm": True}, '"prenorm" is true'),
        ({"use_rms_norm": True}, '"use_rms_norm" is true'),
        ({"causal": True}, '"causal" is true'),
        ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction is 0.5"),
        ({"num_experts": 8}, "num_experts 8"),
        ({"rotary_scaling_factor": 2}, "rotary_scaling_factor is not null"),
        ({"activation_function": "gelu"}, "is not swiglu or geglu"),
        ({"rotary_emb_base": 0}, "not above 0"),
        ({"n_head": 8}, "a head has 3 numbers"),
        ({"n_positions": ...}, '"n_positions" is missing'),
    ):
        change_config(tmp_path, **change)
        with pytest.raises((ValueError, NotImplementedError), match=sentence):
            danaus.Model(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(renamed))


def test_its_positions_turn_by_any_theta(rng, tmp_path):
    for theta in (3.0, 1e4):
        rope = {"rope_type": "default", "rope_theta": theta}
        reference = make("nomic-bert", rope_parameters=rope)
        reference.save_pretrained(tmp_path)
        sequences = sequences_of(rng, 9, PLACES)
        found = danaus.Model(tmp_path).embed_tokens(sequences)
        expect_close(found, embeddings_of(reference.double(), sequences))


# ---- what does not fit ----


def change_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


@pytest.mark.parametrize(("kind", "changes", "sentence"), [
    ("roberta", {"pad_token_id": 47}, "leaves no position behind that of pad_token_id"),
    ("roberta", {"pad_token_id": -1}, "pad_token_id"),
    ("roberta", {"position_embedding_type": "relative_key"}, "relative_key"),
    ("roberta", {"num_attention_heads": 5}, "hidden_size 24 is no multiple of"),
    ("roberta", {"hidden_act": "mish"}, 'hidden_act "mish" is not one of'),
    ("roberta", {"max_position_embeddings": 50}, "position_embeddings.weight is"),
    ("distilbert", {"n_heads": 5}, "dim 24 is no multiple of n_heads 5"),
    ("distilbert", {"activation": "mish"}, 'activation "mish" is not one of'),
    ("distilbert", {"n_layers": 3}, "transformer.layer.2.attention.q_lin.weight is"),
    ("distilbert", {"dim": ...}, '"dim" is missing'),
    ("bert", {"model_type": "luke"}, '"luke" is not one that danaus runs'),
    ("mpnet", {"relative_attention_num_buckets": 16}, "is 16, and MPNet uses 32"),
    ("mpnet", {"relative_attention_num_buckets": 33}, r"bias.weight is \[32, 3\], not"),
    ("mpnet", {"max_position_embeddings": 2}, "leaves no position: the first is 2"),
    ("mpnet", {"num_attention_heads": 5}, "hidden_size 24 is no multiple of"),
    ("nomic-bert", {"num_attention_heads": 8}, "a head has 3 numbers"),
    ("nomic-bert", {"rope_scaling": {"factor": 2}}, "rope_scaling"),
    ("nomic-bert", {"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
    ("nomic-bert", {"intermediate_size": 41}, "mlp.fc12 is 40 x 24, not 41 x"),
    ("nomic-bert", {"max_position_embeddings": 1 << 30}, "max_position_embeddings"),
    ("modernbert", {"num_attention_heads": 8}, "a head has 3 numbers"),
    ("modernbert", {"local_attention": -2}, '"local_attention" is not an integer'),
    ("modernbert", {"local_attention": 0}, '"local_attention" is 0 and has to be from'),
    ("modernbert", {"norm_bias": True}, "embeddings.norm.bias is missing"),
    ("modernbert", {"attention_bias": True}, "0.attn.Wqkv.bias is missing"),
    ("modernbert", {"mlp_bias": True}, "layers.0.mlp.Wi.bias is missing"),
    ("modernbert", {"intermediate_size": 41}, "mlp.Wi is 80 x 24, not 82 x"),
    ("modernbert", {"num_hidden_layers": 5}, "has 4 entries for 5 layers"),
    ("modernbert", {"layer_types": ["full_attention"] * 3 + ["odd"]}, 'has "odd"'),
    ("modernbert", {"layer_types": [1] * 4}, "layer_types"),
    ("modernbert", {"layer_types": 3}, "layer_types"),
    ("modernbert", {"rope_scaling": {"factor": 2}}, "rope_scaling"),
    ("modernbert", {"rope_parameters": ..., "global_rope_theta": 0}, "theta"),
    ("modernbert", {"rope_parameters": YARN}, "yarn"),
    ("modernbert", {"classifier_activation": "mish"}, "classifier_activation"),
    ("modernbert", {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers"),
    ("modernbert", {"max_position_embeddings": 1 << 30}, "max_position_embeddings"),
])  # fmt: skip
def test_what_does_not_fit_has_a_sentence(tmp_path, kind, changes, sentence):
    make(kind).save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises((ValueError, NotImplementedError), match=sentence):
        danaus.Model(tmp_path)
