r"""Message rules: what a factor sends through an interface it is not conjugate to.

Every rule is a function of the same things: a factor, the marginals of its interfaces and its current leaves. It gives
the target of a leaf and the factor's share of the log-evidence; the map, the solver and the core are the same for all.

| rule | log-message toward j | target |
| --- | --- | --- |
| NGMP | $\ell_j = \log\int f \prod_{i\ne j} q_{c_i}$, $c_i = \lambda_i - \eta_i$ | $\nabla_{\mu_j} E_{q_j}[\ell_j]$ |
| NGMP(power=p) | $\frac1p \log\int f^p \prod_{i\ne j} q_{c_i}$, $c_i = \lambda_i - p\,\eta_i$ | the same |
| EP(power=p) | the same | moments of $q_{c_j} e^{p \ell_j}$ matched, $c_j$ divided out, over p |
| NCVMP | $E[\log f \mid z_j]$ under the other *marginals* | $\nabla_{\mu_j} E_{q_j}[\ell_j]$, once a sweep |
| PVMP | the same | the same, iterated on the edge until $\lambda_j = c_j + \eta_j$ |
| VMP | the same | the same; refused where $\ell_j$ is not in the family, since the projection is then not exact |
| StructuredVMP | the same | the same, nothing taken apart; the fallback of NGMP and EP toward vectors, matrices |
| BP | exact | refused on every interface that is not conjugate |

The mean-field rules (VMP, NCVMP, PVMP) also take apart what belongs to different clusters; see `passes.factorise`.
"""

from .base import AbstractRule as AbstractRule
from .base import Incoming as Incoming
from .base import select as select
from .base import settled as settled
from .exact import BP as BP
from .exact import EP as EP
from .exact import NGMP as NGMP
from .mean_field import NCVMP as NCVMP
from .mean_field import PVMP as PVMP
from .mean_field import VMP as VMP
from .mean_field import StructuredVMP as StructuredVMP

RULES = (BP, VMP, StructuredVMP, NCVMP, PVMP, EP, NGMP)  # ours; a rule of your own need not be here
