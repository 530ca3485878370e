"""Networks of torch: ten steps of the bundle on the runtime against ten in torch."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch.nn import functional as F  # noqa: E402, N812  # after the check that it is there

import flow2onnx as flow  # noqa: E402
from tests.imported import networks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's exporter warns of itself

SIZES = (4, 2, 5)


def exported(net, x):
    """As people export for training: nothing folded, nothing merged, any batch."""
    batch = ({0: torch.export.Dim("batch")},)
    program = torch.onnx.export(
        net, (x,), dynamo=True, dynamic_shapes=batch, optimize=False, verbose=False
    )
    return program.model_proto


def both(net, optimizer, trainer, batches, loss):
    """The losses of torch and of the bundle, step by step."""
    for x, y in batches:
        optimizer.zero_grad()
        expected = loss(net(x), y)
        expected.backward()
        optimizer.step()
        yield expected.item(), trainer.step(x.numpy(), y.numpy())["loss"].item()


def check(net, draw, loss, name, rule="sgd", training=False):
    torch.manual_seed(0)
    net.eval()
    model = exported(net, draw(3)[0])
    if rule == "sgd":
        settings, reference = "sgd(momentum=0.9)", torch.optim.SGD(net.parameters(), 0.01, 0.9)
    elif rule == "rmsprop":
        settings, reference = "rmsprop", torch.optim.RMSprop(net.parameters(), 0.01)
    else:
        settings, reference = "adam", torch.optim.Adam(net.parameters(), 0.01)
    made = flow.make_trainable(model, name, settings, lr=0.01, training_mode=training)
    assert len(made.trained) == len(list(net.parameters()))
    net.train(training)
    batches = [draw(SIZES[i % len(SIZES)]) for i in range(10)]
    pairs = list(both(net, reference, made.trainer(), batches, loss))
    assert pairs[0][0] != pairs[-1][0]
    for expected, got in pairs:
        assert got == pytest.approx(expected, rel=1e-4)
    return made


def images(channels, size, classes):
    return lambda n: (torch.randn(n, channels, size, size), torch.randint(0, classes, (n,)))


def words(classes):
    return lambda n: (torch.randint(1, 20, (n, 9)), torch.randint(0, classes, (n,)))


@pytest.mark.parametrize("rule", ["sgd", "adam", "rmsprop"])
def test_perceptron(rule):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    made = check(
        net, lambda n: (torch.randn(n, 8), torch.randint(0, 4, (n,))), F.cross_entropy,
        "cross_entropy", rule,
    )  # fmt: skip
    assert made.trained == ("0.weight", "0.bias", "2.weight", "2.bias")


@pytest.mark.slow
def test_resnet_in_training_form():
    torch.manual_seed(1)
    net = networks.ResNet()
    made = check(net, images(3, 32, 5), F.cross_entropy, "cross_entropy", training=True)
    state = made.trainer().state_dict()
    assert "bn.running_mean" in state
    assert "bn.running_mean" not in made.trained


@pytest.mark.slow
def test_running_statistics_are_torchs():
    torch.manual_seed(1)
    net = networks.ResNet()
    draw = images(3, 32, 5)
    model = exported(net.eval(), draw(3)[0])
    made = flow.make_trainable(model, "cross_entropy", "sgd", lr=0.01, training_mode=True)
    trainer = made.trainer()
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for _ in both(net, optimizer, trainer, [draw(6) for _ in range(3)], F.cross_entropy):
        pass
    state = trainer.state_dict()
    for name, buffer in net.named_buffers():
        if "running" in name:
            assert state[name] == pytest.approx(buffer.numpy(), rel=1e-4, abs=1e-5)
    x, y = draw(4)
    net.eval()
    evaluated = trainer.predict(x.numpy(), y.numpy(), job="eval")
    assert evaluated["loss"].item() == pytest.approx(F.cross_entropy(net(x), y).item(), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_lstm(rule):
    torch.manual_seed(1)
    check(networks.Recurrent(), words(4), F.cross_entropy, "cross_entropy", rule)


@pytest.mark.slow
def test_unet():
    torch.manual_seed(1)
    check(
        networks.UNet(), lambda n: (torch.randn(n, 1, 16, 16), torch.rand(n, 1, 16, 16)),
        F.binary_cross_entropy_with_logits, "bce_with_logits",
    )  # fmt: skip


@pytest.mark.slow
def test_vit():
    pytest.importorskip("transformers")
    torch.manual_seed(1)
    check(networks.vit(), images(3, 16, 5), F.cross_entropy, "cross_entropy")


@pytest.mark.slow
def test_gpt2():
    pytest.importorskip("transformers")
    torch.manual_seed(1)
    check(
        networks.gpt2(), lambda n: (torch.randint(0, 37, (n, 9)), torch.randint(0, 37, (n, 9))),
        lambda scores, y: F.cross_entropy(scores.transpose(1, 2), y), "cross_entropy(axis=-1)",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_bert(rule):
    pytest.importorskip("transformers")
    torch.manual_seed(1)
    check(networks.bert(), words(3), F.cross_entropy, "cross_entropy", rule)


@pytest.mark.slow
def test_a_custom_loss_of_two_parts_is_torchs():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

    def loss(outputs, target):
        gap = outputs - target
        fit = flow.math.reduce_mean(gap * gap)
        size = flow.math.reduce_mean(flow.math.abs(outputs))
        return {"loss": fit + size * 0.1, "fit": fit}

    made = flow.make_trainable(
        exported(net, torch.randn(3, 6)), loss, "adamw(weight_decay=0.1)", lr=0.01,
        inputs={"target": (("batch", 3), flow.float32)},
    )  # fmt: skip
    trainer = made.trainer()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.1)
    for n in SIZES:
        x, y = torch.randn(n, 6), torch.randn(n, 3)
        optimizer.zero_grad()
        output = net(x)
        expected = ((output - y) ** 2).mean() + 0.1 * output.abs().mean()
        expected.backward()
        optimizer.step()
        results = trainer.step(x.numpy(), y.numpy())
        assert results["loss"].item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.slow
def test_an_optimised_export_trains_what_it_has():
    torch.manual_seed(1)
    net = networks.ResNet().eval()
    program = torch.onnx.export(net, (torch.randn(2, 3, 32, 32),), dynamo=True, verbose=False)
    made = flow.make_trainable(program.model_proto, "cross_entropy", "sgd", training_mode=True)
    assert any("no BatchNormalization" in note for note in made.notes)
    assert len(made.trained) == 9  # seven convolutions that took in their normalisation
