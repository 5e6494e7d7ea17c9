"""The compiler explorer: what the page holds, and, in a real browser, what it does when it is clicked."""

import inspect
import json
import re

import jax
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, HalfNormal, Normal, Poisson, exp

from .browser import Browser, find

Y = np.array([3, 5, 2, 4, 6, 1, 0, 2])


def noisy(x):
    ngmp.sample("seen", Normal(x, std=2.0), obs=1.0)  # a submodel: other lines


def counts(y):
    scale = ngmp.sample("scale", Gamma(2.0, rate=1.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, std=0.3))
        ngmp.sample("y", Poisson(exp(z)), obs=y_k)
        return z, None

    z, _ = ngmp.scan(step, ngmp.sample("z0", Normal(1.0, std=1.0)), y)
    noisy(z)
    ngmp.sample("other", Normal(np.zeros(3), precision=scale), obs=np.array([0.1, -0.4, 0.3]))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The page of a run."""
    path = tmp_path_factory.mktemp("explorer") / "model.html"
    ngmp.compile(counts).lower(y=Y).explore(path)
    return path


def embedded(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_holds_every_pass_and_a_run(path, only64):
    text = path.read_text()
    data = embedded(text)
    tables = {t["title"]: t for t in data["tables"]}
    assert list(tables) == ["Declared", "Variables", "Rolled and lowered", "Rules", "Schedule", "Surrogate leaves"]
    declared = {row["cells"][0] for row in tables["Declared"]["rows"]}
    assert declared == {"scale", "z0", "z", "y", "seen", "other"}
    assert {row["cells"][0] for row in tables["Variables"]["rows"]} == {"scale", "z0", "z"}
    leaves = {row["cells"][0]: row["names"] for row in tables["Surrogate leaves"]["rows"]}
    assert [set(names) for names in leaves.values()] == [{"y", "y.z", "z"}]  # scale is conjugate
    assert all(len(row["cells"]) == len(t["head"]) for t in data["tables"] for row in t["rows"])
    run, post = data["run"], ngmp.compile(counts)(y=Y)
    assert run["end"]["converged"] == "True" and len(run["residual"]) == len(run["energy"]) > 1
    np.testing.assert_allclose(run["energy"][-1], float(post.free_energy), atol=1e-6)
    assert data["words"] == ngmp.compile(counts).lower(y=Y).describe()
    # Nothing is fetched: the only address is that of the namespace of SVG.
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}


def test_lines_are_those_that_declare(path, only64):
    """Compared with the text of the functions: every noted line has the name of its site in it."""
    source = embedded(path.read_text())["source"]
    sites = {}
    for part in source:
        for number, names in part["sites"].items():
            for name in names:
                sites[name] = part["lines"][int(number) - part["first"]]
                assert int(number) - part["first"] >= 0
    assert set(sites) == {"scale", "z0", "z", "y", "seen", "other"}
    assert all(f'"{name}"' in line for name, line in sites.items())
    assert {part["first"] for part in source} == {inspect.getsourcelines(f)[1] for f in (counts, noisy)}


def test_shapes_and_integrated_sites(tmp_path, only64):
    def model(y):
        s = ngmp.sample("s", HalfNormal(std=1.0))
        ngmp.sample("y", Normal(ngmp.sample("<m>", Normal(0.0, std=1.0)), std=s), obs=y)

    page = tmp_path / "shapes.html"
    program = ngmp.compile(model, integrate=("s",))
    program.explore(page, y=jax.ShapeDtypeStruct((4,), float))
    data = embedded(page.read_text())
    assert "without values" in data["run"]["why"] and "end" not in data["run"]
    assert [row["cells"][0] for t in data["tables"] if t["title"] == "Integrated" for row in t["rows"]] == ["s"]
    with pytest.raises(TypeError, match="forgotten its program"):
        jax.tree.map(lambda x: x, program.lower(y=jax.ShapeDtypeStruct((4,), float))).explore(page)


LIT = "[...document.querySelectorAll('tr.on')].map((r) => r.cells[0].textContent)"


@pytest.mark.skipif(find() is None, reason="no Chromium on this machine (Debian: apt install chromium)")
@pytest.mark.parametrize("size", [(1280, 900, False), (390, 844, True)], ids=["desktop", "phone, dark"])
def test_in_a_browser(path, tmp_path, size, only64):
    with Browser(path.as_uri(), *size) as page:
        assert page.run("document.querySelectorAll('#graph svg g[data-name]').length") > 8
        before = page.picture(tmp_path / "before.png")
        page.click("document.querySelector('#graph g.variable[data-name=z]')")
        assert page.run("document.getElementById('picked').textContent") == "z"
        lit = page.run(LIT)
        assert {"z", "y"} <= set(lit) and "scale" not in lit
        lines = page.run("[...document.querySelectorAll('.line.on')].map((l) => l.textContent)")
        assert lines and all('"z"' in line for line in lines)
        assert page.picture(tmp_path / "after.png") != before
        line = "[...document.querySelectorAll('.line.site')].find((l) => l.textContent.includes('scale'))"
        page.click(f"{line}.firstChild")
        assert "scale" in page.run(LIT) and "z0" not in page.run(LIT)
        page.move("document.querySelectorAll('.hit')[1]")
        assert page.run("document.getElementById('said').textContent").startswith("sweep 2: residual")
        page.click("document.getElementById('clear')")
        assert page.run(LIT) == []
        assert page.run("document.documentElement.scrollWidth <= innerWidth")  # nothing but its boxes scrolls sideways
        assert not page.errors
