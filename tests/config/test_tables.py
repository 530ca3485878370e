"""Every row of the three tables of settings, by what the row itself says."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from flow2onnx_runtime import Options, open_session
from flow2onnx_runtime.providers import PROVIDERS
from flow2onnx_runtime.session_options import SESSION_OPTIONS, runtime_names

from flow2onnx.config import (
    CONFIG,
    ENV,
    FLAGS,
    Flag,
    FunctionConfig,
    Settings,
    SettingsFacade,
    Table,
    flags_table,
)
from flow2onnx.config import kinds as k
from flow2onnx.config import messages as m
from flow2onnx.config.effects import (
    ALIAS,
    CALL,
    IGNORED,
    LATER,
    PROVIDER,
    RECORDED,
    SESSION,
    TRACE,
    UNSUPPORTED,
    translated,
)
from flow2onnx.config.runtime_flags import FREE_FORMS
from flow2onnx.dtypes import float16, float32, float64
from flow2onnx.engine.options import job_options
from flow2onnx.errors import ConfigError, UnsupportedError

SCOPE = SimpleNamespace(device_tag="cpu", device_ids=["0:0"])
VIEW = SimpleNamespace(view="mirrored")

# kind → (values taken, values refused)
SAMPLES = [
    (k.BOOL, [True, False], [1, 0, "True", None, np.bool_(True)]),
    (k.INT, [-3, 0, 7], [1.0, True, "1", None, np.int64(1)]),
    (k.NATURAL, [0, 7], [-1, 1.0, True, "1", None]),
    (k.POSITIVE, [1, 7], [0, -1, 1.5, True, None]),
    (k.FLOAT, [0.5, 2, -1.0], ["0.5", True, None, float("nan"), float("inf")]),
    (k.POSITIVE_FLOAT, [0.5, 128], [0, -1.0, "1", True, float("nan")]),
    (k.STR, ["a"], [b"a", 1, None, True]),
    (k.DATA_TYPE, [float16, float32, float64], ["float", float, 1]),
    (k.SCOPE, [SCOPE], ["cpu", None, SimpleNamespace(device_tag="cpu")]),
    (k.AUTO_OR_COUNT, ["auto", 1, 7], [0, -1, 2.0, True, "all", None]),
    (k.PARTS, [True, False, 2, ("conv1",)], [1, 2.0, (), "conv1", None, ("conv1", 3)]),
    (k.VIEW, [VIEW, SimpleNamespace(view="consistent")], ["mirrored", SimpleNamespace(view="x")]),
    (m.MODEL_UPDATE, [{"naive_conf": {}}], [None, [], {}, {"naive": {}}, "naive_conf"]),
    (m.INITIALIZER, [{"constant_conf": {"value": 1}}], [None, {}, {"constant": {}}, 0]),
    (
        m.INDEXED_SLICES,
        [{"include_op_names": {"op_name": ["table"]}}],
        [None, {}, {"enable": True}, {"include_op_names": ["table"]}],
    ),
    (m.EXPERIMENTAL_RUN, [{}, {"enable_experiment_run": True}], [None, {"piece": 1}, []]),
]
CHOICES = ["x", "", None, 0, True]


def samples(flag: Flag) -> tuple[list[object], list[object]]:
    """Values that a row takes, and values that it refuses."""
    for kind, good, bad in SAMPLES:
        if flag.type is kind:
            return good, bad
    if isinstance(flag.type, m.Choice):
        return list(flag.type.names), [c for c in CHOICES if c not in flag.type.names]
    if isinstance(flag.type, m.Listed):
        return [("use_time_line_algo",), ()], ["use_time_line_algo", ["other"], None]
    if isinstance(flag.type, k.SwitchOr):
        return [True, False, *flag.type.names], ["x", None, 1, 0.5]
    if isinstance(flag.type, m.Texts):
        return [{flag.type.example: "1"}, {}], [flag.type.example, {"x.y": 1}, {1: "1"}, None]
    raise AssertionError(f"no sample for {flag.name}")


def is_value(flag: Flag) -> bool:
    return flag.type is not k.NOTHING and not isinstance(flag.effect, CALL)


VALUES = [f for f in FLAGS.rows.values() if is_value(f)]
SETTINGS = [f for t in (CONFIG, ENV) for f in t.rows.values() if is_value(f)]
SESSION_WIDE = [f for f in SETTINGS if not isinstance(f.effect, UNSUPPORTED)]


def named(flag: Flag) -> str:
    return flag.name


def surface(flag: Flag) -> tuple[object, FunctionConfig | Settings, str]:
    """The object that carries a row, what holds its value, and the row's name on the object."""
    if flag.name in FLAGS.rows:
        store: FunctionConfig | Settings = FunctionConfig()
        place: object = store
    else:
        store = Settings()
        place = SettingsFacade(CONFIG if flag.name in CONFIG.rows else ENV, lambda: store)
    *groups, name = flag.name.split(".")
    for group in groups:
        place = getattr(place, group)
    return place, store, name


