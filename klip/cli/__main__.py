"""`python -m klip.cli`."""

import sys

from klip.cli import main

sys.exit(main())
