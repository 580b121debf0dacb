"""`python -m watchbill.cli`, for starting ourselves again."""

from watchbill.cli import main

main()
