#!/bin/sh
# Four processes at a time; their order is not promised.
seq 1 40 | xargs -P4 -n5 sh -c 'echo $(($1 * $2 + $5)) "$@"' word | sort
seq 1 8 | xargs -P4 -I% sh -c '[ % -ne 5 ]'
echo "status $?"
