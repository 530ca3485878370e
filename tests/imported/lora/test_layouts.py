"""Decoders that are no folder of onnxruntime-genai: keys and values of the past as plain inputs."""

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from flow2onnx_runtime import FeedError
from onnx import TensorProto, helper, numpy_helper

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.imported import adapter_of
from flow2onnx.imported.low_rank.greedy import GreedyDecoder
from flow2onnx.onnx_io.adapter_slots import add_slots, choose_products, products
from flow2onnx.onnx_io.language_model import without_past
from flow2onnx.onnx_io.torch_scopes import SCOPES, module_of, name_by_modules
from tests.imported.lora.sessions import cross_entropy

WORDS, WIDTH, HEADS, SIZE, PLACES = 40, 16, 2, 8, 32


class Decoder:
    """One layer in standard operators, laid out as Hugging Face's exporter does."""

    def __init__(self, seed=0):
        self.rng, self.nodes, self.tensors = np.random.default_rng(seed), [], []

    def op(self, kind, inputs, y, **attrs):
        self.nodes.append(helper.make_node(kind, inputs, [y], f"/{y}/{kind}", **attrs))
        return y

    def tensor(self, name, array):
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, module, rows, columns):
        scale = columns**-0.5
        drawn = (scale * self.rng.standard_normal((rows, columns))).astype(np.float32)
        return self.tensor(f"{module}.weight", drawn)

    def heads(self, module, x):
        w = self.weight(f"model.layers.0.self_attn.{module}", WIDTH, HEADS * SIZE)
        y = self.op("MatMul", [x, w], f"model/layers.0/self_attn/{module}")
        y = self.op("Reshape", [y, "apart"], f"{module}/heads")
        return self.op("Transpose", [y], f"{module}/turned", perm=[0, 2, 1, 3])

    def model(self):
        self.tensor("apart", [0, 0, HEADS, SIZE])
        self.tensor("whole", [0, 0, HEADS * SIZE])
        for name, value in (("zero", 0), ("one", 1), ("two", 2)):
            self.tensor(name, np.asarray(value))
        table = self.weight("model.embed_tokens", WORDS, WIDTH)
        places = self.weight("model.embed_places", PLACES, WIDTH)
        words = self.op("Gather", [table, "input_ids"], "words")
        x = self.op("Add", [words, self.op("Gather", [places, "position_ids"], "places")], "x")
        q, k, v = (self.heads(f"{n}_proj", x) for n in "qkv")
        k = self.op("Concat", ["past_key_values.0.key", k], "present.0.key", axis=2)
        v = self.op("Concat", ["past_key_values.0.value", v], "present.0.value", axis=2)
        scores = self.op(
            "MatMul", [q, self.op("Transpose", [k], "kT", perm=[0, 1, 3, 2])], "scores"
        )
        weights = self.op("Softmax", [self.hide(scores)], "weights", axis=-1)
        y = self.op("Transpose", [self.op("MatMul", [weights, v], "y")], "yT", perm=[0, 2, 1, 3])
        y = self.op("Reshape", [y, "whole"], "rows")
        o = self.weight("model.layers.0.self_attn.o_proj", HEADS * SIZE, WIDTH)
        x = self.op("Add", [x, self.op("MatMul", [y, o], "model/layers.0/self_attn/o_proj")], "x2")
        head = self.weight("lm_head", WIDTH, WORDS)
        self.op("MatMul", [x, head], "logits")
        return self.finish()

    def hide(self, scores):
        """Scores of keys that come later, or that the mask leaves out, are lowest."""
        before = self.op("Gather", [self.op("Shape", ["past_key_values.0.key"], "sizes"), "two"],
                         "before")  # fmt: skip
        rows = self.op("Gather", [self.op("Shape", ["input_ids"], "shape"), "one"], "count")
        width = self.op("Add", [before, rows], "width")
        keys = self.op("Range", ["zero", width, "one"], "keys")
        own = self.op("Range", [before, width, "one"], "own")
        wide = self.op("Unsqueeze", [own, self.tensor("axis", [1])], "own/wide")
        mask = self.op("Cast", ["attention_mask"], "mask", to=TensorProto.BOOL)
        mask = self.op("Unsqueeze", [mask, self.tensor("axes", [1, 2])], "mask/wide")
        seen = self.op("And", [self.op("LessOrEqual", [keys, wide], "causal"), mask], "seen")
        return self.op("Where", [seen, scores, self.tensor("lowest", np.float32(-1e9))], "hidden")

    def finish(self, **extra):
        info, whole, real = helper.make_tensor_value_info, TensorProto.INT64, TensorProto.FLOAT
        past = ["batch", HEADS, "past", SIZE]
        inputs = [info(n, whole, ["batch", "sequence"]) for n in ("input_ids", "position_ids")]
        inputs.append(info("attention_mask", whole, ["batch", "total"]))
        inputs += [info(f"past_key_values.0.{n}", real, past) for n in ("key", "value")]
        outputs = [info("logits", real, ["batch", "sequence", WORDS])]
        outputs += [info(f"present.0.{n}", real, None) for n in ("key", "value")]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def decoder(tmp_path):
    onnx.save(Decoder().model(), tmp_path / "decoder_with_past_model.onnx")
    return tmp_path / "decoder_with_past_model.onnx"


