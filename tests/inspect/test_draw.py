"""The drawing of a plan in both styles: well-formed, complete, free of overlaps, and no larger for more data."""

import functools
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
from ngmp_compiler import Gamma, InverseGamma, MvNormal, Normal, Poisson, StudentT, Wishart, exp

pytestmark = pytest.mark.filterwarnings("ignore:the whole model is computed in float32")  # of these shapes
SVG = "{http://www.w3.org/2000/svg}"
PANELS = ("declared", "surrogate")
TIMES = "\N{MULTIPLICATION SIGN}"


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
        Case(
            ngmp_models.learned_hmm, lambda n: {"y": whole(n), "transition": real(3, 3), "emission": real(3, 4)},
            "A B z0 z", "A B z0 z y", "z.(z, out) z.p* y.z y.p*".replace(", ", ",_"),
        ),
        Case(
            ngmp_models.gaussian_mixture, lambda n: {"y": real(n), "centres": real(3)},
            "pi m w z", "pi m w z y", "z.out z.p y.r y.tau y.selector",
        ),
    )
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_style = pytest.mark.parametrize("style", ["bipartite", "forney"])


@functools.cache
def lowered(case: Case, n: int) -> Any:
    return ngmp.compile(case.model).lower(**case.inputs(n))


def drawn(model: Callable, style: str = "bipartite", **inputs: Any) -> str:
    return ngmp.compile(model).lower(**inputs).draw(style=style)


def panels(svg: str) -> dict[str, ET.Element]:
    root = ET.fromstring(svg)
    return {name: panel for name in PANELS for panel in root.iter(f"{SVG}g") if panel.get("class") == f"panel {name}"}


def names(panel: ET.Element, kind: str) -> Counter:
    return Counter(g.get("data-name") for g in panel.iter(f"{SVG}g") if g.get("class") == kind)


