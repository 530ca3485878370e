"""Ask a server about handwritten digits, a few at a time.

    python examples/serving/client.py DIGITS.npz [--url http://localhost:8000] [--model digits]
                                      [--count 20] [--triton] [--token TOKEN]

A server with TLS has a URL of https; SSL_CERT_FILE is its certificate, or who signed that.

Without --triton it needs Python and numpy only, and sends JSON; with it, Triton's own client
(`pip install 'tritonclient[http]'`) sends the bytes of the arrays.
"""

import argparse
import json
import ssl
import urllib.request
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 8  # images of a request
Array = NDArray[np.float32]


def ask_json(images: Array, options: argparse.Namespace) -> Array:
    """The probabilities, by one POST of JSON."""
    tensor = {"name": "images", "shape": images.shape, "datatype": "FP32",
              "data": images.ravel().tolist()}  # fmt: skip
    headers = {"Content-Type": "application/json"}
    if options.token:
        headers["Authorization"] = f"Bearer {options.token}"
    request = urllib.request.Request(
        f"{options.url}/v2/models/{options.model}/infer",
        json.dumps({"inputs": [tensor]}).encode(),
        headers,
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        (output,) = json.load(answer)["outputs"]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def ask_triton(images: Array, options: argparse.Namespace) -> Array:
    """The probabilities, by Triton's client."""
    import tritonclient.http as http

    headers = {"Authorization": f"Bearer {options.token}"} if options.token else None
    url = urlsplit(options.url)
    safe = {"ssl": True, "ssl_context_factory": ssl.create_default_context}
    with http.InferenceServerClient(
        url.netloc, **(safe if url.scheme == "https" else {})
    ) as client:
        tensor = http.InferInput("images", images.shape, "FP32")
        tensor.set_data_from_numpy(images)
        found = client.infer(options.model, [tensor], headers=headers).as_numpy("out/0")
    return np.asarray(found, np.float32)


def main() -> None:
    """Ask, and print the answers and how many are right."""
    parser = argparse.ArgumentParser(description="Ask a server about handwritten digits.")
    parser.add_argument("digits")
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--model", default="digits")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--token")
    options = parser.parse_args()
    ask = ask_triton if options.triton else ask_json
    with np.load(options.digits) as data:
        images, labels = data["images"][: options.count], data["labels"][: options.count]
    parts = [ask(images[i : i + AT_ONCE], options) for i in range(0, len(images), AT_ONCE)]
    answers = np.concatenate(parts).argmax(1)
    print("answers:", *answers)
    print(f"right: {np.sum(answers == labels)} of {len(labels)}")


if __name__ == "__main__":
    main()
