#!/usr/bin/python3
"""Sentences for wrong input: each names the file or the option, what stands there, and what
would be right. Every row of the tables is a command line and what its sentence has."""

# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import shlex
import shutil
import tempfile

import numpy as np
import test_hyena
import test_model
import test_vit
from arrays import write_safetensors
from program import danaus, finish, refuses

LARGE = "9223372036854775808"  # 2^63

# ---- the inputs ----


def change(folder, model, tensors):
    """A copy of a model with tensors replaced, each by (type, array), or taken out by None."""
    shutil.copytree(model, folder)
    w = test_model.weights(np.random.default_rng(0))
    known = {name: ("F32", x) for name, x in w.items()} | tensors
    write_safetensors(
        pathlib.Path(folder, "model.safetensors"), {n: x for n, x in known.items() if x}
    )


def make_models():
    rng = np.random.default_rng(0)
    test_model.write_model(pathlib.Path("bert"), test_model.weights(rng))
    test_vit.write_model(pathlib.Path("vit"), test_vit.weights(rng))
    test_hyena.write_model(pathlib.Path("dna"), test_hyena.weights(rng))
    shutil.copytree("bert", "empty_config")
    pathlib.Path("empty_config/tokenizer_config.json").write_text("")
    shutil.copytree("bert", "no_words")
    pathlib.Path("no_words/vocab.txt").write_text("")
    shutil.copytree("bert", "bad_words")
    pathlib.Path("bad_words/vocab.txt").write_bytes(b"a\n\xff\n")
    query, place = "encoder.layer.0.attention.self.query", "embeddings.LayerNorm.bias"
    narrow, bytes_ = np.zeros(7, "f4"), np.zeros((24, 24), "i1")
    change("no_bias", "bert", {f"{query}.bias": None})
    change("narrow", "bert", {f"{query}.bias": ("F32", narrow), place: ("F32", narrow)})
    change("integers", "bert", {f"{query}.weight": ("U8", bytes_.view("u1")), place: None})
    change("unscaled", "bert", {f"{query}.weight": ("I8", bytes_)})
    scale = {f"{query}.weight_scale": ("F32", np.ones((24, 1), "f4"))}
    change("scaled", "bert", {f"{query}.weight": ("I8", bytes_)} | scale)
    change("complex", "bert", {place: ("C64", np.zeros(24, "c8"))})
    for field, value in ("hyena_filter_order", 5), ("hyena_emb_dim", 7), ("long_conv_l_max", 24):
        config = test_model.M2_CONFIG | {field: value}
        test_model.write_model(
            pathlib.Path(f"m2_{field}"), test_model.m2_weights(), config, test_model.M2_WORDS
        )
    # A file may be refused by its name alone where its path is long.
    long = pathlib.Path("f" * 80, "g" * 80, "h" * 80)
    long.mkdir(parents=True)
    shutil.copytree("empty_config", long / "model")


def make_inputs():
    rng = np.random.default_rng(0)
    np.save("w.npy", rng.standard_normal((8, 8)).astype("f4"))
    np.save("x.npy", rng.standard_normal((3, 8)).astype("f4"))
    danaus("factorize", "w.npy", "--pattern", "1,4,4,2 2,4,4,1", "-o", "c.st")
    np.save("small.npy", np.ones((3, 7), "f4"))
    np.save("complex.npy", np.ones(8, "c8"))
    np.save("line.npy", np.ones(8, "f4"))
    np.save("none.npy", np.ones((0, 8), "f4"))
    np.save("long.npy", np.ones((2, 2)))
    np.save("whole.npy", np.ones((3, 8), "i4"))
    np.save("turned.npy", np.ones((4, 3)))
    np.save("flat.npy", np.ones((2, 4), "f4"))
    np.save("no_images.npy", np.zeros((0, 3, 11, 11), "f4"))
    holes = np.zeros((2, 3, 11, 11), "f4")
    holes[0, 1, 2, 3] = np.nan
    np.save("holes.npy", holes)
    a, i = np.ones((3, 8), "f4"), np.ones((3, 8), "i4")
    write_safetensors(pathlib.Path("two.st"), {"a": ("F32", a), "b": ("F32", a)})
    write_safetensors(pathlib.Path("integers.st"), {"i": ("I32", i)})
    write_safetensors(pathlib.Path("bytes.st"), {"factor.0": ("I8", np.zeros((1, 3, 4, 1), "i1"))})
    np.save("bytes.npy", np.zeros((2, 4), "i1"))
    pathlib.Path("convs").write_text("causal,64,64,2,4,sparse\n")
    pathlib.Path("suite").write_text("# a suite\nwhat is this\n")
    pathlib.Path("batch").write_text('"1,8,8,1",0\n')
    pathlib.Path("list").mkdir()
    pathlib.Path("list/config.json").write_text("[]")
    pathlib.Path("text").write_text("a b\n")
    pathlib.Path("bad").write_bytes(b"a b\n\xff\n")
    pathlib.Path("r.fa").write_text(">r\nACGT\n")


