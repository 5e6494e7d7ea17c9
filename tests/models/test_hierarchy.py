"""The precision hierarchy: convergence at every depth, one level against sampling, two against the interpreter."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler.declare.sample import trace
from ngmp_models import fourier_features, fourier_map, heteroscedastic, matern32, precision_hierarchy
from tests.oracle.compare import assert_marginals
from tests.oracle.interpreter import Interpreter


def problem(n: int, d: int, levels: int) -> dict:
    """A sine whose noise grows with x; d features a level, the last one constant."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, n))[:, None]
    y = np.sin(2 * x[:, 0]) + 0.3 * np.exp(0.5 * x[:, 0]) * rng.normal(size=n)
    maps = [fourier_map(k, 1, d - 1, kernel=matern32) for k in jax.random.split(jax.random.key(0), levels + 1)]
    features = tuple(fourier_features(m, x, constant=True) for m in maps)
    anchors = tuple(jnp.zeros(d).at[-1].set(1.0 if level == 0 else np.log(25.0)) for level in range(levels))
    return {"features": features, "y": jnp.asarray(y), "w_mean": anchors, "w_variance": 0.16}


def clusters(levels: int) -> list:
    return [("v", *((f"w{k}", f"s{k}") for k in range(1, levels + 1)))]


def top_down(levels: int) -> list[str]:
    """Blocks from the log-precisions at the top to the weights of the mean."""
    scores = [f"s{k}" if k else "y" for k in range(levels)]
    return [f"{site}.s" for site in reversed(scores)] + [f"{site}.r" for site in reversed(scores)]


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_every_depth_converges_by_every_solver(levels):
    inputs = problem(40, 8, levels)
    # Without momentum: with it, some of these runs cycle (perhaps where messages cross zero precision; not isolated).
    capped = ngmp.vector_transport(step=0.6, momentum=0.0, max_norm=0.5)
    found = [ngmp.compile(precision_hierarchy, solver=s)(**inputs) for s in (None, capped)]
    for post in found:
        assert post.converged, post.reason
        for name in ["v", *(f"w{k}" for k in range(1, levels + 1))]:
            np.testing.assert_allclose(post[name].mean, found[0][name].mean, atol=1e-6)
            np.testing.assert_allclose(post[name].covariance, found[0][name].covariance, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 2])
def test_structured_mean_field_and_its_block_schedule_agree(levels):
    inputs, options = problem(40, 8, levels), {"method": ngmp.NCVMP(), "factorise": clusters(levels)}
    jacobi = ngmp.compile(precision_hierarchy, **options)(**inputs)
    blocks = ngmp.compile(precision_hierarchy, schedule=top_down(levels), **options)(**inputs)
    assert jacobi.converged and blocks.converged and blocks.sweeps < jacobi.sweeps
    published = ngmp.vector_transport(step=0.6, momentum=0.8, max_norm=0.5)
    heavy = ngmp.compile(precision_hierarchy, solver=published, max_sweeps=2000, **options)(**inputs)
    assert heavy.converged
    np.testing.assert_allclose(jacobi["w1"].mean, heavy["w1"].mean, atol=1e-6)
    np.testing.assert_allclose(jacobi["w1"].mean, blocks["w1"].mean, atol=1e-6)
    np.testing.assert_allclose(jacobi.free_energy, blocks.free_energy, atol=1e-6)


def test_structured_mean_field_is_a_fixed_point_of_the_equations_in_numpy():
    """Two levels with q(v) q(w1, s1) q(w2, s2), written out: the sites, the weights, the scores, the rates."""
    inputs = problem(12, 3, 2)
    phi, y = [np.asarray(f) for f in inputs["features"]], np.asarray(inputs["y"])
    options = {"method": ngmp.NCVMP(), "factorise": clusters(2), "tol": 1e-11, "max_sweeps": 3000}
    post = ngmp.compile(precision_hierarchy, **options)(**inputs)
    sites = np.zeros((2, 2, 12))  # (level, (xi, Lambda), n)
    precision = np.full((2, 12), 25.0)  # E[e^s] of the level above, toward a level
    mean, variance = [], []
    for k in (0, 1):
        mean.append(phi[k + 1] @ np.asarray(inputs["w_mean"][k]))
        variance.append(0.16 * (phi[k + 1] ** 2).sum(1) + 1 / 25)
    for _ in range(4000):
        noise = np.exp(mean[0] + variance[0] / 2)
        cov_v = np.linalg.inv(np.eye(3) + phi[0].T @ (noise[:, None] * phi[0]))
        m_v = cov_v @ (phi[0].T @ (noise * y))
        rate = 0.5 * ((y - phi[0] @ m_v) ** 2 + np.einsum("nd,de,ne->n", phi[0], cov_v, phi[0]))
        precision[0] = np.exp(mean[1] + variance[1] / 2)
        for k in (0, 1):
            r, c = rate * np.exp(mean[k] + variance[k] / 2), precision[k]
            sites[k] += 0.3 * (np.stack([0.5 + (mean[k] - 1) * r, r]) - sites[k])
            xi, lam = sites[k]
            cov = np.linalg.inv(np.eye(3) / 0.16 + phi[k + 1].T @ ((c * lam / (c + lam))[:, None] * phi[k + 1]))
            m = cov @ (np.asarray(inputs["w_mean"][k]) / 0.16 + phi[k + 1].T @ (c * xi / (c + lam)))
            mu, q = phi[k + 1] @ m, np.einsum("nd,de,ne->n", phi[k + 1], cov, phi[k + 1])
            f = c / (c + lam)
            mean[k], variance[k] = (c * mu + xi) / (c + lam), 1 / (c + lam) + f**2 * q
            rate = 0.5 * ((mean[k] - mu) ** 2 + variance[k] + q - 2 * f * q)
            np.testing.assert_equal(np.isfinite(rate), True)
            if k == 0:
                first = m, cov
    assert post.converged
    np.testing.assert_allclose(post["v"].mean, m_v, atol=1e-7)
    np.testing.assert_allclose(post["w1"].mean, first[0], atol=1e-7)
    np.testing.assert_allclose(post["w1"].covariance, first[1], atol=1e-7)
    np.testing.assert_allclose(post["w2"].mean, m, atol=1e-7)
    np.testing.assert_allclose(post["s2"].variance, variance[1], atol=1e-7)


