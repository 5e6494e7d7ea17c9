# %% [markdown] field="Tracking" picture=2 summary="Where was it, when nobody looked?"
# # Tracking through a gap
#
# A ship's position in the plane is measured with noise, and not at all for a while (drawn here). State: position
# and velocity, a constant velocity with random accelerations.
#
# $$ x_k = A x_{k-1} + \epsilon_k, \quad \epsilon_k \sim N(0, Q), \qquad y_k \sim N(H x_k, R) \text{ where it was seen} $$

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal
from ngmp_models.demo import timed

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("NGMP_SMALL") == "1"
dt, steps = 1.0, 60
A = np.kron(np.array([[1.0, dt], [0.0, 1.0]]), np.eye(2))
Q = 0.05 * np.kron(np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]]), np.eye(2)) + 1e-9 * np.eye(4)
H, R = np.eye(2, 4), 1.0 * np.eye(2)
m0, P0 = np.array([0.0, 0.0, 1.0, 0.5]), np.diag([4.0, 4.0, 1.0, 1.0])
rng = np.random.default_rng(2)
x, path = m0, []
for _ in range(steps):
    x = A @ x + rng.multivariate_normal(np.zeros(4), Q)
    path.append(x)
path = np.array(path)
y = path @ H.T + rng.standard_normal((steps, 2))
seen = ~((np.arange(steps) >= 25) & (np.arange(steps) < 38))


def ship(y, seen):
    def step(x, row):
        y_k, seen_k = row
        x = ngmp.sample("x", MvNormal(A @ x, covariance=Q))
        ngmp.sample("y", MvNormal(H @ x, covariance=R), obs=y_k, mask=seen_k)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", MvNormal(m0, covariance=P0)), (y, seen))


program = ngmp.compile(ship)
program.lower(y=y, seen=seen).draw("graph.svg")
post, compiled, warm = timed(lambda: program(y=y, seen=seen), 5)
print(f"first call {compiled:.1f} s, then {1e3 * warm:.2f} ms; exact: {bool(post.exact)}")
print(f"converged: {bool(post.converged)}")

# %% [markdown]
# ## Check: one large Gaussian

# %%
n = 4 * (steps + 1)
precision, shift = np.zeros((n, n)), np.zeros(n)
precision[:4, :4] += np.linalg.inv(P0)
shift[:4] += np.linalg.inv(P0) @ m0
for k in range(steps):
    D = np.zeros((4, n))
    D[:, 4 * k : 4 * k + 4], D[:, 4 * k + 4 : 4 * k + 8] = -A, np.eye(4)
    precision += D.T @ np.linalg.solve(Q, D)
    if seen[k]:
        precision[4 * k + 4 : 4 * k + 8, 4 * k + 4 : 4 * k + 8] += H.T @ np.linalg.solve(R, H)
        shift[4 * k + 4 : 4 * k + 8] += H.T @ np.linalg.solve(R, y[k])
covariance = np.linalg.inv(precision)
mean, sd = (covariance @ shift).reshape(-1, 4)[1:], np.sqrt(np.diag(covariance)).reshape(-1, 4)[1:]
q = post["x"]
print(
    f"means off by at most {np.max(np.abs(np.asarray(q.mean) - mean) / sd):.1e} sd, "
    f"deviations by {np.max(np.abs(np.sqrt(np.einsum('kii->ki', np.asarray(q.covariance))) / sd - 1)):.1e}"
)

paths = np.asarray(post.sample(jax.random.key(0), (40,))["x"])
figure, ax = plt.subplots(figsize=(6.5, 5), layout="constrained")
ax.plot(paths[..., 0].T, paths[..., 1].T, color="#0072B2", lw=0.5, alpha=0.4)
ax.plot(path[:, 0], path[:, 1], "--", color="#009E73", label="truth")
ax.plot(y[seen, 0], y[seen, 1], "o", ms=3, mfc="none", color="#666666", label="seen")
ax.set(xlabel="east", ylabel="north")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## What was learned
#
# The mask is an input: other gaps compile nothing. Joint draws bow through the gap and come together at both
# ends, which independent draws from the marginals would not. With ranges and bearings in place of positions the
# observation is `ngmp.apply(f, x)`: `ngmp_models.range_bearing`.
