"""A page of Gradio, asked over HTTP as a browser asks it."""

import numpy as np
import pytest

from tests.integrations.page import data, needs, run_section

pytestmark = [pytest.mark.slow, needs("gradio", "gradio_client")]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def served():
    """A function that serves an Interface on loopback until the test ends, and returns a client."""
    import gradio_client

    pages = []

    def serve(page):
        pages.append(page)
        _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
        return gradio_client.Client(url, verbose=False)

    yield serve
    for page in pages:
        page.close()


def test_the_page_as_pasted():
    from gradio import close_all

    run_section("Gradio")
    close_all()


def test_chances_of_classes(served):
    from flow2onnx_runtime import Trainer

    from flow2onnx.integrations.gradio import page

    client = served(page("bundle", labels=["low", "middle", "high"]))
    row = data()["held_x"][:1]
    found = client.predict(", ".join(map(repr, row[0].tolist())), api_name="/predict")
    (scores,) = Trainer("bundle").predict(row).values()
    powers = np.exp(scores[0].astype(np.float64) - scores.max())
    told = {each["label"]: each["confidence"] for each in found["confidences"]}
    for name, chance in zip(["low", "middle", "high"], powers / powers.sum(), strict=True):
        assert abs(told[name] - chance) < 1e-6


@pytest.mark.parametrize("line", ["1, 2, 3", "1, 2, 3, x", ""])
def test_a_line_that_does_not_fit_is_refused_in_words(served, line):
    from flow2onnx.integrations.gradio import page

    client = served(page("bundle"))
    with pytest.raises(Exception, match=r"numbers"):
        client.predict(line, api_name="/predict")


def test_labels_of_another_number_are_refused():
    from flow2onnx.integrations.gradio import page

    with pytest.raises(ValueError, match="2 labels are given, scores has 3"):
        page("bundle", labels=["a", "b"])


def test_a_picture(served, folder):
    import gradio_client
    import onnx
    import PIL.Image
    from onnx import helper

    from flow2onnx.integrations.gradio import page
    from tests.imported import models

    nodes = [helper.make_node("ReduceMean", ["image"], ["mean"], axes=[2, 3], keepdims=0)]
    inputs, outputs = [models.info("image", ["n", 3, 4, 4])], [models.info("mean", ["n", 3])]
    onnx.save(models.model(nodes, inputs, outputs, opset=17), "mean.onnx")
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[..., 1] = 255
    PIL.Image.fromarray(pixels).save(folder / "green.png")
    client = served(page(folder / "mean.onnx"))
    found = client.predict(
        gradio_client.handle_file(str(folder / "green.png")), api_name="/predict"
    )
    np.testing.assert_allclose(found, [0, 1, 0], atol=1e-6)
