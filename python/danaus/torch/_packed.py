"""Factors as parameters of a layer, and what layers keep of them between calls."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import torch
from torch import Tensor, nn

from danaus.torch._errors import TO_PLAIN
from danaus.torch._ops import ops

# True if two lists of tensors on CPUs have equal types, shapes and bits.
_SAME = ops.same_numbers.default
_APPLY = ops.ks_apply.default


class Factors(nn.ParameterList):
    """Parameters that a call returns.

    Tools that offload or shard a model bring the parameters of a module when that
    module is called. Layers get their factors by a call for that reason.
    """

    __call__ = nn.Module.__call__  # nn.ParameterList refuses calls

    def forward(self) -> list[Tensor]:
        found = list(self._parameters.values())
        return found if len(found) == len(self) else list(self)  # parametrizations


class Traceable(nn.Module):
    """A module that can be traced and exported, but not scripted: it chooses operators
    by what a call is given."""

    can_be_scripted = True  # as what `to_plain` makes of it

    def __prepare_scriptable__(self):
        more = f", or script {TO_PLAIN}" if self.can_be_scripted else ""
        raise NotImplementedError(
            f"{type(self).__name__} cannot be scripted: use torch.compile, "
            f"torch.export or torch.jit.trace{more}"
        )


class Freezable(Traceable):
    """A module that, once frozen, keeps what it computes from its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self._trained: frozenset[str] | None = None  # had gradients before freeze()
        self.register_load_state_dict_post_hook(_renew)

    def freeze(self):
        """Parameters have no gradients and do not change any more. Where they have
        changed all the same, by something else than `load_state_dict` and `to`, freeze
        again."""
        trained = {name for name, p in self.named_parameters() if p.requires_grad}
        self._forget()
        self._trained = frozenset(trained | (self._trained or set()))
        self.requires_grad_(False)
        return self

    def unfreeze(self):
        """Undoes `freeze`: parameters that had gradients before have them again."""
        for name, parameter in self.named_parameters():
            if name in (self._trained or ()):
                parameter.requires_grad_(True)
        self._thaw()
        for module in self.modules():
            if isinstance(module, Freezable) and module is not self:
                module.unfreeze()
        return self

    def _thaw(self) -> None:
        self._trained = None
        self._forget()

    def _forget(self) -> None:
        """Drops what was computed from the parameters."""

    def _renew(self) -> None:
        """New numbers came, which stay."""
        self._forget()

    def _is_frozen(self) -> bool:
        """True if the numbers stay. They do not where they have gradients again."""
        if self._trained is None or not torch.is_grad_enabled():
            return self._trained is not None
        if any(parameter.requires_grad for parameter in self.parameters()):
            self._thaw()
        return self._trained is not None

    def _apply(self, fn, recurse: bool = True):
        """Moved or converted."""
        super()._apply(fn, recurse)
        self._renew()
        return self


def _renew(module: Freezable, keys) -> None:
    module._renew()


def is_hooked(module: nn.Module) -> bool:
    """True if a call of the module does more than its forward(): tools that offload or
    shard a model load its parameters then. Code that computes with the parameters of
    such a module has to call it."""
    own = module.__dict__
    return bool(own["_forward_pre_hooks"] or own["_forward_hooks"] or "forward" in own)


class Prepared:
    """What filters were transformed to, while their bits stay the same, or for good if
    they are frozen. It is neither copied nor stored with its module."""

    def __init__(self) -> None:
        self.forget()

    def __reduce__(self):
        return Prepared, ()

    def __deepcopy__(self, memo: dict) -> Prepared:
        return Prepared()

    def forget(self) -> None:
        # One tuple: threads see all of it or nothing.
        self._known: tuple = None, (), None

    def find(self, question: tuple):
        """The answer to a question, such as the length, for frozen filters; or None."""
        asked, _, answer = self._known
        return answer if asked == question else None

    def get(self, question: tuple, filters: list[Tensor | None], frozen: bool, make):
        """The answer for these filters; make() gives it of some that do not change."""
        asked, made_of, answer = self._known
        there = [x for x in filters if x is not None]
        if asked != question or frozen or not _SAME(there, made_of):
            if frozen:
                made_of, answer = (), make(*filters)
            else:
                filters = [None if x is None else copies([x])[0] for x in filters]
                made_of = [x for x in filters if x is not None]
                answer = make(*filters)
            self._known = question, made_of, answer
        return answer


def copies(tensors: list[Tensor]) -> list[Tensor]:
    """The same numbers, row-major, in memory that nobody else writes to."""
    return [t.detach().clone(memory_format=torch.contiguous_format) for t in tensors]


def wait(made: Tensor) -> None:
    """Waits until a tensor is computed; any stream may read it then."""
    if made.is_cuda:
        torch.cuda.current_stream(made.device).synchronize()


class Pack:
    """A layer's weights and bias, packed for passes with gradients of one question."""

    def __init__(self, dtype: torch.dtype, asked: list[int]):
        self.dtype, self.asked = dtype, asked
        # What was packed, its numbers, how PyTorch tells their changes: one tuple, for
        # threads.
        self.held: tuple = None, (), []

    def find(self, weights: list[Tensor], bias: Tensor | None) -> Tensor | None:
        """What was packed of these numbers, if PyTorch tells no changes since."""
        packed, numbers, marks = self.held
        if _are_same(numbers, weights, bias) and marks == _marks(numbers):
            return packed
        return None

    def take(self, packed: Tensor, weights: list[Tensor], bias: Tensor | None) -> None:
        """Keeps what a pass has packed, except in the memory of a graph."""
        if not (packed.is_cuda and torch.cuda.is_current_stream_capturing()):
            numbers = *weights, bias
            self.held = packed, numbers, _marks(numbers)

    def forget(self) -> None:
        self.held = None, (), []