# ---- usage: exit status 2 ----

USAGE = {
    # Operands: how many there may be.
    "conv" + 65 * " x.npy": "it takes 2 to 64 operands (a signal and one or more filters), and 65 were",
    "apply c.st": "it takes 2 operands (a chain file and a file of inputs), and 1 was given",
    "fill bert": "it takes 2 operands (the folder of a model and a text), and 1 was given",
    "combine sum": "it takes 2 to 257 operands",
    # Numbers: what is typed, and which are possible.
    f"transform dft {LARGE} -o t.st": f'the length is an integer from 1 to 2^63 - 1, not "{LARGE}"',
    "transform dft 0 -o t.st": 'the length is an integer from 1 to 2^63 - 1, not "0"',
    f"fill bert a --top {LARGE}": f'--top takes an integer from 1 to 2^63 - 1, not "{LARGE}"',
    "fill bert a --threads -1": '--threads takes an integer from 0 to 2^63 - 1, not "-1"',
    "apply c.st x.npy -o y.npy --scale 1e301": '--scale takes a number between -1e300 and 1e300, not "1e301"',
    "factorize w.npy --params 0 -o t.st": '--params takes a number above 0, up to 1e300, not "0"',
    "info --conv 8 --taps 1.5": '--taps takes an integer from 1 to 2^63 - 1, not "1.5"',
    # Options of models: each names itself.
    "generate dna ACGT -t -1": '--temperature takes a number from 0 to 1e6, not "-1"',
    "generate dna ACGT -p 2": '--top-p takes a number above 0, up to 1, not "2"',
    f"generate dna ACGT -k {2**31}": f"--top-k takes an integer from 1 to {2**31 - 1}, not {2**31}",
    "compress bert --params 2 -o n": '--params takes a number above 0, up to 1, not "2"',
    "compress bert --params .5 --ridge 2e6 -o n": '--ridge takes a number above 0, up to 1e6, not "2e6"',
    "generate dna ACGT -t nan": '--temperature takes a number from 0 to 1e6, not "nan"',
    "generate dna ACGT -p 0": '--top-p takes a number above 0, up to 1, not "0"',
    "compress bert --params x -o n": '--params takes a number above 0, up to 1, not "x"',
    "factorize w.npy --chain monarch --inputs x.npy --ridge 1e16":
        '--ridge takes a number above 0, up to 1e6, not "1e16"',
    "apply c.st x.npy -o y.npy --scale 0": '--scale takes a number other than 0, not "0"',
    # Options that would have no effect.
    "generate dna ACGT -k 5": "--top-k goes with a --temperature above 0",
    "generate dna ACGT -t 0 -p .5": "--top-p goes with a --temperature above 0",
    "compress bert --params .5 -o n -w 8": "--window goes with --fasta",
    "compress bert --text text --params .5 -o n -w 8": "--window goes with --fasta",
    "embed bert --text text -o e.npy -n 2": "--nearest goes with --query",
    "compress bert --params .5": "-o NEW is needed",
    "compress bert -o n": "--params FRACTION is needed",
    "embed bert -o e.npy": "--text FILE is needed",
    "embed bert --text text": "-o FILE or --query TEXT is needed",
    # One of several options: the one that was given.
    "factorize w.npy --chain monarch --ridge 1": "--ridge goes with --inputs",
    "factorize w.npy --chain monarch --fit-bias": "--fit-bias goes with --inputs",
    "factorize w.npy --chain monarch --permute --bias b": "--bias goes without --permute",
    "factorize w.npy --pattern '1,8,8,1 + 8,1,1,1' --terms 2":
        "--terms goes with one list of patterns, not a sum",
    "factorize w.npy --chain monarch --factors 65": "--factors takes an integer of at most 64, not 65",
    f"factorize w.npy --chain monarch --refine {2**31}": f"--refine takes an integer of at most {2**31 - 1}",
    f"apply c.st x.npy -o y.npy --threads {2**31}": f"--threads takes an integer of at most {2**31 - 1}",
    "invert c.st --threads 1025": "--threads takes an integer of at most 1024, not 1025",
    f"transform db2 8 -o t.st --levels {2**31}": f"--levels takes an integer of at most {2**31 - 1}",
    "factorize w.npy --params 1e300": "--params takes a number of at most 1.41e+17 here",
    "factorize w.npy --pattern 1,8,8": '--pattern: "1,8,8" is not a pattern: write a,b,c,d',
    "help info apply": "help takes one command, not 2",
    # Names that are empty.
    "apply '' x.npy -o y.npy": "operand 1 of apply (a chain file and a file of inputs) is an empty name",
    "apply c.st '' -o y.npy": "operand 2 of apply (a chain file and a file of inputs) is an empty name",
    "combine sum c.st '' -o y.st": "operand 3 of combine",
    "embed '' --text text -o e.npy": "operand 1 of embed (the folder of a model) is an empty name",
    "embed bert --text '' -o e.npy": '--text takes the name of a file, not ""',
    "apply c.st x.npy -o ''": '--output takes the name of a file, not ""',
}  # fmt: skip

