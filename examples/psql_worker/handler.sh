#!/usr/bin/env bash
# Greets the person that the payload names. Without a name, the job fails permanently.
name=$(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p')
[ -n "$name" ] || { echo "no name in the payload"; exit 65; }
[ "$name" != bob ] || { echo "bob is not at home"; exit 75; }
echo "hello $name"
