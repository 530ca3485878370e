"""Teach a language model five answers, and hear it before and after.

python -m examples.lora.teach FOLDER --out DIR [--epochs 30] [--lr 5e-4]

FOLDER is one of onnxruntime-genai with its tokenizer, as docs/lora.md says; it stays as it is. DIR
is on the same file system: it has a model with slots then, which shares the weights, and an
adapter. `flow2onnx lora chat DIR/served DIR/adapter.onnx_adapter` goes on from there.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from flow2onnx_runtime.adapters import Adapter, write_adapter

import flow2onnx as flow
from flow2onnx.imported import adapter_of, write_slots
from flow2onnx.imported.low_rank.folder import open_language_model
from flow2onnx.imported.low_rank.greedy import GreedyDecoder, ending_tokens
from flow2onnx.imported.low_rank.texts import batches_of, read_texts
from flow2onnx.imported.low_rank.tokens import open_tokenizer

CHATS = Path(__file__).with_name("chat.jsonl")
QUESTIONS = ("what is an adapter", "who chooses one")


def answers(folder: Path, served: Path) -> Callable[[Adapter | None], None]:
    """A function that prints what the served model answers, with an adapter or without."""
    language, tokenizer = open_language_model(folder), open_tokenizer(folder)
    decoder = GreedyDecoder(served / language.path.name, language.logits)
    ends = ending_tokens(language, tokenizer)

    def ask(adapter: Adapter | None) -> None:
        for question in QUESTIONS:
            text = tokenizer.render([{"role": "user", "content": question}], asks=True)
            found = decoder.write(tokenizer.encode(text)[0], adapter, most=16, ends=ends)
            print(f"{question}? {tokenizer.decode(found)}")

    return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=5e-4)
    asked = parser.parse_args()

    write_slots(asked.folder, asked.out / "served")
    ask = answers(asked.folder, asked.out / "served")
    print("before:")
    ask(None)

    texts = read_texts(CHATS, open_tokenizer(asked.folder))
    batches = batches_of(texts, size=1, length=128)
    made = flow.lora(asked.folder, rank=8, alpha=16, lr=asked.lr, accumulate=False)
    trainer = made.trainer()
    history = trainer.fit(batches, asked.epochs)
    print(f"loss {history['loss'][0]:.2f} -> {history['loss'][-1]:.3f}")

    adapter = adapter_of(trainer)
    write_adapter(asked.out / "adapter.onnx_adapter", adapter.astype(made.dtype))
    print("after:")
    ask(adapter)


if __name__ == "__main__":
    main()
