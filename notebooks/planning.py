# %% [markdown]
# # Going to the light, and coming back
#
# You stand somewhere in a dark room and want to be at the door. You do not quite know where you are; the floor moves
# a little under every step. Far from the door there is a lamp: close to it you would see well where you are. Is the
# detour worth it?
#
# A planner that thinks only of where it *expects* to be walks straight to the door, and misses it. What it lacks is a
# reason to look. Here the reason is one number that is added to the cost of a plan: how far from the door we would
# still be, on average, *because we do not know better*. It depends on how much is seen on the way, and so on the plan.

# %%
import os

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_compiler import Normal  # noqa: E402
from ngmp_models.planning import Task, episode, kl_planner, path_planner  # noqa: E402

SMALL = bool(os.environ.get("NGMP_SMALL"))  # as the tests run it
STEPS, EPISODES = (6, 4) if SMALL else (20, 100)

# %% [markdown]
# ## An energy of marginals
#
# A model of this library is made of densities of values. What we do not know *after* looking is no such thing: it is a
# function of how a plan spreads, that is of *marginals*. `ngmp.functional` declares one; the program then finds the
# marginals at which everything together is stationary. A small example: five numbers that should be about one on
# average, and as uncertain as they can be for it.


# %%
def wide(weight=1.0):
    x = ngmp.sample("x", Normal(np.zeros(5), std=1.0))
    ngmp.functional("average", lambda q, w: 0.5 * w * (jnp.sum(q.mean) - 5.0) ** 2 - jnp.sum(q.entropy()), x, weight)


post = ngmp.compile(wide)(anneal={"weight": np.geomspace(0.1, 10.0, 10)})  # the weight grows from sweep to sweep
print(post["x"].mean, post["x"].std, "converged:", bool(post.converged))

# %% [markdown]
# ## The room
#
# The noise of both sensors grows with the distance from the line x = 5. The door is at the origin, and we begin at
# (2, 2), unsure by one. A task says how one moves, what one sees, and what one wants.


# %%
def noise(mean, spread):
    """The variance that is to be expected of what we see, of a place that we know by mean and covariance."""
    return (0.5 * ((5.0 - mean[0]) ** 2 + spread[0, 0]) + 0.01) * jnp.ones(2)


eye = np.eye(2)
room = Task(
    dynamics=lambda x, u: x + u, push=eye, shake=0.05**2 * eye, sensors=eye, noise=noise, lit=(), goal=np.zeros(2),
    want=100.0 * eye, effort=np.full(2, 0.25), limit=1.0,
)  # fmt: skip

# %% [markdown]
# Two agents: one without the energy (KL control: it follows what it expects), one with it. Each plans, makes one step,
# looks, and plans again; a whole episode is one `lax.scan`, and all episodes are one `vmap`.


# %%
def live(planner):
    run = jax.jit(jax.vmap(lambda key: episode(room, planner, key, jnp.array([2.0, 2.0]), jnp.eye(2), STEPS)))
    return run(jax.random.split(jax.random.key(0), EPISODES))


lives = {"follows what it expects": live(kl_planner(room)), "wants to know": live(path_planner(room))}
for name, found in lives.items():
    away = np.linalg.norm(found.states[:, -1], axis=1)
    furthest = float(found.means[:, :, 0].max())
    print(f"{name}: {np.mean(away < 0.5):.0%} at the door, {away.mean():.2f} away, by way of x = {furthest:.1f}")

# %% [markdown]
# ## A strip of frames
#
# Grey is dark. The star is the door, the dot is where one is, the ellipse what one believes.


# %%
def strip(path):
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    moments = np.linspace(0, STEPS, 6).astype(int)
    figure, axes = plt.subplots(len(lives), len(moments), figsize=(12, 4), sharex=True, sharey=True)
    turn = np.linspace(0, 2 * np.pi, 60)
    x = np.linspace(-2, 7, 100)
    for row, (name, found) in zip(axes, lives.items(), strict=True):
        for ax, t in zip(row, moments, strict=True):
            ax.imshow(-np.log((5 - x[None]) ** 2 / 2 + 0.01), extent=(-2, 7, -3, 4), cmap="gray", aspect="auto")
            values, vectors = np.linalg.eigh(found.spreads[0, t])
            ring = vectors @ (np.sqrt(values)[:, None] * [np.cos(turn), np.sin(turn)])
            ax.plot(*(np.asarray(found.means[0, t])[:, None] + ring), color="tab:blue")
            ax.plot(*found.states[0, : t + 1].T, color="tab:orange", lw=1)
            ax.plot(*found.states[0, t], "o", color="tab:orange", ms=4)
            ax.plot(0, 0, "*", color="tab:red")
            ax.set(title=f"step {t}", xlim=(-2, 7), ylim=(-3, 4))
        row[0].set_ylabel(name, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


if not SMALL:
    strip("planning.png")

# %% [markdown]
# The one that wants to know walks the wrong way first, until its ellipse is small, and is at the door in time. Where
# there is nothing to learn (try a covariance of 0.005, or a constant noise) both do the same.
