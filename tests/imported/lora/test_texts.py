"""Chats and texts as batches: what counts, what is padded, what shares a row."""

import json

import numpy as np
import pytest

from flow2onnx.errors import ArgumentError, BundleError
from flow2onnx.imported.low_rank.texts import Text, batches_of, read_texts, text_batches
from flow2onnx.imported.low_rank.tokens import open_tokenizer
from tests.imported.lora.words import chat, write_tokenizer

WORDS = ["who", "are", "you", "i", "am", "a", "model", "yes", "no", "what", "is", "it"]
TEXTS = [Text(tuple(range(i, i + n)), (False,) * (n // 2) + (True,) * (n - n // 2))
         for i, n in ((1, 20), (40, 7), (50, 9), (60, 3), (70, 12))]  # fmt: skip


@pytest.fixture
def tokenizer(tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    write_tokenizer(tmp_path, WORDS)
    return open_tokenizer(tmp_path)


def lines(tmp_path, *rows):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(r if r.endswith("\n") else json.dumps(r) + "\n" for r in rows))
    return path


def counted(text, tokenizer):
    return " ".join(
        tokenizer.engine.id_to_token(i) for i, c in zip(text.ids, text.counts, strict=True) if c
    )


def test_the_assistants_part_counts(tokenizer, tmp_path):
    data = lines(tmp_path, chat("who are you", "i am a model", "is it", "yes"))
    (text,) = read_texts(data, tokenizer)
    assert counted(text, tokenizer) == "i am a model <|end|> yes <|end|>"
    (whole,) = read_texts(data, tokenizer, all_tokens=True)
    assert whole.ids == text.ids
    assert all(whole.counts)


def test_contents_in_parts(tokenizer, tmp_path):
    parts = [{"type": "text", "text": "i am "}, {"type": "text", "text": "a model"}]
    row = {"messages": [{"role": "user", "content": [{"type": "text", "text": "who are you"}]},
                        {"role": "assistant", "content": parts}]}  # fmt: skip
    (text,) = read_texts(lines(tmp_path, json.dumps(row) + "\n"), tokenizer)
    (same,) = read_texts(lines(tmp_path, chat("who are you", "i am a model")), tokenizer)
    assert text == same


def test_other_lines(tokenizer, tmp_path):
    rows = json.dumps({"prompt": "who are you ", "completion": "a model "}) + "\n"
    data = lines(tmp_path, rows, "\n", json.dumps({"text": "yes it is "}) + "\n")
    first, second = read_texts(data, tokenizer)
    assert counted(first, tokenizer) == "a model <|end|>"
    assert counted(second, tokenizer) == "yes it is <|end|>"


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"messages": [', "line 2: it is no JSON"),
        ("7", "line 2: it is int, no object"),
        ("[1]", r"line 2: it is a list\n.*each object on a line of its own"),
        ("[", r"line 2: it is a list\n.*each object on a line of its own"),
        ('{"messages": [{"role": "user", "content": 3}]}', "content of message 1 is int, no text"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
         "line 2: message 1 has a part 'image_url'"),
        ('{"messages": [{"role": "user", "content": [{"type": "text"}]}]}',
         "line 2: a part of message 1 is NoneType, no text"),
        ('{"message": "x"}', "line 2: it has 'message'"),
        ('{"messages": []}', "line 2: messages is no list"),
        ('{"messages": [{"content": "x"}]}', "line 2: message 1 has no role"),
        ('{"messages": [{"role": "user"}]}', "line 2: message 1 has no content"),
        ('{"text": 3}', "line 2: text is int, no text"),
        (r'{"text": "is \ud83d"}', "line 2: it is no Unicode text"),
    ],
)  # fmt: skip
def test_a_broken_line_is_named(tokenizer, tmp_path, line, match):
    with pytest.raises(ArgumentError, match=match):
        read_texts(lines(tmp_path, chat("is it", "no"), line + "\n"), tokenizer)


def test_templates(tokenizer, tmp_path):
    data = lines(tmp_path, chat("is it", "no", "yes", "no"))
    write_tokenizer(tmp_path, WORDS, template=None)
    with pytest.raises(ArgumentError, match="has no chat template"):
        read_texts(data, open_tokenizer(tmp_path))
    write_tokenizer(tmp_path, WORDS, "{% for m in messages[-2:] %}{{ m.content }} {% endfor %}")
    with pytest.raises(ArgumentError, match="writes message 2 otherwise when more follow"):
        read_texts(data, open_tokenizer(tmp_path))
    (whole,) = read_texts(data, open_tokenizer(tmp_path), all_tokens=True)
    assert all(whole.counts)
    write_tokenizer(tmp_path, WORDS, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ArgumentError, match="roles must alternate"):
        read_texts(data, open_tokenizer(tmp_path))
    write_tokenizer(tmp_path, WORDS, "{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(ArgumentError, match="the chat template refuses it"):
        read_texts(data, open_tokenizer(tmp_path))
    write_tokenizer(tmp_path, WORDS, "{% for %}")
    with pytest.raises(BundleError, match="the chat template is damaged"):
        open_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match="is no tokenizer"):
        open_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(BundleError, match="tokenizer"):
        open_tokenizer(tmp_path)


THINKING = """
{%- for m in messages %}
{%- if m.role == "assistant" and loop.last %}
{%- generation %}<|assistant|> yes {{ m.content | trim }} <|end|>{% endgeneration %}
{%- else %}<|{{ m.role }}|> {{ m.content | trim }} <|end|> {% endif %}
{%- if loop.index > 9 %}{% break %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|> yes {% endif %}"""  # of the last answer alone


def test_answers_that_the_template_writes_otherwise_when_more_follow(tokenizer, tmp_path):
    data = lines(tmp_path, chat("who are you", " i am a model", "is it", "no"))
    write_tokenizer(tmp_path, WORDS, THINKING)
    (text,) = read_texts(data, open_tokenizer(tmp_path))
    assert counted(text, tokenizer) == "i am a model <|end|> no <|end|>"


def test_templates_have_what_transformers_gives_them(tokenizer, tmp_path):
    write_tokenizer(tmp_path, WORDS, "{{ strftime_now('%Y') | length }} {{ messages | tojson }}")
    text = open_tokenizer(tmp_path).render([{"role": "user", "content": "<is>"}])
    assert text == '4 [{"role": "user", "content": "<is>"}]'


def test_batches_of_a_file(tokenizer, tmp_path):
    data = lines(tmp_path, chat("is it", "no"), chat("are you", "yes"))
    made = text_batches(tmp_path, data, size=2, seed=1)
    assert [b["input_ids"].shape for b in made] == [(2, 32)]
    with pytest.raises(ArgumentError, match="seed is -1"):
        text_batches(tmp_path, data, seed=-1)


def test_a_file_where_nothing_counts(tokenizer, tmp_path):
    only = json.dumps({"messages": [{"role": "user", "content": "is it"}]}) + "\n"
    with pytest.raises(ArgumentError, match="no text of which a token counts"):
        read_texts(lines(tmp_path, only), tokenizer)


@pytest.mark.parametrize("packs", [False, True])
def test_every_token_that_counts_is_a_label_once(packs):
    batches = batches_of(TEXTS, size=2, length=24, packs=packs, seed=3)
    wanted = sorted(i for t in TEXTS for i, c in zip(t.ids[1:], t.counts[1:], strict=True) if c)
    found = np.concatenate([b["labels"][b["labels"] != -100] for b in batches])
    assert sorted(found.tolist()) == wanted
    for batch in batches:
        ids, mask, labels = (batch[n] for n in ("input_ids", "attention_mask", "labels"))
        assert ids.shape == mask.shape == labels.shape
        assert ids.shape[1] % 32 == 0
        assert (np.diff(mask, axis=1) <= 0).all()  # padded on the right
        rows, places = np.nonzero(labels != -100)
        np.testing.assert_array_equal(labels[rows, places], ids[rows, places + 1])
        if packs:
            documents = batch["documents"]
            np.testing.assert_array_equal(documents > 0, mask == 1)
            np.testing.assert_array_equal(
                documents[rows, places], documents[rows, places + 1]
            )  # no label is of another text
    count = sum(len(b["labels"]) for b in batches)
    assert count == (3 if packs else 5)
    again = batches_of(TEXTS, size=2, length=24, packs=packs, seed=3)
    for x, y in zip(batches, again, strict=True):
        np.testing.assert_array_equal(x["input_ids"], y["input_ids"])


@pytest.mark.parametrize("packs", [False, True])
def test_batches_of_one_shape_teach_the_same(packs):
    free = batches_of(TEXTS, size=2, length=24, packs=packs, seed=3)
    fixed = batches_of(TEXTS, size=2, length=24, packs=packs, one_shape=True, seed=3)
    largest = tuple(np.max([b["labels"].shape for b in free], axis=0))
    assert {b["labels"].shape for b in fixed} == {largest}
    for x, y in zip(free, fixed, strict=True):
        rows, width = x["labels"].shape
        for name in x:
            np.testing.assert_array_equal(y[name][:rows, :width], x[name])
        assert (y["labels"][rows:] == -100).all()
        assert (y["attention_mask"].sum(axis=1)[rows:] == 1).all()  # no row sees nothing


def test_rows_that_are_too_short():
    with pytest.raises(ArgumentError, match="no token counts among the first 2"):
        batches_of(TEXTS[:1], size=1, length=2)
    with pytest.raises(ArgumentError, match="batches of 0 rows"):
        batches_of(TEXTS, size=0, length=8)
