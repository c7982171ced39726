"""Lets `python -m dray` be the same as `dray`."""

import sys

from dray.cli.door import main

if __name__ == "__main__":
    sys.exit(main())
