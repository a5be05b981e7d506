# Here-documents, traps, subshells and jobs in the background: run by each shell (ash.sh, bash.sh, dash.sh).
trap 'echo left with $?' EXIT
trap 'echo got USR1' USR1
name=world
cat <<END
hello $name $((6 * 7))
END
cat <<'END'
no $name here
END
kill -USR1 $$
(trap 'echo inner' TERM; kill -TERM $(sh -c 'echo $PPID'); echo after)
sh -c 'exit 7' &
first=$!
{ echo one; echo two; } | while read word; do echo "<$word>"; done
wait $first
echo "job $?"
sh -c 'kill -KILL $$' &
wait $!
echo "killed $?"
for i in 1 2 3; do (exit $i) & done
wait
set -- a 'b c' d
for word in "$@"; do printf '%s|' "$word"; done
echo
exit 5
