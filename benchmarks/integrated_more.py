"""More models for `integrated.py`: hierarchies, structural series, volatility, processes, counts on a lattice.

Where all but the hyperparameters is Gaussian, the reference is dense linear algebra on a grid; else NUTS on everything.
"""

import jax
import jax.numpy as jnp
import numpy as np
from integrated_cases import Case, gaussian, half_normal
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Binomial, HalfNormal, LogNormal, MvNormal, Normal, Uniform, exp

R = np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3.0])
N = np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7.0])
X1, X2 = np.repeat([0.0, 1.0], [11, 10]), np.array([0.0] * 5 + [1.0] * 6 + [0.0] * 5 + [1.0] * 5)


def seeds(name: str, std: float) -> Case:
    """Germination of 21 plates: a logistic regression with an effect of every plate (Crowder, 1978)."""

    def model(r, n, x1, x2):
        sd = ngmp.sample("sd", HalfNormal(std=std))
        a, b, c, d = (ngmp.sample(k, Normal(0.0, std=3.0)) for k in "abcd")
        e = ngmp.sample("e", Normal(np.zeros(21), std=sd))
        ngmp.sample("r", Binomial(n, logits=a + b * x1 + c * x2 + d * (x1 * x2) + e), obs=r)

    def everything(r, n, x1, x2):
        import numpyro
        import numpyro.distributions as dist

        sd = numpyro.sample("sd", dist.HalfNormal(std))
        a, b, c, d = (numpyro.sample(k, dist.Normal(0, 3.0)) for k in "abcd")
        e = numpyro.sample("e", dist.Normal(0, 1).expand([21]))
        logits = a + b * x1 + c * x2 + d * x1 * x2 + sd * e
        numpyro.sample("y", dist.Binomial(n.astype(int), logits=logits), obs=r)

    inputs = {"r": R, "n": N, "x1": X1, "x2": X2}
    return Case(f"seeds, {name}", model, inputs, {"sd": R, "a": R, "b": R}, None, ("a", "b"), everything)


def growth() -> Case:
    """Thirty lines of five points each, with a normal intercept and slope: three standard deviations."""
    rng = np.random.default_rng(11)
    t = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    y = 10 + 1.5 * rng.normal(size=(30, 1)) + (3 + 0.4 * rng.normal(size=(30, 1))) * t + 0.6 * rng.normal(size=(30, 5))

    def model(y, t):
        sa, sb, r = (ngmp.sample(k, HalfNormal(std=2.0)) for k in ("sa", "sb", "r"))
        ma, mb = ngmp.sample("ma", Normal(10.0, std=10.0)), ngmp.sample("mb", Normal(0.0, std=10.0))
        a = ngmp.sample("a", Normal(ngmp.broadcast_to(ma, (30, 1)), std=sa))
        b = ngmp.sample("b", Normal(ngmp.broadcast_to(mb, (30, 1)), std=sb))
        mean = ngmp.broadcast_to(a, (30, 5)) + ngmp.broadcast_to(b, (30, 5)) * t
        ngmp.sample("y", Normal(mean, std=r), obs=y)

    # The mean of the lines and what is around it are independent: the first has covariance C/30 + the prior.
    design = np.stack([np.ones(5), t], 1)
    helmert = np.linalg.qr(np.concatenate([np.ones((30, 1)), np.eye(30)[:, :29]], 1))[0]
    turned = helmert.T @ (y - 10.0)  # the first row is the mean times sqrt(30)

    def log_joint(sa, sb, r):
        own = design @ jnp.diag(jnp.stack([sa**2, sb**2])) @ design.T + r**2 * jnp.eye(5)
        rest = jax.vmap(lambda row: gaussian(row, own))(jnp.asarray(turned[1:]))
        mean = gaussian(jnp.asarray(turned[0]), own + 30 * 100.0 * design @ design.T)
        return jnp.sum(rest) + mean + sum(half_normal(x, 2.0) for x in (sa, sb, r))

    grid = {"sa": np.exp(np.linspace(-0.4, 1.4, 48)), "sb": np.exp(np.linspace(-2.6, 0.2, 48)),
            "r": np.exp(np.linspace(-1.0, -0.05, 40))}  # fmt: skip
    return Case("growth curves, three scales", model, {"y": y, "t": t}, grid, log_joint)


