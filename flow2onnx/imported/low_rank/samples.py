"""Samples: what a language model answers while an adapter of it is trained."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flow2onnx_runtime import Callback, Loop, Trainer
from flow2onnx_runtime.files import replace_bytes, temporary_folder

from flow2onnx.errors import ArgumentError
from flow2onnx.imported.low_rank.adapters import adapter_of
from flow2onnx.imported.low_rank.folder import LanguageModel
from flow2onnx.imported.low_rank.greedy import GreedyDecoder, ending_tokens, has_slots
from flow2onnx.imported.low_rank.slots import write_slots
from flow2onnx.imported.low_rank.tokens import FolderTokenizer

__all__ = ["Sample", "Samples", "prompt_tokens", "served_model"]

Say = Callable[["Sample"], object]


@dataclass(frozen=True)
class Sample:
    """The model's text after a prompt, when it had been trained for so many steps."""

    step: int
    prompt: str
    text: str


class Samples(Callback):
    """Answers to prompts, at the end of each epoch or each `every` steps, greedily chosen.

    A prompt is asked as a user of the chat template would, or gone on with where there is none. The
    answers come from the served model, with the adapter as it is then; the model is open only as
    long as it writes. `path` is a file of JSON lines, `say` is called with each sample.
    """

    def __init__(
        self,
        trainer: Trainer,
        language: LanguageModel,
        tokenizer: FolderTokenizer,
        prompts: Sequence[str],
        path: Path,
        *,
        every: int | None = None,
        most: int = 64,
        say: Say | None = None,
    ) -> None:
        self._trainer, self._language, self._tokenizer = trainer, language, tokenizer
        self._context = language.context or 2**31 - 1
        self._texts = [(prompt, prompt_tokens(prompt, language, tokenizer)) for prompt in prompts]
        self._path, self._every, self._most, self._say = path, every, most, say
        first = adapter_of(trainer)
        self._modules, self._is_dora = first.pairs.keys(), first.is_dora
        self.samples: list[Sample] = []
        self._last = -1  # the step of the last ones

    def on_fit_begin(self, loop: "Loop") -> None:
        """See at once that the model can write."""
        with temporary_folder(self._path) as place:
            self._open(place).close()

    def on_batch_end(self, loop: "Loop", results: Mapping[str, Any]) -> None:
        """Write samples after each so manieth step."""
        is_due = bool(self._every) and not loop.learner.accumulated
        if is_due and loop.step % (self._every or 1) == 0:
            self._sample(loop.step)

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Write samples at the end of an epoch, unless steps were asked for."""
        if not self._every:
            self._sample(loop.step)

    def state(self) -> dict[str, Any]:
        """The samples so far."""
        return {"samples": [vars(sample) for sample in self.samples]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.samples = [Sample(**sample) for sample in state["samples"]]

    def _sample(self, step: int) -> None:
        if step == self._last:
            return
        self._last = step
        adapter = adapter_of(self._trainer)
        ends = ending_tokens(self._language, self._tokenizer)
        with (
            temporary_folder(self._path) as place,
            closing(self._open(place)) as decoder,
        ):
            for prompt, ids in self._texts:
                most = min(self._most, self._context - len(ids))
                found = decoder.write(ids, adapter, most=most, ends=ends)
                self._add(Sample(step, prompt, self._tokenizer.decode(found)))
        text = "".join(json.dumps(vars(s), ensure_ascii=False) + "\n" for s in self.samples)
        replace_bytes(self._path, text.encode())

    def _add(self, sample: Sample) -> None:
        self.samples.append(sample)
        if self._say is not None:
            self._say(sample)

    def _open(self, place: Path) -> GreedyDecoder:
        model = served_model(self._language, place / "served", self._modules, factors=self._is_dora)
        return GreedyDecoder(model, self._language.logits)


def prompt_tokens(prompt: str, language: LanguageModel, tokenizer: FolderTokenizer) -> list[int]:
    """The tokens of a prompt as the model is asked; raises ArgumentError where none can follow."""
    text = prompt
    if tokenizer.template is not None:
        text = tokenizer.render([{"role": "user", "content": prompt}], asks=True)
    ids = tokenizer.encode(text)[0]
    if language.context is not None and len(ids) >= language.context:
        raise ArgumentError(
            f"a prompt has {len(ids)} tokens, and {language.path} takes {language.context}",
            hint="ask something shorter",
        )
    return ids


def served_model(
    language: LanguageModel, place: Path, modules: Collection[str] = (), *, factors: bool = False
) -> Path:
    """The file of a model with slots: the model's own, or one written to the folder `place`.

    `modules` are those that need slots; without, all but the head have some. With `factors` they
    take those of DoRA. What lies beside the model gets second names there, nothing is copied.
    """
    if has_slots(language):
        return language.path
    model = language.folder if language.has_folder else language.path
    write_slots(model, place, sorted(modules) or None, factors=factors)
    return place / language.path.name
