"""The steps of a training."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import math
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from danaus.torch._conv_functions import fail
from danaus.torch.models.blocks import Blocks
from danaus.torch.packing import pack_after
from danaus.torch.training import checkpoints
from danaus.torch.training.log import Log
from danaus.torch.training.optimizer import make_optimizer, rate_at
from danaus.torch.training.ranks import Ranks
from danaus.torch.training.settings import Settings, differences
from danaus.torch.training.tokens import Part


class Training:
    """A model, its optimizer and data, at a step.

    Random numbers of a step depend only on the seed, the step and the process. So a run
    that goes on from a checkpoint computes what an uninterrupted one does: on a CPU the
    same bits.

    Parameters
    ----------
    settings : values for the task's fields and `settings.COMMON`.
    model : a model of danaus.torch.models; its forward() returns the labels' mean loss.
    data : `NextTokens`, `MaskedTokens` or `Images`.
    ranks : by default what torchrun says.

    Attributes
    ----------
    step : int, number of steps done
    """

    def __init__(
        self, settings: Settings, model: Any, data: Any, ranks: Ranks | None = None
    ):
        self.settings, self.data = settings, data
        self.ranks = Ranks(settings.device) if ranks is None else ranks
        parts = self.ranks.count * settings.accumulate
        if settings.batch % parts:
            fail(f"batch is {settings.batch}, no multiple of {parts} parts")
        data.check(model)
        self.out = pathlib.Path(settings.out)
        self.device = self.ranks.device
        self.model = model.to(self.device).train()
        for module in model.modules():
            if isinstance(module, Blocks):
                module.gradient_checkpointing = settings.recompute
        self.optimizer = make_optimizer(model, settings, self.device)
        pack_after(self.optimizer, model)
        self.step, self.seconds = 0, 0.0
        self.pending: list[float] = []  # losses since the last row of the log
        self.running: list[Tensor] = []  # losses and lengths of gradients, not checked
        self.signal: int | None = None
        self.stops = False  # one of the processes got a signal

    # ---- checkpoints ----

    def load(self, path: pathlib.Path) -> None:
        """Goes to the step of a checkpoint, whose model this one is."""
        state = checkpoints.read_state(path)
        for sentence in differences(self.settings.to_dict(), state["settings"]):
            fail(f"{sentence} in {path}; a run goes on with the same settings")
        if state["size"] != self.data.size:
            fail(f"the data has {self.data.size} items and had {state['size']}")
        for group in state["optimizer"]["param_groups"]:
            group["fused"] = self.device.type == "cuda"
        try:
            self.optimizer.load_state_dict(state["optimizer"])
        except (ValueError, KeyError) as error:
            fail(f"{path} has the optimizer of another model: {error}")
        self.step, self.seconds = state["step"], state["seconds"]
        self.pending = state["pending"]

    def save(self) -> pathlib.Path:
        """Writes a checkpoint of this step, unless there is one."""
        self._settle()
        path = checkpoints.path_of(self.out, self.step)
        if self.ranks.is_first and not path.exists():
            state = {
                "step": self.step,
                "settings": self.settings.to_dict(),
                "optimizer": self.optimizer.state_dict(),
                "size": self.data.size,
                "pending": self.pending,
                "seconds": self.seconds,
            }
            files, keep = self.data.files, self.settings.keep
            checkpoints.save(self.out, self.model, files, state, keep)
        self.ranks.wait()
        return path

    # ---- steps ----

    def run(self, until: int | None = None) -> None:
        """Steps up to the last one, or up to `until`.

        After SIGTERM or SIGINT it ends with a checkpoint, one process after its step,
        several at the next row of the log; `signal` is then the signal's number.

        Raises
        ------
        FloatingPointError
            A loss or a gradient is not finite. The last checkpoint is as it was.
        """
        last = self.settings.steps if until is None else until
        model = self.ranks.wrap(self.model)
        if self.settings.compile:
            model = torch.compile(model)  # type: ignore[assignment]
        self.out.mkdir(parents=True, exist_ok=True)
        log = Log(self.out, self.step, self.settings.steps, self.ranks.is_first)
        before = time.monotonic() - self.seconds
        with self._listening(), contextlib.closing(log):
            while self.step < last and not self.stops:
                self.step += 1
                self._train(model)
                log.step()
                self.seconds = time.monotonic() - before
                self._after(log)
        self.save()

    def _after(self, log: Log) -> None:
        """Logs, evaluates and saves as is due after a step."""
        settings, n = self.settings, self.step

        def is_due(every: int) -> bool:
            return n % every == 0 or n == settings.steps

        row: dict[str, Any] = {"step": n, "seconds": self.seconds}
        if is_due(settings.log_every):
            length = self._settle()
            row["loss"] = math.fsum(self.pending) / len(self.pending)
            row["rate"] = settings.rate * rate_at(n, settings)
            row["gradient"] = length
            self.pending = []
        if is_due(settings.log_every) or self.ranks.count == 1:
            self.stops = self.ranks.any(self.signal is not None)
        if is_due(settings.evaluate_every) and self.data.held_out:
            self._settle()
            row |= self.evaluate()
        if len(row) > 2:
            log.write(row)
        if is_due(settings.checkpoint_every):
            self.save()

    def _train(self, model: torch.nn.Module) -> None:
        """One step; its loss and the length of its gradient are kept for _settle."""
        s, parts = self.settings, self.settings.accumulate
        torch.manual_seed(self._seed())
        for group in self.optimizer.param_groups:
            group["lr"] = group["largest"] * rate_at(self.step, s)
        batch = [
            self.data.batch(self.step, self.ranks.part(s.batch, i, parts))
            for i in range(parts)
        ]
        count = torch.tensor(sum(part.labels for part in batch), dtype=torch.float64)
        count = self.ranks.sum(count.to(self.device))
        loss = torch.zeros((), device=self.device)
        for i, part in enumerate(batch):
            # DDP divides gradients by the number of processes.
            weight = (part.labels * self.ranks.count / count).float()
            with self._together(model, i == parts - 1):
                own = self._loss(model, part.inputs) * weight
                own.backward()
            loss += own.detach() / self.ranks.count
        longest = s.clip if s.clip > 0 else math.inf
        length = torch.nn.utils.clip_grad_norm_(self.model.parameters(), longest)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.running.append(torch.stack([loss, length.to(loss)]))

    def _seed(self) -> int:
        """The seed of dropout for this step and process."""
        rank, count = self.ranks.rank, self.ranks.count
        return (self.settings.seed * 2**32 + self.step * count + rank) % 2**63

    def _together(self, model: Any, is_last: bool) -> Any:
        """Gradients of the last part alone go to the other processes."""
        if self.ranks.count == 1 or is_last:
            return contextlib.nullcontext()
        return model.no_sync()

    def _inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if self.device.type == "cpu":
            return inputs
        return {
            name: x.pin_memory().to(self.device, non_blocking=True)
            if isinstance(x, Tensor)
            else x
            for name, x in inputs.items()
        }

    def _run(self, model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
        is_16_bit = self.settings.dtype == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=is_16_bit):
            return model(**self._inputs(inputs))

    def _loss(self, model: torch.nn.Module, inputs: dict[str, Any]) -> Tensor:
        return self._run(model, inputs).loss

    def _settle(self) -> float:
        """Checks the steps since the last time, whose losses become pending; the
        length of the last gradient."""
        if not self.running:
            return math.nan
        found = torch.stack(self.running)
        losses = self.ranks.sum(found[:, 0].double()).tolist()
        lengths = found[:, 1].tolist()
        first = self.step - len(losses) + 1
        self.running = []
        for step, loss, length in zip(range(first, self.step + 1), losses, lengths):
            if not math.isfinite(loss):
                self._give_up(step, f"the loss is {loss}")
            if not math.isfinite(length):
                self._give_up(step, f"the gradient's length is {length}")
        self.pending += losses
        return lengths[-1]

    def _give_up(self, step: int, what: str) -> None:
        last = checkpoints.last(self.out)
        then = "there is no checkpoint" if last is None else f"the last one is {last}"
        raise FloatingPointError(
            f"danaus: in step {step} {what}; training ends, {then}"
        )

    # ---- evaluation ----

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """The mean loss of held-out labels, and the data's measure of quality."""
        s, held_out = self.settings, self.data.held_out
        batches = min(held_out, s.evaluate_batches)
        sums = torch.zeros(3, dtype=torch.float64, device=self.device)
        self.model.eval()
        for number in (i * held_out // batches for i in range(batches)):
            for i in range(s.accumulate):
                rows = self.ranks.part(s.batch, i, s.accumulate)
                part = self.data.held_out_batch(number, rows)
                if part is not None:
                    sums += self._held_out_sums(part)
        self.model.train()
        total, count, right = self.ranks.sum(sums).tolist()
        loss = total / count
        if self.data.measure == "right":
            return {"held_out_loss": loss, "right": right / count}
        return {"held_out_loss": loss, "perplexity": math.exp(min(loss, 700.0))}

    def _held_out_sums(self, part: Part) -> Tensor:
        """The sum of losses, the number of labels, and of those that are told."""
        found = self._run(self.model, part.inputs)
        loss = found.loss.double() * part.labels
        right = torch.zeros_like(loss)
        if self.data.measure == "right":
            labels = part.inputs["labels"].to(self.device)
            right += (found.logits.argmax(-1) == labels).sum()
        return torch.stack([loss, torch.full_like(loss, part.labels), right])

    # ---- signals ----

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Keeps the first SIGTERM or SIGINT; a second one does what it usually does.
        Only the main thread of a program can listen."""
        kinds = signal.SIGTERM, signal.SIGINT
        usual = {kind: signal.getsignal(kind) for kind in kinds}

        def keep(number: int, frame: Any) -> None:
            self.signal = number
            restore()

        def restore() -> None:
            for kind, handler in usual.items():
                signal.signal(kind, handler)

        try:
            for kind in kinds:
                signal.signal(kind, keep)
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            restore()
