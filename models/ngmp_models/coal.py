"""Short public count series, typed in, so that the demo and the tests need no download."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

# 1851-1962, ten years a line. Tabulated from the 191 dated events of the data set `coal` of the R package boot.
# A variant that circulates with PyMC has 111 values: it lacks one zero of 1943-1945, which moves every later count
# one year back, and differs in 1854, 1855, 1941 and 1942.
_COAL = """
4 5 4 1 0 4 3 4 0 6
3 3 4 0 2 6 3 3 5 4
5 3 1 4 4 1 5 5 3 4
2 5 2 2 3 4 2 1 3 2
2 1 1 1 1 3 0 0 1 0
1 1 0 0 3 1 0 3 2 2
0 1 1 1 0 1 0 1 0 0
0 2 1 0 0 0 1 1 0 2
3 3 1 1 2 1 1 1 1 2
3 3 0 0 0 1 4 0 0 0
1 0 0 0 0 0 1 0 0 1
0 1
"""


class YearlyCounts(NamedTuple):
    """A yearly count series: `counts[k]` events in `years[k]`."""

    years: Int[np.ndarray, " n"]
    counts: Int[np.ndarray, " n"]


def coal_disasters() -> YearlyCounts:
    """British coal-mining disasters (explosions with ten or more deaths) per year, 1851-1962: 112 years, 191 events.

    The first event is of 15 March 1851 and the last of 22 March 1962.

    References:
        B. A. Maguire, E. S. Pearson, A. H. A. Wynn (1952), The time intervals between industrial accidents,
        Biometrika 39, 168-180. Corrected and extended by R. G. Jarrett (1979), A note on the intervals between
        coal-mining disasters, Biometrika 66, 191-193.
    """
    counts = np.array(_COAL.split(), dtype=int)
    return YearlyCounts(years=1851 + np.arange(counts.size), counts=counts)
