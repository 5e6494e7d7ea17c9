"""Words of other libraries for the parameters of a distribution, and what is said where one of them is used here."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

OTHER_WORDS = {  # of NumPyro, PyMC, Stan, SciPy and RxInfer, with what they may mean here, the likeliest first
    "loc": ("mean",), "mu": ("mean",), "location": ("mean",), "m": ("mean",),
    "scale": ("std", "rate"), "sd": ("std", "scale"), "sigma": ("std", "scale"), "stddev": ("std",), "stdev": ("std",),
    "var": ("variance",), "v": ("variance",), "sigma2": ("variance",), "tau": ("precision",), "w": ("precision",),
    "cov": ("covariance",), "covariance_matrix": ("covariance",), "Sigma": ("covariance",),
    "precision_matrix": ("precision",), "prec": ("precision",), "scale_tril": ("covariance",),
    "p": ("probs", "probability"), "prob": ("probs", "probability"), "theta": ("probs",), "probability": ("probs",),
    "probs": ("logits", "probability"), "gate": ("probability",), "psi": ("probability",), "logit_p": ("logits",),
    "eta": ("logits",), "logit": ("logits",), "total_count": ("n",), "trials": ("n",), "size": ("n",),
    "alpha": ("concentration", "dispersion", "a"), "shape": ("concentration",), "k": ("concentration",),
    "concentration1": ("a",), "concentration0": ("b",), "beta": ("rate", "b", "scale"), "lam": ("rate",),
    "lambda_": ("rate",), "lamda": ("rate",), "nu": ("df",), "dof": ("df",), "lower": ("low",), "upper": ("high",),
    "a": ("concentration", "low"), "b": ("rate", "scale", "high"), "log_rate": ("rate",), "phi": ("dispersion",),
    "kappa": ("concentration",), "std": ("scale",), "rate": ("scale", "mean"), "V": ("scale",),
}  # fmt: skip


def meant(name: str, known: tuple[str, ...]) -> str | None:
    """The parameter that another library calls so, or that is spelled nearly so."""
    found = [word for word in OTHER_WORDS.get(name, ()) if word in known]
    return (found or difflib.get_close_matches(name, known, n=1) or [None])[0]


def refusal(
    name: str, positional: tuple[str, ...], keywords: tuple[str, ...], most: int, also_called: Mapping[str, str],
    args: Collection[Any], given: Collection[str],
) -> str | None:  # fmt: skip
    """What is wrong with the arguments of a distribution, in words, None if nothing is; `most` may be positional."""
    known = positional + keywords
    unknown = [word for word in given if word not in known]
    if len(args) <= most and not unknown:
        return None
    first = f"{', '.join(positional)} by position" if positional else "nothing by position"
    last = f" and by keyword {', '.join(f'{k}=' for k in keywords)}" if keywords else ""
    got = [f"{len(args)} positional arguments"] if len(args) > most else []
    better = {word: also_called.get(word) or meant(word, known) for word in unknown}
    got += [f"{word}=" + (f" (did you mean {other}=?)" if other else "") for word, other in better.items()]
    return f"{name} takes {first}{last}; got {' and '.join(got)}"