def sampled(phi, psi, y, anchor, draws: int = 400_000) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Posterior moments of v and w: prior draws of (w, s), weighted by p(y | s), with v integrated out."""
    rng = np.random.default_rng(1)
    w = anchor + 0.4 * rng.normal(size=(draws, psi.shape[1]))
    s = w @ psi.T + 0.2 * rng.normal(size=(draws, len(y)))
    covariance = phi @ phi.T + np.exp(-s)[:, :, None] * np.eye(len(y))
    inverse = np.linalg.inv(covariance)
    force = inverse @ y
    log_weight = -0.5 * (force @ y) - 0.5 * np.linalg.slogdet(covariance)[1]
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    v = force @ phi  # E[v | s]
    spread = np.eye(phi.shape[1]) - np.einsum("n,nij->ij", weight, phi.T @ inverse @ phi)  # E[Cov(v | s)]
    moments = {"w": (w, 0.0), "v": (v, np.diag(spread))}
    return {k: (weight @ x, weight @ (x - weight @ x) ** 2 + own) for k, (x, own) in moments.items()}


@pytest.mark.slow
def test_one_level_agrees_with_sampling():
    inputs = problem(6, 2, 1)
    phi, psi = (np.asarray(f) for f in inputs["features"])
    anchor = np.array([0.0, 1.0])
    exact = sampled(phi, psi, np.asarray(inputs["y"]), anchor)
    post = ngmp.compile(precision_hierarchy)(**inputs)
    assert post.converged
    for name, theirs in (("v", "v"), ("w1", "w")):
        mean, variance = exact[theirs]
        sd = np.sqrt(variance)
        np.testing.assert_allclose(post[name].mean, mean, atol=0.15 * sd.min())  # six points: an approximation
        np.testing.assert_allclose(np.diag(post[name].covariance), variance, rtol=0.15)


def test_one_level_is_the_heteroscedastic_model():
    inputs = problem(10, 3, 1)
    phi, psi = inputs["features"]
    priors = {"v_mean": jnp.full(3, 0.2), "v_variance": jnp.array([4.0, 1.0, 0.5])}
    w = {"w_mean": inputs["w_mean"][0], "w_variance": jnp.diag(jnp.array([0.2, 0.3, 1.0]))}
    one = ngmp.compile(heteroscedastic)(phi=phi, psi=psi, y=inputs["y"], **priors, **w)
    other = ngmp.compile(precision_hierarchy)(features=(phi, psi), y=inputs["y"], **priors, **w)
    np.testing.assert_allclose(one["w"].mean, other["w1"].mean, rtol=1e-10)
    np.testing.assert_allclose(one["s"].variance, other["s1"].variance, rtol=1e-10)
    np.testing.assert_allclose(one.free_energy, other.free_energy, rtol=1e-10)


def test_two_levels_end_at_a_fixed_point_of_the_interpreter():
    """Its own iteration starts from flat leaves, where the residual of a score has no cavity yet; so it starts here."""
    inputs = problem(5, 2, 2)
    rule = ngmp.NGMP(projection=ngmp.Quadrature(gaussian=64))
    post = ngmp.compile(precision_hierarchy, method=rule, solver=optax.sgd(0.5), tol=1e-11)(**inputs)
    assert post.converged
    interpreter = Interpreter(trace(precision_hierarchy, inputs), points=1601)  # residuals are narrow in wide cavities
    leaves, count = {}, dict.fromkeys(interpreter.names, 0)
    for a in interpreter.projected:
        name = interpreter.names[a]
        for j, interface in enumerate("rs"):
            leaf = post.state.leaves[f"{name}.{interface}"]
            leaves[a, j] = np.array([leaf.eta1[count[name]], leaf.eta2[count[name]]])
        count[name] += 1
    for key, target in interpreter.targets(leaves).items():
        np.testing.assert_allclose(target, leaves[key], atol=2e-5)
    assert_marginals(post, interpreter.summary(interpreter.core(leaves)), 1e-8)
    np.testing.assert_allclose(post.free_energy, interpreter.free_energy(leaves), rtol=1e-6)


@pytest.mark.slow
def test_masked_rows_do_not_count():
    inputs = problem(12, 3, 2)
    seen = np.arange(12) < 9
    part = {**inputs, "features": tuple(f[:9] for f in inputs["features"]), "y": inputs["y"][:9]}
    all_rows = ngmp.compile(precision_hierarchy)(mask=seen, **inputs)
    few = ngmp.compile(precision_hierarchy)(**part)
    np.testing.assert_allclose(all_rows["w1"].mean, few["w1"].mean, atol=1e-7)
    np.testing.assert_allclose(all_rows["v"].covariance, few["v"].covariance, atol=1e-7)


def test_wrong_depths_are_refused():
    inputs = problem(5, 2, 2)
    with pytest.raises(ValueError, match="one for each level; got 1"):
        ngmp.compile(precision_hierarchy)(**{**inputs, "features": inputs["features"][:1]})
    with pytest.raises(ValueError, match="w_mean has 2 entries for 1 levels"):
        ngmp.compile(precision_hierarchy)(**{**inputs, "features": inputs["features"][:2]})
