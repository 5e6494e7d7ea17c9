"""Every model of the gallery drawn in both styles: well formed, nothing clipped, and what looking at them had found."""

import functools
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
sys.path.insert(0, BENCHMARKS)
try:
    import gallery
finally:
    sys.path.remove(BENCHMARKS)

CASES = {case.name: case for _, case in gallery.cases()}
SVG = "{http://www.w3.org/2000/svg}"


@functools.cache
def lowered(name: str):
    case = CASES[name]
    return ngmp.compile(case.model, **case.options).lower(**case.inputs)


def drawn(name: str, style: str = "bipartite") -> ET.Element:
    return ET.fromstring(lowered(name).draw(style=style))


def declared(root: ET.Element) -> ET.Element:
    return next(g for g in root.iter(f"{SVG}g") if g.get("class") == "panel declared")


def words(element: ET.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


def shown(panel: ET.Element, kind: str) -> dict[str, list[str]]:
    return {g.get("data-name", ""): words(g) for g in panel.iter(f"{SVG}g") if g.get("class") == kind}


def ends(element: ET.Element, dx: float = 0.0, dy: float = 0.0) -> list[tuple[float, float, float]]:
    """Left and right end (a rough guess) and height of every text, in absolute coordinates."""
    shift = re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
    dx, dy = (dx + float(shift[1]), dy + float(shift[2])) if shift else (dx, dy)
    out = []
    for child in element:
        if child.tag == f"{SVG}text":
            width = 0.56 * float(child.attrib["font-size"]) * len(child.text or "")
            share = {"middle": 0.5, "end": 1.0}.get(child.get("text-anchor", ""), 0.0)
            left = float(child.attrib["x"]) + dx - share * width
            out.append((left, left + width, float(child.attrib["y"]) + dy))
        out += ends(child, dx, dy)
    return out


@pytest.mark.parametrize("name", CASES)
def test_whole_and_not_clipped(name):
    for style in ("bipartite", "forney"):
        root = drawn(name, style)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        assert all(0 <= left and right <= width and 0 < y < height for left, right, y in ends(root))
        variables = {v: (c.positions.shape, str(c.plane)) for v, c in lowered(name).plan.collections.items()}
        found = shown(declared(root), "variable")
        assert set(found) == set(variables)
        for variable, (shape, family) in variables.items():
            assert {f"shape {shape}", family} <= set(found[variable])


@pytest.mark.parametrize("name", ["seeds", "unknown_level", "change_point"])
def test_integrated_numbers_are_no_data(name):
    data = shown(declared(drawn(name)), "data")
    for site in lowered(name).integrated:
        assert data[site] == ["integrated over"]
    assert sum(text == ["integrated over"] for text in data.values()) == len(lowered(name).integrated)


def plates(root: ET.Element) -> list[str]:
    return [words(g)[-1] for g in declared(root).iter(f"{SVG}g") if g.get("class") == "plate"]


def test_what_a_chain_starts_from_has_a_plate_of_its_own():
    """Three seasons before forty steps: both stood in a plate of three."""
    assert sorted(plates(drawn("seasonal_series"))) == ["\xd7 3", "\xd7 40"]
    assert sorted(plates(drawn("second_order"))) == ["\xd7 2", "\xd7 40"]


def test_entries_in_another_order_share_the_plate_of_their_factor():
    """Two sines in every step are declared sine by sine, and stand step by step."""

    def swings(y):
        def step(carry, y_k):
            one, other = (ngmp.sample("x", Normal(0.9 * x + 0.1 * ngmp.sin(x), std=0.2)) for x in carry)
            ngmp.sample("y", Normal(one + other, std=0.1), obs=y_k)
            return (one, other), None

        start = ngmp.sample("a", Normal(0.0, std=1.0)), ngmp.sample("b", Normal(1.0, std=1.0))
        ngmp.scan(step, start, y)

    root = ET.fromstring(ngmp.compile(swings).lower(y=np.zeros(25)).draw())
    assert sorted(plates(root)) == ["\xd7 25", "\xd7 25 \xd7 2", "\xd7 25 \xd7 2"]


def test_joint_interfaces_of_several_terms():
    """Two interfaces over three variables: drawing it was an error."""
    found = words(declared(drawn("ordinal_regression")))
    assert found.count("(u, d2)") == 3


def test_structured_priors_have_the_name_they_were_given():
    factors = shown(declared(drawn("smooth_curve")), "factor")
    assert factors["f"] == ["f", "MvNormal(rw2)"] and factors["f.volume"][1] == "MvNormal(rw2)"
    assert shown(declared(drawn("disease_map")), "factor")["u"] == ["u", "MvNormal(icar)"]
