#!/bin/sh
# A database with a journal in a file, written by one process and read by another.
# Needs: sqlite3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sqlite3 "$folder/db" 'pragma journal_mode = wal; create table t(a integer primary key, b text); begin;' \
    'with recursive n(x) as (select 1 union all select x + 1 from n where x < 500) insert into t select x, x * x from n; commit;'
sqlite3 "$folder/db" 'select count(*), sum(b) from t; pragma integrity_check;'
