"""`python -m klip.cli`."""

import sys

from klip.cli.commands import main

sys.exit(main())
