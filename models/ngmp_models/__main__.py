"""`python -m ngmp_models`: the demo."""

import sys

from .demo import main

sys.exit(main())
