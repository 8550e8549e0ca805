"""One version everywhere, pins that allow what is required, and workflows that call commands there are."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import thrifty

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = [
    *PROJECT["dependencies"],
    *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
]


def test_one_version_is_told_by_the_package_the_project_the_citation_and_the_newest_heading_of_the_changelog():
    newest = re.search(r"^## (\S+) - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert newest is not None
    assert {thrifty.__version__, citation["version"], newest[1]} == {PROJECT["version"]}
    assert str(citation["date-released"]) == newest[2]


@pytest.mark.parametrize("requirement", sorted(set(REQUIRED)))
def test_every_requirement_is_pinned_in_the_constraints_to_a_version_that_it_allows(requirement):
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): Version(version) for name, version in pins.items()}
    wanted = Requirement(requirement)
    if wanted.name != PROJECT["name"]:
        assert pinned[re.sub(r"[-_.]+", "-", wanted.name).lower()] in wanted.specifier


def test_the_lowest_versions_are_those_of_the_project():
    told = subprocess.run(
        [sys.executable, ROOT / ".ci" / "lowest.py", "report"], check=True, capture_output=True, text=True
    ).stdout.split()
    listed = [
        one.split(",")[0] for one in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["report"])
    ]
    assert [one.replace("==", ">=") for one in told] == listed


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_and_templates_are_yaml_and_call_targets_that_the_makefile_has(path):
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {"docs"}
    text = path.read_text()
    assert yaml.safe_load(text)
    assert set(re.findall(r"run: make ([a-z-]+)", text)) <= known
