"""`flow.user_op_builder`: operators by OneFlow's type names, for the types of the catalogue."""

import warnings
from collections.abc import Sequence
from typing import Any

from flow2onnx_runtime.spelling import spelling_hint

from flow2onnx.api.op_types import OP_TYPES, OpType
from flow2onnx.errors import ArgumentError, FlowError, UnsupportedError
from flow2onnx.source import user_frame
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job

__all__ = ["UserOp", "UserOpConfBuilder", "user_op_builder"]


class UserOp:
    """A built operator and, once it ran, the blobs it gave."""

    def __init__(
        self,
        op_name: str | None,
        op_type: OpType,
        inputs: dict[str, list[Blob]],
        outputs: dict[str, int],
        attributes: dict[str, Any],
    ) -> None:
        self.op_name, self._type, self._outputs = op_name, op_type, outputs
        self._inputs, self._attributes = inputs, attributes
        self._blobs: dict[str, list[Blob]] | None = None

    def InferAndTryRun(self) -> "UserOp":
        """Emit the operator into the job being traced."""
        arguments = _arguments(self._type, self._attributes)
        blobs = _inputs(self._type, self._inputs)
        if self._type.parameters:
            arguments |= zip(self._type.parameters, blobs, strict=True)
            blobs = []
        made = self._type.function(*blobs, **arguments, name=self.op_name)
        if self._type.many:
            self._blobs = {arg: self._output_list(arg, made) for arg in self._outputs}
        else:
            self._blobs = {arg: [self._result(arg, made)] for arg in self._outputs}
        return self

    def _output_list(self, arg: str, made: list[Blob]) -> list[Blob]:
        """The blobs of an output that is a list, which has as many as were asked for."""
        if self._outputs[arg] != len(made):
            text = f"{arg} has {len(made)} blobs, {self._outputs[arg]} were asked for"
            raise _error(self._type.name, text)
        return list(made)

    def _result(self, arg: str, made: Any) -> Blob:
        """The blob that one output is of what the operator gave."""
        names = self._type.results
        blob = made[names.index(arg)] if names else made
        if blob is None:
            raise _error(self._type.name, f"there is no {arg} without training")
        found: Blob = blob
        return found

    def RemoteBlobDict(self) -> dict[str, list[Blob]]:
        """The blobs by output."""
        if self._blobs is None:
            raise _error(self._type.name, "InferAndTryRun comes before RemoteBlobDict")
        return self._blobs

    def RemoteBlobList(self) -> list[Blob]:
        """The blobs of all outputs in a row."""
        return [blob for blobs in self.RemoteBlobDict().values() for blob in blobs]

    def SoleOutputBlob(self) -> Blob:
        """The one blob."""
        (blob,) = self.RemoteBlobList()
        return blob


