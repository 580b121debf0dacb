"""Which node owns what: token groups, their members, pins and ownership."""
