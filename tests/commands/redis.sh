#!/bin/sh
# redis on a Unix socket, with a save in the background.
# Needs: redis-server redis-cli
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
redis-server --port 0 --unixsocket "$folder/socket" --save '' --logfile "$folder/log" --daemonize no &
until redis-cli -s socket ping 2>/dev/null | grep -q PONG; do sleep 0.05; done
ask() { redis-cli -s socket "$@"; }
ask set key value
ask incr number
ask lpush list a b c
ask lrange list 0 -1
ask bgsave
until ask info persistence | grep -q 'rdb_bgsave_in_progress:0'; do sleep 0.05; done
ask info persistence | grep -a rdb_last_bgsave_status
[ -s dump.rdb ] && echo saved
ask shutdown nosave
wait
echo "server $?"
