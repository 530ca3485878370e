"""The Hugging Face hub: a bundle as a repository of models, and back.

A repository has the bundle's own files, so that its folder is a bundle wherever it comes to lie,
and beside them what the hub looks for: a card, ``config.json``, and the variables under their names
in ``model.safetensors``.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flow2onnx_runtime import BundleError, Manifest, Trainer, save_safetensors
from flow2onnx_runtime.manifest import MANIFEST

from flow2onnx.integrations.packages import package

__all__ = ["STATE", "pull", "push"]

STATE = "state.safetensors"
_CARD, _CONFIG, _WEIGHTS = "README.md", "config.json", "model.safetensors"
# What an earlier push may have left there.
_OURS = ("*.onnx", "*.ort", "*.safetensors", MANIFEST, _CONFIG)


def push(
    bundle: str | os.PathLike[str],
    repo_id: str,
    *,
    state: Trainer | str | os.PathLike[str] | None = None,
    license: str | None = None,
    tags: Sequence[str] = (),
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    message: str = "Upload a bundle of flow2onnx",
    endpoint: str | None = None,
) -> str:
    """Upload a bundle in one commit, whose address is returned; the repository is made if need be.

    `state` is a trainer of the bundle, or a file that one saved, whose state goes along as
    ``state.safetensors``. Files of an earlier bundle in the repository are removed. Raises
    `BundleError` for a folder that is no whole bundle, `StateError` for the state of another one,
    before anything is sent.
    """
    hub = package("huggingface_hub")
    folder = Path(bundle)
    manifest = Manifest.read(folder)
    if manifest.files.keys() & {_WEIGHTS, STATE, _CARD, _CONFIG}:
        raise BundleError(f"{folder} has a file of its own called {_WEIGHTS}, {STATE}, {_CARD} "
                          f"or {_CONFIG}, which the hub's layout needs")  # fmt: skip
    api = hub.HfApi(endpoint=endpoint, token=token)
    with tempfile.TemporaryDirectory(prefix="flow2onnx-") as made:
        target = Path(made)
        for path in folder.iterdir():
            if path.name in manifest.files or path.name in (MANIFEST, "required_operators.config"):
                _link(path.resolve(), target / path.name)
        _write_state(folder, state, manifest, target)
        _write_notes(folder, manifest, license, tags, target)
        api.create_repo(repo_id, repo_type="model", private=private, exist_ok=True)
        info = api.upload_folder(
            repo_id=repo_id, folder_path=target, commit_message=message, revision=revision,
            delete_patterns=list(_OURS),
        )  # fmt: skip
    return str(info.commit_url)


def pull(
    repo_id: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    endpoint: str | None = None,
) -> Path:
    """The folder of a bundle from the hub, every file of which has been verified.

    `folder` is where to, the hub's cache unless given. ``state.safetensors`` in it, if there is
    one, is for `Trainer.load`. Raises `BundleError` for a repository that holds no bundle, or one
    that was changed.
    """
    hub = package("huggingface_hub")
    path = Path(
        hub.snapshot_download(
            repo_id, revision=revision, local_dir=folder, token=token, endpoint=endpoint
        )
    )
    if not (path / MANIFEST).exists():
        raise BundleError(f"{repo_id} holds no bundle: it has no {MANIFEST}",
                          hint="push(folder, repo_id) uploads one")  # fmt: skip
    Manifest.read(path)
    return path


def _write_state(
    bundle: Path,
    state: Trainer | str | os.PathLike[str] | None,
    manifest: Manifest,
    target: Path,
) -> None:
    """The state, if one is given, and the variables under their names."""
    if isinstance(state, Trainer) and state.manifest.state_id != manifest.state_id:
        raise BundleError(f"the trainer is of job {state.manifest.job}, not of {bundle}")
    trainer = state if isinstance(state, Trainer) else Trainer(bundle)
    if isinstance(state, str | os.PathLike):
        trainer.load(state)
    if state is not None:
        trainer.save(target / STATE)
    values = trainer.state_dict()
    variables = [spec.name for spec in manifest.state if spec.role == "variable"]
    save_safetensors(
        target / _WEIGHTS, {name: values[name] for name in variables}, {"format": "flow2onnx"}
    )


def _write_notes(
    bundle: Path, manifest: Manifest, license: str | None, tags: Sequence[str], target: Path
) -> None:
    """The card, with the bundle's own page below its head, and config.json."""
    hub = package("huggingface_hub")
    about = hub.ModelCardData(
        library_name="flow2onnx", license=license, tags=["onnx", "onnxruntime", *tags]
    )
    own = bundle / _CARD
    text = own.read_text("utf-8") if own.is_file() else _page(manifest)
    (target / _CARD).write_text(f"---\n{about.to_yaml()}\n---\n\n{text}", "utf-8")
    config: dict[str, Any] = {
        "model_type": "flow2onnx", "job": manifest.job, "producer": manifest.producer,
        "opset": manifest.opset, "feeds": _specs(manifest.feeds),
        "results": _specs(manifest.results),
        "predict": {job.job: _specs(job.results) for job in manifest.predict},
    }  # fmt: skip
    (target / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _link(path: Path, target: Path) -> None:
    """A link to a file, or a copy where the system lets nobody link."""
    try:
        os.symlink(path, target)
    except OSError:
        shutil.copyfile(path, target)


def _specs(specs: Sequence[Any]) -> dict[str, Any]:
    return {spec.name: {"shape": list(spec.shape), "dtype": spec.dtype} for spec in specs}


def _page(manifest: Manifest) -> str:
    takes = "\n".join(f"| `{f.name}` | {list(f.shape)} | {f.dtype} |" for f in manifest.feeds)
    return f"""# {manifest.job}

A bundle made by {manifest.producer}: it trains and predicts wherever a stock ONNX Runtime runs.

```python
from flow2onnx.integrations.hub import pull
from flow2onnx_runtime import Trainer

trainer = Trainer(pull("..."))
```

| feed | shape | type |
|---|---|---|
{takes}
"""
