"""python -m deniable.cli"""

from deniable.cli import main

main()