def prepared(flag: Flag) -> tuple[object, FunctionConfig | Settings, str]:
    """The same, with what the row needs switched on."""
    place, store, name = surface(flag)
    if flag.needs:
        other, _, switch = flag.needs.rpartition(".")
        getattr(getattr(store, other), switch)(True)
    return place, store, name


LISTED = "static_mem_alloc_policy_white_list"  # a group of calls, besides assignable
CALLABLE = [f for f in VALUES if f.name not in (LISTED, *FREE_FORMS)] + SESSION_WIDE


@pytest.mark.parametrize("flag", CALLABLE, ids=named)
def test_setter_keeps_each_value_of_its_kind(flag: Flag) -> None:
    for value in samples(flag)[0]:
        place, store, name = prepared(flag)
        assert getattr(place, name)(value) is None
        kept = store.value(flag.name)
        assert kept == value or (isinstance(value, dict) and value.keys() <= kept.keys())
        assert type(kept) is type(value)


@pytest.mark.parametrize("flag", VALUES + SESSION_WIDE, ids=named)
def test_assignment_does_what_the_setter_does(flag: Flag) -> None:
    for value in samples(flag)[0]:
        place, store, name = prepared(flag)
        setattr(place, name, value)
        kept = store.value(flag.name)
        assert kept == value or (isinstance(value, dict) and value.keys() <= kept.keys())


@pytest.mark.parametrize("flag", VALUES + SETTINGS, ids=named)
def test_other_values_are_refused_by_name(flag: Flag) -> None:
    for value in samples(flag)[1]:
        place, store, name = prepared(flag)
        before = store.values()
        with pytest.raises(ConfigError) as caught:
            setattr(place, name, value)
        assert flag.name in caught.value.message
        assert caught.value.source is not None
        assert "test_tables.py:" in caught.value.source
        assert store.values() == before


@pytest.mark.parametrize("flag", [f for f in CALLABLE if f.type is k.BOOL], ids=named)
def test_a_switch_called_bare_means_true_unless_required(flag: Flag) -> None:
    place, store, name = surface(flag)
    if flag.required:
        with pytest.raises(ConfigError, match="takes one argument, True or False; got none"):
            getattr(place, name)()
    else:
        getattr(place, name)()
        assert store.value(flag.name) is True


@pytest.mark.parametrize("flag", [f for f in CALLABLE if f.type is not k.BOOL], ids=named)
def test_other_settings_need_an_argument(flag: Flag) -> None:
    place, _, name = surface(flag)
    with pytest.raises(ConfigError, match="takes one argument"):
        getattr(place, name)()


@pytest.mark.parametrize("flag", VALUES + SETTINGS, ids=named)
def test_default_is_what_is_read_before_anything_is_set(flag: Flag) -> None:
    _, store, _ = surface(flag)
    assert store.value(flag.name) == flag.default
    assert store.values() == {}
    assert flag.default is None or flag.type.check(flag.name, flag.default) == flag.default


def set_all(flag: Flag, caplog: pytest.LogCaptureFixture) -> Iterator[tuple[object, list[str]]]:
    """Each value of a row, with what is logged when it is set three times."""
    for value in samples(flag)[0]:
        place, _, name = prepared(flag)
        caplog.clear()
        for _ in range(3):
            setattr(place, name, value)
        yield value, [r.getMessage() for r in caplog.records if r.name == "flow2onnx.config"]


