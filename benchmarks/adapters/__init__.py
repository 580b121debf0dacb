"""One script per queue, all of which answer the commands of contract.py. They run in the peers' own environments."""
