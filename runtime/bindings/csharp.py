"""The C API for .NET: `Native.cs`, its functions by P/Invoke and its structures field by field."""

from runtime.bindings.c_api import Api, CType, Enum, Function, Struct

__all__ = ["natives"]

_TYPES = {"int": "int", "double": "double", "void": "void", "size_t": "UIntPtr",
          "int64_t": "long", "f2o_status": "Status"}  # fmt: skip
_HEAD = """\
// The C API, generated from its header by `python -m runtime.bindings`.

using System;
using System.Runtime.InteropServices;

namespace Flow2Onnx
{
"""


def natives(api: Api) -> str:
    """The text of Native.cs."""
    structs = [_struct(struct) for struct in api.structs if not struct.is_opaque]
    functions = "\n".join(map(_function, api.functions))
    native = (
        "    internal static class Native\n    {\n"
        "        /// <summary>The library's name; where code is linked into one program, as on\n"
        "        /// iOS, it is compiled with FLOW2ONNX_STATIC.</summary>\n"
        "#if FLOW2ONNX_STATIC\n"
        '        internal const string Library = "__Internal";\n'
        "#else\n"
        '        internal const string Library = "flow2onnx_runtime";\n'
        f"#endif\n\n{functions}    }}\n}}\n"
    )
    return "\n".join([_HEAD + "\n".join(map(_enum, api.enums)), *structs, native])


def _pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _name(type_name: str) -> str:
    """The name of a structure: f2o_tensor as NativeTensor, beside the class Tensor."""
    return f"Native{_pascal(type_name.removeprefix('f2o_'))}"


def _enum(enum: Enum) -> str:
    """An enumeration for users, whose constants lose what all begin with."""
    common = {"f2o_optimization": "F2O_OPTIMIZE_"}.get(enum.name, "F2O_")
    lines = "".join(
        f"{_doc(v.text or f'{v.name} of C.')}"
        f"        {_constant(v.name.removeprefix(common))} = {v.value},\n"
        for v in enum.values
    )
    name = _pascal(enum.name.removeprefix("f2o_")).replace("Dtype", "DType")
    doc = _doc(enum.text or f"{enum.name} of C.", "    ")
    return f"{doc}    public enum {name}\n    {{\n{lines}    }}\n"


def _constant(name: str) -> str:
    """FLOAT32 as Float32, UINT8 as UInt8, BFLOAT16 as BFloat16."""
    word = _pascal(name.lower())
    return word.replace("Uint", "UInt").replace("Bfloat", "BFloat")


def _doc(text: str, indent: str = "        ") -> str:
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace("`", "")
    return f"{indent}/// <summary>{plain}</summary>\n" if text else ""


def _struct(struct: Struct) -> str:
    fields = []
    for field in struct.fields:
        mark = ""
        if field.type.length:
            mark = (
                f"        [MarshalAs(UnmanagedType.ByValArray, SizeConst = {field.type.length})]\n"
            )
        fields.append(f"{mark}        internal {_field(field.type)} {_pascal(field.name)};\n")
    return (
        "    [StructLayout(LayoutKind.Sequential)]\n"
        f"    internal struct {_name(struct.name)}\n    {{\n{''.join(fields)}    }}\n"
    )


def _field(type_: CType) -> str:
    """A field as it lies in memory: what C calls bool is one byte."""
    if type_.pointers:
        return "IntPtr"
    if type_.length:
        return "byte[]"
    return {"bool": "byte"}.get(type_.base) or _TYPES.get(type_.base, "int")


def _passed(type_: CType) -> str:
    if type_.pointers:
        return "IntPtr"
    return "bool" if type_.base == "bool" else _TYPES.get(type_.base, "int")


def _function(function: Function) -> str:
    given = ", ".join(
        f"{'[MarshalAs(UnmanagedType.I1)] ' * (str(p.type) == 'bool')}"
        f"{_passed(p.type)} {_argument(p.name)}"
        for p in function.parameters
    )
    start = f"        internal static extern {_passed(function.result)} {function.name}("
    text = f"{start}{given});\n"
    if len(text) > 101:
        text = f"{start}\n            {given});\n"
    marks = "        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]\n"
    if str(function.result) == "bool":
        marks += "        [return: MarshalAs(UnmanagedType.I1)]\n"
    return _doc(function.text) + marks + text


def _argument(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
