#!/bin/sh
# tar | gzip | tar, and the same bytes afterwards.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
from=/usr/share/perl5/Debconf
[ -d $from ] || from=/usr/share/perl5
tar cf - -C $from . | gzip -1 | (cd "$folder" && tar xzf -)
(cd $from && find . -type f | sort | xargs cat | md5sum)
(cd "$folder" && find . -type f | sort | xargs cat | md5sum)
diff -r $from "$folder" && echo same
