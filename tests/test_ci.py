"""Steps of continuous integration run side by side, and are all told."""

import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from tests import ci
from tests.ci import Step, main, run


def step(name, code="", *, needs=(), after=(), **settings):
    return Step(name, (sys.executable, "-I", "-S", "-c", code), needs, after, **settings)


def meet(own, other):
    """The program of a step that ends when another runs as well."""
    return textwrap.dedent(f"""
        import pathlib, time
        pathlib.Path({str(own)!r}).touch()
        while not pathlib.Path({str(other)!r}).exists():
            time.sleep(0.01)
    """)


def test_two_steps_run_beside_each_other_and_an_install_beside_both(tmp_path):
    a, b, c = (tmp_path / name for name in "abc")
    steps = [step("a", meet(a, b)), step("b", meet(b, c)), step("c", meet(c, a), is_install=True)]
    assert {result.status for result in run(steps, 2)} == {0}


def test_a_step_that_takes_all_runs_alone_and_is_not_overtaken(tmp_path):
    log = tmp_path / "log"
    told = f"open({str(log)!r}, 'a').write('%s ')"
    begin_and_end = "{0}; import time; time.sleep(0.1); {1}"
    steps = [
        step("a", begin_and_end.format(told % "a", told % "/a")),
        step("b", begin_and_end.format(told % "b", told % "/b"), takes_all=True),
        step("c", told % "c"),
    ]
    run(steps, 4)
    assert log.read_text().split() == ["a", "/a", "b", "/b", "c"]


def test_an_install_that_fails_leaves_out_what_needs_it(capfd):
    lack = "no such package: nothing was asked"
    steps = (
        step("packages", "raise SystemExit(7)", lack=lack, is_install=True),
        step("asked", needs=("packages",)),
        step("others", "print('all well')", after=("packages",)),
    )
    assert main([], steps) == 0
    told = capfd.readouterr().out
    assert f"left out: {lack}" in told
    assert told.count(lack) == 3  # when it failed, and twice in the table
    assert "===== others" in told
    assert "all well" in told


def test_the_status_is_that_of_the_first_failure_and_the_rest_is_run(capfd):
    steps = (
        step("first", "print('why'); raise SystemExit(3)"),
        step("second", "raise SystemExit(4)", after=("first",)),
        step("third", needs=("first",)),
        step("left", "raise SystemExit(5)"),
        step("last", after=("left",)),
    )
    assert main(["--without", "left"], steps) == 3
    told = capfd.readouterr().out
    assert told.index("first begins") < told.index("why") < told.index("second begins")
    assert told.rindex("why") > told.index("the end of first") > told.index("s in all")
    assert "FAILED with exit status 3" in told
    assert "FAILED with exit status 4" in told
    assert "left out: no first" in told
    assert "left begins" not in told
    assert "left out: --without" in told
    assert "last begins" in told


def test_a_sign_of_life_is_the_last_line(capfd):
    running = ci._Running.start(step("long", "print('the first\\nthe last')"))
    running.process.wait()
    running.print_sign()
    running.print_output("all")
    sign, rest = capfd.readouterr().out.split("\n", 1)
    assert re.fullmatch(r" +long \d+ s: the last", sign)
    assert "the first\nthe last" in rest


def test_an_end_from_outside_ends_all_and_prints_what_was_written(tmp_path):
    program = textwrap.dedent("""
        import os, signal, sys
        from tests.ci import Step, main
        code = "import os, signal, time; print(os.getpid(), flush=True); time.sleep(1); " \\
            f"os.kill({os.getpid()}, signal.SIGTERM); time.sleep(600)"
        sys.exit(main([], [Step("long", (sys.executable, "-I", "-S", "-c", code))]))
    """)
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=ci.ROOT, text=True,
                          stdout=subprocess.PIPE, check=False)  # fmt: skip
    assert done.returncode == 128 + signal.SIGTERM
    name, pid = done.stdout.split("long was interrupted")
    assert "begins" in name
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_every_step_is_a_target_and_needs_what_there_is():
    rules = (ci.ROOT / "Makefile").read_text()
    names = [one.name for one in ci.STEPS]
    assert len(set(names)) == len(names)
    for index, one in enumerate(ci.STEPS):
        assert {*one.needs, *one.after} <= set(names[:index])
        if one.command[0] == "make" and not one.is_install:
            assert re.search(rf"^([\w-]+ )*{one.command[1]}( [\w-]+)*:", rules, re.MULTILINE)
