"""`python -m foliot.cli`, for starting ourselves again."""

from foliot.cli import main

main()
