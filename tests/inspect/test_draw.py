"""The drawing of a plan: well-formed, complete, free of overlaps, and no larger for more data."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Gamma, Normal, Poisson, StudentT, exp

pytestmark = pytest.mark.filterwarnings("ignore:the whole model is computed in float32")  # of these shapes
SVG = "{http://www.w3.org/2000/svg}"
PANELS = ("declared", "surrogate")


def real(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def whole(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


class Case(NamedTuple):
    """A model, its inputs for n data, its variables, its sites and the leaves of its surrogate."""

    model: Callable
    inputs: Callable[[int], dict[str, Any]]
    variables: str
    sites: str
    leaves: str


CASES = {
    case.model.__name__: case
    for case in (
        Case(ngmp_models.mean_precision, lambda n: {"y": real(n)}, "x tau", "x tau y", "y.r y.tau"),
        Case(ngmp_models.poisson_chain, lambda n: {"y": whole(n)}, "z0 z", "z0 z y", "y.z"),
        Case(
            ngmp_models.heteroscedastic,
            lambda n: {"phi": real(n, 5), "psi": real(n, 3), "y": real(n)},
            "v w s", "v w s y", "y.r y.s",
        ),
        Case(ngmp_models.logistic_regression, lambda n: {"features": real(n, 4), "y": whole(n)}, "w", "w y", "y.z"),
        Case(ngmp_models.stochastic_volatility, lambda n: {"r": real(n)}, "s0 s", "s0 s r", "r.s"),
        Case(ngmp_models.local_level, lambda n: {"y": real(n)}, "z0 z", "z0 z y", ""),
        Case(
            ngmp_models.hmm,
            lambda n: {"y": whole(n), "initial": real(3), "transition": real(3, 3), "emission": real(3, 4)},
            "z0 z", "z0 z y", "",
        ),
    )
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def drawn(model: Callable, **inputs: Any) -> str:
    return ngmp.compile(model).lower(**inputs).draw()


def panels(svg: str) -> dict[str, ET.Element]:
    root = ET.fromstring(svg)
    return {name: panel for name in PANELS for panel in root.iter(f"{SVG}g") if panel.get("class") == f"panel {name}"}


def names(panel: ET.Element, kind: str) -> Counter:
    return Counter(g.get("data-name") for g in panel.iter(f"{SVG}g") if g.get("class") == kind)


def words(element: ET.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


def once(listed: str) -> Counter:
    return Counter(listed.split())


@every_case
def test_every_variable_and_factor_once_per_panel(case: Case) -> None:
    both = panels(drawn(case.model, **case.inputs(12)))
    projected = {leaf.split(".")[0] for leaf in case.leaves.split()}
    for panel in both.values():
        assert names(panel, "variable") == once(case.variables)
    assert names(both["declared"], "factor") == once(case.sites)
    assert names(both["surrogate"], "factor") == once(" ".join(s for s in case.sites.split() if s not in projected))
    assert names(both["declared"], "leaf") == Counter()
    assert names(both["surrogate"], "leaf") == once(case.leaves)


@every_case
def test_document(case: Case) -> None:
    svg = drawn(case.model, **case.inputs(12))
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg" and svg.isascii()
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert (width, height) == (float(root.attrib["width"]), float(root.attrib["height"]))
    ground = root.find(f"{SVG}rect")
    assert ground is not None and ground.get("fill") == "white"
    assert words(root)[0] == case.model.__name__
    for x, y, half, _ in texts(root):
        assert 0 <= x - half and x + half <= width and 0 < y < height


@every_case
def test_does_not_grow_with_the_data(case: Case) -> None:
    few, many = (drawn(case.model, **case.inputs(n)) for n in (10, 1000))
    assert re.sub(r"\d+", "#", few) == re.sub(r"\d+", "#", many)
    geometry = re.compile(r'(?:<(?:rect|circle|path)[^>]*>|viewBox="[^"]*")')
    assert geometry.findall(few) == geometry.findall(many)


def texts(element: ET.Element, dx: float = 0.0, dy: float = 0.0) -> list[tuple[float, float, float, str]]:
    """Centre, half width (a rough guess) and content of every text, in absolute coordinates."""
    shift = re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
    dx, dy = (dx + float(shift[1]), dy + float(shift[2])) if shift else (dx, dy)
    found = []
    for child in element:
        if child.tag == f"{SVG}text":
            text, x, y = child.text or "", float(child.attrib["x"]) + dx, float(child.attrib["y"]) + dy
            half = 0.29 * float(child.attrib["font-size"]) * len(text)
            found.append((x + {"middle": 0.0, "end": -half}.get(child.get("text-anchor", ""), half), y, half, text))
        found += texts(child, dx, dy)
    return found


@every_case
def test_texts_do_not_overlap(case: Case) -> None:
    placed = texts(ET.fromstring(drawn(case.model, **case.inputs(1000))))
    for i, (x, y, half, text) in enumerate(placed):
        for x2, y2, half2, other in placed[:i]:
            assert abs(x - x2) > half + half2 or abs(y - y2) >= 11, (text, other)


def test_families_shapes_kernels_and_counts_are_shown() -> None:
    inputs = CASES["heteroscedastic"].inputs(77)
    shown = words(panels(drawn(ngmp_models.heteroscedastic, **inputs))["declared"])
    for text in ("MvGaussian[5]", "Gaussian", "shape (77,)", "shape ()", "NoiseLogPrecision", "data (77,)", "r (dot)"):
        assert text in shown, text
    assert shown.count("\N{MULTIPLICATION SIGN} 77") == 1  # one plate holds s, its factor, y and the data


def test_chain_is_a_loop_with_an_arrow() -> None:
    for panel in panels(drawn(ngmp_models.poisson_chain, y=whole(9))).values():
        assert words(panel).count("k\N{MINUS SIGN}1 \N{RIGHTWARDS ARROW} k") == 1
        assert sum("marker-end" in path.attrib for path in panel.iter(f"{SVG}path")) == 1
        assert "r, first" in words(panel)  # z0 is tied to the first step only


def test_no_loop_without_a_chain() -> None:
    assert "marker-end" not in drawn(ngmp_models.mean_precision, y=real(9))


def test_loop_and_scan_look_the_same() -> None:
    scan, loop = (drawn(m, y=whole(9)) for m in (ngmp_models.poisson_chain, ngmp_models.poisson_chain_loop))
    assert loop.replace("poisson_chain_loop", "poisson_chain") == scan


def test_leaves_show_the_family_of_their_message() -> None:
    shown = words(panels(drawn(ngmp_models.mean_precision, y=real(9)))["surrogate"])
    assert "N*" in shown and "Gamma*" in shown
    assert not any(text.startswith("data") for text in shown)  # the leaves have taken their place


def test_executors_are_the_caption_of_the_surrogate() -> None:
    chain = words(panels(drawn(ngmp_models.poisson_chain, y=whole(9)))["surrogate"])
    assert "chain: z0, z" in chain
    mixed = words(panels(drawn(ngmp_models.mean_precision, y=real(9)))["surrogate"])
    assert "independent: x" in mixed and "product: tau" in mixed


def test_masked_data_are_marked() -> None:
    svg = drawn(ngmp_models.poisson_chain, y=whole(9), mask=jax.ShapeDtypeStruct((9,), bool))
    assert "data (9,), masked" in words(ET.fromstring(svg))


def test_scoped_and_odd_names() -> None:
    odd = 'a<b> & "c"\'\N{GREEK SMALL LETTER SIGMA}'

    def model(y):
        with ngmp.scope("left/eye"):
            x = ngmp.sample("x", Normal(0.0, variance=1.0))
        tau = ngmp.sample(odd, Gamma(2.0, rate=1.0))
        ngmp.sample("\x07y", Normal(x, precision=tau), obs=y)

    svg = drawn(model, y=real(4))
    assert svg.isascii()
    for panel in panels(svg).values():
        assert names(panel, "variable") == Counter(["left/eye/x", odd])
        assert {"left/eye/x", odd} <= set(words(panel))
    assert names(panels(svg)["declared"], "factor")["?y"] == 1  # XML has no way to write a bell


def first_step_apart(y):
    """The first step has a kernel of its own, so one name has two groups."""
    z = ngmp.sample("z", Normal(0.0, variance=1.0))
    ngmp.sample("y", Poisson(exp(z)), obs=y[0])
    for k in range(1, y.shape[0]):
        z = ngmp.sample("z", Normal(z, variance=1.0))
        ngmp.sample("y", Poisson(exp(z)), obs=y[k])


def two_states_in_turn(y):
    """Each state depends on the last value of the other: a cycle of names."""

    def step(carry, y_k):
        a, b = carry
        a, b = ngmp.sample("a", Normal(a + b, variance=1.0)), ngmp.sample("b", Normal(b - a, variance=1.0))
        ngmp.sample("y", StudentT(3.0, a, scale=1.0), obs=y_k)
        return (a, b), None

    zero = Normal(0.0, variance=1.0)
    ngmp.scan(step, (ngmp.sample("a0", zero), ngmp.sample("b0", zero)), y)


def through_one_of_them(y):
    """x -> m -> y and x -> y: one plate around x and y would also have to go around m."""
    x = ngmp.sample("x", Normal(jnp.zeros(y.shape[0]), variance=1.0))
    m = ngmp.sample("m", Normal(x[0], variance=1.0))
    ngmp.sample("y", Normal(x + m, variance=1.0), obs=y)


def any_density(y):
    x = ngmp.sample("x", Normal(jnp.zeros(y.shape[0]), variance=1.0))
    ngmp.factor("near", lambda a, b: -jnp.abs(a - b), x[1:], x[:-1])


def no_variables(y):
    ngmp.sample("y", Poisson(3.0), obs=y)


def nothing(y):
    del y


@pytest.mark.parametrize(
    "model, factors, leaves, plates",
    [
        (first_step_apart, "z z#2 y", "y.z", 1),
        (two_states_in_turn, "a0 b0 a b y", "y.r", 1),
        (through_one_of_them, "x m y", "", 2),
        (any_density, "x near", "near.z1 near.z2", 1),
        (no_variables, "y", "", 1),
        (nothing, "", "", 0),
    ],
)
def test_unusual_graphs(model: Callable, factors: str, leaves: str, plates: int) -> None:
    both = panels(drawn(model, y=real(6)))
    assert names(both["declared"], "factor") == once(factors)
    assert names(both["surrogate"], "leaf") == once(leaves)
    for panel in both.values():
        assert sum(names(panel, "plate").values()) == plates


def test_written_to_a_file(tmp_path) -> None:
    lowered = ngmp.compile(ngmp_models.mean_precision).lower(y=real(5))
    path = tmp_path / "graph.svg"
    assert lowered.draw(path) == path.read_text() == lowered.draw()
    assert ET.parse(path).getroot().tag == f"{SVG}svg"