# ---- failures: exit status 1 ----

LONG = f"{'f' * 80}/{'g' * 80}/{'h' * 80}/model"
FAILURES = {
    # Files: the one that is wrong.
    "fill empty_config [MASK]": "empty_config/tokenizer_config.json: no proper JSON: it is empty",
    f"fill {LONG} [MASK]": "/model/tokenizer_config.json: no proper JSON: it is empty",
    "fill no_words [MASK]": "no_words/vocab.txt: the vocabulary has no word",
    "fill bad_words [MASK]": "bad_words/vocab.txt: the vocabulary is not UTF-8 at byte 2",
    "factorize line.npy --params .5": "line.npy: W is 8, but a matrix is needed",
    "factorize none.npy --params .5": "none.npy: W is 0 x 8, without a number",
    "factorize w.npy --pattern 1,2,2,1": "w.npy: W is 8 x 8, but the patterns make 2 x 2",
    "apply c.st small.npy -o y.npy": "small.npy: X is 3 x 7, but layout first needs batch x N",
    "apply c.st x.npy --residual w.npy -o y.npy": "w.npy: the residual is 8 x 8, and Y is 3 x 8",
    "combine hstack c.st small.npy -o y.st": "small.npy is 3 x 7 and c.st is 8 x 8",
    "combine product small.npy c.st -o y.st": "small.npy has 7 columns but c.st has 8 rows",
    "combine kronecker c.st long.npy -o y.st": "long.npy is f64 and c.st is f32: convert one",
    "apply c.st x.npy -o y.npy --tensor x":
        'x.npy: there is no tensor "x"; the file has one array, without a name',
    "apply c.st x.npy -o y.npy --device gpu": 'there is no device "gpu": names are cpu, cpu:avx2',
    "apply c.st whole.npy -o y.npy":
        "whole.npy: the .npy element type '<i4' is not one that danaus reads: convert it",
    "transform givens 8 --angles turned.npy -o t.st": "turned.npy is no matrix of 3 x 4 angles",
    "transform circulant 8 --values flat.npy -o t.st": "flat.npy has 2 axes, where a vector",
    "compress vit --images no_images.npy --params .5 -o n": "no_images.npy has no image",
    "compress vit --images holes.npy --params .5 -o n":
        "holes.npy: 1 of 726 numbers are infinite or NaN, and finite ones are needed",
    "compress bert --text text --params .5 -o n": "text: a model is compressed with 2 sequences",
    "model bert --length 13": "--length 13: the model takes 1 to 12 tokens",
    f"generate dna {'A' * 40}": "PROMPT has 40 tokens: the model takes 1 to 30",
    # Texts: where they come from.
    "embed bert --text bad -o e.npy": "bad, line 2: the text is not UTF-8 at byte 0, which is 0xff",
    "embed bert --text text --query $'\\xff'": "--query: the text is not UTF-8 at byte 0",
    "fill bert $'\\xff'": "TEXT: the text is not UTF-8 at byte 0",
    "fill bert 'a b'": "TEXT has no [MASK]",
    "fill bert ''": "TEXT has no [MASK]",
    "fill bert 'a b c d e f g h i j [MASK]'":
        "TEXT has 13 tokens, and the model takes 12: 1 of its 1 [MASK] are cut off",
    "fill bert '[MASK] b c d e f g h i j [MASK] [MASK]'": "2 of its 3 [MASK] are cut off",
    # Models: what they take.
    "score vit r.fa": "vit is a model of images (vit), not of text",
    "generate vit ACGT": "vit is a model of images (vit), not of text",
    "fill vit [MASK]": "vit is a model of images (vit), not of text",
    "embed vit --text text -o e.npy": "vit is a model of images (vit), not of text",
    "score dna r.fa -w 31": "--window 31: the model takes windows of 2 to 30 tokens",
    "score dna r.fa -w 8 -c 8": "--context 8: windows of 8 tokens begin with 1 to 7 known ones",
    "embed bert --text text -o e.npy --pad 13": "--pad 13: the model takes 1 to 12 tokens",
    "classify bert x.npy": "bert is a model of text (bert), not of images",
    "compress bert --images x.npy --params .5 -o n":
        "bert is a model of text (bert) and takes --text or --fasta, not --images",
    "compress vit --fasta r.fa --params .5 -o n":
        "vit is a model of images (vit) and takes --images, not --fasta",
    "classify vit x.npy": "x.npy: images are f32 3 x 8, not real images x 3 x 11 x 11",
    "model list": "config.json: this is not an object",
    # Sizes: what config.json says, and what the weights have.
    "model m2_hyena_filter_order": "config.json says that hyena_filter_order is 5, encoder.layer.0.",
    "model m2_hyena_emb_dim": "config.json says that hyena_emb_dim is 7, encoder.layer.0.",
    "model m2_long_conv_l_max": "config.json says that long_conv_l_max is 24, encoder.layer.0.",
    # Arrays: the file that has them, and which are needed.
    "apply c.st integers.st -o y.npy": '"i" is of type I32',
    "apply bytes.st integers.st -o y.npy": "factor.0 has 8 bits, and there is no factor.0_scale",
    "apply c.st bytes.npy -o y.npy": "'|i1' is not one that danaus reads",
    "apply c.st two.st -o y.npy": "two.st has 2 arrays: say which one with --tensor",
    "apply c.st x.npy --residual two.st -o y.npy": "two.st has 2 arrays: one is needed here",
    "apply c.st two.st --tensor c -o y.npy": 'two.st: there is no tensor "c"; the file has 2, the first is "a"',
    "factorize w.npy --chain monarch --inputs small.npy":
        "small.npy: the sample inputs are 3 x 7, but samples x 8 are needed",
    "factorize w.npy --chain monarch --inputs x.npy --targets w.npy":
        "w.npy has 8 targets, and x.npy 3 inputs",
    "conv x.npy x.npy x.npy -o y.npy": "x.npy is a second file of filters",
    "conv x.npy complex.npy -o y.npy": "complex.npy has an array of c64: real numbers with",
    "bench conv --suite convs --dtype c64": "complex convolutions keep whole spectra",
    "transform circulant 8 --values complex.npy -o t.st":
        "complex.npy is complex (c64), and real numbers (f32) are needed",
    f"transform dft {2**31} -o t.st": f"{2**31} is no length of a transform: 1 to {2**31 - 1} are",
    "bench --suite suite": 'suite, line 2: "what is this" is no problem, which is written',
    "bench --suite batch": 'batch, line 1: "0" is no batch size: an integer of at least 1',
    # Tensors: what they are, where they are there.
    "model no_bias": "encoder.layer.0.attention.self.query.bias is missing, of shape [24]",
    "model narrow": "2 tensors do not fit: embeddings.LayerNorm.bias is [7], not [24]; "
                    "encoder.layer.0.attention.self.query.bias is [7], not [24]",
    "model integers": 'tensor "encoder.layer.0.attention.self.query.weight" has type U8, '
                      "which danaus does not read",
    "model scaled": "self.query.weight has 8 bits: such weights are factors of chains",
    "model unscaled": "self.query.weight has 8 bits, and encoder.layer.0.attention.self.query."
                      "weight_scale is no scale for its rows",
    "model complex": "embeddings.LayerNorm.bias is of type c64; real numbers [24] are needed",
}  # fmt: skip


def split(command):
    """As a shell does, with $'...' for bytes."""
    words = shlex.split(command)
    return [w[1:].encode().decode("unicode_escape").encode("latin-1") if w[:1] == "$" else w
            for w in words]  # fmt: skip


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_inputs()
        make_models()
        for status, table in (2, USAGE), (1, FAILURES):
            for command, sentence in table.items():
                words = [os.fsdecode(word) for word in split(command)]
                refuses(command[:70], status, sentence, *words)
        os.chdir("/")
    finish()


main()
