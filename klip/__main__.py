"""`python -m klip`."""

import sys

from klip.cli import main

sys.exit(main())
