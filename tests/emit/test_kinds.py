"""Groups of one kind are projected in one call: the same targets as one by one, in fewer operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal, Poisson, exp

RNG = np.random.default_rng(3)
Y = {"a": RNG.normal(size=7), "b": RNG.normal(size=(4, 3)), "c": 3 + 2 * RNG.normal(size=5)}
SEEN = np.array([True, False, True, True, False])


def precisions(y, seen, long=0):
    """Three plates of noise of unknown precision, one of them masked; and counts, which are of another kind."""
    for name, value in y.items():
        m, tau = ngmp.sample(f"m_{name}", Normal(0.0, std=3.0)), ngmp.sample(f"tau_{name}", Gamma(2.0, rate=1.0))
        ngmp.sample(name, Normal(m, precision=tau), obs=value, mask=seen if name == "c" else None)
    z = ngmp.sample("z", Normal(0.0, std=2.0))
    ngmp.sample("counts", Poisson(exp(z)), obs=np.arange(6.0))
    if long:
        ngmp.sample("more", Normal(z, precision=ngmp.sample("tau_more", Gamma(2.0, rate=1.0))), obs=jnp.zeros(long))


@pytest.mark.parametrize("long", [0, 1500])
def test_targets_are_those_of_every_group_alone(long):
    map = ngmp.compile(precisions).specialise(y=Y, seen=SEEN, long=long).map
    leaves = jax.tree.map(lambda x: x * 1.1, map.initial())
    result = map.core.run(leaves)
    kinds = [[group.name for group in kind.groups] for kind in map.kinds(result, leaves)]
    assert kinds == [["a", "b", "c"], ["counts"]] + [["more"]] * bool(long)
    groups = [g.name for g in map.projected if len(g.keys) > 1]  # one of a single interface is settled on its edge

    @jax.jit
    def both(map, leaves):
        alone, result = {}, map.core.run(leaves)
        for group in (g for g in map.projected if g.name in groups):
            incoming = map.incoming(group, result, leaves)
            alone |= {key: map.target(group, j, incoming) for j, key in enumerate(group.keys)}
        return map.evaluate(leaves).target, alone

    found, alone = both(map, leaves)
    for group in (g for g in map.projected if g.name in groups):
        for key in group.keys:
            eta, exists = alone[key]
            assert np.all(exists)
            for x, y in zip(found[key].natural, eta.natural, strict=True):
                rows = slice(None) if group.mask is None else np.asarray(group.mask)
                np.testing.assert_allclose(x[rows], np.broadcast_to(y, x.shape)[rows], rtol=1e-12)


def test_free_energies_add_up():
    """The plates of a model that share nothing have the free energies they have in models of their own."""
    two = {name: Y[name] for name in ("a", "c")}
    whole = ngmp.compile(precisions)(y=two, seen=SEEN)
    parts = [ngmp.compile(precisions)(y={name: Y[name]}, seen=SEEN).free_energy for name in two]
    counts = ngmp.compile(precisions)(y={}, seen=SEEN).free_energy
    np.testing.assert_allclose(whole.free_energy, sum(parts) - counts, rtol=1e-9)


@pytest.mark.parametrize("rule", [ngmp.VMP(), ngmp.NGMP(power=0.5)])
def test_other_rules_are_other_kinds(rule):
    map = ngmp.compile(precisions, rules={"b": rule}).specialise(y=Y, seen=SEEN).map
    leaves = map.initial()
    kinds = [[group.name for group in kind.groups] for kind in map.kinds(map.core.run(leaves), leaves)]
    assert ["a", "c"] in kinds and ["b"] not in [own for own in kinds if "a" in own]


def test_another_group_of_a_kind_costs_few_operations():
    def equations(count: int) -> int:
        map = ngmp.compile(precisions).specialise(y={f"p{i}": Y["a"] for i in range(count)}, seen=SEEN).map
        return len(jax.make_jaxpr(lambda leaves: map.evaluate(leaves).target)(map.initial()).jaxpr.eqns)

    first, second, many = equations(1), equations(2), equations(6)
    assert many - second < 0.5 * 4 * first, (first, second, many)
