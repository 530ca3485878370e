"""A tokenizer and a chat template for the folders: one word, one token."""

import json

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|> {{ m.content }} <|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
MARKS = ("<pad>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<unk>")


def write_tokenizer(folder, words, template=TEMPLATE):
    """tokenizer.json for `words` of text, and tokenizer_config.json."""
    names = [*MARKS, "\n", *dict.fromkeys(words)]
    special = [
        {"id": i, "content": n, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, n in enumerate(MARKS)
    ]  # fmt: skip
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {n: i for i, n in enumerate(names)},
                  "unk_token": "<unk>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    settings = {"eos_token": "<|end|>", "pad_token": {"content": "<pad>"}}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def chat(*turns):
    """A line of data: what the user and the assistant say by turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": t} for i, t in enumerate(turns)]
    return json.dumps({"messages": messages}) + "\n"
