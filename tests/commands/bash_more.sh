#!/bin/bash
# What bash has beyond sh: process substitution, coprocesses, arrays, pipe status, here-strings.
diff <(seq 1 5) <(seq 2 6)
coproc upper { tr a-z A-Z; }
exec 3<&"${upper[0]}" 4>&"${upper[1]}" {upper[1]}>&-
echo "through a coprocess" >&4
exec 4>&-
cat <&3
wait
declare -A count
for word in one two one three one; do count[$word]=$((${count[$word]:-0} + 1)); done
for word in one two three; do echo "$word ${count[$word]}"; done
false | true | (exit 4)
echo "${PIPESTATUS[@]}"
read -r first rest <<<"left over words"
echo "$rest"