def words(element: ET.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


def once(listed: str) -> Counter:
    return Counter(name.replace(",_", ", ") for name in listed.split())


@every_style
@every_case
def test_every_variable_and_factor_once_per_panel(case: Case, style: str) -> None:
    both = panels(lowered(case, 12).draw(style=style))
    projected = {leaf.split(".")[0] for leaf in case.leaves.split()}
    for panel in both.values():
        assert names(panel, "variable") == once(case.variables)
    assert names(both["declared"], "factor") == once(case.sites)
    assert names(both["surrogate"], "factor") == once(" ".join(s for s in case.sites.split() if s not in projected))
    assert names(both["declared"], "leaf") == Counter()
    assert names(both["surrogate"], "leaf") == once(case.leaves)


@every_style
@every_case
def test_document(case: Case, style: str) -> None:
    svg = lowered(case, 12).draw(style=style)
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg" and svg.isascii()
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert (width, height) == (float(root.attrib["width"]), float(root.attrib["height"]))
    ground = root.find(f"{SVG}rect")
    assert ground is not None and ground.get("fill") == "white"
    assert words(root)[0] == case.model.__name__
    for x, y, half, _ in texts(root):
        assert 0 <= x - half and x + half <= width and 0 < y < height


@every_style
@every_case
def test_does_not_grow_with_the_data(case: Case, style: str) -> None:
    few, many = (lowered(case, n).draw(style=style) for n in (12, 1000))
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


@every_style
@every_case
def test_texts_do_not_overlap(case: Case, style: str) -> None:
    placed = texts(ET.fromstring(lowered(case, 1000).draw(style=style)))
    for i, (x, y, half, text) in enumerate(placed):
        for x2, y2, half2, other in placed[:i]:
            assert abs(x - x2) > half + half2 or abs(y - y2) >= 11, (text, other)


def test_families_shapes_distributions_and_counts_are_shown() -> None:
    inputs = CASES["heteroscedastic"].inputs(77)
    shown = words(panels(drawn(ngmp_models.heteroscedastic, **inputs))["declared"])
    for text in ("MvGaussian[5]", "Gaussian", "shape (77,)", "shape ()", "MvNormal", "Normal", "data (77,)", "r (dot)"):
        assert text in shown, text
    assert shown.count(f"{TIMES} 77") == 1  # one plate holds s, its factor, y and the data


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


class Rect(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def holds(self, other: "Rect") -> bool:
        inside = self.left < other.left and other.right < self.right
        return inside and self.top < other.top and other.bottom < self.bottom


def boxes(panel: ET.Element, kind: str) -> dict[str, Rect]:
    """The symbols of one kind, by name (of a plate, its count); of a line, which has none, where its words begin."""
    out = {}
    for g in panel.iter(f"{SVG}g"):
        if g.get("class") == kind:
            rect, circle, text = g.find(f"{SVG}rect"), g.find(f"{SVG}circle"), g.find(f"{SVG}text")
            assert text is not None
            x, y, w, h = float(text.attrib["x"]), float(text.attrib["y"]), 0.0, 0.0
            if rect is not None:
                x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
            elif circle is not None:
                x, y, w = (float(circle.attrib[k]) for k in ("cx", "cy", "r"))
                x, y, w, h = x - w, y - w, 2 * w, 2 * w
            name = g.get("data-name") or words(g)[-1]
            while name in out:
                name += "'"
            out[name] = Rect(x, y, x + w, y + h)
    return out


def contents(svg: str) -> dict[str, set[str]]:
    """The count of every plate of the declared graph -> what stands in it, variables with a colon after the name."""
    panel = panels(svg)["declared"]
    things = {f"{n}:": b for n, b in boxes(panel, "variable").items()} | boxes(panel, "factor")
    return {count: {n for n, b in things.items() if p.holds(b)} for count, p in boxes(panel, "plate").items()}


@every_style
def test_states_are_not_in_the_plate_of_the_rows_of_their_table(style: str) -> None:
    for n in (12, 3):  # as many data as states, too
        svg = lowered(CASES["learned_hmm"], n).draw(style=style)
        found = sorted(contents(svg).values(), key=sorted)
        assert found == [{"A", "A:"}, {"B", "B:"}, {"y", "z", "z:"}]


def grid(y):
    x = ngmp.sample("x", Normal(jnp.zeros(y.shape), variance=1.0))
    ngmp.factor("right", lambda a, b: -((a - b) ** 2), x[:, 1:], x[:, :-1])
    ngmp.factor("down", lambda a, b: -((a - b) ** 2), x[1:], x[:-1])
    ngmp.sample("y", Poisson(exp(x)), obs=y)


@every_style
def test_neighbours_on_a_grid_are_loops_in_its_plate(style: str) -> None:
    svg = drawn(grid, style, y=whole(4, 5))
    assert contents(svg) == {f"{TIMES} 4 {TIMES} 5": {"x", "x:", "right", "down", "y"}}
    shown = words(panels(svg)["declared"])
    assert "z2: i\N{MINUS SIGN}1, j \N{RIGHTWARDS ARROW} i, j" in shown
    assert "z2: i, j\N{MINUS SIGN}1 \N{RIGHTWARDS ARROW} i, j" in shown
    assert f"ngmp.factor {TIMES} 15" in shown and f"ngmp.factor {TIMES} 16" in shown


def grouped_units(y):
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    for g in range(y.shape[0]):
        with ngmp.scope(f"group{g}"):
            m = ngmp.sample("m", Normal(0.0, variance=1.0))
            for i in range(y.shape[1]):
                with ngmp.scope(f"unit{i}"):
                    x = ngmp.sample("x", Normal(m, precision=tau))
                    ngmp.sample("y", Poisson(exp(x)), obs=y[g, i])


@every_style
def test_nested_scopes_are_nested_plates(style: str) -> None:
    units = {f"group*/unit*/{name}" for name in ("x", "x:", "y")}
    expected = {f"{TIMES} 6": units | {"group*/m", "group*/m:"}, f"{TIMES} 3": units}
    assert contents(drawn(grouped_units, style, y=whole(6, 3))) == expected


def variance_and_precision(y, rows):
    v = ngmp.sample("v", InverseGamma(2.0, scale=1.0))
    ngmp.sample("y", Normal(ngmp.sample("x", Normal(0.0, variance=1.0)), variance=v), obs=y)
    w = ngmp.sample("W", Wishart(3.0, scale=jnp.eye(2)))
    ngmp.sample("rows", MvNormal(jnp.zeros(2), precision=w), obs=rows)


@every_style
def test_inverse_gamma_and_wishart(style: str) -> None:
    both = panels(drawn(variance_and_precision, style, y=real(9), rows=real(7, 2)))
    assert {"InverseGamma", "Wishart", "Wishart[2x2]", "Normal", "MvNormal"} <= set(words(both["declared"]))
    assert {"product: v", "product: W", "InverseGamma*"} <= set(words(both["surrogate"]))


def test_a_line_in_forney_style_touches_at_most_two_factors() -> None:
    inputs = {"phi": real(9, 2), "psi": real(9, 3), "y": real(9)}
    shown = words(panels(drawn(ngmp_models.heteroscedastic, "forney", **inputs))["declared"])
    assert shown.count("=") == 3  # v, w, and one in the legend: each s touches its own factor and that of its y
    assert "<circle" not in drawn(ngmp_models.hmm, "forney", **CASES["hmm"].inputs(9)).split("panel surrogate")[0]


def test_unknown_style() -> None:
    with pytest.raises(ValueError, match=r"style='forni' is not known; give one of 'bipartite', 'forney'"):
        lowered(CASES["mean_precision"], 12).draw(style="forni")


def test_written_to_a_file(tmp_path) -> None:
    found = lowered(CASES["mean_precision"], 12)
    path = tmp_path / "graph.svg"
    assert found.draw(path) == path.read_text() == found.draw()
    assert ET.parse(path).getroot().tag == f"{SVG}svg"