@pytest.mark.parametrize("flag", VALUES + SESSION_WIDE, ids=named)
def test_what_a_flag_will_not_do_is_logged_once(
    flag: Flag, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    table = FLAGS if flag.name in FLAGS.rows else CONFIG if flag.name in CONFIG.rows else ENV
    meant = table.meant(flag.name)
    for value, logged in set_all(flag, caplog):
        forwarded = flag.effect.forward(value) if isinstance(flag.effect, ALIAS) else value
        match meant.effect:
            case IGNORED(reason, unless):
                expected = [] if forwarded in unless else [reason]
            case LATER(reason):
                same = forwarded == meant.default
                expected = [] if same else [f"no effect in this version: {reason}"]
            case RECORDED(reason):
                expected = [reason]
            case TRACE():
                expected = []
            case SESSION(caveat=caveat) | PROVIDER(caveat=caveat):
                expected = [caveat] if caveat and forwarded != meant.default else []
            case other:
                raise AssertionError(f"no expectation for {other}")
        assert len(logged) == len(expected), (value, logged)
        for text, wanted in zip(logged, expected, strict=True):
            assert f" {flag.name} " in text
            assert wanted in text
            assert "test_tables.py:" in text


@pytest.mark.parametrize(
    "flag", [f for f in SETTINGS if isinstance(f.effect, UNSUPPORTED)], ids=named
)
def test_unsupported_settings_raise_with_the_nearest_thing_that_works(flag: Flag) -> None:
    assert isinstance(flag.effect, UNSUPPORTED)
    values = [v for v in samples(flag)[0] if v not in flag.effect.unless]
    assert values
    for value in values:
        place, store, name = surface(flag)
        with pytest.raises(UnsupportedError, match=flag.name) as caught:
            getattr(place, name)(value)
        assert caught.value.hint == flag.effect.hint
        assert store.values() == {}


IDENTITY = (
    b'\x08\n:=\n\x12\n\x01x\x12\x01y"\x08Identity:\x00\x12\x05probe'
    b"Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x15"
)
# What another row needs to be, for a row to be allowed or to reach the session.
TOGETHER = {
    "runtime.inter_op_num_threads": ("runtime.execution_mode", "parallel"),
    "runtime.profile_file_prefix": ("runtime.enable_profiling", True),
    "tensorrt.use_int8": ("tensorrt.int8_calibration", "table"),
}
AS_THE_RUNTIME_SAYS = {
    "sequential": onnxruntime.ExecutionMode.ORT_SEQUENTIAL,
    "parallel": onnxruntime.ExecutionMode.ORT_PARALLEL,
    "disable": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "info": 1,
    "warning": 2,
    "error": 3,
    "fatal": 4,
}


def options_with(flag: Flag, value: object, provider: str = "CPUExecutionProvider") -> Options:
    """The options of a predict job whose program set the flag, and what that needs."""
    place, store, name = prepared(flag)
    setattr(place, name, value)
    other, wanted = TOGETHER.get(flag.name, (None, None))
    if other is not None and value is not False:
        assert isinstance(store, FunctionConfig)
        group, _, member = other.partition(".")
        setattr(getattr(store, group), member, wanted)
    config = store if isinstance(store, FunctionConfig) else FunctionConfig()
    settings = store if isinstance(store, Settings) else Settings()
    return job_options(config, settings, provider)


@pytest.mark.parametrize(
    "flag", [f for f in VALUES + SETTINGS if isinstance(f.effect, SESSION)], ids=named
)
def test_session_settings_are_read_back_from_the_session(
    flag: Flag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where profiles go
    assert isinstance(flag.effect, SESSION)
    plain = open_session(IDENTITY, job_options(FunctionConfig(), Settings(), CPU))
    reached = 0
    for value in samples(flag)[0]:
        wanted = translated(flag.effect, value)
        held = open_session(IDENTITY, options_with(flag, value)).get_session_options()
        for setting in flag.effect.settings:
            if "." in setting:
                if wanted is not None:
                    assert held.get_session_config_entry(setting) == wanted
                    reached += 1
                continue
            *switches, name = runtime_names(setting)
            expected = AS_THE_RUNTIME_SAYS.get(str(value), wanted)
            if wanted is None:
                expected = getattr(plain.get_session_options(), name)
            assert getattr(held, name) == expected
            assert all(getattr(held, switch) for switch in switches if wanted is not None)
            reached += wanted is not None
    assert reached, "no value of the flag reaches the runtime"


def test_session_rows_name_fields_of_options_or_entries() -> None:
    fields = {f.name for f in dataclasses.fields(Options)}
    assert SESSION_OPTIONS.keys() <= fields
    for flag in (f for f in VALUES + SETTINGS if isinstance(f.effect, SESSION)):
        for setting in flag.effect.settings:
            assert "." in setting or setting in SESSION_OPTIONS


CPU, CUDA, TENSORRT = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt"))
FULL_NAMES = {"cuda": CUDA, "tensorrt": TENSORRT}


@pytest.mark.parametrize(
    "flag", [f for f in VALUES + SETTINGS if isinstance(f.effect, PROVIDER)], ids=named
)
def test_provider_options_follow_the_row(flag: Flag) -> None:
    effect = flag.effect
    assert isinstance(effect, PROVIDER)
    for value in samples(flag)[0]:
        wanted = translated(effect, value)
        options = options_with(flag, value, CUDA)
        assert options.provider_names[-2:] == (CUDA, CPU)
        if effect.option is None:
            assert (FULL_NAMES[effect.provider] in options.provider_names) is bool(wanted)
            continue
        given = dict(p for p in options.providers if not isinstance(p, str))
        found = given[FULL_NAMES[effect.provider]].get(effect.option)
        assert found == (None if wanted is None else str(wanted))


def test_rows_of_providers_name_what_the_providers_have() -> None:
    effects = [flag.effect for table in (FLAGS, CONFIG) for flag in table.rows.values()]
    for effect in effects:
        if isinstance(effect, PROVIDER):
            row = PROVIDERS[effect.provider]
            assert effect.option is None or effect.option in row.options


@pytest.mark.parametrize("flag", [f for f in VALUES if isinstance(f.effect, ALIAS)], ids=named)
def test_an_alias_and_what_it_means_read_alike(flag: Flag) -> None:
    assert isinstance(flag.effect, ALIAS)
    for value in samples(flag)[0]:
        config = FunctionConfig()
        place: object = config
        *groups, name = flag.name.split(".")
        for group in groups:
            place = getattr(place, group)
        setattr(place, name, value)
        assert config.value(flag.effect.of) == flag.effect.forward(value)
        assert config.values() == {flag.effect.of: flag.effect.forward(value)}


def test_no_row_bears_the_name_of_a_method() -> None:
    own = {n for n in vars(FunctionConfig) if not n.startswith("_")}
    properties = {"function_desc", LISTED, "static_mem_alloc_algo_white_list"}
    assert own & FLAGS.rows.keys() == properties
    assert not CONFIG.rows.keys() & ENV.rows.keys()


# The flags of the documentation that this package is written after.
DOCUMENTED = Path(__file__).with_name("documented_flags.txt").read_text().split()


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_name_is_there_and_listed(name: str) -> None:
    place: object = FunctionConfig()
    for part in name.split("."):
        assert part in dir(place)
        place = getattr(place, part)


def test_the_table_for_users_has_a_line_for_every_row() -> None:
    lines = flags_table()
    assert len(lines) == len(FLAGS.rows) + len(CONFIG.rows) + len(ENV.rows)
    for line in lines:
        assert list(line) == ["table", "name", "takes", "default", "kind", "effect", "doc"]
        assert all(line[key] for key in line)
        assert line["doc"].endswith((".", ")."))
    assert {line["table"] for line in lines} == {"function_config", "flow.config", "flow.env"}


def test_a_table_has_one_row_of_a_name() -> None:
    row = FLAGS.rows["enable_inplace"]
    with pytest.raises(AssertionError, match="flow has two rows of one name"):
        Table("flow", "value", row, row)
