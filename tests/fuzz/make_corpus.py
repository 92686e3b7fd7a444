#!/usr/bin/env python3
"""Writes the seeds of the fuzzers to tests/fuzz/corpus: small right files of every
kind, and wrong ones of the kinds that the documentation names."""
# SPDX-License-Identifier: Apache-2.0
import base64
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def put(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def npy(descr, shape, data, version=(1, 0), fortran=False):
    header = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    size = "<H" if version[0] == 1 else "<I"
    fixed = 8 + struct.calcsize(size)
    header += " " * (-(fixed + len(header) + 1) % 64) + "\n"
    start = b"\x93NUMPY" + bytes(version) + struct.pack(size, len(header))
    return start + header.encode() + data


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, start, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def arrays():
    for descr, size in [("<f4", 4), ("<f8", 8), ("<f2", 2), ("<V2", 2), ("<c8", 8),
                        ("<c16", 16)]:
        put("npy", "right_" + descr[1:], npy(descr, (2, 3), bytes(6 * size)))
    put("npy", "version_2", npy("<f4", (2,), bytes(8), (2, 0)))
    put("npy", "version_3", npy("<f4", (2,), bytes(8), (3, 0)))
    put("npy", "version_9", npy("<f4", (2,), bytes(8), (9, 0)))
    put("npy", "fortran", npy("<f4", (2, 3), bytes(range(24)), fortran=True))
    put("npy", "fortran_4", npy("<c8", (2, 1, 3, 2), bytes(range(96)), fortran=True))
    put("npy", "odd_start", b"\x93NUMPY\1\0" + struct.pack("<H", 59) + b"{'shape':(1,),"
        b"'fortran_order':False,'descr':'<f8'}".ljust(59) + bytes(8))
    put("npy", "scalar", npy("<f4", (), bytes(4)))
    put("npy", "empty", npy("<f4", (0, 3), b""))
    put("npy", "big_endian", npy(">f4", (2,), bytes(8)))
    put("npy", "object", npy("|O", (2,), bytes(8)))
    put("npy", "truncated", npy("<f4", (2, 3), bytes(20)))
    put("npy", "huge", npy("<f4", (1 << 40, 1 << 40), bytes(8)))
    put("npy", "negative", npy("<f4", (-1, 3), bytes(8)))
    put("npy", "long_header", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{")


# header, bytes of data
HEADERS = {
    "two": ({"w": tensor("F32", [2, 3], 0, 24), "v": tensor("F64", [2], 24, 40)}, 40),
    "metadata": ({"__metadata__": {"format": "pt"}, "w": tensor("BF16", [4], 0, 8)}, 8),
    "scalar": ({"s": tensor("C64", [], 0, 8)}, 8),
    "empty": ({"e": tensor("F16", [0, 3], 0, 0), "s": tensor("F16", [1], 0, 2)}, 2),
    "misaligned": ({"w": tensor("U8", [1], 0, 1), "v": tensor("F32", [2], 1, 9)}, 9),
    "unknown": ({"w": tensor("I7", [2], 0, 8), "v": tensor("F32", [1], 8, 12)}, 12),
    "deep": ({"w": tensor("F32", [1] * 9, 0, 4)}, 4),
    "nothing": ({}, 0),
    "overlap": ({"w": tensor("F32", [2], 0, 8), "v": tensor("F32", [2], 4, 12)}, 12),
    "hole": ({"w": tensor("F32", [1], 0, 4), "v": tensor("F32", [1], 8, 12)}, 12),
    "left_over": ({"w": tensor("F32", [1], 0, 4)}, 8),
    "outside": ({"w": tensor("F32", [200], 0, 800)}, 64),
    "wrong_size": ({"w": tensor("F32", [2], 0, 12)}, 12),
    "offset_63": ({"w": tensor("F32", [2], 1 << 63, (1 << 63) + 8)}, 8),
    "shape_63": ({"w": tensor("F32", [1 << 62, 4], 0, 8)}, 8),
    "negative": ({"w": tensor("F32", [-2], 0, 8)}, 8),
}


def chains():
    right = {
        "factor.0": tensor("F32", [1, 2, 2, 2], 0, 32),
        "factor.1": tensor("F32", [2, 2, 2, 1], 32, 64),
    }
    put("chain", "two", safetensors(right, bytes(64)))
    bias = dict(right, bias=tensor("F32", [4], 64, 80))
    put("chain", "bias", safetensors(bias, bytes(80)))
    put("chain", "one_c128",
        safetensors({"factor.0": tensor("C128", [1, 1, 1, 1], 0, 16)}, bytes(16)))
    put("chain", "gap",
        safetensors({"factor.1": tensor("F32", [1, 1, 1, 1], 0, 4)}, bytes(4)))
    wrong = dict(right)
    wrong["factor.1"] = tensor("F32", [1, 1, 8, 1], 32, 64)
    put("chain", "not_composable", safetensors(wrong, bytes(64)))
    put("chain", "three_sizes",
        safetensors({"factor.0": tensor("F32", [2, 2, 2], 0, 32)}, bytes(32)))
    places = struct.pack("<8d", 1, 0, -1, 1, 0, 2, 2, 0)
    made = {
        "__metadata__": {"format": "danaus chain 2", "danaus cols": "3"},
        "order.0": tensor("F64", [3], 0, 24), "order.1": tensor("F64", [2], 24, 40),
        "order.2": tensor("F64", [3], 40, 64), "factor.0": tensor("F64", [1, 1, 1, 2], 64, 80),
        "factor.1": tensor("F64", [1, 1, 2, 1], 80, 96),
    }
    put("chain", "operator", safetensors(made, places + bytes(32)))
    far = dict(made, __metadata__={"format": "danaus chain 2", "danaus cols": "1"})
    put("chain", "operator_far", safetensors(far, places + bytes(32)))
    terms = {
        "__metadata__": {"format": "danaus chain 3", "danaus cols": "3"},
        **{f"term.1.{name}": made[name] for name in made if name != "__metadata__"},
        "term.0.factor.0": tensor("F64", [1, 3, 3, 1], 96, 168),
        "bias": tensor("F64", [3], 168, 192),
    }
    put("chain", "sum", safetensors(terms, places + bytes(128)))
    terms["term.2.factor.0"] = terms.pop("term.0.factor.0")
    put("chain", "sum_gap", safetensors(terms, places + bytes(128)))


def texts():
    for number, text in enumerate([
            "1,192,48,2 2,48,192,1", "4,4,4,4", "1,2,3", "0,1,1,1", "a,b,c,d",
            "9223372036854775807,1,1,1", " 1,2,2,2\n2,2,2,1\t", ""]):
        put("patterns", f"text_{number}", text.encode())
    head = ("# danaus tuning 1\ndevice,machine,instructions,threads,a,b,c,d,dtype,"
            "layout,batch,kernel,seconds\n")
    row = "cpu,m,i,2,1,4,2,2,f32,last,1024,panel,1.5e-6\n"
    rows = (row + row.replace("panel", "lane").replace("1.5e-6", "1000e-12")
            + row.replace("f32", "c64") + row.replace("last,1024", "first,1")
            + row.replace("f32", "tf32"))
    first, place = "# danaus tuning 1\n", "device,machine,instructions,threads,"
    conv = (place + "kind,length,taps,dtype,rows,kernel,points,radix,seconds\n"
            "cpu,m,i,2,causal,16384,900,f32,0,conv.a,64,8,3e-5\n"
            "cpu,m,i,2,circular,7,8,f64,3,conv.b,96,4,3e-6\n")
    pairs = (place + "a,b,c,d,inner_a,inner_b,inner_c,inner_d,dtype,layout,batch,kernel,"
             "seconds\n"
             "cpu,m,i,2,1,4,4,2,2,4,8,1,f32,first,64,panel,1e-6\n"
             "cpu,m,i,2,1,4,4,2,1,8,8,1,tf32,last,1,lane,2e-6\n")
    others = (place + "operation,a,b,c,d,dtype,layout,batch,kernel,seconds\n"
              "cpu,m,i,2,weight_gradient,1,4,2,2,f32,last,64,gradient,1e-6\n"
              "cpu,m,i,2,weight_gradient,1,4,2,2,tf32,last,64,gradient,1e-6\n"
              "cpu,m,i,2,product,1,4,2,2,f32,last,64,panel,1e-6\n"
              "cpu,m,i,2,pack,1,4,2,2,f32,last,64,gradient,1e-6\n")
    models = (place + "dtype,constant,of,value\ncpu,m,i,2,f32,gamma,8,4e11\n"
              "cpu,m,i,2,f64,window,0,25e-9\ncpu,m,i,2,f64,unknown,0,1\n")
    for name, text in [
            ("rows", head + rows), ("lines", "\n# remark\n".join([head, row, row, ""])),
            ("returns", (head + rows).replace("\n", "\r\n")),
            ("others", head + row.replace("cpu", "cuda") + row.replace("1,4,2,2", "1,1,2,2")
             + row.replace("panel", "x") + row.replace("f32", "f8")),
            ("head", head), ("format_9", head.replace("1", "9") + rows),
            ("no_head", rows), ("short_row", head + "cpu,x\n"),
            ("nan", head + row.replace("1.5e-6", "nan")), ("empty", ""),
            ("sections", head + rows + conv + models), ("models", first + models),
            ("pairs", head + rows + pairs + conv),
            ("operations", head + rows + others + conv),
            ("no_neighbours", first + pairs.replace("2,4,8,1", "2,5,8,1")),
            ("conv_long", first + conv.replace("16384,900", "268435457,900")),
            ("conv_points", first + conv.replace(",64,8", ",9223372036854775807,8")),
            ("model_large", first + models.replace("4e11", "1e30")),
            ("rows_of_another", first + models + row)]:
        put("tuning", name, text.encode())


def chunk(name, data, size=None, order="<"):
    body = data + bytes(len(data) % 2)
    return name + struct.pack(order + "I", len(data) if size is None else size) + body


def wave(*chunks, name=b"RIFF", order="<", size=None):
    body = b"WAVE" + b"".join(chunks)
    return name + struct.pack(order + "I", len(body) if size is None else size) + body


def wave_format(code=1, channels=2, rate=48000, bits=16, order="<", more=b""):
    block = channels * bits // 8
    data = struct.pack(order + "HHIIHH", code, channels, rate, rate * block, block, bits)
    return chunk(b"fmt ", data + more, order=order)


def sounds():
    data, rest = bytes(range(64)), chunk(b"LIST", b"INFOISFT\4\0\0\0me\0\0")
    full = wave(wave_format(), chunk(b"data", data), rest)
    put("sound", "right", full)
    for place, size in [("name", 3), ("form", 10), ("format_name", 14), ("format", 30),
                        ("data_name", 38), ("data_size", 42), ("data", 50),
                        ("frame", 46), ("after", len(full) - 5)]:
        put("sound", "cut_in_" + place, full[:size])
    put("sound", "empty", wave(wave_format(), chunk(b"data", b"")))
    put("sound", "empty_before_list", wave(wave_format(), chunk(b"data", b""), rest))
    for name, size in [("zero", 0), ("all", 2**32 - 1), ("sox", 0x7ffff000)]:
        put("sound", "open_" + name,
            wave(wave_format(), chunk(b"data", data, size), size=min(36 + size, 2**32 - 1) if size else 8))
    put("sound", "claims_more", wave(wave_format(), chunk(b"data", data, 1 << 20)))
    put("sound", "big_endian", wave(wave_format(order=">"), chunk(b"data", data, order=">"),
        name=b"RIFX", order=">"))
    for name, size in [("long", 64), ("long_cut", 1 << 33), ("long_huge", 1 << 63)]:
        sizes = struct.pack("<QQQI", len(full), size, 16, 0)
        put("sound", name, wave(chunk(b"ds64", sizes), wave_format(),
            chunk(b"data", data, 2**32 - 1), name=b"RF64", size=2**32 - 1))
    for bits, code in [(8, 1), (24, 1), (32, 3), (64, 3)]:
        put("sound", f"bits_{bits}", wave(wave_format(code, 1, bits=bits), chunk(b"data", data)))
    put("sound", "adpcm", wave(wave_format(17, 1, 8000, 4, more=struct.pack("<HH", 2, 57)),
        chunk(b"fact", struct.pack("<I", 1 << 30)), chunk(b"data", data)))
    put("sound", "no_format", wave(chunk(b"data", data)))
    put("sound", "many_channels", wave(wave_format(1, 1000, 1, 8), chunk(b"data", data * 20)))
    common = struct.pack(">hIh", 1, 24, 16) + b"\x40\x0e\xbb\x80" + bytes(6)
    body = b"AIFF" + chunk(b"COMM", common, order=">") + chunk(b"SSND", bytes(56), order=">")
    aiff = b"FORM" + struct.pack(">I", len(body)) + body
    put("sound", "aiff", aiff)
    put("sound", "aiff_cut", aiff[:-20])


def descriptions():
    """Fields in the order of danaus_conv_desc, _short_desc and _stream_desc."""
    def conv(*fields, kind=0, dtype=0, effort=0, batch=0, axes=(0, 0, 0, 0),
             keep=(0, 0, 0, 0), packed=0, accuracy=0, plane=(0, 0, 0, 0), correlate=0,
             signals=0, reserved=0):
        return b"\0" + struct.pack("<4q3i4xq16iI", *fields, kind, dtype, effort, batch,
                                   *axes, *keep, packed, accuracy, *plane, correlate,
                                   signals, reserved)
    put("conv", "plain", conv(3, 50, 0, 0))
    put("conv", "circular", conv(2, 31, 40, 1, kind=1, dtype=2))
    put("conv", "both_ways", conv(4, 100, 7, 2, kind=2, dtype=4))
    put("conv", "sparse", conv(1, 20, 0, 0, keep=(4, 3, 0, 0)))
    put("conv", "sparse_axes", conv(1, 20, 0, 0, axes=(2, 16, 1, 256), keep=(1, 9, 1, 77)))
    put("conv", "odd_axes", conv(1, 20, 0, 0, axes=(2, 12, 1, 8), keep=(1, 9, 1, 3)))
    put("conv", "huge_axes", conv(1, 20, 0, 0, axes=(1 << 30,) * 4, keep=(1, 1, 1, 1)))
    put("conv", "windows", conv(1, 15000, 9, 0))
    put("conv", "long", conv(1, (1 << 28) - 1, 1 << 27, 0))
    put("conv", "too_long", conv(1, (1 << 28) + 1, 0, 0))
    put("conv", "no_size", conv(1 << 60, 1 << 20, 0, 0))
    put("conv", "many_filters", conv(1 << 40, 5, 1, 1 << 40))
    put("conv", "negative", conv(-1, -1, -1, -1))
    put("conv", "reserved", conv(1, 5, 0, 0, reserved=1))
    put("conv", "packed", conv(2, 30, 0, 0, packed=1) + bytes(4) + struct.pack("<4q", 0, 7, 7, 30))
    put("conv", "fast", conv(2, 64, 0, 0, accuracy=1))
    put("conv", "plane", conv(2, 9, 3, 0, kind=3, plane=(7, 4, 1, 2)))
    put("conv", "complex", conv(2, 40, 9, 0, kind=1, dtype=5))
    put("conv", "correlation", conv(4, 30, 0, 2, kind=2, dtype=6, correlate=1))
    put("conv", "odd_words", conv(1, 5, 0, 0, kind=3, dtype=9, effort=2, batch=-1))
    put("conv", "short", b"\2" + struct.pack("<3q3i", 3, 40, 4, 1, 1, 0))
    put("conv", "short_all", b"\2" + struct.pack("<3q3i", 1 << 40, 1 << 20, 128, 0, 0, 2))
    put("conv", "short_many", b"\2" + struct.pack("<3q3i", 1, 4, 129, 0, 0, 0))
    put("conv", "stream", b"\3" + struct.pack("<3qi", 2, 300, 1, 0))
    put("conv", "stream_long", b"\3" + struct.pack("<3qi", -2, 1 << 40, 0, 4))
    put("conv", "stream_longest", b"\3" + struct.pack("<2q", 18, (1 << 63) - 1))


def hash_of(data):
    """That of src/base/hash.c, its upper half first."""
    value = 0x6C62272E07BB014262B821756295C58D
    words = [data[i:i + 16] for i in range(0, len(data), 16)]
    for word in [len(data)] + [int.from_bytes(w, "little") for w in words]:
        value = (value ^ word) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)
        value ^= value >> 64
    return struct.pack("<QQ", value >> 64, value % (1 << 64))


def bundles():
    def head(key, image, arch=90, size=None, version=b"0.1.0"):
        return (struct.pack("<QQ", key, key) + hash_of(image)
                + struct.pack("<QQ", len(image) if size is None else size, arch)
                + version.ljust(16, b"\0"))

    def bundle(kernels, places=None, count=None, extra=b"", size=None):
        end = 48 + 72 * len(kernels)
        rows, images = b"", b""
        for i, (kernel, image) in enumerate(kernels):
            rows += kernel + struct.pack("<Q", places[i] if places else end)
            images += image
            end += len(image)
        whole = end + len(extra) if size is None else size
        return (b"danaus bundle 2\0"
                + struct.pack("<QQ", len(kernels) if count is None else count, whole)
                + hash_of(rows) + rows + images + extra)

    one, two, none = (head(1, b"one"), b"one"), (head(2, b"two"), b"two"), (head(3, b""), b"")
    three = bundle([one, two, none])
    damaged = bytearray(three)
    damaged[60] ^= 1
    most = (1 << 64) - 1
    for name, data in [
            ("three", three), ("none", bundle([])), ("damaged", bytes(damaged)),
            ("file", b"danaus cubin 3\n\0" + one[0] + one[1]),
            ("old", b"danaus kernels\n\0" + struct.pack("<QQ", 0, 0)),
            ("image", bundle([(one[0], b"onf"), two])),
            ("count", bundle([one, two], count=3)),
            ("fewer", bundle([one, two], count=1)),
            ("many", bundle([one, two], count=most)),
            ("size", bundle([one, two], size=8)), ("more", bundle([one, two], extra=b"x")),
            ("cut", three[:-1]), ("head", three[:47]),
            ("turned", bundle([two, one])), ("twice", bundle([one, one])),
            ("beyond", bundle([one, two], places=[192, 1 << 40])),
            ("last", bundle([one, two], places=[192, most])),
            ("same", bundle([one, two], places=[192, 192])),
            ("before", bundle([one], places=[0])),
            ("arch", bundle([(head(1, b"x", 1 << 40), b"x")])),
            ("version", bundle([(head(1, b"x", version=b"x" * 16), b"x")])),
            ("huge", bundle([(head(1, b"x", size=most), b"x")])),
            ("overlap", bundle([(head(1, b"x", size=65), b"x"), two]))]:
        put("bundle", name, data)


def suites():
    put("suite", "one", b'problem,batch\n"1,2,3,4 1,3,2,4",8\n# no more\n')
    put("suite", "without_batch", b'"4,8,8,2"\n"1,2,2,1 1,2,2,1",\n')
    put("suite", "wrong", b'"1,2,2,1 1,3,2,1",8\n')
    put("suite", "convolutions", b"kind,length\ncausal,100,20,2,3,gated\n"
        b"circular,64,64,1,1,plain\nbidirectional,9,3,1,1,sparse\n")
    put("suite", "no_batch", b'"1,2,2,1",0\n')


def records():
    for name, text in [
            ("two", b">one first\nACGT\nacgtn\n>two\r\nNN\r\n\r\nTT"),
            ("empty", b""), ("no_record", b"\n \n"), ("no_letters", b">a\n>b\n\n>"),
            ("before", b"ACGT\n>a\nA\n"), ("letter", b">a\nACXT\n"), ("zero", b">a\nA\0\n"),
            ("comments", b";old\n>a\n;more\nAC GT\tA\n"), ("inside", b">a\nAC>GT\n"),
            ("long_name", b">" + b"n" * 400 + b"\nA\n"), ("high", b">\xff\xfe\nA\xff")]:
        put("fasta", name, b"\x02" + text)


def charsmap():
    """A map of characters: "a" becomes "b"."""
    units = [0] * 128
    units[0] = 1 << 10
    units[1 ^ 0x61] = 2 << 10 | 1 << 8 | 0x61
    units[1 ^ 0x61 ^ 2] = 1 << 31
    data = struct.pack("<I128I", 512, *units) + b"b\0"
    return base64.b64encode(data).decode()


def other_models(put_text):
    """Unigram and BPE, with the parts that come with them."""
    mark = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    pieces = ["<unk>", "\u2581", "a", "b", "ab", "\u2581ab", "<0xC3>", "<0xA9>"]
    steps = [{"type": "Precompiled", "precompiled_charsmap": charsmap()}, {"type": "NFKC"},
             {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Nmt"},
             {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
             {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
             {"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "Prepend", "prepend": "a"}]
    unigram = {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, mark]},
        "decoder": mark, "post_processor": {"type": "BertProcessing", "sep": ["a", 2], "cls": ["b", 3]},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
                  "vocab": [[piece, -i / 3] for i, piece in enumerate(pieces)]}}
    put_text("unigram", "a  ab\u00e9 ``B\u0301 aaa".encode(), unigram)
    put_text("unigram_plain", b"ab aab x", {"model": unigram["model"]})
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    words = ["a", "b", "ab", "\u0120", "\u0120a", "aa", "?", "\u00c3", "\u00a9"]
    bpe = {
        "normalizer": {"type": "ByteLevel"}, "pre_tokenizer": level, "decoder": level,
        "post_processor": {"type": "Sequence", "processors": [
            level, {"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1]}]},
        "model": {"type": "BPE", "unk_token": "?", "fuse_unk": True, "byte_fallback": True,
                  "vocab": {word: i for i, word in enumerate(words)},
                  "merges": ["a b", ["\u0120", "a"], ["a", "a"]]}}
    put_text("bpe", "ab a'll \u00e9 12  aaaa".encode(), bpe)
    affixes = {"##b": 9, "b</w>": 10, "##b</w>": 11}
    model = dict(bpe["model"], continuing_subword_prefix="##", end_of_word_suffix="</w>",
                 vocab=bpe["model"]["vocab"] | affixes, merges=[["a", "##b"]])
    put_text("bpe_affixes", b"abb ab", {"model": model, "pre_tokenizer": {"type": "Whitespace"}})


def tokenizers():
    """A file, a zero and text; or a configuration, a vocabulary and text."""
    def token(number, content, **flags):
        kinds = "single_word", "lstrip", "rstrip", "normalized", "special"
        return {"id": number, "content": content} | {k: k in flags for k in kinds}

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "##bc", "!", "\u4e2d",
             "caf\u00e9"]
    file = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [token(2, "[CLS]", special=1), token(4, "[MASK]", lstrip=1, special=1),
                         token(12, "<x>", normalized=1, single_word=1),
                         token(13, "<x><y>", rstrip=1)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True,
                       "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}
                               for name, number in [("[CLS]", 2), ("[SEP]", 3)]}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100,
                  "vocab": {word: i for i, word in enumerate(words)}}}
    config = {"do_lower_case": False, "mask_token": {"content": "[MASK]", "lstrip": True},
              "truncation_side": "left",
              "added_tokens_decoder": {"5": {"content": "a", "special": False}}}

    def put_text(name, text, file=file):
        put("tokenizer", name, json.dumps(file).encode() + b"\0" + text)

    put_text("words", b"a abc ax! [MASK]b")
    put_text("letters", "CAFE\u0301 \u4e2d\u6587\u200b \u302e\U0001d165 \u0130\ufffd".encode())
    put_text("added", b"a <X>b <x> <x><y>  \t[MASK]")
    put_text("not_utf8", b"a \xed\xa0\x80")
    put_text("left", b"a b a b a b", dict(file, truncation={"direction": "Left"}))
    put_text("no_template", b"a", dict(file, post_processor=None))
    put_text("other", b"a", dict(file, normalizer={"type": "NFC"}))
    put_text("twice", b"a", dict(file, added_tokens=[token(12, "x"), token(13, "x")]))
    other_models(put_text)
    lines = "\n".join(words).encode()
    put("tokenizer", "lines", json.dumps(config).encode() + b"\0" + lines + b"\0a abc [MASK]")
    bases = {"tokenizer_class": "HyenaDNATokenizer", "characters": ["A", "\u4e2d"]}
    put("tokenizer", "characters", json.dumps(bases).encode() + b"\0\0aCx[MASK]")
    put("tokenizer", "lines_again", b"{}\0" + lines + b"\r\na \na\n\0a ab")


def plans():
    """Bytes in the order in which fuzz_plan.c reads them."""
    def plan(*patterns, device=0, threads=1, place=0, layout=0, dtype=1, adjoint=0,
             gradients=0, fresh=0, keep=0, activation=0, expects_bias=0, weights=0, bias=0,
             batch=7, wrong=()):
        head = bytes([device, threads, place, 1, layout, dtype, adjoint, gradients, fresh,
                      keep, activation, expects_bias, 1, batch])
        head += bytes([255, *wrong]) if wrong else b"\0"
        head += bytes([weights, bias, 1, batch, len(patterns) - 1])
        return head + b"\0" + b"".join(bytes(p) for p in patterns)

    square, long = [(1, 8, 8, 4), (4, 8, 8, 1)], [(1, 40, 24, 2), (2, 24, 3, 1)]
    for device in range(4):
        put("plan", f"device_{device}", plan(*square, device=device, gradients=1))
    for dtype in range(1, 7):
        put("plan", f"type_{dtype}", plan(*long, dtype=dtype, weights=dtype - 1, device=1,
            layout=dtype % 2, gradients=1, bias=1, place=dtype))
    for activation in range(1, 5):
        put("plan", f"activation_{activation}", plan(*long, activation=activation, bias=1,
            expects_bias=1, device=2, batch=65, dtype=activation % 4))
    put("plan", "adjoint", plan(*long, adjoint=1, device=1, threads=2, batch=200))
    put("plan", "fresh", plan(*square, *square, fresh=1, dtype=3, device=1, batch=40))
    put("plan", "keep", plan(*square, keep=1, layout=1, device=2, batch=33))
    put("plan", "other_weights", plan(*square, weights=3, gradients=1))
    put("plan", "complex_weights", plan(*square, weights=4))
    put("plan", "activation_and_gradients", plan(*square, activation=1, gradients=1))
    put("plan", "apart", plan((1, 2, 3, 4), (1, 2, 3, 4)))
    put("plan", "no_size", plan((0, 1, 1, 1)))
    put("plan", "huge", plan((255,) * 36))
    for i, wrong in enumerate([(0, 3), (1,), (2,), (3,)]):
        put("plan", f"wrong_{i}", plan(*square, wrong=wrong))


def models():
    """Configurations (BERT's family, Monarch Mixer BERT, HyenaViT, M2-ViT), and indices of weights."""
    sizes = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=2, vocab_size=16,
                 max_position_embeddings=12, type_vocab_size=2)
    m2 = sizes | dict(model_type="m2_bert", long_conv_l_max=12, hyena_filter_order=4)
    bert = sizes | dict(model_type="bert", num_attention_heads=2, hidden_act="relu")
    distil = dict(model_type="distilbert", dim=8, hidden_dim=16, n_layers=2, n_heads=2,
                  vocab_size=16, max_position_embeddings=12, activation="relu")
    modern = bert | dict(model_type="modernbert", local_attention=4, norm_bias=True,
        rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=9.5)),
        layer_types=["full_attention", "sliding_attention"], local_rope_theta=None)
    vit = dict(hidden_size=2, num_hidden_layers=1, image_size=10, patch_size=4, num_channels=2)
    hyena_vit = vit | dict(model_type="hyena_vit", intermediate_size=14, filter_order=10,
                           emb_dim=7, filter_w_mod=0.75, num_inner_mlps=1, hyena_order=4)
    m2_vit = vit | dict(model_type="m2_vit", intermediate_size=7, hyena_filter_order=9,
                        hyena_emb_dim=5)
    for name, kind, config in [
        ("bert", 0, bert),
        ("m2", 1, m2),
        ("m2_one_way", 1, m2 | dict(bidirectional=False)),
        ("m2_longer", 1, m2 | dict(long_conv_l_max=1 << 24)),
        ("m2_wide", 1, m2 | dict(hidden_size=1 << 20, num_hidden_layers=1000)),
        ("m2_no_gate", 1, m2 | dict(use_glu_mlp=False, pool_all=True)),
        ("bert_heads", 0, bert | dict(num_attention_heads=3)),
        ("roberta", 0, bert | dict(model_type="xlm-roberta", pad_token_id=3)),
        ("distilbert", 0, distil),
        ("modernbert", 0, modern),
        ("modernbert_layers", 0, modern | dict(layer_types=["full_attention", "odd"])),
        ("modernbert_window", 0, modern | dict(local_attention=-1)),
        ("other", 0, dict(model_type="llama")),
        ("hyena_vit", 4, hyena_vit),
        ("hyena_vit_tall", 4, hyena_vit | dict(image_size=4095, patch_size=1)),
        ("hyena_vit_order", 4, hyena_vit | dict(hyena_order=1)),
        ("hyena_vit_taps", 4, hyena_vit | dict(filter_taps=3)),
        ("m2_vit", 5, m2_vit),
        ("m2_vit_wide", 5, m2_vit | dict(hidden_size=1 << 20, num_hidden_layers=1000)),
        ("m2_vit_small", 5, m2_vit | dict(image_size=3)),
    ]:
        put("model", name, bytes([kind]) + json.dumps(config).encode())
    for name, index in [
        ("index", {"weight_map": {"a": "part.safetensors"}}),
        ("index_outside", {"weight_map": {"a": "../part.safetensors"}}),
        ("index_missing", {"weight_map": {"a": "other", "b": "part.safetensors"}}),
        ("index_list", {"weight_map": ["a"]}),
    ]:
        put("model", name, bytes([3]) + json.dumps(index).encode())


def main():
    models()
    arrays()
    plans()
    suites()
    sounds()
    descriptions()
    chains()
    texts()
    bundles()
    tokenizers()
    records()
    for name, (header, size) in HEADERS.items():
        put("npy", "safetensors_" + name, safetensors(header, bytes(size)))
        put("safetensors", name, bytes([size]) + json.dumps(header).encode())
    twice = b'"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    put("safetensors", "twice", b"\x08{" + twice + b"," + twice + b"}")
    put("safetensors", "nested", b"\0" + b"[" * 4000)


if __name__ == "__main__":
    main()