class UserOpConfBuilder:
    """Says what an operator is, call by call; `Build` ends it."""

    def __init__(self, op_name: str | None) -> None:
        self._name = op_name
        self._type: OpType | None = None
        self._inputs: dict[str, list[Blob]] = {}
        self._outputs: dict[str, int] = {}
        self._attributes: dict[str, Any] = {}

    def Op(self, op_type_name: str) -> "UserOpConfBuilder":
        """The type of the operator."""
        if op_type_name not in OP_TYPES:
            raise UnsupportedError(
                f"no operator of type {op_type_name!r} is here",
                hint=spelling_hint(op_type_name, OP_TYPES, "call a function of flow"),
                op="user_op_builder",
                source=user_frame(),
            )
        self._type = OP_TYPES[op_type_name]
        return self

    def Input(self, input_name: str, input_blob_list: Sequence[Blob]) -> "UserOpConfBuilder":
        """The blobs of one input."""
        given: Any = input_blob_list
        if not isinstance(given, list | tuple) or not all(isinstance(b, Blob) for b in given):
            raise _error(
                self._chosen_type.name, f"input {input_name} is a list of blobs, got {given!r}"
            )
        self._inputs[input_name] = list(given)
        return self

    def InputSize(self, input_name: str, input_blob_size: int) -> "UserOpConfBuilder":
        """How many blobs one input has."""
        if len(self._inputs.get(input_name, ())) != input_blob_size:
            raise _error(
                self._chosen_type.name, f"input {input_name} has not {input_blob_size} blobs"
            )
        return self

    def Output(self, output_name: str, num: int = 1) -> "UserOpConfBuilder":
        """An output, which is one blob."""
        known = self._chosen_type.results
        if output_name == self._chosen_type.many:
            self._outputs[output_name] = num
            return self
        if known:
            if num != 1 or output_name not in known:
                text = f"outputs are one blob each of {', '.join(known)}, not {output_name}"
                raise _error(self._chosen_type.name, text)
            self._outputs[output_name] = num
            return self
        allowed = self._chosen_type.outputs
        if num != 1 or (allowed and output_name not in allowed) or self._outputs:
            raise _error(
                self._chosen_type.name,
                f"there is one output{f' {allowed[0]}' if allowed else ''} of one blob, not "
                f"{', '.join([*self._outputs, output_name])}",
            )
        self._outputs[output_name] = num
        return self

    def Attr(
        self, attr_name: str, attr_value: Any, attr_type_name: str | None = None
    ) -> "UserOpConfBuilder":
        """An attribute; the type name of the first releases says nothing new."""
        if attr_type_name is not None:
            warnings.warn(
                "the third argument of Attr is not needed since 0.1.5",
                DeprecationWarning,
                stacklevel=2,
            )
        self._attributes[attr_name] = attr_value
        return self

    def Build(self) -> UserOp:
        """The operator, ready to be run."""
        first = self._chosen_type.results[0] if self._chosen_type.results else "out"
        outputs = self._outputs or {first: 1}
        return UserOp(self._name, self._chosen_type, self._inputs, outputs, self._attributes)

    @property
    def _chosen_type(self) -> OpType:
        if self._type is None:
            raise _error("user_op_builder", "Op comes first")
        return self._type


def user_op_builder(op_name: str) -> UserOpConfBuilder:
    """A builder of the operator called `op_name`."""
    current_job("user_op_builder")
    return UserOpConfBuilder(op_name)


def _arguments(op_type: OpType, attributes: dict[str, Any]) -> dict[str, Any]:
    if not op_type.attributes:
        try:
            return op_type.translate(attributes)
        except KeyError as error:
            raise _error(op_type.name, f"attribute {error} is missing") from None
    unknown = [key for key in attributes if key not in op_type.attributes]
    if unknown:
        known = ", ".join(op_type.attributes)
        raise _error(op_type.name, f"no attribute is called {unknown[0]}; they are {known}")
    return {op_type.attributes[k]: v for k, v in attributes.items() if op_type.attributes[k]}


def _inputs(op_type: OpType, given: dict[str, list[Blob]]) -> list[Any]:
    """The argument of each input; None for optional ones without."""
    needed = len(op_type.inputs) - op_type.optional
    return [
        None
        if i >= needed and not any(name in given for name in names)
        else _input(op_type, names, given)
        for i, names in enumerate(op_type.inputs)
    ]


def _input(op_type: OpType, names: tuple[str, ...], given: dict[str, list[Blob]]) -> Any:
    found = next((given[name] for name in names if name in given), None)
    if found is None:
        raise _error(op_type.name, f"input {names[0]} is missing; given are {', '.join(given)}")
    if op_type.lists:
        return found
    if len(found) != 1:
        raise _error(op_type.name, f"input {names[0]} is one blob, got {len(found)}")
    return found[0]


def _error(op_type: str, text: str) -> FlowError:
    hint = "write it as OneFlow's own functions do, or call the function of flow"
    return ArgumentError(text, op=op_type, source=user_frame(), hint=hint)
