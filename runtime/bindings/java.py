"""The C API for Java: `Native.java`, where pointers are numbers, and `native.c`, which calls it."""

from runtime.bindings.c_api import Api, CType, Function, Struct

__all__ = ["natives", "stubs"]

_JAVA = {"int": "int", "bool": "boolean", "double": "double", "void": "void"}
_JNI = {"int": "jint", "bool": "jboolean", "double": "jdouble", "void": "void", "long": "jlong",
        "boolean": "jboolean"}  # fmt: skip

_CLASS = """\
package flow2onnx;

/**
 * The C API, generated from its header by {{@code python -m runtime.bindings}}. Pointers are
 * numbers; a place in a structure is what the C compiler says of this machine.
 */
final class Native {{
{constants}
    private static final int[] LAYOUT;

    static {{
        Library.load();
        LAYOUT = layout();
    }}

{places}
    private Native() {{}}

    private static native int[] layout();

{functions}}}
"""

_GLUE = """\
/* The natives of Native.java, generated from the header by `python -m runtime.bindings`. */

#include "flow2onnx_runtime.h"

#include <jni.h>

#define ADDRESS(type, number) ((type)(uintptr_t)(number))
#define NUMBER(pointer) ((jlong)(uintptr_t)(pointer))

JNIEXPORT jintArray JNICALL Java_flow2onnx_Native_layout(JNIEnv *env, jclass type) {{
    static const jint places[] = {{
{places}
    }};
    const jsize count = (jsize)(sizeof places / sizeof *places);
    jintArray layout = (*env)->NewIntArray(env, count);
    (void)type;
    if (layout != NULL) (*env)->SetIntArrayRegion(env, layout, 0, count, places);
    return layout;
}}
{functions}"""


def natives(api: Api) -> str:
    """The text of Native.java."""
    constants = [
        f"    static final int {value.name.removeprefix('F2O_')} = {value.value};\n"
        for enum in api.enums
        for value in enum.values
    ]
    names = [_place(struct, field) for struct, field in _places(api)]
    places = [f"    static final int {name} = LAYOUT[{i}];\n" for i, name in enumerate(names)]
    return _CLASS.format(
        constants="".join(constants),
        places="".join(places),
        functions="\n".join(map(_declaration, api.functions)),
    )


def stubs(api: Api) -> str:
    """The text of native.c."""
    places = [
        f"        (jint)offsetof({struct.name}, {field}),"
        if field
        else f"        (jint)sizeof({struct.name}),"
        for struct, field in _places(api)
    ]
    functions = "".join(map(_definition, api.functions))
    return _GLUE.format(places="\n".join(places), functions=functions)


def _places(api: Api) -> list[tuple[Struct, str]]:
    """Every structure whose fields are known with "", then with each of its fields."""
    known = [struct for struct in api.structs if not struct.is_opaque]
    return [(s, field) for s in known for field in ("", *(f.name for f in s.fields))]


def _place(struct: Struct, field: str) -> str:
    return f"{struct.name.removeprefix('f2o_')}_{field or 'size'}".upper()


def _java(type_: CType) -> str:
    """The type in Java of a value: enumerations are int, sizes and pointers long."""
    if type_.pointers:
        return "long"
    return _JAVA.get(type_.base, "long" if type_.base in ("size_t", "int64_t") else "int")


def _camel(name: str) -> str:
    first, *others = name.removeprefix("f2o_").split("_")
    return first + "".join(word.capitalize() for word in others)


def _declaration(function: Function) -> str:
    given = ", ".join(f"{_java(p.type)} {_camel(p.name)}" for p in function.parameters)
    start = f"    static native {_java(function.result)} {_camel(function.name)}("
    text = f"{start}{given});\n"
    if len(text) > 101:
        text = f"{start}\n            {given});\n"
    doc = function.text.replace("*/", "* /").replace("`", "")
    return (f"    /** {doc} */\n" if doc and len(doc) < 85 else "") + text


def _definition(function: Function) -> str:
    """One function of native.c: every argument converted by a cast, nothing else."""
    given = "".join(f", {_jni(p.type)} {p.name}" for p in function.parameters)
    name = f"Java_flow2onnx_Native_{_camel(function.name)}"
    head = f"JNIEXPORT {_jni(function.result)} JNICALL {name}"
    passed = ", ".join(_cast(p.type, p.name) for p in function.parameters)
    call = f"{function.name}({passed})"
    if function.result.pointers:
        call = f"NUMBER({call})"
    elif str(function.result) != "void":
        call = f"({_jni(function.result)}){call}"
    answer = call if str(function.result) == "void" else f"return {call}"
    return (
        f"\n{head}(\n    JNIEnv *env, jclass type{given}) {{\n"
        f"    (void)env;\n    (void)type;\n    {answer};\n}}\n"
    )


def _jni(type_: CType) -> str:
    java = _java(type_)
    return _JNI[java]


def _cast(type_: CType, name: str) -> str:
    if type_.pointers:
        return f"ADDRESS({type_}, {name})"
    return name if type_.base == "double" else f"({type_.base}){name}"
