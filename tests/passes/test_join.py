"""Joint edges: which interfaces are one, what is said of them, and that programs with them are right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, Poisson, dot, exp
from tests.oracle.compare import assert_interpreted

Y = np.array([0.4, 1.9, -0.3, 0.8, 1.1])
X = np.array([-1.0, 0.3, 0.5, 1.2, 2.0])
SITE = frozenset({"y"})


def log_normal(m, ls, y):
    """N(y; m, e^{2 ls}) without its constant."""
    return -ls - 0.5 * (y - m) ** 2 * jnp.exp(-2.0 * ls)


def mean_scale(y):
    """N(y; m, e^{2 ls}) as any log-density."""
    m, ls = ngmp.sample("m", Normal(0.0, std=2.0)), ngmp.sample("ls", Normal(0.0, std=0.5))
    ngmp.factor("y", log_normal, m, ls, y)


def noise(y, std=0.5):
    """The same as a distribution, with the paper's edges by default."""
    m, ls = ngmp.sample("m", Normal(0.0, std=2.0)), ngmp.sample("ls", Normal(0.0, std=std))
    ngmp.sample("y", Normal(m, std=exp(ls)), obs=y)


def regression(x, y):
    """Weights and a log-precision that depends on a regressor too."""
    w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=4.0))
    s = ngmp.sample("s", MvNormal(jnp.zeros(2), covariance=0.3))
    features = jnp.stack([jnp.ones_like(x), x], -1)
    ngmp.sample("y", Normal(dot(features, w), precision=exp(dot(features, s))), obs=y)


def errors_in_x(y, x):
    """y = b t + noise with t known up to noise: a product of a shared slope and a private regressor."""
    b, a = ngmp.sample("b", Normal(0.0, std=1.0)), ngmp.sample("a", Normal(0.0, std=1.0))
    t = ngmp.sample("t", Normal(0.0, std=np.ones(len(x))))
    ngmp.sample("x", Normal(t, std=0.4), obs=x)
    ngmp.sample("y", Normal(b * t + a, std=0.5), obs=y)


def learned_noise(y, x):
    """The same with an unknown precision, which keeps an edge of its own."""
    b, tau = ngmp.sample("b", Normal(0.3, std=0.3)), ngmp.sample("tau", Gamma(8.0, rate=4.0))
    t = ngmp.sample("t", Normal(x, std=0.2))
    ngmp.sample("y", Normal(b * t, precision=tau), obs=y)


def twice(y):
    """One variable behind both interfaces."""
    m, d = ngmp.sample("m", Normal(0.0, std=1.0)), ngmp.sample("d", Normal(0.0, std=0.5))
    ngmp.factor("y", log_normal, m + d, m - d, y)


