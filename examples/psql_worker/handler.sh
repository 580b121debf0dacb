#!/usr/bin/env bash
# Greets whoever the payload names; fails for good without a name.
name=$(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p')
[ -n "$name" ] || { echo "no name in the payload"; exit 65; }
[ "$name" != nobody ] || { echo "nobody is there"; exit 75; }
echo "hello $name"