def rows(seed=0):
    ids = np.random.default_rng(seed).integers(0, WORDS, (2, 9))
    mask = np.ones_like(ids)
    mask[1, 6:] = 0
    labels = np.roll(ids, -1, 1)
    labels[:, -1] = -100
    labels[1, 5:] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def test_a_past_that_is_read_by_standard_operators(decoder):
    given = rows()
    past = np.zeros((2, HEADS, 0, SIZE), np.float32)
    served = ort.InferenceSession(str(decoder), providers=["CPUExecutionProvider"])
    places = np.maximum(np.cumsum(given["attention_mask"], 1) - 1, 0)
    feeds = {"input_ids": given["input_ids"], "attention_mask": given["attention_mask"]}
    feeds |= dict.fromkeys(["past_key_values.0.key", "past_key_values.0.value"], past)
    logits = served.run(["logits"], {**feeds, "position_ids": places})[0]
    made = flow.lora(decoder, rank=4, lr=2e-2, accumulate=False)
    trainer = made.trainer()
    wanted = cross_entropy(logits, given["labels"])
    assert abs(float(trainer.evaluate(**given)["loss"]) - wanted) < 1e-5 * wanted
    losses = [float(trainer.step(**given)["loss"]) for _ in range(20)]
    assert losses[-1] < 0.7 * losses[0]
    trained = {m.rpartition(".")[2] for m in adapter_of(trainer).pairs}
    assert trained == {"q_proj", "k_proj", "v_proj", "o_proj"}


def cap_scores(graph):
    """Keep the scores between -3 and 3, as Gemma 2 keeps its own within 30."""
    graph.node[-1].output[0], graph.node[-1].name = "raw", "/lm_head/MatMul"
    graph.initializer.append(numpy_helper.from_array(np.float32(3), "cap"))
    for kind, names, y in (
        ("Div", ["raw", "cap"], "share"), ("Tanh", ["share"], "bent"),
        ("Mul", ["bent", "cap"], "logits"),
    ):  # fmt: skip
        graph.node.append(helper.make_node(kind, names, [y], f"/{y}"))