def structural(names: tuple[str, ...], points: int) -> Case:
    """Level, slope and season of a series: 3 or 4 standard deviations."""
    n, rng = 48, np.random.default_rng(12)
    slope = 0.05 * np.cumsum(rng.normal(size=n))
    season = np.tile([1.0, 0.2, -0.4, -0.8], n // 4) + 0.1 * rng.normal(size=n)
    y = np.cumsum(slope + 0.2 * rng.normal(size=n)) + season * (len(names) == 4) + 0.4 * rng.normal(size=n)
    seasonal = "season" in names

    def model(y):
        sd = {k: ngmp.sample(k, HalfNormal(std=0.5)) for k in names}

        def step(carry, y_k):
            level, slope, *s = carry
            level = ngmp.sample("x", Normal(level + slope, std=sd["level"]))
            slope = ngmp.sample("v", Normal(slope, std=sd["slope"]))
            if not seasonal:
                ngmp.sample("y", Normal(level, std=sd["r"]), obs=y_k)
                return (level, slope), None
            now = ngmp.sample("s", Normal(-s[0] - s[1] - s[2], std=sd["season"]))
            ngmp.sample("y", Normal(level + now, std=sd["r"]), obs=y_k)
            return (level, slope, now, s[0], s[1]), None

        start = [ngmp.sample(f"x{i}", Normal(0.0, std=1.0)) for i in range(5 if seasonal else 2)]
        ngmp.scan(step, tuple(start), y)

    t = np.arange(1, n + 1)
    low = np.tril(np.ones((n, n)))
    walk, twice = low @ low.T, np.tril(np.ones((n, n)), -1) @ low @ low.T @ np.tril(np.ones((n, n)), -1).T
    start = np.ones((n, n)) + np.outer(t, t)
    wave = np.linalg.inv(sum(np.eye(n, k=-i) for i in range(4)))  # s_k + s_{k-1} + s_{k-2} + s_{k-3} = e_k
    first = -wave[:, :3] @ np.array([[1.0, 1, 1], [1, 1, 0], [1, 0, 0]])

    def log_joint(*values):
        sd = dict(zip(names, values, strict=True))
        cov = start + sd["level"] ** 2 * walk + sd["slope"] ** 2 * twice + sd["r"] ** 2 * np.eye(n)
        if seasonal:
            cov = cov + sd["season"] ** 2 * wave @ wave.T + first @ first.T
        return gaussian(jnp.asarray(y), cov) + sum(half_normal(x, 0.5) for x in values)

    # From zero: the density is finite there, and much of it lies below any small scale at which a grid might begin.
    ends = {"level": 0.95, "slope": 0.4, "season": 0.5, "r": 0.8}
    grid = {k: np.linspace(1e-7, ends[k], points) for k in names}
    return Case(f"structural series, {len(names)} scales", model, {"y": y}, grid, log_joint)


def second_order() -> Case:
    """AR(2) with noise: both coefficients and the scale of the steps."""
    n, rng = 80, np.random.default_rng(13)
    x = np.zeros(n)
    for k in range(2, n):
        x[k] = 1.2 * x[k - 1] - 0.5 * x[k - 2] + 0.5 * rng.normal()
    y = x + 0.3 * rng.normal(size=n)

    def model(y):
        p, q = ngmp.sample("p", Normal(0.0, std=1.0)), ngmp.sample("q", Uniform(-1.0, 1.0))
        sd = ngmp.sample("sd", HalfNormal(std=1.0))

        def step(carry, y_k):
            x = ngmp.sample("x", Normal(p * carry[0] + q * carry[1], std=sd))
            ngmp.sample("y", Normal(x, std=0.3), obs=y_k)
            return (x, carry[0]), None

        ngmp.scan(step, (ngmp.sample("x0", Normal(0.0, std=1.0)), ngmp.sample("x1", Normal(0.0, std=1.0))), y)

    def log_joint(p, q, sd):
        whiten = jnp.eye(n + 2) - p * np.eye(n + 2, k=-1) - q * np.eye(n + 2, k=-2)
        whiten = whiten.at[:2].set(np.eye(n + 2)[:2])  # the two before the first are independent
        root = jnp.linalg.inv(whiten) * jnp.where(np.arange(n + 2) < 2, 1.0, sd)
        prior = norm.logpdf(p) - jnp.log(2.0) + half_normal(sd, 1.0)
        return gaussian(jnp.asarray(y), (root @ root.T)[2:, 2:] + 0.09 * jnp.eye(n)) + prior

    grid = {"p": np.linspace(0.2, 1.9, 48), "q": np.linspace(-0.999, 0.4, 48), "sd": np.exp(np.linspace(-2.2, 0.4, 48))}
    return Case("AR(2) with noise", model, {"y": y}, grid, log_joint)


def moving_average() -> Case:
    """ARMA(1, 1) with a little noise: shocks are variables, and each is heard twice."""
    n, rng = 80, np.random.default_rng(14)
    e = 0.6 * rng.normal(size=n + 1)
    y = np.zeros(n)
    for k in range(n):
        y[k] = 0.6 * (y[k - 1] if k else 0.0) + e[k + 1] + 0.5 * e[k] + 0.1 * rng.normal()

    def model(y, before):
        phi, theta = ngmp.sample("phi", Uniform(-1.0, 1.0)), ngmp.sample("theta", Uniform(-1.0, 1.0))
        sd = ngmp.sample("sd", HalfNormal(std=1.0))

        def step(e, data):
            y_k, last = data
            now = ngmp.sample("e", Normal(0.0, std=sd))
            ngmp.sample("y", Normal(now + theta * e + phi * last, std=0.1), obs=y_k)
            return now, None

        ngmp.scan(step, ngmp.sample("e0", Normal(0.0, std=1.0)), (y, before))

    def log_joint(phi, theta, sd):
        left = jnp.eye(n, n + 1, k=1) + theta * np.eye(n, n + 1)
        scale = jnp.where(np.arange(n + 1) < 1, 1.0, sd)
        cov = (left * scale**2) @ left.T + 0.01 * jnp.eye(n)
        return gaussian(jnp.asarray(y - phi * np.append(0.0, y[:-1])), cov) + half_normal(sd, 1.0) - 2 * jnp.log(2.0)

    grid = {"phi": np.linspace(0.05, 0.95, 40), "theta": np.linspace(-0.3, 0.999, 40), "sd": np.linspace(0.35, 0.9, 40)}
    return Case("ARMA(1, 1)", model, {"y": y, "before": np.append(0.0, y[:-1])}, grid, log_joint)


def volatility() -> Case:
    """Stochastic volatility: 200 returns; mean, persistence and scale of the log-variance."""
    n, rng = 200, np.random.default_rng(15)
    h = np.zeros(n)
    for k in range(1, n):
        h[k] = 0.95 * h[k - 1] + 0.3 * rng.normal()
    y = np.exp(0.5 * (h - 1.0)) * rng.normal(size=n)

    def model(y):
        mu, sd = ngmp.sample("mu", Normal(0.0, std=2.0)), ngmp.sample("sd", HalfNormal(std=0.5))
        phi = ngmp.sample("phi", Uniform(0.5, 1.0))

        def step(h, y_k):
            h = ngmp.sample("h", Normal(phi * h, std=sd))
            ngmp.sample("y", Normal(0.0, std=exp(0.5 * (h + mu))), obs=y_k)
            return h, None

        ngmp.scan(step, ngmp.sample("h0", Normal(0.0, std=0.5)), y)

    unit = np.linspace(-5.0, 5.0, 101)

    def log_joint(mu, phi, sd):
        """Forward over a lattice of states, as wide as they reach."""
        h = unit * jnp.maximum(0.5, sd / jnp.sqrt(1 - phi**2))
        width = h[1] - h[0]
        move = norm.pdf(h, phi * h[:, None], sd) * width  # from row to column
        log_y = norm.logpdf(y[:, None], 0.0, jnp.exp(0.5 * (h + mu)))

        def step(alpha, log):
            top = jnp.max(log)
            alpha = (alpha @ move) * jnp.exp(log - top)
            total = jnp.sum(alpha)
            return alpha / total, jnp.log(total) + top

        first = norm.pdf(h, 0.0, 0.5) * width
        prior = norm.logpdf(mu, 0.0, 2.0) + half_normal(sd, 0.5) + jnp.log(2.0)
        return jnp.sum(jax.lax.scan(step, first, log_y)[1]) + prior

    grid = {"mu": np.linspace(-4.0, 2.5, 30), "phi": 1 - 0.5 * np.exp(-np.linspace(0, 6.0, 34)),
            "sd": np.exp(np.linspace(-3.3, 0.2, 28))}  # fmt: skip
    return Case("stochastic volatility", model, {"y": y}, grid, log_joint)


def classification() -> Case:
    """Matern classification of 40 points by their sign: scale and lengthscale."""
    rng = np.random.default_rng(16)
    t = np.sort(rng.uniform(0, 10, 40))
    y = (rng.random(40) < 1 / (1 + np.exp(-3 * np.sin(t)))).astype(float)

    def kernel(sd, ell, apart):
        d = np.sqrt(3.0) * apart / ell
        return sd**2 * (1 + d) * jnp.exp(-d) + 1e-6 * jnp.eye(40)

    def model(y, apart):
        sd, ell = ngmp.sample("sd", HalfNormal(std=2.0)), ngmp.sample("ell", LogNormal(0.5, std=0.7))
        f = ngmp.sample("f", MvNormal(np.zeros(40), covariance=kernel(sd, ell, jnp.asarray(apart))))
        ngmp.sample("y", Bernoulli(logits=ngmp.dot(np.eye(40), f)), obs=y)

    apart, sign = np.abs(t[:, None] - t), 2 * y - 1
    eps = rng.normal(size=(20, 200, 40)) * np.sqrt(10 / rng.chisquare(10, size=(20, 200, 1)))

    def log_joint(sd, ell):
        """Importance sampling from a Student t of ten degrees of freedom at the mode, by the same draws everywhere."""
        root = jnp.linalg.cholesky(kernel(sd, ell, apart))

        def log_density(z):
            return jnp.sum(jax.nn.log_sigmoid(sign * (root @ z))) - 0.5 * z @ z

        def newton(_, z):
            step = jnp.linalg.solve(jax.hessian(log_density)(z), jax.grad(log_density)(z))
            return z - step * jnp.minimum(1.0, 3.0 / jnp.linalg.norm(step))

        mode = jax.lax.fori_loop(0, 20, newton, jnp.zeros(40))
        back = jnp.linalg.inv(jnp.linalg.cholesky(-jax.hessian(log_density)(mode)))
        constant = gammaln(25.0) - gammaln(5.0) - 20 * jnp.log(10.0)  # of the t, over that of the standard normal
        constant += 20 * jnp.log(2.0) - jnp.sum(jnp.log(jnp.diagonal(back)))

        def part(eps):
            log = jax.vmap(lambda e: log_density(mode + back.T @ e))(eps)
            return log + 25 * jnp.log1p(jnp.sum(eps**2, -1) / 10)

        log = jax.lax.map(part, jnp.asarray(eps)).reshape(-1) - constant
        prior = half_normal(sd, 2.0) + norm.logpdf(jnp.log(ell), 0.5, 0.7) - jnp.log(ell)
        return jax.scipy.special.logsumexp(log) - jnp.log(4000.0) + prior

    grid = {"sd": np.linspace(1e-6, 9.0, 44), "ell": np.exp(np.linspace(-2.2, 3.2, 40))}
    return Case("Matern classification", model, {"y": y, "apart": apart}, grid, log_joint)


def more() -> list[Case]:
    """All of them."""
    from integrated_lattice import lattice

    return [
        seeds("vague", 10.0),
        seeds("informative", 0.3),
        growth(),
        structural(("level", "slope", "r"), 48),
        structural(("level", "slope", "season", "r"), 24),
        second_order(),
        moving_average(),
        volatility(),
        classification(),
        *lattice(),
    ]
