"""Cavities at the edge of their domain: groups without data, and answers that do not depend on the path."""

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal
from ngmp_compiler.emit.rules import Incoming
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian, MvGaussian


def grouped(y, seen, centre, wide, shape, rate, few):
    """Groups about a common mean, precisions unknown."""
    mu, tau = ngmp.sample("mu", Normal(centre, variance=wide)), ngmp.sample("tau", Gamma(shape, rate=rate))
    u = ngmp.sample("u", Normal(mu + jnp.zeros((y.shape[0], 1)), precision=tau))
    noise = ngmp.sample("noise", Gamma(few, rate=few))
    ngmp.sample("y", Normal(u + jnp.zeros(y.shape[1]), precision=noise), obs=y, mask=seen)


def sloped(y, seen, centre, wide, shape, rate, few):
    """The same with slopes: the Gaussian part has loops."""
    mu, slope = (ngmp.sample(k, Normal(centre, variance=wide)) for k in ("mu", "slope"))
    tau = ngmp.sample("tau", Gamma(shape, rate=rate))
    a = ngmp.sample("a", Normal(mu + jnp.zeros((y.shape[0], 1)), precision=tau))
    b = ngmp.sample("b", Normal(slope + jnp.zeros((y.shape[0], 1)), precision=tau))
    noise = ngmp.sample("noise", Gamma(few, rate=few))
    ngmp.sample("y", Normal(a + b * jnp.linspace(-1.0, 1.0, y.shape[1]), precision=noise), obs=y, mask=seen)


GROUPED = ngmp.compile(grouped)
RNG = np.random.default_rng(0)
Y = RNG.standard_normal((4, 1)) + 0.3 * RNG.standard_normal((4, 3))


@pytest.mark.parametrize("program", [GROUPED, pytest.param(ngmp.compile(sloped), marks=pytest.mark.slow)])
def test_a_group_without_data_says_nothing(program):
    """It is integrated out exactly: what is known of the others is as without it; under broad priors, too."""
    seen, kept = np.ones(Y.shape, bool), [0, 1, 3]
    seen[2] = False
    for wide in (10.0, 1e6):
        rest = {"centre": 0.0, "wide": wide, "shape": 0.2, "rate": 0.2, "few": 2.0}
        whole, less = program(y=Y, seen=seen, **rest), program(y=Y[kept], seen=seen[kept], **rest)
        assert whole.converged and less.converged and "mean field" not in whole.reason
        for name in ("mu", "tau", "noise"):
            (a, b), (c, d) = whole[name].location_scale(), less[name].location_scale()
            np.testing.assert_allclose([a, b], [c, d], rtol=2e-3)


def test_data_that_contradict_their_prior_by_thousands_of_deviations_are_reached():
    """Steps that are only too long are cut to what is allowed, and that grows from sweep to sweep."""
    y = np.broadcast_to(Y[:, :1] - 830.0, Y.shape)
    post = GROUPED(y=y, seen=np.ones(y.shape, bool), centre=889.0, wide=0.1, shape=70.0, rate=3.0, few=0.03)
    assert post.converged and post.sweeps < 500 and int(post.state.rung) == 0


def test_the_share_that_leaves_cavities_proper():
    """Precisions 2 - 3 p, and rates 4 - 5 p: the square of the largest that is proper, one where all of it is."""
    q, leaf = Gaussian(jnp.ones(3), -jnp.ones(3)), Gaussian(jnp.zeros(3), -0.5 * jnp.array([3.0, 1.0, 2.0]))
    tau = GammaFamily.from_concentration_rate(jnp.full(3, 2.0), jnp.full(3, 4.0))
    site = GammaFamily(jnp.full(3, 0.5), -jnp.array([1.0, 5.0, 1.0]))
    found, proper, share = Incoming((q, tau), (leaf, site)).shared()
    np.testing.assert_allclose(share, [(2 / 3) ** 2, (4 / 5) ** 2, 1.0], rtol=1e-12)
    assert all(bool(jnp.all(x)) for x in proper)
    np.testing.assert_allclose(found[0].precision[:2], [2 - 3 * (2 / 3) ** 2, 2 - 16 / 25], rtol=1e-12)
    assert 0 < found[0].precision[2] < 1e-12  # nothing but rounding is left: flat
    _, _, toward_r = Incoming((q, tau), (leaf, site)).shared(but=0)
    np.testing.assert_allclose(toward_r, [1.0, 0.64, 1.0])


def test_the_remainder_of_a_vector_is_its_smallest_eigenvalue():
    rng = np.random.default_rng(1)
    a, b = (x @ x.T + np.eye(3) for x in rng.standard_normal((2, 3, 3)))
    q = MvGaussian.from_information(jnp.zeros((1, 3)), jnp.asarray(a)[None])
    rest = MvGaussian.from_information(jnp.zeros((1, 3)), jnp.asarray(a - 2 * b)[None])
    least = np.min(np.linalg.eigvals(np.linalg.solve(a, a - 2 * b)).real)
    np.testing.assert_allclose(q.remainder(rest), [least], rtol=1e-9)
