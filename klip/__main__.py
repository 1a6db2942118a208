"""`python -m klip`.

Python itself has put the working folder first on the import path by then, and has looked there for
what it starts modules with (docs/runs.md); everything else is imported without it.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from klip.cli import main

sys.exit(main())