def test_a_head_of_the_words_own_table(decoder):
    given, model = rows(), onnx.load(decoder)
    cap_scores(model.graph)
    table = next(t for t in model.graph.initializer if t.name == "model.embed_tokens.weight")
    head = next(t for t in model.graph.initializer if t.name == "lm_head.weight")
    head.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table).T.copy(), head.name))
    onnx.save(model, decoder)
    options = {"rank": 4, "lr": 2e-2, "accumulate": False}
    trainer = flow.lora(decoder, **options).trainer()
    wanted = [float(trainer.step(**given)["loss"]) for _ in range(3)]
    model.graph.initializer.remove(head)
    turn = helper.make_node("Transpose", [table.name], [head.name], "/turn", perm=[1, 0])
    model.graph.node.insert(0, turn)  # as torch's exporter writes tied words
    onnx.save(model, decoder)
    trainer = flow.lora(decoder, **options).trainer()
    found = [float(trainer.step(**given)["loss"]) for _ in range(3)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_folder_says_the_size_of_heads_where_the_model_does_not(decoder, wanted):
    given = rows()
    model = onnx.load(decoder)
    for value in model.graph.input[-2:]:
        value.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    onnx.save(model, decoder)
    with pytest.raises(UnsupportedError, match="in a form that is not known"):
        flow.lora(decoder, rank=4)
    said = {"type": "llama", "decoder": {"filename": decoder.name, "head_size": SIZE}}
    (decoder.parent / "genai_config.json").write_text(json.dumps({"model": said}))
    made = flow.lora(decoder.parent, rank=4, accumulate=False)
    assert float(made.trainer().evaluate(**given)["loss"]) == wanted


def test_two_models_in_one_are_refused(decoder):
    model = onnx.load(decoder)
    model.graph.input.append(
        helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    )
    onnx.save(model, decoder)
    with pytest.raises(UnsupportedError, match="use_cache_branch decides"):
        flow.lora(decoder, rank=4)


def test_targets_that_no_expert_has_say_nothing_of_experts(decoder):
    model = onnx.load(decoder)
    node = helper.make_node("MoE", ["words"], ["mixed"], "/experts", domain="com.microsoft")
    model.graph.node.append(node)
    onnx.save(model, decoder)
    with pytest.raises(ArgumentError) as error:
        flow.lora(decoder, rank=4, targets=["wq"])
    assert "experts" not in str(error.value)


@pytest.mark.parametrize("kind", ["MoE", "QMoE"])
def test_adapters_of_experts_in_one_operator_are_refused(decoder, kind):
    model = onnx.load(decoder)
    node = helper.make_node(kind, ["words"], ["mixed"], "/experts", domain="com.microsoft")
    model.graph.node.append(node)
    onnx.save(model, decoder)
    with pytest.raises(ArgumentError, match=f"the experts of /experts, {kind}, are one operator"):
        flow.lora(decoder, rank=4, targets=["gate_up_proj"])


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The loss of the decoder as it is."""
    path = tmp_path_factory.mktemp("plain") / "model.onnx"
    onnx.save(Decoder().model(), path)
    return evaluated(path)


def evaluated(decoder, given=None):
    trainer = flow.lora(decoder, rank=4, accumulate=False).trainer()
    return float(trainer.evaluate(**(given or rows()))["loss"])


def set_sizes(value, *sizes):
    dims = value.type.tensor_type.shape
    del dims.dim[:]
    for size in sizes:
        dims.dim.add(**{"dim_value" if isinstance(size, int) else "dim_param": size})


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [("s77", HEADS, "s27", SIZE), ("", HEADS, "", SIZE), ("batch", HEADS, "", SIZE)]
)
def test_a_past_whose_axes_are_called_otherwise(decoder, sizes, wanted):
    model = onnx.load(decoder)
    for value in model.graph.input[-2:]:
        set_sizes(value, *sizes)
        old, value.name = value.name, value.name.replace("past_key_values", "cache")
        for node in model.graph.node:
            node.input[:] = [value.name if n == old else n for n in node.input]
    onnx.save(model, decoder)
    assert evaluated(decoder) == wanted


def test_a_past_and_places_of_an_older_opset(decoder, wanted):
    model = onnx.load(decoder)
    model.opset_import[0].version = 14
    onnx.save(model, decoder)
    assert abs(evaluated(decoder) - wanted) < 1e-6


def test_keys_and_values_in_one_past(decoder, wanted):
    model = onnx.load(decoder)
    graph = model.graph
    for i, value in enumerate(graph.input[-2:]):
        graph.initializer.append(numpy_helper.from_array(np.asarray(i), f"which/{i}"))
        taken = helper.make_node("Gather", ["past_0", f"which/{i}"], [value.name], f"/which/{i}")
        graph.node.insert(0, taken)
    del graph.input[-2:]
    info = helper.make_tensor_value_info("past_0", TensorProto.FLOAT, [2])
    set_sizes(info, 2, "batch", HEADS, "past", SIZE)
    graph.input.append(info)
    onnx.save(model, decoder)
    assert evaluated(decoder) == wanted


@pytest.mark.parametrize(
    "sizes", [("batch", "heads", "past", SIZE), ("batch", HEADS, 32, SIZE), (1, HEADS, 32, SIZE)]
)
def test_a_past_of_another_form_is_refused(decoder, sizes):
    model = onnx.load(decoder)
    set_sizes(model.graph.input[-1], *sizes)
    onnx.save(model, decoder)
    shown = ", ".join(map(str, sizes))
    with pytest.raises(UnsupportedError, match=rf"value \({shown}\), in a form that is not known"):
        flow.lora(decoder, rank=4)


def test_a_mask_of_four_axes_is_no_past(decoder):
    """Some exports read one number for each pair of tokens, which is added to its score."""
    model = onnx.load(decoder)
    mask = next(v for v in model.graph.input if v.name == "attention_mask")
    mask.type.tensor_type.elem_type = TensorProto.FLOAT
    set_sizes(mask, "batch", 1, "sequence", "total")
    onnx.save(model, decoder)
    what = r"reads attention_mask \(batch, 1, sequence, total\), and texts are rows of tokens"
    with pytest.raises(UnsupportedError, match=what):
        flow.lora(decoder, rank=4)


def test_weights_of_tokens_are_no_past():
    """Rows of real numbers stay inputs, also where others are put behind them."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        weigh (int64[batch, sequence] input_ids, float[batch, sequence] weights)
        => (float[batch, total] logits) { logits = Concat<axis = 1>(weights, weights) }""")
    without_past(model, "logits")
    assert [v.name for v in model.graph.input] == ["input_ids", "weights"]


@pytest.mark.parametrize("batch", [1, "batch"])
def test_texts_of_one_length_are_refused(decoder, batch):
    model = onnx.load(decoder)
    set_sizes(model.graph.input[0], batch, 8)
    onnx.save(model, decoder)
    what = rf"texts of 8 tokens alone: input_ids is \({batch}, 8\)"
    with pytest.raises(UnsupportedError, match=what):
        flow.lora(decoder, rank=4)


def test_pictures_are_no_cache(decoder):
    model = onnx.load(decoder)
    info = helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, [2])
    set_sizes(info, "batch", 3, "height", "width")
    model.graph.input.append(info)
    onnx.save(model, decoder)
    with pytest.raises(UnsupportedError, match="it has an input pixel_values"):
        GreedyDecoder(decoder, "logits")


@pytest.mark.slow
def test_a_batch_that_the_model_fixes(decoder, wanted):
    model = onnx.load(decoder)
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, decoder)
    trainer = flow.lora(decoder, rank=4, accumulate=False).trainer()
    assert float(trainer.evaluate(**rows())["loss"]) == wanted
    assert {f.shape for f in trainer.feeds} == {(2, "sequence")}
    with pytest.raises(FeedError, match="input_ids"):
        trainer.step(**{name: array[:1] for name, array in rows().items()})


@pytest.mark.slow
def test_places_without_a_mask_are_counted_from_the_first_token(decoder):
    model = onnx.load(decoder)
    mask = next(v for v in model.graph.input if v.name == "attention_mask")
    model.graph.input.remove(mask)
    shown = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["shape"], [mask.name],
                                                "/mask", value=shown))  # fmt: skip
    shape = next(n for n in model.graph.node if n.output[0] == "shape")
    model.graph.node.remove(shape)
    model.graph.node.insert(0, shape)
    given = rows()
    given["attention_mask"][:] = 1
    wanted = evaluated(decoder, given)
    onnx.save(model, decoder)
    del given["attention_mask"]
    assert evaluated(decoder, given) == wanted


@pytest.mark.slow
def test_places_of_one_row(decoder, wanted):
    model = onnx.load(decoder)
    places = next(v for v in model.graph.input if v.name == "position_ids")
    places.name = "cache_position"
    set_sizes(places, "sequence")
    model.graph.initializer.append(numpy_helper.from_array(np.asarray([0]), "front"))
    wide = helper.make_node("Unsqueeze", ["cache_position", "front"], ["position_ids"], "/places")
    model.graph.node.insert(0, wide)
    onnx.save(model, decoder)
    assert abs(evaluated(decoder) - wanted) < 1e-6


@pytest.mark.slow
def test_modules_are_called_as_torch_calls_them(decoder, wanted):
    model = onnx.load(decoder)
    whole = "whole.model.layers.0.self_attn"
    for i, node in enumerate(n for n in model.graph.node if n.op_type == "MatMul"):
        path = node.output[0].replace("model/", "whole.model.").replace("/", ".")
        inside = path.startswith(whole)
        if node.output[0] == "logits":
            inside, path = True, "whole.lm_head"
        scopes = ["", "whole", *([whole] if path.startswith(whole) else []), path, f"linear_{i}"]
        node.name = f"node_linear_{i}"
        if inside:
            node.metadata_props.add(key=SCOPES, value=repr(scopes))
    for tensor in model.graph.initializer:  # names that tell nothing
        old, tensor.name = tensor.name, tensor.name.replace("model.layers.0.self_attn.", "val_")
        for node in model.graph.node:
            node.input[:] = [tensor.name if n == old else n for n in node.input]
    onnx.save(model, decoder)
    made = flow.lora(decoder, rank=4, accumulate=False)
    assert {s.module for s in made.slots} == {
        f"model.layers.0.self_attn.{n}_proj" for n in "qkvo"
    }  # as PEFT, which knows no module around the model
    assert float(made.trainer().evaluate(**rows())["loss"]) == wanted
    names = {str(n.name) for n in made.step.model.graph}
    assert any(n.startswith("whole/model.layers.0.self_attn/q_proj/node_linear_0") for n in names)
    modules = [p.modules for p in products(model)]
    add_slots(model, choose_products(products(model), None))
    assert [p.modules for p in products(model)] == modules


@pytest.mark.parametrize(("is_renamed", "names"), [
    (False, ["q_proj", "k_proj", "v_proj", "o_proj"]),
    (True, ["node_0", "node_1", "node_2", "node_3"]),
])  # fmt: skip
def test_weights_of_one_module_are_told_apart(decoder, is_renamed, names):
    model = onnx.load(decoder)
    weights = [n for n in model.graph.node if n.op_type == "MatMul" and "self_attn" in n.input[1]]
    tensors = {t.name: t for t in model.graph.initializer}
    for i, node in enumerate(weights):  # as of torch.nn.MultiheadAttention
        node.name = f"node_{i}"
        scopes = ["", "model.layers.0.self_attn", "linear"]
        node.metadata_props.add(key=SCOPES, value=repr(scopes))
        if is_renamed:
            tensors[node.input[1]].name = node.input[1] = f"val_{i}"
    name_by_modules(model)
    found = [m for p in products(model) for m in p.modules if "self_attn" in m]
    assert found == [f"model.layers.0.self_attn.{name}" for name in names]


def test_an_export_keeps_a_module_that_holds_two(decoder):
    model = onnx.load(decoder)
    node = next(n for n in model.graph.node if "o_proj" in n.name)
    node.name = node.name.replace("o_proj", "gate_up_proj")
    modules = [m for p in products(model) for m in p.modules]
    assert "model.layers.0.self_attn.gate_up_proj" in modules


def test_scopes_that_say_nothing_leave_names_as_they_are(decoder):
    model = onnx.load(decoder)
    for node, text in zip(model.graph.node, ("[", "[1, 2]", "['', 'x']", "3", "'a'"), strict=False):
        node.metadata_props.add(key=SCOPES, value=text)
    before = [n.name for n in model.graph.node]
    name_by_modules(model)
    assert [n.name for n in model.graph.node] == before
    assert not any(module_of(n) for n in model.graph.node)
