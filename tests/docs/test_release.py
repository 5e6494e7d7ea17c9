"""What a release promises: one version everywhere, a command that prints it, a README that CI reads."""

import re
import tomllib
from pathlib import Path

from ngmp_compiler.__main__ import main

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version():
    version = PROJECT["version"]
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_command_prints_versions(capsys):
    assert PROJECT["scripts"] == {"ngmp": "ngmp_compiler.__main__:main"}
    assert main(["--version"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^ngmp-compiler ", said, re.MULTILINE) and re.search(r"^jax \d", said, re.MULTILINE)
    assert main([]) == 0 and "--version" in capsys.readouterr().out


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
