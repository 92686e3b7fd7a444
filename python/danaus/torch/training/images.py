"""Images of classes to train on."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import torch

from danaus._files import regular
from danaus.torch._conv_functions import fail
from danaus.torch.models.base import Pretrained, classes_of
from danaus.torch.training.settings import Settings, as_list, files, switch, whole
from danaus.torch.training.tokens import ORDER, TRAINING, Part, random_of


def _array(name: str) -> np.ndarray:
    try:
        return np.load(regular(name), mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        fail(f"{name} is no array of NumPy: {error}")


def _tensors(name: str) -> tuple[np.ndarray, np.ndarray]:
    """`images` and `labels` of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(regular(name), "numpy") as file:
            found = [file.get_tensor(n) for n in ("images", "labels")]
    except SafetensorError as error:
        fail(f"{name} has no images and labels: {error}")
    return found[0], found[1]


def read_images(names: list[str], labels: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, channels, size, size] and labels [n] of a safetensors file, or of a
    .npy file each."""
    if len(names) != 1 or len(labels) > 1:
        fail("images are in one file, and labels of .npy images in another one")
    if names[0].endswith(".safetensors"):
        images, classes = _tensors(names[0])
    elif labels:
        images, classes = _array(names[0]), _array(labels[0])
    else:
        fail(f"{names[0]} needs a file of labels")
    images = images[:, None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[2] != images.shape[3] or not images.size:
        fail(f"{names[0]} has the shape {list(images.shape)}, not [n, channels, s, s]")
    if images.dtype.kind not in "fu" or images.dtype.itemsize > 8:
        fail(f"{names[0]} has numbers of type {images.dtype}; uint8 or floats are read")
    if images.dtype.kind == "u" and images.dtype != np.uint8:
        fail(f"{names[0]} has numbers of type {images.dtype}; uint8 or floats are read")
    if classes.shape != images.shape[:1] or classes.dtype.kind not in "iu":
        fail(
            f"labels have the shape {list(classes.shape)} and the type {classes.dtype};"
            f" {len(images)} whole numbers are needed"
        )
    if classes.min() < 0:
        fail(f"a label is {classes.min()}; classes are numbers from 0 on")
    return images, classes.astype(np.int64)


class Images:
    """Images with a class each.

    Bytes become (byte / 255 - 0.5) / 0.5, as most vision models want them; floats are
    taken as they are. Every pass over the images is in another order. Those that are
    held out are drawn by the seed, unless files are named.
    """

    measure = "right"
    fields = {
        "labels": files([], "a .npy file of classes, where data is one of images"),
        "held_out_labels": files([], "the same of held_out_data"),
        "shift": whole(0, 0, "pixels that an image moves at most, by chance"),
        "flip": switch(False, "half of the images are mirrored, by chance"),
    }
    files: dict[str, bytes] = {}

    def __init__(self, settings: Settings):
        self.settings = settings
        labels, more = as_list(settings.labels), as_list(settings.held_out_labels)
        self.images, self.labels = read_images(as_list(settings.data), labels)
        held_out = as_list(settings.held_out_data)
        order = random_of(settings.seed, ORDER, 0).permutation(len(self.images))
        count = len(order) - round(settings.held_out * len(order))
        if held_out:
            self.test = read_images(held_out, more)
            self.train, self.rest = order, np.arange(len(self.test[0]))
        else:
            self.test = self.images, self.labels
            self.train, self.rest = order[:count], order[count:]
        if not len(self.train):
            fail(f"held_out is {settings.held_out}, and leaves no image to train on")
        if self.test[0].shape[1:] != self.images.shape[1:]:
            fail(
                f"images for evaluation are {list(self.test[0].shape[1:])}, those to "
                f"train on {list(self.images.shape[1:])}"
            )
        self.pass_of, self.order = -1, self.train

    @property
    def size(self) -> int:
        return len(self.images)

    @property
    def numbers(self) -> dict[str, int]:
        channels, size = self.images.shape[1:3]
        classes = 1 + int(max(self.labels.max(), self.test[1].max()))
        return {"num_channels": channels, "image_size": size, "num_labels": classes}

    def check(self, model: Pretrained) -> None:
        """The model has a score for every label."""
        classes = classes_of(model.config)
        largest = int(max(self.labels.max(), self.test[1].max()))
        if largest >= classes:
            fail(f"a label is {largest}, and the model has {classes} classes")

    def _places(self, step: int) -> np.ndarray:
        """The images of a step, each once a pass."""
        size, count = self.settings.batch, len(self.train)
        at = np.arange((step - 1) * size, step * size)
        found = np.empty(size, np.int64)
        for number in range(at[0] // count, at[-1] // count + 1):
            if self.pass_of != number:
                random = random_of(self.settings.seed, ORDER, number + 1)
                self.pass_of, self.order = number, random.permutation(self.train)
            own = at // count == number
            found[own] = self.order[at[own] % count]
        return found

    def batch(self, step: int, part: slice) -> Part:
        """Part of the images of a step."""
        places = self._places(step)
        pixels = self.images[places[part]]
        random = random_of(self.settings.seed, TRAINING, step)
        size = self.settings.batch
        flips = random.random(size)[part] < 0.5
        most = self.settings.shift
        moves = random.integers(-most, most + 1, (size, 2))[part]
        if self.settings.flip:
            pixels = np.where(flips[:, None, None, None], pixels[..., ::-1], pixels)
        if most:
            pixels = _moved(pixels, moves, most)
        return _as_part(pixels, self.labels[places[part]])

    @property
    def held_out(self) -> int:
        return -(-len(self.rest) // self.settings.batch)

    def held_out_batch(self, number: int, part: slice) -> Part | None:
        size = self.settings.batch
        places = self.rest[number * size : (number + 1) * size][part]
        if not len(places):
            return None
        return _as_part(self.test[0][places], self.test[1][places])


def _moved(pixels: np.ndarray, moves: np.ndarray, most: int) -> np.ndarray:
    """Images moved down and to the right, the rows and columns at the edge repeated."""
    pad = [(0, 0), (0, 0), (most, most), (most, most)]
    wide, size = np.pad(pixels, pad, mode="edge"), pixels.shape[2]
    rows = [
        image[:, most - y : most - y + size, most - x : most - x + size]
        for image, (y, x) in zip(wide, moves)
    ]
    return np.stack(rows)


def _as_part(pixels: np.ndarray, labels: np.ndarray) -> Part:
    is_byte = pixels.dtype == np.uint8
    values = pixels.astype(np.float32)
    values = values / 127.5 - 1 if is_byte else values
    inputs = {
        "pixel_values": torch.from_numpy(np.ascontiguousarray(values)),
        "labels": torch.from_numpy(labels),
    }
    return Part(inputs, len(labels))