def _are_same(kept: tuple, weights: list[Tensor], bias: Tensor | None) -> bool:
    """True if these very tensors are kept."""
    if len(kept) != len(weights) + 1 or kept[-1] is not bias:
        return False
    for mine, given in zip(kept, weights):  # all() takes longer
        if mine is not given:
            return False
    return True


def _marks(numbers: tuple) -> list:
    return [None if x is None else (x._version, x.data_ptr()) for x in numbers]


class Trained:
    """What a layer's passes with gradients read, packed after each step."""

    def __init__(self) -> None:
        self.packs: dict[tuple, Pack] = {}

    def pack_for(self, x: Tensor, question: tuple) -> Pack | None:
        """That of such inputs; None if there are no rows."""
        patterns, _, *options = question
        a, _, c, d = patterns[-4:]
        rows = x.numel() // (a * c * d)
        if rows == 0:
            return None
        batch = 1 << (rows - 1).bit_length()
        key = x.dtype, x.device, batch, *options
        found = self.packs.get(key)
        if found is None:
            asked = [batch, *map(int, options), *patterns]
            found = self.packs.setdefault(key, Pack(x.dtype, asked))
        return found


def pack_trained(layers: list[tuple[Trained, list[Tensor], Tensor | None]]) -> None:
    """Packs for all passes of layers, with their factors and bias, in one call for each
    type. Passes whose weights were other tensors pack for themselves next time."""
    together: dict[tuple, list[Pack]] = {}
    for trained, weights, bias in layers:
        for pack in trained.packs.values():
            packed, numbers, _ = pack.held
            if packed is None or not _are_same(numbers, weights, bias):
                pack.forget()
            else:
                together.setdefault((pack.dtype, packed.device), []).append(pack)
    for (dtype, _), packs in together.items():
        memory, tensors, asked = [], [], []
        for pack in packs:
            packed, numbers, _ = pack.held
            given = [x for x in numbers if x is not None]
            memory.append(packed)
            tensors += given
            asked += len(numbers) - 1, len(given) == len(numbers), *pack.asked
        with torch.no_grad():
            ops._ks_pack_training(memory, tensors, dtype, asked)
        for pack in packs:
            packed, numbers, _ = pack.held
            pack.held = packed, numbers, _marks(numbers)


class Packed:
    """A layer's weights, packed on a CPU for some batch sizes.

    PyTorch does not tell all changes of a tensor: `.data`, swapped memory and tensors
    of inference mode have no version that counts. So each call compares the weights,
    byte by byte, with the copy that was packed.

    Plans for different batches may have the same kernels, and then share what is
    packed: a list of one tuple, of memory and the change that it was packed after.
    Memory that other threads may be reading is never written to.
    """

    def __init__(self) -> None:
        self.plans: dict[tuple, list] = {}  # by type, batch, whether batch-invariant
        self.memory: dict[tuple, list] = {}  # by type, what the plan says
        # A count of changes and the numbers after the latest: one tuple, for threads.
        self.known: tuple[int, list[Tensor]] = 0, []
        self.lock = threading.Lock()
        self.trained: Trained | None = None

    def anew(self) -> Packed:
        """For the same layer, with nothing packed."""
        made = Packed()
        if self.trained is not None:
            made.trained = Trained()
        return made

    def apply(
        self, x: Tensor, weights: list[Tensor], bias: Tensor | None, question: tuple
    ) -> Tensor:
        """The product, without gradients, planned for about as many rows."""
        a, _, c, d = question[0][-4:]
        batch = 1 << (x.numel() // (a * c * d) - 1).bit_length()
        numbers = weights if bias is None else [*weights, bias]
        change, kept = known = self.known
        if not _SAME(numbers, kept):
            change, _ = known = self._take(numbers)
        kind = x.dtype, batch, question[-1]
        held = self.plans.get(kind) or self._plan(x, kind, question)
        packed, after = held[0]
        if after < change:
            packed = self._pack(held, x, batch, known, len(weights), question)
        return _APPLY(x, packed, bias is not None, batch, *question)

    def _plan(self, x: Tensor, kind: tuple, question: tuple) -> list:
        """Where the plan for such inputs finds its weights: not packed yet, if no other
        plan has the same kernels."""
        key = x.dtype, ops.ks_describe(x, kind[1], *question)
        with self.lock:
            held = self.memory.setdefault(key, [(None, -1)])
            self.plans[kind] = held
        return held

    def _take(self, numbers: list[Tensor]) -> tuple[int, list[Tensor]]:
        with self.lock:  # threads that see the same change count it once
            change, kept = self.known
            if not _SAME(numbers, kept):
                self.known = change + 1, copies(numbers)
            return self.known

    def _pack(
        self,
        held: list,
        x: Tensor,
        batch: int,
        known: tuple,
        factors: int,
        question: tuple,
    ) -> Tensor:
        change, numbers = known
        bias = numbers[factors] if len(numbers) > factors else None
        with self.lock:
            packed, after = held[0]
            if after < change:
                packed = ops.ks_pack(numbers[:factors], bias, x.dtype, batch, *question)
                held[0] = packed, change
        return packed

    # Copies of a module pack for themselves.
    def __reduce__(self):
        return Packed, ()

    def __deepcopy__(self, memo: dict) -> Packed:
        return Packed()