CASES = {
    "any density": (mean_scale, {"y": Y}, None),
    "closed form": (noise, {"y": Y}, [("m", "ls")]),
    "vectors": (regression, {"x": X, "y": Y}, [("w", "s")]),
    "product": (errors_in_x, {"x": X, "y": Y}, [("a", "b", "t")]),
    "one variable twice": (twice, {"y": Y}, None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_interpreted(case):
    """Marginals and free energy are those of the slow interpreter, which stacks the interfaces of y."""
    model, inputs, joint = case
    assert_interpreted(model, 2e-6, joint=SITE, options={"joint": joint}, **inputs)


def test_interpreted_with_a_rest():
    """A Gamma precision beside a joint edge: each sees the other's cavity."""
    assert_interpreted(learned_noise, 1e-5, 61, joint=SITE, y=Y[:3], x=X[:3], options={"joint": [("b", "t")]})


def test_entries_of_one_vector():
    """Two regressions on parts of one vector are those on two vectors; a row of zeros says nothing."""

    def one(x, y):
        w = ngmp.sample("w", MvNormal(jnp.zeros(4), covariance=np.diag([4.0, 4.0, 0.3, 0.3])))
        features = jnp.stack([x**0, x], -1) * (x != 0.3)[:, None]
        first, last = (jnp.concatenate(p, -1) for p in ((features, 0 * features), (0 * features, features)))
        ngmp.sample("y", Normal(dot(first, w), precision=exp(dot(last, w))), obs=y)

    found = ngmp.compile(one)(x=X, y=Y)
    expected = ngmp.compile(regression, joint=[("w", "s")])(x=X[X != 0.3], y=Y[X != 0.3])
    assert found.converged and expected.converged
    np.testing.assert_allclose(found["w"].mean, jnp.append(expected["w"].mean, expected["s"].mean), rtol=1e-6)
    np.testing.assert_allclose(
        found["w"].variance, jnp.append(expected["w"].variance, expected["s"].variance), rtol=1e-6
    )
    constant = 0.5 * np.log(2 * np.pi) + 0.5 * Y[X == 0.3][0] ** 2
    np.testing.assert_allclose(found.free_energy, expected.free_energy + constant, rtol=1e-6)


def test_conjugate_is_exact():
    """A joint edge of a factor that is Gaussian in its interfaces is belief propagation: exact, evidence too."""
    tilt = 0.5 * np.log(2 * np.pi)

    def joint(y):
        a, b = ngmp.sample("a", Normal(0.3, std=2.0)), ngmp.sample("b", Normal(0.0, std=1.0))
        ngmp.factor("y", lambda a, b, y: -0.5 * (y - a - b) ** 2 - tilt, a, b, y)

    def exact(y):
        a, b = ngmp.sample("a", Normal(0.3, std=2.0)), ngmp.sample("b", Normal(0.0, std=1.0))
        ngmp.sample("y", Normal(a + b, std=1.0), obs=y)

    found, expected = ngmp.compile(joint)(y=Y), ngmp.compile(exact)(y=Y)
    assert found.sweeps <= 4 and expected.exact
    for name in ("a", "b"):
        np.testing.assert_allclose(found[name].mean, expected[name].mean, rtol=1e-9)
        np.testing.assert_allclose(found[name].variance, expected[name].variance, rtol=1e-9)
    np.testing.assert_allclose(found.free_energy, expected.free_energy, rtol=1e-10)


def test_full_covariance_variational_inference():
    """With no interface left the fixed point maximises the evidence lower bound over all joint Gaussians."""
    post = ngmp.compile(noise, joint=[("m", "ls")])(y=Y)

    def bound(mean, root):
        """By sums over a fixed grid of a standard normal."""
        u = np.stack(np.meshgrid(np.linspace(-7, 7, 57), np.linspace(-7, 7, 57)), -1).reshape(-1, 2)
        w = np.exp(-0.5 * (u**2).sum(1))
        z = mean + u @ jnp.tril(root).T
        m, ls = z[:, 0], z[:, 1]
        log_p = -0.5 * (m / 2.0) ** 2 - 0.5 * (ls / 0.5) ** 2 - np.log(2.0 * 0.5) - np.log(2 * np.pi)
        log_p += sum(log_normal(m, ls, y) for y in Y) - 2.5 * np.log(2 * np.pi)
        entropy = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root)))) + 1.0 + np.log(2 * np.pi)
        return jnp.sum(w / w.sum() * log_p) + entropy

    leaf = post.state.leaves["y.(r, s)"]
    prior = np.diag([0.25, 4.0])
    turn = np.diag([-1.0, -2.0])  # r = y - m, s = -2 ls
    precision = prior + np.einsum("ij,njk,kl->il", turn, -2 * np.asarray(leaf.eta2), turn)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    mean = jnp.stack([post["m"].mean, post["ls"].mean])
    np.testing.assert_allclose(bound(mean, root), -post.free_energy, rtol=1e-8)
    slopes = jax.grad(bound, (0, 1))(mean, jnp.asarray(root))
    assert all(float(jnp.max(jnp.abs(x))) < 1e-5 for x in slopes)


def test_gradients():
    """Implicit derivatives of marginals and free energy, against finite differences."""
    program = ngmp.compile(noise, joint=[("m", "ls")], tol=1e-11)

    def value(std):
        post = program(y=Y, std=std)
        return post["m"].variance + post["ls"].mean + 0.1 * post.free_energy

    h = 1e-4
    expected = (value(0.5 + h) - value(0.5 - h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(value)(0.5), expected, rtol=1e-5)


def test_wider_than_apart():
    """The correlation that many factors create: a third of the variance is lost without it."""
    apart, joint = (ngmp.compile(mean_scale, joint=j)(y=np.abs(Y)) for j in (False, None))
    assert joint.converged and apart.converged
    assert float(joint.free_energy) < 1e3 and len(joint.state.leaves) == 1 and len(apart.state.leaves) == 2


# -- what is said ------------------------------------------------------------------------------------------------------


def test_described():
    plan = ngmp.compile(mean_scale).lower(y=Y).describe()
    assert "y.(z1, z2): one edge, since many factors share the variables of z1 and z2" in plan
    assert "(z1, z2) jointly" in ngmp.compile(mean_scale)(y=Y).approximate[0]
    assert "joint edges" not in ngmp.compile(noise).lower(y=Y).describe()
    assert "joint= asks for it" in ngmp.compile(noise, joint=[("m", "ls")]).lower(y=Y).describe()
    assert "joint edges" not in ngmp.compile(mean_scale, joint=False).lower(y=Y).describe()


def autoregression(y):
    """A chain whose coefficient is unknown."""
    phi = ngmp.sample("phi", Normal(0.5, std=0.5))

    def step(z, y):
        z = ngmp.sample("z", Normal(phi * z, std=0.5))
        ngmp.sample("y", Normal(z, std=0.4), obs=y)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, std=1.0)), y)


