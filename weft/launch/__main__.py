"""The program `python -m weft.launch`, where Weft was imported before."""

import sys

from weft.launch.main import main

if __name__ == "__main__":
    sys.exit(main())
