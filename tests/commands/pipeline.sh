#!/bin/sh
# The pipeline of issue 4.
for i in $(seq 1 200); do echo $i; done | grep 7 | sort -r | head -3
(exit 3)
echo $?
