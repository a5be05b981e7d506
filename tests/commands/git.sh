#!/bin/sh
# git init, commit, branch, log.
# Needs: git
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='2026-01-02T03:04:05Z' GIT_COMMITTER_DATE='2026-01-02T03:04:05Z' HOME=$folder
git init -q -b main
for i in 1 2 3; do
    seq 1 $((i * 10)) > numbers
    git add numbers
    git commit -q -m "commit $i"
done
git log --oneline --stat
git checkout -q -b other HEAD~1
git diff --stat main
git status --short
git gc -q
git fsck
