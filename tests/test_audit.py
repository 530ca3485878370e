"""Findings of the audit of the locked packages, and its words where it cannot look."""

import pytest
from packaging.requirements import Requirement

from tests import audit

LOCK = """# made by make lock
a-b==1.0 \\
    --hash=sha256:00 \\
    --hash=sha256:11
C==2.0 ; sys_platform != 'nowhere' \\
    --hash=sha256:22
d==3.0 ; sys_platform == 'nowhere' \\
    --hash=sha256:33
"""


def test_the_packages_for_this_system():
    assert audit.locked(LOCK) == {"a-b": "1.0", "c": "2.0"}


def test_our_lock_has_a_hash_for_each_package_and_all_that_we_need():
    text = audit.LOCK.read_text()
    names = [line for line in text.splitlines() if line[:1].isalnum()]
    assert all(line.endswith("\\") for line in names), "a package without a hash"
    assert {"numpy", "onnx", "onnxruntime", "protobuf", "grpcio", "pytest"} <= audit.locked(
        text
    ).keys()


def test_a_lock_that_is_behind_is_found():
    assert {"numpy", "onnx", "pytest", "onnxruntime"} <= {
        r.name for r in audit.required(audit.ROOT)
    }
    asked = [Requirement(text) for text in ("a>=1", "b>=2", "C<9")]
    found = list(audit.lock_findings({"a": "1.5", "b": "1.5"}, asked))
    assert found == ["b>=2 is asked for, locked is 1.5: make lock",
                     "C<9 is asked for, locked is none: make lock"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [("MIT", True), ("Mozilla Public License 2.0 (MPL 2.0)", True), ("Apache-2.0 AND MIT", True),
     ("GPL-3.0 OR MIT", True), ("(MIT)", True), ("MIT License; BSD License", True),
     ("GPL-3.0", False), ("MIT AND GPL-3.0", False), ("UNKNOWN", False), ("", False),
     ("Apache-2.0 OR BSD-2-Clause", True), ("MITRE", False)],
)  # fmt: skip
def test_licences(text, is_allowed):
    assert audit.is_allowed(text) == is_allowed


def test_a_licence_that_is_unknown_is_found(monkeypatch):
    monkeypatch.setattr(audit, "EXCEPTIONS", {"c": "by word of its author"})
    found = list(audit.licence_findings({"a": "1", "b": "1", "c": "1"}, {"a": "MIT", "c": "Odd"}))
    assert found == ["b: its licence is 'UNKNOWN', which tests/audit.py does not allow"]


def test_what_is_installed_otherwise_is_found():
    (found,) = audit.installation_findings({"pytest": pytest.__version__, "pluggy": "0.0.1"})
    assert found.startswith("pluggy: 0.0.1 is locked, ")
    (found,) = audit.installation_findings({"no-such-package": "1"})
    assert "no version is installed" in found


def test_vulnerabilities(monkeypatch):
    fault = {"id": "X-1", "fix_versions": ["2"]}
    report = {"dependencies": [{"name": "a", "version": "1", "vulns": [fault]},
                               {"name": "b", "version": "1", "vulns": []}]}  # fmt: skip
    wanted = {"a": "1", "b": "1"}
    assert audit.vulnerability_findings(report, wanted) == (["a 1: X-1, remedied in 2"], "")
    monkeypatch.setattr(audit, "ACCEPTED", {"X-1": "nobody calls it"})
    assert audit.vulnerability_findings(report, wanted) == ([], "")


def test_silence_is_said(monkeypatch, capsys):
    skipped = {"dependencies": [{"name": "a", "skip_reason": "not found"}]}
    for report, text in ((skipped, "2 of 2 packages, such as a"), ("no network", "no network"),
                         (audit.parse_report("", "x\nno answer"), "no answer")):  # fmt: skip
        assert audit.vulnerability_findings(report, {"a": "1", "b": "1"}) == ([], text)
    monkeypatch.setattr(audit, "installation_findings", lambda wanted: iter(()))
    monkeypatch.setattr(audit, "licence_findings", lambda wanted, licences: iter(()))
    monkeypatch.setattr(audit, "_licences", lambda tools: {})
    monkeypatch.setattr(audit, "_vulnerabilities", lambda tools: "no network")
    for arguments, code in ((["audit"], 0), (["audit", "--strict"], 1)):
        monkeypatch.setattr("sys.argv", arguments)
        assert audit.main() == code
        assert "vulnerabilities: could not be asked: no network\n" in capsys.readouterr().out
