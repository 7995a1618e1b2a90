import sys

from popu.cli import main

sys.exit(main())
