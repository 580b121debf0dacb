"""One file per thing that is measured."""
