"""`python -m watchbill.cli`, with which the supervisor starts workers."""

from watchbill.cli import main

main()