def test_a_chain_stays_one():
    """Of unknown coefficient, a chain is solved along a band with the coefficient beside it."""
    plan = ngmp.compile(autoregression).lower(y=np.ones(300)).describe()
    assert "z.(r, a, b): one edge, since r and b are neighbours along a chain" in plan
    assert "banded: " in plan and "a border of 1" in plan


def unknown_noise(x, y):
    """A slope and a scale that all share, and a regressor of each row's own that is seen with noise."""
    b, ls = ngmp.sample("b", Normal(0.0, std=2.0)), ngmp.sample("ls", Normal(-1.0, std=0.5))
    t = ngmp.sample("t", Normal(np.zeros(len(x)), std=1.0))
    ngmp.sample("x", Normal(t, std=0.5), obs=x)
    ngmp.sample("y", Normal(b * t, std=exp(ls)), obs=y)


def test_own_variables_stay_apart(rng):
    """One Gaussian of scale, slope and every regressor is far too sure of the scale; the exact answer is a grid."""
    t = rng.standard_normal(40)
    x, y = t + 0.5 * rng.standard_normal(40), 1.2 * t + 0.4 * rng.standard_normal(40)
    program = ngmp.compile(unknown_noise)
    assert "is each factor's own" in program.lower(x=x, y=y).describe()
    post = program(x=x, y=y)
    b, ls = np.meshgrid(np.linspace(-0.5, 3.0, 141), np.linspace(-4.0, 0.5, 141), indexing="ij")
    variance = (b**2 / 5 + np.exp(2 * ls))[..., None]  # of y given x
    fit = -0.5 * ((y - 0.8 * b[..., None] * x) ** 2 / variance + np.log(variance)).sum(-1)
    log = fit - 0.5 * (b / 2.0) ** 2 - 0.5 * ((ls + 1.0) / 0.5) ** 2
    w = np.exp(log - log.max())
    for name, grid in (("b", b), ("ls", ls)):
        mean = (w * grid).sum() / w.sum()
        std = np.sqrt((w * (grid - mean) ** 2).sum() / w.sum())
        assert abs(float(post[name].mean) - mean) < 0.15 * std
        assert 0.8 < float(post[name].std) / std < 1.1
    assert post.converged


def test_tied_variables_do_not(rng):
    """Neighbours along a chain are tied to each other: no tree, and one edge."""

    def chain(x, y):
        b, ls = ngmp.sample("b", Normal(0.0, std=2.0)), ngmp.sample("ls", Normal(-1.0, std=0.5))

        def step(t, data):
            t = ngmp.sample("t", Normal(t, std=1.0))
            ngmp.sample("x", Normal(t, std=0.5), obs=data[0])
            ngmp.sample("y", Normal(b * t, std=exp(ls)), obs=data[1])
            return t, None

        ngmp.scan(step, ngmp.sample("t0", Normal(0.0, std=1.0)), (x, y))

    assert "is each factor's own" not in ngmp.compile(chain).lower(x=X, y=Y).describe()


def test_many_shared_variables_stay_apart():
    """A table of 300 by 300 effects is not solved jointly without being asked."""

    def crossed(y):
        a, b = (ngmp.sample(n, Normal(np.zeros(s), std=1.0)) for n, s in (("a", (300, 1)), ("b", (1, 300))))
        zero = np.zeros((300, 300))
        ngmp.factor("y", lambda a, b, y: -((y - jnp.exp(a + b)) ** 2), a + zero, b + zero, y)

    assert "joint edges" not in ngmp.compile(crossed).lower(y=np.ones((300, 300))).describe()


