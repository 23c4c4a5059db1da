"""`python -m weft`: the command line (`weft.cli`)."""

import sys

from weft.cli import main

sys.exit(main())