def test_prediction():
    """Predictions read the entries of a joint edge."""
    apart, joint = (ngmp.compile(noise, joint=j) for j in (False, [("m", "ls")]))
    for program in (apart, joint):
        post = program(y=Y)
        found = program.predict(post, "y", y=Y)
        np.testing.assert_allclose(found.mean, np.full(5, post["m"].mean), rtol=1e-9)
        noise_variance = np.exp(2 * post["ls"].mean + 2 * post["ls"].variance)
        np.testing.assert_allclose(found.variance, post["m"].variance + noise_variance, rtol=1e-6)


def test_six_unknowns():
    """A factor of six Gaussian arguments, which tie a vector of them: a quadratic form comes out exactly."""
    prior, form = 0.5 * np.eye(6), np.eye(6) + 0.4 * np.ones((6, 6))

    def model(y):
        z = [ngmp.sample(f"z{i}", Normal(0.0, variance=2.0)) for i in range(6)]

        def quadratic(*values):
            u = jnp.stack(values[:-1]) - values[-1]
            return -0.5 * u @ form @ u

        ngmp.factor("y", quadratic, *z, y)

    post = ngmp.compile(model)(y=1.5)
    mean = np.linalg.solve(prior + form, form @ np.full(6, 1.5))
    covariance = np.linalg.inv(prior + form)
    np.testing.assert_allclose([post[f"z{i}"].mean for i in range(6)], mean, rtol=1e-8)
    np.testing.assert_allclose([post[f"z{i}"].variance for i in range(6)], np.diag(covariance), rtol=1e-8)


# -- bad input ---------------------------------------------------------------------------------------------------------


def unlike(y):
    m, ls = ngmp.sample("m", Normal(0.0, std=2.0)), ngmp.sample("ls", Normal(0.0, std=0.5))
    tau, other = ngmp.sample("tau", Gamma(2.0, rate=1.0)), ngmp.sample("other", Normal(0.0, std=1.0))
    ngmp.sample("y", Normal(m, std=exp(ls)), obs=y)
    ngmp.sample("n", Poisson(exp(other)), obs=np.ones(3))
    ngmp.sample("x", Normal(0.0, precision=tau), obs=y)


def tangled(y):
    x, t = ngmp.sample("x", Normal(0.0, std=1.0)), ngmp.sample("t", Normal(0.0, std=1.0))
    ngmp.factor("y", lambda a, b, c, y: -((y - a * b * c) ** 2), x, x + t, x - t, y)


def crowd(y):
    z = [ngmp.sample(f"z{i}", Normal(0.0, std=1.0)) for i in range(4)]
    ngmp.factor("y", lambda a, b, c, d, y: -((y - a - b - c - d) ** 2), *z, y)


BAD = {
    "no such name": (unlike, {"joint": [("m", "lss")]}, "joint= names no variable"),
    "another family": (unlike, {"joint": [("m", "tau")]}, "a Gamma variable"),
    "no shared factor": (unlike, {"joint": [("m", "other")]}, "shares no projected factor"),
    "fewer variables": (tangled, {"joint": [("x", "t")]}, "functions of fewer variables"),
    "mean field": (unlike, {"joint": [("m", "ls")], "method": ngmp.VMP()}, "VMP has no joint messages"),
    "too many for nested integrals": (crowd, {"joint": False}, "integrated over together"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_refused(case):
    model, options, text = case
    with pytest.raises(ngmp.ModelError, match=text):
        ngmp.compile(model, **options)(y=Y)


def test_products_are_on_one_edge_as_they_are():
    def dotted(y):
        a, t = ngmp.sample("a", Normal(np.ones(2), std=1.0)), ngmp.sample("t", Normal(np.zeros((4, 2)), std=1.0))
        ngmp.sample("y", Normal(a[0] * t[:, 0] + a[1] * t[:, 1], std=0.5), obs=y[:4])

    texts = [ngmp.compile(dotted, joint=joint).lower(y=Y).describe() for joint in (None, [("a", "t")])]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("joint", ["m", [("m",)], [], [(1, 2)], {"m": "ls"}])
def test_refused_at_once(joint):
    with pytest.raises(ValueError, match="joint="):
        ngmp.compile(noise, joint=joint)


def test_more_than_six():
    def seven(y):
        z = [ngmp.sample(f"z{i}", Normal(0.0, std=1.0)) for i in range(7)]
        ngmp.factor("y", lambda *z: -(jnp.sum(jnp.stack(z)) ** 2), *z, y)

    with pytest.raises(ngmp.ModelError, match="up to six"):
        ngmp.compile(seven)(y=1.0)
